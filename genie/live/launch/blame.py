"""Which rank ended first, as far as what was seen of the processes' ends proves it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from genie.live.launch.end_order import End, in_words
from genie.live.parts import ENDING_SIGNALS, TOLD
from genie.live.rendezvous.channel import STOPPED, ranks_text

MPIRUN = -1  # among ranks
CLEAN_UP_S = 1.0  # within which mpirun ends the ranks of a machine once it has decided to


@dataclass(frozen=True)
class Evidence:
    """The facts when a run has gone wrong, before the launcher ends anything itself."""

    ends: list[End]  # ranks of this machine, and MPIRUN, in the order in which they ended
    signals: dict[int, int | None]  # rank -> what ended it; 0: it ended by itself; None: not known
    signed: set[int]  # ranks that had begun
    failed: set[int]  # ranks that left a record of what went wrong
    told: dict[int, str]  # ranks whose record says that a signal told them to end: rank -> its name
    finished: set[int]  # ranks that had done everything
    when: dict[int, str]  # rank -> "in iteration 3"
    ranks: int  # of the run
    seen: set[int]  # ranks whose processes were watched: those of other machines are not
    ready: bool  # a rank had met the others
    mpirun: tuple[int, int | None]  # its process, and how it ended, as Popen says it


def blame(seen: Evidence) -> str | None:
    """The rank, or mpirun, that ended first, or that this cannot be told; None when no end is left to explain."""
    pid, returncode = seen.mpirun
    if returncode is not None and returncode < 0:
        return f"mpirun was ended by {in_words(-returncode)} (process {pid})"
    ends = [end for end in seen.ends if end.who != MPIRUN and not _explained(seen, end.who)]
    if ends and _mpirun_first(seen, ends[0]):
        return None  # it ended by itself, and then its ranks: its exit code and last words say why
    failed_before = {end.who for end in seen.ends[: seen.ends.index(ends[0])]} & seen.failed if ends else set()
    told = _told(seen, ends)
    if len(told) > 1 and failed_before <= set(told):
        named = "all ranks" if len(told) == seen.ranks else ranks_text(told)
        names = " and ".join(sorted(set(told.values())))
        return f"{named} were {TOLD}{names}, through mpirun or by another process: it cannot be told by whom"
    if not ends or failed_before:
        return None  # its record says more, and mpirun ends the others of a job in which one has failed
    if len(seen.seen) < seen.ranks and _all_at_once(seen, ends):
        return _unseen(seen, ends)
    if len(ends) > 1 and not all(end.watched for end in ends):
        named = ranks_text(end.who for end in ends)
        return f"{named} ended within {_span_ms(ends)} ms, and it cannot be told which was first"
    first = ends[0]
    return f"rank {first.who} died {seen.when[first.who]}: its process {first.pid} {_how(seen.signals[first.who])}"


def told_to_end(records: Sequence[dict[str, Any]]) -> dict[int, str]:
    """Ranks that a signal told to end, as their records say: rank -> its name. Empty when another failure came first.

    `records`: first failure first. A signal that comes later than CLEAN_UP_S is another event.
    """
    causes = [record for record in records if STOPPED not in record["error"]]
    if not causes or not causes[0]["error"].startswith(TOLD):
        return {}
    until_ns = causes[0]["time_ns"] + CLEAN_UP_S * 1e9
    told = [record for record in causes if record["error"].startswith(TOLD) and record["time_ns"] <= until_ns]
    return {record["rank"]: record["error"].removeprefix(TOLD) for record in told}


def _told(seen: Evidence, ends: list[End]) -> dict[int, str]:
    """Ranks that a signal told to end, as records and processes' ends say; empty when another end came first."""
    ended = {
        end.who: in_words(number)
        for end in ends
        if (number := seen.signals[end.who]) in ENDING_SIGNALS and end.noticed_s - ends[0].noticed_s < CLEAN_UP_S
    }
    return {} if ends and ends[0].who not in ended else {**seen.told, **ended}


def _explained(seen: Evidence, rank: int) -> bool:
    """Whether a rank has said how it ended. One that had done everything and was killed then drew the others along."""
    if rank in seen.finished:
        return not seen.signals[rank]
    return rank in seen.failed or (rank not in seen.signed and seen.signals[rank] == 0)  # which did not start


def _mpirun_first(seen: Evidence, first: End) -> bool:
    """Whether mpirun had ended before the first of the ranks whose end nothing else explains."""
    before = seen.ends[: seen.ends.index(first)]
    return any(end.who == MPIRUN and end.watched for end in before)


def _all_at_once(seen: Evidence, ends: list[End]) -> bool:
    """Whether all ranks of this machine went together, as mpirun ends them for a cause that may be elsewhere."""
    return len(ends) == len(seen.seen) and ends[-1].noticed_s - ends[0].noticed_s < CLEAN_UP_S


def _unseen(seen: Evidence, ends: list[End]) -> str | None:
    if not seen.ready:
        return None  # mpirun could not start all, and has ended those that it had: its own words say why
    unseen = ranks_text(set(range(seen.ranks)) - seen.seen)
    return (
        f"{ranks_text(end.who for end in ends)} of this machine ended within {_span_ms(ends)} ms, as when mpirun ends "
        f"them, and {unseen} cannot be seen from here: it cannot be told which was first"
    )


def _span_ms(ends: list[End]) -> int:
    times = [end.noticed_s for end in ends]
    return max(1, round((max(times) - min(times)) * 1000))


def _how(number: int | None) -> str:
    if number is None:
        return "was killed or crashed"
    return f"was ended by {in_words(number)}" if number else "ended without a record of why"
