"""Which rank ended first, as far as the observed ends of processes prove it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from genie.live.failure import Cause, FailureRecord
from genie.live.launch.end_order import End, in_words
from genie.live.launched import ENDING_SIGNALS
from genie.live.rendezvous.channel import ranks_text

MPIRUN = -1  # stands for mpirun among rank numbers
START_FAILS_S = 0.05  # longest time between the ends of ranks and of mpirun, where it cannot start all ranks
CLEAN_UP_S = 1.0  # longest time mpirun takes to end the ranks of a machine, once it ends the run


@dataclass(frozen=True)
class Evidence:
    """Facts about a failed run, before the launcher itself ends any process."""

    ends: list[End]  # ranks of this machine, and MPIRUN, in the order in which they ended
    signals: dict[int, int | None]  # rank -> the signal that ended it; 0: it exited; None: unknown
    signed: set[int]  # ranks that had started
    failed: set[int]  # ranks that left a record of their failure
    told: dict[int, str]  # rank -> signal name, for ranks whose record says that a signal told them to end
    finished: set[int]  # ranks that had finished
    when: dict[int, str]  # rank -> "in iteration 3"
    ranks: int  # of the run
    seen: set[int]  # ranks whose processes were watched: ranks of this machine
    ready: bool  # at least one rank had met the others
    mpirun: tuple[int, int | None]  # process id and return code as of Popen


def blame(seen: Evidence) -> str | None:
    """Name the rank, or mpirun, that ended first, or say that this cannot be told; None if all ends are explained."""
    pid, returncode = seen.mpirun
    if returncode is not None and returncode < 0:
        return f"mpirun was ended by {in_words(-returncode)} (process {pid})"
    ends = [end for end in seen.ends if end.who != MPIRUN and not _explained(seen, end.who)]
    if ends and _mpirun_first(seen, ends[0]):
        return None  # mpirun exited by itself and then ended its ranks: its exit code and last words say why
    failed_before = {end.who for end in seen.ends[: seen.ends.index(ends[0])]} & seen.failed if ends else set()
    told = _told(seen, ends)
    if len(told) > 1 and failed_before <= set(told):
        named = "all ranks" if len(told) == seen.ranks else ranks_text(told)
        names = " and ".join(sorted(set(told.values())))
        return f"{named} were told to end by {names}, through mpirun or by another process: it cannot be told by whom"
    if not ends or failed_before:
        return None  # the failed rank's record says more, and mpirun ends all ranks once one has failed
    if len(seen.seen) < seen.ranks and _all_at_once(seen, ends):
        return _unseen(seen, ends)
    if len(ends) > 1 and not all(end.watched for end in ends):
        named = ranks_text(end.who for end in ends)
        return f"{named} ended within {_span_ms(ends)} ms, and it cannot be told which was first"
    first = ends[0]
    return f"rank {first.who} died {seen.when[first.who]}: its process {first.pid} {_how(seen.signals[first.who])}"


def told_to_end(records: Sequence[FailureRecord]) -> dict[int, str]:
    """Return rank -> signal name, for ranks whose records say that a signal told them to end.

    Return {} when another failure came first. `records`: the earliest failure first. A signal more than CLEAN_UP_S
    later is a different event.
    """
    causes = [record for record in records if record.cause != Cause.PEER]
    if not causes or causes[0].cause != Cause.SIGNAL:
        return {}
    until_ns = causes[0].time_ns + CLEAN_UP_S * 1e9
    told = [record for record in causes if record.cause == Cause.SIGNAL and record.time_ns <= until_ns]
    return {record.rank: record.signal for record in told}


def _told(seen: Evidence, ends: list[End]) -> dict[int, str]:
    """Return rank -> signal name for ranks that a signal told to end, from records and from the ends of processes.

    Return {} when another end came first.
    """
    ended = {
        end.who: in_words(number)
        for end in ends
        if (number := seen.signals[end.who]) in ENDING_SIGNALS and end.noticed_s - ends[0].noticed_s < CLEAN_UP_S
    }
    return {} if ends and ends[0].who not in ended else {**seen.told, **ended}


def _explained(seen: Evidence, rank: int) -> bool:
    """Return whether a rank's end is explained. A finished rank that was killed is not: mpirun then ends the others."""
    if rank in seen.finished:
        return not seen.signals[rank]
    return rank in seen.failed or (rank not in seen.signed and seen.signals[rank] == 0)  # it did not start


def _mpirun_first(seen: Evidence, first: End) -> bool:
    """Return whether mpirun ended before the first rank whose end is otherwise unexplained.

    If it cannot start all ranks, it kills the others and ends in the same moment. Which end is noticed
    first means nothing. An exit code that is a rank's signal says that mpirun has seen that rank end.
    """
    number, code = seen.signals[first.who], seen.mpirun[1]
    if number and code in (number, 128 + number):
        return False
    until_s = first.noticed_s + (0.0 if seen.ready else START_FAILS_S)
    mpirun = (end for end in seen.ends if end.who == MPIRUN and end.watched)
    at = seen.ends.index(first)
    return any(seen.ends.index(end) < at or end.noticed_s < until_s for end in mpirun)


def _all_at_once(seen: Evidence, ends: list[End]) -> bool:
    """Return whether all ranks of this machine ended together, as when mpirun ends them for a cause elsewhere."""
    return len(ends) == len(seen.seen) and ends[-1].noticed_s - ends[0].noticed_s < CLEAN_UP_S


def _unseen(seen: Evidence, ends: list[End]) -> str | None:
    if not seen.ready:
        return None  # mpirun could not start all ranks, and ended those it had started: its own output says why
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
