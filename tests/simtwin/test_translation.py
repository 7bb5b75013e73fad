"""A world that is moved to a later time goes on as it would have, later by as much."""

from __future__ import annotations

import random

import genie_core
import msgspec
import numpy as np
import pytest
from common.skip_cases import SkipCase, draw_case

from genie.config.congestion import Hpcc
from genie.plan.build import build_plan
from simtwin.fabric.topology import build_network
from simtwin.play.twin import Twin

NEVER_PS = 1 << 60


def start(case: SkipCase) -> genie_core.Simulator:
    fabric = msgspec.structs.replace(case.fabric, fault=[])  # their times are absolute
    twin = Twin(fabric, build_network(fabric), list(range(case.workload.world_size)))
    simulator = twin.simulator(build_plan(case.workload, lowering=case.lowering))
    assert isinstance(simulator, genie_core.Simulator)
    simulator.start()
    return simulator


def play(simulator: genie_core.Simulator, until_ps: int = NEVER_PS) -> None:
    while simulator.run(100_000, until_ps):
        pass


@pytest.mark.parametrize("first", range(0, 40, 5))
def test_a_moved_world_goes_on_as_before(first: int) -> None:
    moved = 0
    for seed in range(first, first + 5):
        case = draw_case(seed)
        draw = random.Random(seed)
        whole = start(case)
        play(whole)
        end_ps = whole.now_ps
        at_ps, by_ps = int(end_ps * draw.uniform(0.1, 0.9)), draw.randrange(1, 10**10)
        if isinstance(case.fabric.congestion, Hpcc):
            by_ps += -by_ps % 1000  # it reads clocks in whole nanoseconds
        later = start(case)
        play(later, at_ps)
        steady = genie_core.SteadyFlows(later)
        if steady.unusable or steady.horizon_ps < NEVER_PS:
            continue  # a start that is still to come has its own time
        steady.count(at_ps - 1, 0)
        if not steady.advance(at_ps, by_ps, [], []):
            continue
        moved += 1
        play(later)
        where = f"seed {seed}: {case.name}, at {at_ps} ps by {by_ps} ps"
        assert later.done == whole.done, where
        for rank in range(case.workload.world_size):
            expected, found = whole.records(rank), later.records(rank)
            ends = expected["nodes"]["end_ps"]
            assert np.array_equal(found["nodes"]["end_ps"], np.where(ends >= at_ps, ends + by_ps, ends)), where
            assert later.counters(rank) == whole.counters(rank), where
        for name, values in whole.links().items():
            assert np.array_equal(later.links()[name], values), f"{where}: {name}"
    assert moved > 0
