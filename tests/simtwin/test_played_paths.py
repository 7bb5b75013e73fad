"""The paths that a simulation says it played are those on whose links the kernel counted the packets."""

from __future__ import annotations

from collections import Counter

import msgspec
import polars as pl
import pytest
from twin_fabrics import GBPS, leaf_spine, twin_of

from genie.plan.build import Lowering
from genie.record.schemas import PATHS_SCHEMA
from genie.workload.graph import Op
from genie.workload.synthetic import collective
from simtwin.fabric.played_paths import follow_paths, port_paths_of
from simtwin.fabric.schema import Fabric, LoadBalancing, Path
from simtwin.fabric.topology import build_network

FABRIC = leaf_spine(3, 4, 2, 25 * GBPS)
MESSAGE = 4096  # one packet


def with_ports(rule: str, fabric: Fabric = FABRIC, **more: int) -> Fabric:
    transport = msgspec.structs.replace(fabric.transport, **more)
    return msgspec.structs.replace(fabric, load_balancing=LoadBalancing(source_ports=rule), transport=transport)


def table(rows: list[tuple[int, int, int, list[str]]]) -> pl.DataFrame:
    """(src, dst, port, links) as the table of a run folder."""
    flat = [(s, d, port, hop, link, None) for s, d, port, links in rows for hop, link in enumerate(links)]
    return pl.DataFrame(flat, schema=PATHS_SCHEMA, orient="row")


@pytest.mark.parametrize("rule", ["pair", "nccl", "50000-50010", "50000"])
@pytest.mark.parametrize("queue_pairs", [1, 3])
def test_paths_are_those_that_packets_took(rule: str, queue_pairs: int) -> None:
    twin = twin_of(with_ports(rule, queue_pairs=queue_pairs), seed=5)
    workload = collective(Op.ALL_TO_ALL, 6, 6 * MESSAGE * queue_pairs, count=queue_pairs)
    result = twin.play(workload, lowering=Lowering(algorithms={"all_to_all": "direct"}))
    played = twin.paths_of(result.transfers, [5], None)
    assert played.table is not None
    assert played.table.schema == PATHS_SCHEMA
    ways = port_paths_of(played.table)
    assert len(ways) == 30
    assert {len(way) for way in ways.values()} == {1 if rule == "50000" else queue_pairs}
    data = Counter[str]()
    for (source, target), way in ways.items():
        for _, links in way:
            data.update(dict.fromkeys(links, queue_pairs))  # packets of its message
        assert way[0][1][0].startswith(f"host{source}->")
        assert way[0][1][-1].endswith(f"->host{target}")
    packets = dict(zip(twin.network.link_names, result.counters["links"]["packets"], strict=True))
    # An acknowledgement takes the way of its own queue pair: links that no path has carry nothing.
    assert {link for link, count in packets.items() if count} == set(data)
    assert all(packets[link] >= count for link, count in data.items())


def test_paths_that_differ_by_seed_are_said_to_change() -> None:
    workload = collective(Op.ALL_TO_ALL, 6, 6 * MESSAGE)
    twin = twin_of(with_ports("nccl"))
    transfers = twin.play(workload, iterations=(0, 1)).transfers
    assert twin.paths_of(transfers, [1, 2], None).facts["changed"] is True
    assert twin.paths_of(transfers, [1], None).facts["changed"] is False
    pair = twin_of(with_ports("pair"))
    assert pair.paths_of(transfers, [1, 2], None).facts["changed"] is False


def test_sprayed_packets_have_no_path() -> None:
    sprayed = twin_of(msgspec.structs.replace(FABRIC, load_balancing=LoadBalancing(mode="spray")))
    transfers = sprayed.play(collective(Op.ALL_TO_ALL, 6, 6 * MESSAGE)).transfers
    ways = sprayed.paths_of(transfers, [1], None).table
    assert ways is None


def test_a_twin_plays_the_paths_of_another_run() -> None:
    workload = collective(Op.ALL_TO_ALL, 6, 6 * 64 * MESSAGE)
    first = twin_of(with_ports("50123"))
    live = first.play(workload)
    paths = first.paths_of(live.transfers, [1], None).table
    assert paths is not None
    other = twin_of(with_ports("nccl"), seed=99)
    own = twin_of(with_ports("nccl"), seed=99).play(workload)
    followed = other.follow_paths(paths)
    again = other.play(workload)
    assert not followed.problems
    assert again.transfers.equals(live.transfers)
    assert not own.transfers.equals(live.transfers)
    played = other.paths_of(again.transfers, [99], followed)
    assert played.table is not None
    assert played.table.equals(paths)
    assert (played.facts["followed"], played.facts["not_followed"]) == (30, 0)


def test_what_cannot_be_followed_is_named() -> None:
    network = build_network(FABRIC)
    own = ["host0->leaf0", "leaf0->spine1", "spine1->leaf1", "leaf1->host2"]
    paths = table([
        (0, 2, 50000, own),
        (0, 3, 50000, [*own[:3], "leaf1->host9"]),
        (0, 4, 50000, own),
        (0, 5, 50000, ["host0->leaf0", "leaf0->spine1", "spine1->leaf2", "leaf2->host5"]),
        (0, 5, 50001, ["host0->leaf0", "leaf0->spine0", "spine0->leaf2", "leaf2->host5"]),
        (2, 0, 50000, ["host2->leaf1", "leaf1->spine1", "spine1->leaf0", "leaf0->host0"]),
    ])  # fmt: skip
    fabric = msgspec.structs.replace(FABRIC, path=[Path("host2", "host0", ("leaf1", "spine0", "leaf0"))])
    followed = follow_paths(paths, fabric, network, list(range(6)))
    assert list(followed.port_paths) == [(0, 2)]
    assert followed.problems == {
        (0, 3): "the fabric has no link leaf1->host9",
        (0, 4): f"{', '.join(own)} is not a path between their hosts",
        (0, 5): "its queue pairs have different paths",
        (2, 0): "the fabric has a [[path]] for it",
    }
    shared = follow_paths(table([(0, 2, 1, own), (1, 2, 2, [own[0], "leaf0->spine0", "spine0->leaf1", own[3]])]),
                          FABRIC, network, [0, 0, 2])  # fmt: skip
    assert shared.problems == {(1, 2): "ranks of the same hosts have different paths"}
