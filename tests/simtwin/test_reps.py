"""REPS as a load balancing: the paper's rules for the ring, and its claims beside closed forms of the fabric.

Bonato et al., "REPS: Recycled Entropy Packet Spraying for Adaptive Load Balancing and Failure Mitigation",
arXiv:2407.21625.
"""

from __future__ import annotations

from typing import Any

import genie_core
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twin_fabrics import GBPS, HEADERS, MIB, NS, US, twin_of

from genie.config.units import Duration, Rate, Size
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Workload
from simtwin.fabric.schema import Ecn, Fabric, Fault, LeafSpine, Link, LoadBalancing, Routing, Transport
from simtwin.play.twin import Simulation

SPINES, PAIRS = 4, 4
SIZE_BYTES, MTU, RETH_BYTES = 8 * MIB, 4096, 16
WIRE_BITS = PAIRS * (SIZE_BYTES // MTU) * (MTU + HEADERS + RETH_BYTES) * 8
PORT_BPS = 100 * GBPS
US_PER_S = 1e6

# The ring

events = st.lists(
    st.one_of(st.just(("send", 0, False)), st.tuples(st.just("ack"), st.integers(0, 63), st.booleans())), max_size=200
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(events, st.integers(0, 2**63))
def test_an_unmarked_port_is_used_once_more_oldest_first(drawn: list[tuple[str, int, bool]], seed: int) -> None:
    """A plain list is the model: at most eight ports wait, and a newer one replaces the oldest."""
    ports, waiting = genie_core.RecycledPorts(seed), list[int]()
    for kind, port, marked in drawn:
        if kind == "ack":
            ports.acknowledged(port, marked, 0, 32)
            if not marked:
                waiting = [*waiting, port][-8:]
            continue
        used = ports.next(64)
        assert 0 <= used < 64
        if waiting:
            assert used == waiting.pop(0)


def test_without_a_good_port_all_are_drawn_alike() -> None:
    ports = genie_core.RecycledPorts(7)
    counts = np.bincount([ports.next(16) for _ in range(16_000)], minlength=16)
    assert (abs(counts - 1000) < 5 * np.sqrt(1000)).all()


def test_a_frozen_ring_repeats_what_it_has_held_and_explores_when_it_thaws() -> None:
    ports = genie_core.RecycledPorts(7)
    for port in (3, 5, 9):
        ports.acknowledged(port, False, 0, 32)
    ports.failed(1000)
    assert {ports.next(64) for _ in range(50)} == {3, 5, 9}
    ports.acknowledged(20, False, 2000, 32)
    assert {ports.next(64) for _ in range(50)} == {3, 5, 9, 20}
    ports.acknowledged(21, False, 10**15, 32)  # long after the freeze: a window of drawn ports
    assert len({ports.next(64) for _ in range(32)}) > 10
    assert ports.next(64) == 21


# The network


def across() -> Workload:
    """Each host of the first leaf sends to one of the second."""
    workload = Workload("across", 2 * PAIRS, [Group("0", tuple(range(2 * PAIRS)))], {})
    for rank in range(PAIRS):
        for own, kind, peer in ((rank, Kind.SEND, rank + PAIRS), (rank + PAIRS, Kind.RECV, rank)):
            builder = RankBuilder(own)
            builder.add(0, kind.name, kind, size_bytes=SIZE_BYTES, peer=peer, tag=1)
            workload.ranks[own], _ = builder.finish()
    return workload


def fabric(mode: str, faults: tuple[Fault, ...] = (), **transport: Any) -> Fabric:
    return Fabric(
        topology=LeafSpine(leaves=2, spines=SPINES, hosts_per_leaf=PAIRS),
        link=Link(Rate(PORT_BPS), Duration(500 * NS)),
        load_balancing=LoadBalancing(mode=mode),  # type: ignore[arg-type]
        ecn=Ecn(minimum=Size(60 << 10), maximum=Size(240 << 10)),
        transport=Transport(window_packets=64, **transport),
        fault=faults,
        routing=Routing(reroute_delay=Duration(100_000 * US)),  # no other balancing goes around a failure
    )


def played(mode: str, faults: tuple[Fault, ...] = (), **transport: Any) -> tuple[Simulation, float, list[int]]:
    """The simulation, its time in us, and the packets from the first leaf to each spine."""
    twin = twin_of(fabric(mode, faults, **transport))
    result = twin.play(across())
    took_us = int(result.transfers["last_ns"].max() - result.transfers["post_ns"].min()) / 1000
    names = twin.network.link_names
    up = [result.counters["links"]["packets"][names.index(f"leaf0->spine{spine}")] for spine in range(SPINES)]
    return result, took_us, up


def test_on_equal_spines_all_are_full() -> None:
    """The rate of all spines together decides; ports in turn leave the spine with the most of them behind."""
    ideal_us = WIRE_BITS / (SPINES * PORT_BPS) * US_PER_S
    result, took_us, _ = played("reps")
    assert ideal_us <= took_us < 1.02 * ideal_us
    assert result.transfers["retransmits"].sum() == 0
    _, oblivious_us, _ = played("ecmp", spray=64)
    assert oblivious_us > 1.1 * ideal_us


def test_a_slow_spine_gets_what_it_can_carry() -> None:
    slow = (Fault(at=Duration(0), link="leaf0->spine1", rate=Rate(PORT_BPS // 2)),)
    together_bps = (SPINES - 1) * PORT_BPS + PORT_BPS // 2
    ideal_us = WIRE_BITS / together_bps * US_PER_S
    result, took_us, up = played("reps", slow)
    assert ideal_us <= took_us < 1.05 * ideal_us
    assert result.transfers["retransmits"].sum() == 0
    assert up[1] / sum(up) == pytest.approx(PORT_BPS // 2 / together_bps, rel=0.05)
    _, oblivious_us, up = played("ecmp", slow, spray=64)
    # Ports in turn load the slow spine by their number, and it alone decides.
    assert oblivious_us == pytest.approx(up[1] / sum(up) * WIRE_BITS / (PORT_BPS // 2) * US_PER_S, rel=0.02)


def test_a_spine_that_fails_costs_a_timeout_and_its_share() -> None:
    at, timeout = 200 * US, 100 * US
    down = (Fault(at=Duration(at), link="leaf0->spine1"),)
    result, took_us, _ = played("reps", down, ack_timeout=Duration(timeout))
    left_bits = WIRE_BITS - SPINES * PORT_BPS * at / 1e12
    ideal_us = (at + timeout) / US + left_bits / ((SPINES - 1) * PORT_BPS) * US_PER_S
    assert took_us < 1.05 * ideal_us
    assert result.counters["dropped"] < PAIRS * 64  # less than a window of each


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_nothing(threads: int) -> None:
    slow = (Fault(at=Duration(0), link="leaf0->spine1", rate=Rate(PORT_BPS // 2)),)
    alone = twin_of(fabric("reps", slow)).play(across())
    twin = twin_of(fabric("reps", slow))
    twin.threads = threads
    assert twin.play(across()).transfers.equals(alone.transfers)
