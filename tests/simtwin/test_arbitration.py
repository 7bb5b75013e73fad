"""The order of packets that reach a switch at one instant."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from twin_fabrics import GBPS, KIB, NS, single_switch

from genie.config.congestion import Control, Hpcc, NoControl
from genie.config.units import Duration, Rate
from genie.workload.flows import Flow, workload_of
from simtwin.fabric.schema import Fabric, Frame, Link, SingleSwitch
from simtwin.fabric.topology import build_network
from simtwin.play.twin import Twin

TARGET, OTHER = 4, 5


def ends(fabric: Fabric, flows: Sequence[Flow], seed: int = 1, threads: int = 1) -> dict[tuple[int, int], int]:
    """By source and start: when a flow was acknowledged."""
    result = Twin(fabric, build_network(fabric), range(fabric.hosts), seed, threads=threads).play(
        workload_of("flows", fabric.hosts, flows)
    )
    rows = result.transfers.select("src", "post_ns", "acked_ns").rows()
    return {(source, start): end for source, start, end in rows}


def together(sources: Sequence[int], start_ns: int) -> list[Flow]:
    return [Flow(source, TARGET, 4096, start_ns) for source in sources]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("earlier", [0, 1, 2, 3])
def test_who_was_served_longest_ago_goes_first(earlier: int, threads: int) -> None:
    """Of four that come together, one has sent alone before: it is last, also where its number is the lowest."""
    fabric = single_switch(6, 100 * GBPS, 500 * NS)
    flows = [Flow(earlier, OTHER, 4096, 0), *together(range(4), 50_000)]
    times = ends(fabric, flows, threads=threads)
    order = sorted(range(4), key=lambda source: times[source, 50_000])
    assert order == [source for source in range(4) if source != earlier] + [earlier]


def test_who_goes_first_takes_turns() -> None:
    """Two ports of six in turn: each time those who were not served the time before are ahead."""
    fabric = single_switch(6, 100 * GBPS, 500 * NS)
    pairs = [(0, 1), (1, 2), (2, 3), (3, 0)]
    times = ends(fabric, [flow for at, pair in enumerate(pairs) for flow in together(pair, 50_000 * at)])
    first = [min(pair, key=lambda source, at=at: times[source, 50_000 * at]) for at, pair in enumerate(pairs)]
    assert first == [0, 2, 3, 0]


def test_trains_in_step_keep_their_order() -> None:
    """Of trains that arrive in step none overtakes: who is first is so with every packet, and ends first."""
    fabric = single_switch(6, 100 * GBPS, 500 * NS)
    trains = [Flow(source, TARGET, 256 * KIB, 50_000) for source in range(4)]
    times = ends(fabric, [Flow(0, OTHER, 4096, 0), *trains])
    assert sorted(range(4), key=lambda source: times[source, 50_000]) == [1, 2, 3, 0]
    packet_ns = (4096 + 106) * 8 / 100
    last = sorted(times[source, 50_000] for source in range(4))
    assert last[-1] - last[0] < 4 * packet_ns


def meet_by_chance(control: Control, seed: int) -> list[tuple[tuple[int, int], int]]:
    """Eight senders into one host; times are coarse, so that packets of different rates often meet."""
    fabric = Fabric(
        topology=SingleSwitch(9),
        link=Link(Rate(100 * GBPS), Duration(500 * NS)),
        frame=Frame(time_unit=Duration(10 * NS)),
        congestion=control,
    )
    flows = [Flow(source, 8, 512 * KIB, 1_000 * source) for source in range(8)]
    return sorted(ends(fabric, flows, seed).items())


@pytest.mark.parametrize(("control", "runs"), [(NoControl(), 1), (Hpcc(), 5)])
def test_the_seed_draws_between_packets_that_a_rate_let_go(control: Control, runs: int) -> None:
    """Neither draws marks; without a rate there is no chance in it, and the same seed always has the same."""
    assert len({tuple(meet_by_chance(control, seed)) for seed in range(1, 6)}) == runs
    assert meet_by_chance(control, 1) == meet_by_chance(control, 1)
