"""Stops of a simulation whose parts are played apart: plays that take long hear them."""

from __future__ import annotations

from collections.abc import Callable

import genie_core
import pytest
from common.episode_cases import draw_job
from common.skip_cases import FREE_PACKETS, twin_of_case

from genie.plan.build import build_plan
from simtwin.play.skipping import IterationSkips
from simtwin.play.watching import Watch


def interrupted(stop: Callable[[], str | None]) -> tuple[genie_core.Simulator, IterationSkips]:
    """Play a job whose plays apart ask `stop`, and whose watch does not."""
    case = draw_job(31006, 96, kind="stages")
    twin, plan = twin_of_case(case), build_plan(case.workload, lowering=case.lowering)
    episodes = twin.episodes(plan, checkpoint_packets=512, free_packets=FREE_PACKETS)
    skips = IterationSkips(episodes, "", 0.0, 1, stop)
    simulator = twin.simulator(plan)
    assert isinstance(simulator, genie_core.Simulator)
    assert Watch().play(simulator, 0, run=skips.attach(simulator)) is None
    return simulator, skips


def test_a_play_that_takes_long_hears_a_stop() -> None:
    asked = []
    whole, skips = interrupted(lambda: asked.append(1))  # type: ignore[func-returns-value]
    assert whole.done
    assert skips.told == ""
    assert len(asked) > 3
    heard = iter([None, None, "told to stop"])  # asked no more than three times
    simulator, skips = interrupted(lambda: next(heard))
    assert (simulator.done, skips.told) == (False, "told to stop")
    assert 0 < simulator.now_ps < whole.now_ps
    assert not skips.begins_again(is_stopped=False)


def test_a_play_that_takes_long_hears_an_exception() -> None:
    def stop() -> str | None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted(stop)


def test_a_stop_that_a_play_has_heard_ends_the_simulation() -> None:
    case = draw_job(31006, 96, kind="stages")
    asked = 0

    def stop() -> str | None:
        nonlocal asked
        asked += 1
        return "told to stop" if asked > 1 else None  # the watch asks first

    result = twin_of_case(case).play(case.workload, lowering=case.lowering, skips=True, watch=Watch(stop=stop))
    assert result.stopped is not None
    assert (result.stopped.why, result.stopped.is_failure) == ("told to stop", False)
    ends_ns = result.timeline["end_ns"]
    assert ends_ns.min() == -1
    assert ends_ns.max() * 1000 <= result.stopped.at_ps
