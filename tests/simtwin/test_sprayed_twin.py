"""The twin's sprayed queue pairs: paths by source port, packets that say where they belong."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from path_oracle import one_message
from twin_fabrics import GBPS, MIB, NS, US, Cable, leaf_spine, path, run_native, to_other_leaf, twin_of

from genie.config.units import Duration
from genie.workload.graph import Op
from genie.workload.synthetic import collective, point_to_point
from simtwin.fabric.played_paths import TwinPorts, hashed_path
from simtwin.fabric.schema import Fabric, Fault
from simtwin.play.twin import Loss

SPINES = 4
RETH_BYTES = 16


def two_leaves(spray: int, **more: Any) -> Fabric:
    return leaf_spine(2, SPINES, 2, delay_ps=US, ack_timeout=Duration(10**9), spray=spray, **more)


def by_spine(fabric: Fabric, spray: int) -> list[int]:
    """How many of the source ports from host 0 to host 3 the hash leads over each spine."""
    twin = twin_of(fabric, hosts=(0, 3))
    ports = TwinPorts("nccl", 1, twin.seed, [(0, 1), (1, 0)], spray).of(0, 1)
    assert len(set(ports)) == spray
    names = twin.network.link_names
    found = Counter(names[hashed_path(twin.routes, twin.network, 0, 3, port)[1]] for port in ports)
    return [found[f"leaf0->spine{spine}"] for spine in range(SPINES)]


@pytest.mark.parametrize("spray", [2, 4, 16, 64])
def test_packets_take_the_paths_of_their_source_ports_in_turn(spray: int) -> None:
    fabric = two_leaves(spray)
    result, packets = to_other_leaf(fabric)
    assert packets.tolist() == [1024 // spray * ports for ports in by_spine(fabric, spray)]
    assert (packets > 0).sum() > 1
    assert result.transfers["retransmits"].sum() == 0


def test_one_source_port_is_the_default() -> None:
    plain, sprayed = (to_other_leaf(two_leaves(spray)) for spray in (1, 8))
    assert sorted(plain[1]) == [0, 0, 0, 1024]
    assert sorted(sprayed[1])[2:] != [0, 1024]


def test_slow_spines_reorder_and_nothing_is_sent_again() -> None:
    """Each spine has a quarter of the rate of a host: a port on a spine of its own fills it."""
    fabric = two_leaves(8, spine_bps=25 * GBPS)
    result, packets = to_other_leaf(fabric)
    assert len(set(packets.tolist())) > 1  # uneven, so that some packets wait long
    assert result.transfers["retransmits"].sum() == 0
    assert result.counters["dropped"] == 0
    # The most loaded spine decides: each of its packets takes its time there.
    took_ns = int(result.transfers["last_ns"].max() - result.transfers["post_ns"].min())
    slowest_ns = int(packets.max()) * (4096 + 82 + RETH_BYTES) * 8 / 25
    assert slowest_ns < took_ns < 1.05 * slowest_ns


@pytest.mark.parametrize("size_bytes", [0, 1, 4096, 4097, 65536, MIB])
def test_on_one_path_a_message_takes_the_time_of_its_longer_headers(size_bytes: int) -> None:
    cables = [Cable(100 * GBPS, 100 * GBPS, 500 * NS), Cable(40 * GBPS, 25 * GBPS, 2 * US)]
    _meets_the_oracle(cables, size_bytes, 8)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.builds(Cable, *[st.sampled_from([0, 7 * GBPS, 25 * GBPS, 400 * GBPS])] * 2, st.integers(0, 5 * US)),
        min_size=2,
        max_size=4,
    ),
    st.integers(0, 50_000),
    st.integers(2, 64),
)
def test_the_oracle_of_one_flow_holds_for_any_path(cables: list[Cable], size_bytes: int, spray: int) -> None:
    _meets_the_oracle(cables, size_bytes, spray)


def _meets_the_oracle(cables: list[Cable], size_bytes: int, spray: int) -> None:
    fabric = path(cables, (0, 0), window_packets=4096, spray=spray)
    run = run_native(twin_of(fabric), point_to_point(0, 1, size_bytes))
    sends, receives = run.records[0]["sends"], run.records[1]["receives"]
    expected = one_message(cables, size_bytes, every_header_bytes=RETH_BYTES)
    assert int(receives["last_ps"][0]) == expected.last_ps
    assert int(sends["acked_ps"][0]) == expected.acked_ps


@pytest.mark.parametrize("every", [50, 300])
def test_a_lost_packet_is_sent_again_alone(every: int) -> None:
    result, packets = to_other_leaf(two_leaves(8), losses=(Loss(0, 1, every=every),))
    lost = 1024 // every
    again = int(result.transfers["retransmits"].sum())
    assert lost <= again <= 8 * lost  # those at the message's end are found by the timeout
    assert packets.sum() == 1024 + again - lost - again // every


def test_a_link_that_fails_costs_only_what_was_on_it() -> None:
    at = Duration(50 * US)
    fabric = two_leaves(16)
    fabric = msgspec.structs.replace(fabric, fault=(Fault(at=at, link="leaf0->spine1"),))
    result, packets = to_other_leaf(fabric)
    assert packets.sum() >= 1024 - packets[1]
    assert 0 < result.transfers["retransmits"].sum() < 512


def test_each_source_port_follows_its_path_of_another_run() -> None:
    fabric = two_leaves(4)
    twin = twin_of(fabric, hosts=(0, 3))
    rows = []
    for source, target in ((0, 1), (1, 0)):
        hosts = (0, 3)[source], (0, 3)[target]
        for port, spine in enumerate((0, 0, 2, 3)):
            near, far = f"leaf{hosts[0] // 2}", f"leaf{hosts[1] // 2}"
            names = [
                f"host{hosts[0]}->{near}",
                f"{near}->spine{spine}",
                f"spine{spine}->{far}",
                f"{far}->host{hosts[1]}",
            ]
            rows += [(source, target, 50_000 + port, hop, name) for hop, name in enumerate(names)]
    table = pl.DataFrame(rows, schema=["src", "dst", "source_port", "hop", "link"], orient="row")
    followed = twin.follow_paths(table)
    assert followed.problems == {}
    result = twin.play(collective(Op.BROADCAST, 2, 4 * MIB))
    names = twin.network.link_names
    up = [result.counters["links"]["packets"][names.index(f"leaf0->spine{spine}")] for spine in range(SPINES)]
    assert up == [512, 0, 256, 256]


def test_a_run_of_other_source_ports_is_not_followed() -> None:
    twin = twin_of(two_leaves(4), hosts=(0, 3))
    names = ["host0->leaf0", "leaf0->spine1", "spine1->leaf1", "leaf1->host3"]
    rows = [(0, 1, 50_000, hop, name) for hop, name in enumerate(names)]
    table = pl.DataFrame(rows, schema=["src", "dst", "source_port", "hop", "link"], orient="row")
    assert twin.follow_paths(table).problems == {(0, 1): "it was sprayed over 1 source ports"}
