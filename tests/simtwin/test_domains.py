"""Scale-up domains of 72 GPUs: at levels packet and flow their inside is on no NIC; all levels take NVLink's time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from genie.collectives.nccl.shape import NcclShape
from genie.collectives.nccl.tuning import Server
from genie.config.units import Duration, Rate
from genie.plan.lowering import Lowering
from genie.workload.graph import Op, Workload
from genie.workload.synthetic import collective, point_to_point
from simtwin.fabric.schema import Domain, Fabric, LeafSpine, Link, RailOptimized
from simtwin.fabric.topology import build_network
from simtwin.play.twin import Twin
from simtwin.report.servers import inside_servers

GBPS, NS, MIB = 10**9, 1000, 1 << 20
GPUS = 72
LINK = Link(Rate(400 * GBPS), Duration(500 * NS))
NVLINK = Rate(7200 * GBPS)
LEVELS = ("packet", "flow", "analytic")
RACK = Lowering(nccl=NcclShape(channels=64, ranks_per_node=GPUS, server=Server("gb200", "2.30", 900.0, 50.0)))
PLAIN = Lowering()


def rails(*, pxn: bool) -> Fabric:
    domain = Domain(NVLINK, Duration(100 * NS), pxn=pxn)
    return Fabric(topology=RailOptimized(servers=2, rails=GPUS, spines=2, domain=domain), link=LINK)


FABRICS = {
    "rails": rails(pxn=False),
    "rails with PXN": rails(pxn=True),
    "racks": Fabric(
        topology=LeafSpine(2, 2, GPUS, hosts_per_server=GPUS, domain=Domain(NVLINK, Duration(100 * NS))), link=LINK
    ),
}


def played(fabric: Fabric, workload: Workload, level: str, lowering: Lowering) -> tuple[float, int]:
    """Time in us, and the bytes on all links outside the domains; 0 at level analytic, which has no links."""
    network = build_network(fabric)
    run = Twin(fabric, network, list(range(workload.world_size)), level=level).play(workload, lowering=lowering)
    outside = 0
    if level != "analytic":
        sizes: Any = run.counters["links"]
        outside = int(np.asarray(sizes["size_bytes"])[~inside_servers(network)].sum())
    return float(run.timeline["end_ns"].max()) / 1000, outside  # type: ignore[arg-type]


@pytest.mark.parametrize("name", FABRICS)
@pytest.mark.parametrize("lowering", [RACK, PLAIN], ids=["nccl", "plain"])
def test_a_message_inside_a_domain_takes_nvlink(name: str, lowering: Lowering) -> None:
    inside, across = point_to_point(3, 40, 16 * MIB), point_to_point(3, GPUS + 3, 16 * MIB)
    for level in LEVELS:
        time_us, outside = played(FABRICS[name], inside, level, lowering)
        assert outside == 0
        assert time_us == pytest.approx(16 * MIB * 8 / 7.2e6, rel=0.06)  # 900 GB/s, with headers
        over_nics_us, outside = played(FABRICS[name], across, level, lowering)
        assert level == "analytic" or outside > 16 * MIB
        assert over_nics_us == pytest.approx(16 * MIB * 8 / 0.4e6, rel=0.06)


@pytest.mark.parametrize("name", FABRICS)
@pytest.mark.parametrize("op", [Op.ALL_TO_ALL, Op.ALL_GATHER])
def test_plain_messages_of_a_collective_inside_a_domain_take_nvlink(name: str, op: Op) -> None:
    """71 blocks of 16 KiB of each GPU at 900 GB/s and the latencies of 71 rounds; at 50 GB/s the bytes take 24 us."""
    block = 16384
    workload = collective(op, GPUS, block * (GPUS if op is Op.ALL_TO_ALL else 1))
    for level in LEVELS:
        time_us, outside = played(FABRICS[name], workload, level, PLAIN)
        assert outside == 0
        rounds_us = 71 * (0.2 if op is Op.ALL_GATHER else 0.4)  # an all-to-all waits for acknowledgements
        assert time_us == pytest.approx(71 * block / 900e3 + rounds_us, rel=0.15)


@pytest.mark.parametrize("name", FABRICS)
@pytest.mark.parametrize("op", [Op.ALL_TO_ALL, Op.ALL_GATHER, Op.ALL_REDUCE])
@pytest.mark.parametrize("ranks", [range(GPUS), range(8, GPUS, 8)], ids=["all", "every eighth"])
def test_nccl_inside_a_domain_takes_nvlink(name: str, op: Op, ranks: range) -> None:
    """Ranks of a domain need not be neighbours. Words of the domain's members are all that is sent."""
    members = len(ranks)
    share = members if op is Op.ALL_GATHER else 1
    workload = collective(op, list(ranks), 256 * MIB // share)
    bytes_us = (2 if op is Op.ALL_REDUCE else 1) * 256 * MIB * (members - 1) / members / 721.8e3  # as NCCL counts it
    for level in LEVELS:
        time_us, outside = played(FABRICS[name], workload, level, RACK)
        assert outside == 0
        assert 0.5 * bytes_us < time_us < bytes_us + 250  # NVLS needs half the bytes; the latencies of 2 x 71 hops


def test_an_all_to_all_of_two_domains_sends_the_outer_half_over_nics() -> None:
    block = 4096
    workload = collective(Op.ALL_TO_ALL, 2 * GPUS, 2 * GPUS * block)
    _, outside = played(FABRICS["rails"], workload, "flow", RACK)
    messages = 2 * GPUS * GPUS * block
    assert 2 * messages < outside < 2.2 * messages  # up to the leaf of the rail, and down
