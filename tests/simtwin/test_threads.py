"""The same bits for any number of threads (oracle 13), with all that a fabric can have switched on."""

from __future__ import annotations

from typing import Any

import genie_core
import msgspec
import numpy as np
import pytest
from twin_fabrics import crowded, incast, twin_of

from genie.config.units import Duration, Rate
from genie.plan.build import build_plan
from genie.workload.graph import Op, Workload
from genie.workload.synthetic import collective
from simtwin.fabric.schema import Downlink, Fabric, FatTree, LeafSpine, Link, Retry, SingleSwitch
from simtwin.fabric.topology import build_network
from simtwin.play.twin import Twin
from simtwin.play.watching import EVENTS_LEAST, Watch, next_events

KIB, MIB, GBPS, US = 1 << 10, 1 << 20, 10**9, 10**6


def bits_of(twin: Twin, workload: Workload, threads: int) -> tuple[dict[str, Any], int]:
    plan = build_plan(workload)
    simulator = genie_core.Simulator(twin._native, twin._config, plan.native, twin.host_of_rank, 1, threads=threads)
    simulator.start()
    while simulator.run(3000):
        pass
    assert simulator.done, simulator.problems()
    bits: dict[str, Any] = {f"link {name}": values for name, values in simulator.links().items()}
    for rank in plan.ranks:
        for table, record in simulator.records(rank).items():
            bits |= {f"rank {rank} {table} {name}": values for name, values in record.items()}
        bits[f"rank {rank} counters"] = np.array(list(simulator.counters(rank).values()))
    return bits, simulator.events


def lossy(fabric: Fabric, retry: Retry) -> Fabric:
    return msgspec.structs.replace(fabric, link=Link(Rate(100 * GBPS), Duration(US // 2), loss=0.01, retry=retry))


CASES = {
    "incast on a switch": (crowded(SingleSwitch(hosts=9)), incast(8, 256 * KIB)),
    "all-to-all on a fat tree": (crowded(FatTree(k=4)), collective(Op.ALL_TO_ALL, 16, MIB)),
    "all-reduce on leaves and spines": (crowded(LeafSpine(4, 2, 4)), collective(Op.ALL_REDUCE, 16, MIB)),
    "incast with replays": (lossy(crowded(SingleSwitch(hosts=9)), "go-back-n"), incast(8, 256 * KIB)),
    "all-to-all with replays": (lossy(crowded(FatTree(k=4)), "go-back-n"), collective(Op.ALL_TO_ALL, 16, MIB)),
    "pauses beside replays": (
        msgspec.structs.replace(
            lossy(crowded(SingleSwitch(hosts=9)), "go-back-n"), downlink=Downlink(Rate(60 * GBPS)), congestion=None
        ),
        collective(Op.ALL_TO_ALL, 9, 4 * MIB),
    ),
    "all-to-all with losses": (lossy(crowded(FatTree(k=4)), "none"), collective(Op.ALL_TO_ALL, 16, MIB)),
    "links without a delay": (crowded(SingleSwitch(hosts=9), delay_ps=0), incast(8, 64 * KIB)),
}


@pytest.mark.parametrize("case", CASES)
def test_results_do_not_depend_on_the_number_of_threads(case: str) -> None:
    built, workload = CASES[case]
    twin = twin_of(built)
    expected, events = bits_of(twin, workload, 1)
    if "all-reduce" not in case and built.congestion:
        assert sum(expected["link marked"]) > 0
    if "incast" in case or "pauses" in case:
        assert sum(expected["link pauses"]) > 0
    assert (sum(expected["link replays"]) > 0) == ("replays" in case)
    for threads in (2, 3, 4, 7):
        bits, counted = bits_of(twin, workload, threads)
        assert counted == events
        for name, values in expected.items():
            np.testing.assert_array_equal(values, bits[name], err_msg=f"{name}, {threads} threads")


def test_more_threads_than_there_is_to_do() -> None:
    twin = twin_of(crowded(SingleSwitch(hosts=2)))
    one, _ = bits_of(twin, collective(Op.BROADCAST, 2, MIB), 1)
    many, _ = bits_of(twin, collective(Op.BROADCAST, 2, MIB), 64)
    assert all(np.array_equal(one[name], many[name]) for name in one)


def test_a_twin_plays_on_as_many_threads_as_it_is_told() -> None:
    built = crowded(FatTree(k=4))
    results = [
        Twin(built, build_network(built), range(16), threads=threads).play(collective(Op.ALL_TO_ALL, 16, MIB))
        for threads in (1, 2)
    ]
    assert results[0].timeline.equals(results[1].timeline)
    assert results[0].transfers.equals(results[1].transfers)
    assert results[0].counters["links"] == results[1].counters["links"]


def test_calls_that_take_long_have_fewer_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads wait long for each other on a busy machine; a stop is heard between two calls."""
    clock_s, calls = [0.0], list[int]()

    class Slow:
        now_ps, done, over, threads = 0, True, True, 2

        def start(self) -> None:
            pass

        def run(self, events: int) -> bool:
            calls.append(events)
            clock_s[0] += events / (1_000 if 3 < len(calls) < 6 else 100_000_000)
            return len(calls) < 8

    monkeypatch.setattr("simtwin.play.watching.time.monotonic", lambda: clock_s[0])
    assert Watch().play(Slow(), 0) is None
    assert calls == [1_000, 2_000, 4_000, 8_000, 2_000, 1_000, 2_000, 4_000]
    assert next_events(2_000, 5.0) == EVENTS_LEAST
