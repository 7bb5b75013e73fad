"""Which rank is named for what was seen of the ends of processes."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from genie.live.blame import MPIRUN, Evidence, blame
from genie.live.end_order import End

KILL, CRASH = int(signal.SIGKILL), int(signal.SIGSEGV)


def seen(ends: Sequence[tuple[int, int | None]], **more: Any) -> Evidence:
    """Four ranks of this machine in mid-run; `ends`: (rank, signal) in order, 1 ms apart."""
    order = [End(who, 100 + who, 5.0 + 0.001 * at, watched=True) for at, (who, _) in enumerate(ends)]
    ranks = {0, 1, 2, 3}
    values: dict[str, Any] = {
        "ends": order, "signals": dict(ends), "signed": ranks, "failed": set(), "finished": set(),
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
