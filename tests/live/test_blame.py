"""The rank that is named for the observed ends of processes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from genie.live.failure import Cause, Failure, FailureRecord
from genie.live.launch import endings
from genie.live.launch.blame import MPIRUN, Evidence, blame, told_to_end
from genie.live.launch.end_order import End
from genie.live.rendezvous.channel import PeerError

pytestmark = pytest.mark.live

KILL, CRASH, TERM = int(signal.SIGKILL), int(signal.SIGSEGV), int(signal.SIGTERM)
TOLD = "told to end by SIGTERM"


def seen(ends: Sequence[tuple[int, int | None]], **more: Any) -> Evidence:
    """Four ranks of this machine in mid-run; `ends`: (rank, signal) in order, 1 ms apart."""
    order = [End(who, 100 + who, 5.0 + 0.001 * at, watched=True) for at, (who, _) in enumerate(ends)]
    ranks = {0, 1, 2, 3}
    values: dict[str, Any] = {
        "ends": order, "signals": dict(ends), "signed": ranks, "failed": set(), "told": {}, "finished": set(),
        "when": dict.fromkeys(range(4), "in iteration 3"), "ranks": 4, "seen": ranks, "ready": True,
        "mpirun": (77, None),
    }  # fmt: skip
    return Evidence(**{**values, **more})


def test_the_first_is_named_and_not_those_that_mpirun_ended_then() -> None:
    ends = [(3, KILL), (1, KILL), (0, KILL), (2, KILL)]
    assert blame(seen(ends)) == "rank 3 died in iteration 3: its process 103 was ended by SIGKILL"
    assert "rank 1 died" in str(blame(seen([(1, CRASH), (0, KILL)])))
    assert "by SIGSEGV" in str(blame(seen([(1, CRASH), (0, KILL)])))
    assert "was killed or crashed" in str(blame(seen([(2, None)])))


def test_mpirun_that_was_ended_is_named_and_no_rank() -> None:
    for ends in ([(MPIRUN, KILL), (2, KILL)], [(2, KILL), (MPIRUN, KILL)], [(MPIRUN, KILL)]):
        assert blame(seen(ends, mpirun=(77, -KILL))) == "mpirun was ended by SIGKILL (process 77)"


def test_mpirun_that_ended_by_itself_before_its_ranks_says_why() -> None:
    ends = [(MPIRUN, 0), (1, KILL)]
    assert blame(seen(ends, seen={0, 1, 2}, ready=False, mpirun=(77, 255))) is None
    assert blame(seen(ends, mpirun=(77, 255))) is None
    assert "rank 1 died" in str(blame(seen([(1, KILL), (MPIRUN, 0)], mpirun=(77, 1))))


def test_ranks_that_had_gone_before_they_were_watched_cannot_be_told_apart() -> None:
    signals = dict.fromkeys(range(4), KILL)
    gone = [End(rank, 100 + rank, 5.0 + 0.004 * at, watched=at == 0) for at, rank in enumerate((2, 1))]
    words = "ranks 1, 2 ended within 4 ms, and it cannot be told which was first"
    assert blame(replace(seen([]), ends=gone, signals=signals)) == words
    alone = [End(2, 102, 5.0, watched=False)]
    assert "rank 2 died" in str(blame(replace(seen([]), ends=alone, signals=signals)))


def test_a_rank_of_this_machine_is_not_blamed_for_what_may_be_elsewhere() -> None:
    both = [(1, KILL), (0, KILL)]
    text = str(blame(seen(both, seen={0, 1})))
    assert text.startswith("ranks 0, 1 of this machine ended within 1 ms")
    assert "ranks 2, 3 cannot be seen from here: it cannot be told which was first" in text
    # Before ranks have met, mpirun's own words say which host could not be reached.
    assert blame(seen(both, seen={0, 1}, ready=False)) is None
    # The other one of this machine lives on: mpirun has not ended them.
    assert "rank 1 died" in str(blame(seen([(1, KILL)], seen={0, 1})))


def test_a_record_says_more_than_an_end() -> None:
    ends = [(2, 0), (1, signal.SIGTERM), (0, signal.SIGTERM)]
    assert blame(seen(ends, failed={2})) is None
    assert "rank 1 died" in str(blame(seen([(1, KILL), (2, 0)], failed={2})))


def test_a_rank_that_had_finished_can_draw_the_others_along() -> None:
    assert "rank 1 died" in str(blame(seen([(1, KILL), (0, KILL)], finished={1})))
    assert "rank 0 died" in str(blame(seen([(1, 0), (0, KILL)], finished={1})))
    assert blame(seen([(1, 0)], finished={1})) is None


def test_a_rank_that_never_began_did_not_start() -> None:
    assert blame(seen([(1, 0)], signed={0, 2, 3})) is None
    assert "rank 1 died" in str(blame(seen([(1, KILL)], signed={0, 2, 3})))


def test_ranks_that_were_all_told_to_end_do_not_show_by_whom() -> None:
    words = "all ranks were told to end by SIGTERM, through mpirun or by another process: it cannot be told by whom"
    everyone = dict.fromkeys(range(4), "SIGTERM")
    # While they play they leave records; while they start the signal ends them; or some of both.
    assert blame(seen([], failed={0, 1, 2, 3}, told=everyone)) == words
    assert blame(seen([(2, 0), (1, 0), (0, 0), (3, 0)], failed={0, 1, 2, 3}, told=everyone)) == words
    assert blame(seen([(rank, TERM) for rank in (2, 1, 0, 3)])) == words
    both = seen([(2, TERM), (0, 0), (1, TERM), (3, 0)], failed={0, 3}, told={0: "SIGTERM", 3: "SIGTERM"})
    assert blame(both) == words
    assert str(blame(seen([(2, TERM), (1, TERM), (0, KILL)]))).startswith("ranks 1, 2 were told to end by SIGTERM")


def test_a_single_rank_that_was_told_to_end_is_named() -> None:
    # By its own record, or by its end, after which mpirun kills the others.
    assert blame(seen([(2, 0)], failed={0, 1, 2, 3}, told={2: "SIGTERM"})) is None
    assert "rank 2 died" in str(blame(seen([(2, TERM), (0, KILL), (1, KILL), (3, KILL)])))
    # Another end came first, and what cleans up sends the signal.
    assert "rank 1 died" in str(blame(seen([(1, KILL), (0, TERM), (2, TERM), (3, TERM)])))
    assert "rank 1 died" in str(blame(seen([(1, CRASH), (0, 0)], failed={0, 2}, told={0: "SIGTERM", 2: "SIGTERM"})))


def test_records_of_ranks_that_were_told_to_end() -> None:
    def records(*causes: tuple[int, Cause, float]) -> list[FailureRecord]:
        return [
            FailureRecord(
                rank=rank,
                error="x",
                cause=cause,
                signal="SIGTERM" if cause == told else "",
                iteration=0,
                code=1,
                time_ns=int(at_s * 1e9),
            )
            for rank, cause, at_s in causes
        ]

    told, peer = Cause.SIGNAL, Cause.PEER
    assert told_to_end(records((2, told, 5.0), (0, peer, 5.1), (1, peer, 5.1))) == {2: "SIGTERM"}
    assert told_to_end(records((2, told, 5.0), (0, peer, 5.1), (1, told, 5.2))) == {2: "SIGTERM", 1: "SIGTERM"}
    assert told_to_end(records((2, told, 5.0), (0, told, 6.1))) == {2: "SIGTERM"}, "that is another event"
    assert told_to_end(records((3, Cause.OTHER, 5.0), (0, told, 5.1))) == {}, "another failure came first"
    assert told_to_end([]) == {}


@pytest.mark.parametrize("signalled", [True, False])
def test_a_signal_that_comes_after_the_alarm_of_another_rank(
    signalled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mpirun passes a signal on to one rank after another, and the first one's alarm may be faster."""
    handlers = {number: signal.getsignal(number) for number in endings.ENDING_SIGNALS}
    settings: Any = SimpleNamespace(out_path=tmp_path)
    alarm = Failure(rank=2, error=TOLD, cause=Cause.SIGNAL, signal="SIGTERM")
    others: list[Failure] = []

    def pause(_: float) -> None:
        if signalled:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setenv(endings.LAUNCHED, "here 1 1")

    def end(_: int) -> None:
        raise SystemExit

    monkeypatch.setattr(endings.time, "sleep", pause)
    monkeypatch.setattr(endings.os, "_exit", end)
    try:
        endings.reserve(settings, 1)
        endings.heed_signals()
        rendezvous: Any = SimpleNamespace(rank=1, alarm=others.append)
        with pytest.raises(SystemExit):
            endings.leave(settings, rendezvous, PeerError(alarm), 3)
    finally:
        endings._noted.clear()
        for number, handler in handlers.items():
            signal.signal(number, handler)
    record = json.loads((tmp_path / "parts" / "00001.failed.json").read_text())
    assert record["error"] == (TOLD if signalled else f"rank 2 stopped: {TOLD}")
    assert record["cause"] == ("signal" if signalled else "another rank")
    assert others == [Failure(rank=1, error=TOLD, cause=Cause.SIGNAL, signal="SIGTERM") if signalled else alarm]


def test_mpirun_that_cannot_start_all_ranks_kills_those_that_it_has_started() -> None:
    def ended(gap_s: float, ready: bool, code: int = 255) -> Any:
        ends = [End(0, 100, 5.0, watched=True), End(-1, 77, 5.0 + gap_s, watched=True)]
        return blame(replace(seen([(0, KILL)], ready=ready, mpirun=(77, code)), ends=ends))

    assert ended(0.001, ready=False) is None, "its own words say why"
    assert "rank 0 died" in str(ended(0.5, ready=False))
    assert "rank 0 died" in str(ended(0.001, ready=True))
    # mpirun's exit code is that of a rank which a signal ended: the rank was first.
    assert "rank 0 died" in str(ended(0.001, ready=False, code=KILL))
    assert "rank 0 died" in str(ended(0.001, ready=False, code=128 + KILL))
