"""Options and faults without effect are said, one line each; options with an effect are not."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import simtwin
from genie.collectives.nccl.shape import NcclShape
from genie.config.units import Duration, Rate
from genie.plan.lowering import Lowering
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, Workload
from genie.workload.synthetic import collective
from simtwin.fabric.reading import parse_fabric
from simtwin.fabric.schema import Fabric, Fault, LeafSpine, Link, LoadBalancing, Routing, Transport
from simtwin.fabric.topology import build_network
from simtwin.play.effects import idle_compute, idle_options, missed_faults
from simtwin.play.options import SimulateOptions

FABRIC = """
[topology]
kind = "single-switch"
hosts = 2
[link]
rate = "1Gb/s"
delay = "500ns"
[[fault]]
at = "1ms"
link = "host0->switch"
[[fault]]
at = "2ms"
cable = ["host1", "switch"]
[[fault]]
at = "1s"
until = "2s"
switch = "switch"
"""
NCCL, PLAIN = Lowering(nccl=NcclShape()), Lowering()


def job(op: Op | None) -> Workload:
    """Two ranks with one collective, or with a pause alone."""
    workload = Workload("job", 2, [Group("world", (0, 1))], {})
    for rank in range(2):
        builder = RankBuilder(rank)
        if op is None:
            builder.add(0, "pause", Kind.COMP, (), duration_ns=1000)
        else:
            builder.add(0, "ring", Kind.COLL, (), size_bytes=4096, op=op, group=0)
        workload.ranks[rank], _ = builder.finish()
    return workload


@pytest.mark.parametrize(
    ("options", "op", "lowering", "transport", "said"),
    [
        ({}, Op.ALL_REDUCE, NCCL, {}, []),
        ({}, None, NCCL, {}, []),
        ({"algorithms": {"all_reduce": "tree"}, "channels": 2}, Op.ALL_REDUCE, NCCL, {}, []),
        ({"algorithms": {"all_gather": "ring"}}, Op.ALL_REDUCE, NCCL, {},
         ["--algorithm all_gather=ring: has no effect: the workload has no all_gather"]),
        ({"channels": 2, "slice_delay": "1us"}, None, NCCL, {},
         ["--channels: has no effect: the workload has no collectives",
          "--slice-delay: has no effect: the workload has no collectives"]),
        ({"credit": True}, Op.ALL_REDUCE, PLAIN, {}, []),
        ({"credit": True}, Op.ALL_REDUCE, NCCL, {},
         ["--credit: has no effect: NCCL's messages have clear-to-sends of their own"]),
        ({"ranks_per_node": 2}, Op.ALL_REDUCE, Lowering(nccl=NcclShape(ranks_per_node=2)), {},
         ["1 of 1 collectives stay within servers and take no time: name the GPU (--gpu), or --ranks-per-node 1 plays "
          "them on the fabric"]),
        ({"split": True}, Op.ALL_REDUCE, NCCL, {},
         ["--split: has no effect: each connection has one queue pair; give --queue-pairs too"]),
        ({"split": True, "queue_pairs": 4}, Op.ALL_REDUCE, NCCL, {"queue_pairs": 4}, []),
    ],
)  # fmt: skip
def test_options(
    options: dict[str, Any], op: Op | None, lowering: Lowering, transport: dict[str, Any], said: list[str]
) -> None:
    given = SimulateOptions(**options)
    assert list(idle_options(given, job(op), lowering, None, Transport(**transport))) == said


def test_options_of_a_level_without_packets() -> None:
    given = SimulateOptions(queue_pairs=4, split=True)
    assert list(idle_options(given, job(Op.ALL_REDUCE), NCCL, None, Transport(queue_pairs=4), "analytic", 7)) == [
        "--queue-pairs: has no effect: level analytic has no queue pairs",
        "--split: has no effect: level analytic has no queue pairs",
        "--seed 7: has no effect: level analytic draws nothing",
    ]
    assert list(idle_options(given, job(Op.ALL_REDUCE), NCCL, None, Transport(queue_pairs=4), "flow", 7)) == []


def test_a_compute_model_that_no_node_needs() -> None:
    model = "roofline:300,2000"
    said = f"--compute {model}: has no effect: every compute node of the workload has a duration"
    assert list(idle_compute(model, 0)) == [said]
    assert list(idle_compute(model, 1)) == list(idle_compute(None, 0)) == []


def test_faults_after_the_end() -> None:
    fabric = parse_fabric(FABRIC, "made")
    network = build_network(fabric)
    timeline = pl.DataFrame({"end_ns": [1_500_000, 2_000_000]})
    assert list(missed_faults(fabric, network, timeline, None)) == [
        "fabric 'fabric': [[fault]] number 2 of host1-switch has no effect: it begins at 2 ms, and the longest "
        "iteration ends at 2.000 ms",
        "fabric 'fabric': [[fault]] number 3 of switch has no effect: it begins at 1000 ms, and the longest "
        "iteration ends at 2.000 ms",
    ]
    assert list(missed_faults(fabric, network, timeline.clear(), None)) == []


NO_PACKET = "no packet of the workload crosses"
HALF = {"rate": Rate(5 * 10**8)}


@pytest.mark.parametrize(
    ("fault", "ranks", "why"),
    [
        ({"link": "leaf1->spine1", **HALF}, 2, f"{NO_PACKET} the link"),
        ({"link": "leaf1->spine1"}, 2, f"{NO_PACKET} the link"),
        ({"cable": ("spine1", "leaf0"), **HALF}, 2, f"{NO_PACKET} these links"),
        ({"switch": "leaf1"}, 2, f"{NO_PACKET} these links"),
        ({"switch": "leaf0", **HALF}, 2, ""),
        ({"link": "host0->leaf0", **HALF}, 2, ""),
        ({"link": "host0->leaf0", "rate": Rate(10**9)}, 2, "the link has no higher rate without it"),
        ({"cable": ("host0", "leaf0"), "rate": Rate(10**9)}, 2, "the links have no higher rate without it"),
        ({"link": "leaf1->spine1", **HALF}, 4, ""),
        # No packet crosses it because it is down: the packets go another way.
        ({"link": "spine1->leaf0"}, 4, ""),
    ],
)
@pytest.mark.parametrize("level", ["packet", "flow"])
def test_faults_without_traffic_or_without_a_lower_rate(
    fault: dict[str, Any], ranks: int, why: str, level: str
) -> None:
    fabric = Fabric(
        topology=LeafSpine(leaves=2, spines=2, hosts_per_leaf=2),
        link=Link(Rate(10**9), Duration(500_000)),
        load_balancing=LoadBalancing("spray"),
        routing=Routing(Duration(0)),
        fault=[Fault(at=Duration(0), **fault)],
    )
    run = simtwin.simulate(fabric, collective(Op.ALL_TO_ALL, ranks, 1 << 20), level=level)
    name = fault.get("link") or fault.get("switch") or "-".join(fault.get("cable", ()))
    said = [f"fabric 'fabric': [[fault]] number 1 of {name} has no effect: {why}"]
    silent = not why or (level == "flow" and why.startswith(NO_PACKET))
    assert [text for text in run.info["warnings"] if "[[fault]]" in text] == ([] if silent else said)
