"""Limits of collectives: cases whose limit is known by construction, the sum of the parts, and limits left open."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from live_runs import genie, rings

from genie.collectives.nccl.shape import NcclShape
from genie.collectives.nccl.tuning import Server
from genie.plan.lowering import Lowering
from genie.record import RecordError, Run
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, RankGraph, Workload
from genie.workload.synthetic import collective
from simtwin.fabric.reading import parse_fabric
from simtwin.fabric.topology import build_network
from simtwin.levels.analytic import CostKey
from simtwin.levels.part_times import OnGpus
from simtwin.play.run import simulate_to_folder
from simtwin.play.twin import Twin
from simtwin.report import simulation_report
from simtwin.report.collectives import CollectiveRow, collective_rows, words_of
from simtwin.report.digest import digest_of
from simtwin.report.limits import ERROR, LINKS, NVLINK, STEPS, WAITING, WIRE, Limit
from simtwin.report.limits_file import write_limits
from simtwin.report.loads import hottest, link_loads
from simtwin.report.servers import inside_servers, port_links, servers_of_hosts

LEVELS = ("packet", "flow", "analytic")
RAILS = 4  # ranks of each of the two servers
FABRIC = """
name = "rails"
[topology]
kind = "rail-optimized"
servers = 2
rails = 4
spines = 1
{domain}
[link]
rate = "{rate}"
delay = "{delay}"
"""
SWITCH = """
name = "switch"
[topology]
kind = "single-switch"
hosts = 20
[link]
rate = "90Tb/s"
delay = "1ns"
"""
SHARED_BRIDGE = """
name = "one NIC of two hosts"
[topology]
kind = "explicit"
host = [{name = "a"}, {name = "b"}]
switch = [{name = "inside", bridge = true}, {name = "leaf"}]
link = [{a = "a", b = "inside"}, {a = "b", b = "inside"}, {a = "inside", b = "leaf"}]
[link]
rate = "100Gb/s"
"""
DOMAIN = 'domain = {rate = "3600Gb/s"}'
H100 = Server("h100", "2.30", 370.8, 50.0)
GPUS = Lowering(nccl=NcclShape(channels=8, ranks_per_node=RAILS, server=H100))
NO_GPUS = Lowering(nccl=NcclShape(channels=8, ranks_per_node=RAILS))


def twin_of(level: str, rate: str = "400Gb/s", domain: str = DOMAIN, delay: str = "500ns", ranks: int = 8) -> Twin:
    fabric = parse_fabric(FABRIC.format(rate=rate, domain=domain, delay=delay))
    return Twin(fabric, build_network(fabric), range(ranks), level=level)


def played(folder: Path, twin: Twin, workload: Workload, lowering: Lowering) -> tuple[Run, CollectiveRow]:
    run = simulate_to_folder(twin, workload, folder, workload_path="trace", lowering=lowering)
    (row,) = collective_rows(run, twin.network, twin.parts_of(workload, lowering))
    return run, row


def limit_of(folder: Path, twin: Twin, workload: Workload, lowering: Lowering = GPUS) -> Limit:
    _, row = played(folder, twin, workload, lowering)
    assert row.limit is not None
    found = (row.limit.waiting_ns, row.limit.wire_ns, row.limit.links_ns, row.limit.steps_ns)
    assert min(found) >= 0
    assert sum(found) == pytest.approx(row.total_ns / row.count + row.limit.waiting_ns, rel=1e-9)
    return row.limit


@pytest.mark.parametrize("level", LEVELS)
def test_a_small_all_reduce_inside_a_server_is_limited_by_gpu_steps(level: str, tmp_path: Path) -> None:
    limit = limit_of(tmp_path / "run", twin_of(level, ranks=RAILS), collective(Op.ALL_REDUCE, RAILS, 8))
    assert limit.name == STEPS
    assert limit.share > 0.9
    assert limit.links_ns < 0.01 * limit.steps_ns


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("op", [Op.ALL_REDUCE, Op.ALL_GATHER, Op.ALL_TO_ALL])
def test_a_large_collective_inside_a_server_is_limited_by_nvlink(op: Op, level: str, tmp_path: Path) -> None:
    limit = limit_of(tmp_path / "run", twin_of(level, ranks=RAILS), collective(op, RAILS, 1 << 30))
    assert limit.name == NVLINK
    assert limit.share > 0.9


@pytest.mark.parametrize(("level", "size"), [("packet", 1 << 23), ("flow", 1 << 30), ("analytic", 1 << 30)])
def test_a_large_all_reduce_over_a_slow_network_is_limited_by_the_wire(level: str, size: int, tmp_path: Path) -> None:
    limit = limit_of(tmp_path / "run", twin_of(level, "10Gb/s"), collective(Op.ALL_REDUCE, 2 * RAILS, size))
    assert limit.name == WIRE
    assert limit.share > 0.8


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("members", [RAILS, 2 * RAILS])
def test_a_late_rank_lets_the_others_wait(members: int, level: str, tmp_path: Path) -> None:
    graphs: dict[int, RankGraph] = {}
    workload = Workload("late", 2 * RAILS, [Group("world", tuple(range(members)))], graphs)
    for rank in range(2 * RAILS):
        builder = RankBuilder(rank)
        if rank < members:
            slow_ns = 50_000_000 if rank == 2 else 1000
            before = (builder.add(0, "compute", Kind.COMP, (), duration_ns=slow_ns),)
            builder.add(1, "all-reduce", Kind.COLL, before, size_bytes=65536, op=Op.ALL_REDUCE, group=0)
        graphs[rank], _ = builder.finish()
    limit = limit_of(tmp_path / "run", twin_of(level), workload)
    assert limit.name == WAITING
    assert limit.waiting_ns == 49_999_000
    assert limit.share > 0.99


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("members", [RAILS, 2 * RAILS])
def test_gpus_that_are_left_out_are_no_limit(members: int, level: str, tmp_path: Path) -> None:
    for size in (8, 1 << 20):
        for op in (Op.ALL_REDUCE, Op.ALL_TO_ALL):
            workload = collective(op, members, size)
            _, row = played(tmp_path / f"{op.name}-{size}", twin_of(level, ranks=members), workload, NO_GPUS)
            if row.limit is None:  # at level analytic it takes no time
                assert (level, members) == ("analytic", RAILS)
            else:
                assert row.limit.steps_ns == 0
                assert row.limit.name == (LINKS if members == RAILS else WIRE)


def test_messages_inside_a_server_are_limited_by_its_links(tmp_path: Path) -> None:
    domain = 'domain = {rate = "10Gb/s"}'
    slow, inside = (twin_of("flow", domain=domain, ranks=ranks) for ranks in (2 * RAILS, RAILS))
    assert limit_of(tmp_path / "inside", inside, collective(Op.ALL_REDUCE, RAILS, 1 << 20), Lowering()).name == LINKS
    # A ring through both servers has a fast and a slow link in each turn.
    assert limit_of(tmp_path / "slow", slow, collective(Op.ALL_REDUCE, 8, 1 << 20), Lowering()).name == LINKS
    fast = twin_of("flow", "10Gb/s")
    assert limit_of(tmp_path / "fast", fast, collective(Op.ALL_REDUCE, 8, 1 << 20), Lowering()).name == WIRE


@pytest.mark.parametrize("level", ["packet", "flow"])
@pytest.mark.parametrize("lowering", [GPUS, Lowering()], ids=["nccl", "plain"])
def test_the_link_to_a_port_of_pxn_is_of_the_wire(level: str, lowering: Lowering, tmp_path: Path) -> None:
    """The link of a host to its port has the rate of its NIC: only a slow domain makes server links the limit."""
    op, limits = (Op.ALL_TO_ALL if lowering.nccl else Op.ALL_REDUCE), []
    for name, rate in (("fast", "3600Gb/s"), ("faster", "7200Gb/s"), ("slow", "10Gb/s")):
        twin = twin_of(level, domain=f'domain = {{rate = "{rate}", pxn = true}}')
        run, row = played(tmp_path / name, twin, collective(op, 2 * RAILS, 1 << 22), lowering)
        assert row.limit is not None
        limits.append(row.limit.name)
        loads = hottest(link_loads(run, twin.network), 4)
        if rate != "10Gb/s":
            assert re.fullmatch(r"port\d->rail\dleaf0", row.link)
            assert all("leaf" in link for link in loads["link"])
    assert limits == [WIRE, WIRE, WIRE if lowering.nccl else LINKS]


def test_of_bridges_only_those_of_one_host_with_a_cable_are_ports() -> None:
    network = twin_of("flow", domain='domain = {rate = "3600Gb/s", pxn = true}').network
    names = np.array(network.link_names)
    of_ports = {f"host{h}->port{h}" for h in range(8)} | {f"port{h}->host{h}" for h in range(8)}
    assert set(names[port_links(network)]) == of_ports
    assert "server0->port0" in names[inside_servers(network)]
    assert servers_of_hosts(network).tolist() == [0] * RAILS + [RAILS] * RAILS
    shared = parse_fabric(SHARED_BRIDGE)
    assert not port_links(build_network(shared)).any()


def test_a_time_that_a_slice_waits_is_a_step_of_the_gpu(tmp_path: Path) -> None:
    assert NO_GPUS.nccl is not None
    waits = Lowering(nccl=replace(NO_GPUS.nccl, slice_delay_ns=100_000))
    for level in LEVELS:
        limit = limit_of(tmp_path / level, twin_of(level), collective(Op.ALL_REDUCE, 2 * RAILS, 65536), waits)
        assert limit.name == STEPS


def test_unknown_limits_are_left_open(tmp_path: Path) -> None:
    ring = collective(Op.ALL_REDUCE, 2 * RAILS, 1 << 20)
    # The formula does not tell messages inside servers from the others.
    _, mixed = played(tmp_path / "mixed", twin_of("analytic"), ring, Lowering())
    _, alone = played(tmp_path / "alone", twin_of("analytic", domain=""), ring, Lowering())
    assert mixed.limit is None
    assert "–" in words_of(mixed)
    assert alone.limit is not None
    assert alone.limit.name == WIRE
    twin = twin_of("flow")
    run, whole = played(tmp_path / "whole", twin, ring, GPUS)
    assert whole.limit is not None
    for info in ({"complete": False}, {"recorded": {"ranks": [0], "group_sizes": {"0": 8}}}):
        changed = replace(run, info=run.info | info)
        (row,) = collective_rows(changed, twin.network, twin.parts_of(ring, GPUS))
        assert row.limit is None
    (without,) = collective_rows(run, twin.network)
    assert without.limit is None


def test_parts_that_differ_by_less_than_the_error_name_no_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twin, ring = twin_of("flow", "10Gb/s"), collective(Op.ALL_REDUCE, 2 * RAILS, 1 << 24)
    run, row = played(tmp_path / "run", twin, ring, GPUS)
    assert row.limit is not None
    parts = twin.parts_of(ring, GPUS)
    assert parts is not None
    names = []
    for share in (0.1, 1 - ERROR / 2, 2.0):
        monkeypatch.setattr(parts, "on_gpus", lambda _, steps=row.limit.wire_ns * share: OnGpus(steps, 0.0))
        (judged,) = collective_rows(run, twin.network, parts)
        names.append(str(judged.limit).split(" ")[0])
    assert names == ["wire", "–", "GPU"]


@pytest.mark.parametrize("op", [Op.ALL_REDUCE, Op.ALL_GATHER, Op.BROADCAST, Op.ALL_TO_ALL, Op.GATHER, Op.SCATTER])
@pytest.mark.parametrize("algorithm", [None, "tree"])
def test_on_a_network_without_times_the_closed_forms_are_those_of_level_flow(
    op: Op, algorithm: str | None, tmp_path: Path
) -> None:
    """NICs of a rail at 400 GB/s, so that no step keeps the pace of one."""
    server = replace(H100, nic_gb_per_s=400.0)
    assert GPUS.nccl is not None
    lowering = Lowering(nccl=replace(GPUS.nccl, server=server, algorithm=algorithm))
    for size in (8, 1 << 16, 1 << 20, 1 << 24):
        workload = collective(op, 2 * RAILS, size)
        _, row = played(tmp_path / str(size), twin_of("flow", "90Tb/s", delay="1ns"), workload, lowering)
        parts = twin_of("flow").parts_of(workload, lowering)
        assert parts is not None
        on_gpus = parts.on_gpus(CostKey(op.name.lower(), tuple(range(2 * RAILS)), size))
        assert on_gpus is not None
        assert sum(on_gpus) == pytest.approx(row.time_ns, rel=ERROR)


@pytest.mark.parametrize("op", [Op.ALL_TO_ALL, Op.SCATTER, Op.GATHER])
def test_groups_of_messages_take_turns_on_gpus(op: Op, tmp_path: Path) -> None:
    fabric = parse_fabric(SWITCH)
    workload = collective(op, 20, 1 << 16)
    lowering = Lowering(nccl=NcclShape(server=replace(H100, nic_gb_per_s=400.0)))
    twin = Twin(fabric, build_network(fabric), range(20), level="flow")
    _, row = played(tmp_path / "run", twin, workload, lowering)
    assert row.limit is not None
    assert row.limit.name == STEPS
    assert row.limit.steps_ns == pytest.approx(row.time_ns, rel=0.05)


def test_the_command_writes_limits_where_it_makes_the_table(tmp_path: Path) -> None:
    line = ("simulate", rings(tmp_path), "--fabric", "hosts/fabrics/leaf-spine.toml", "--level", "flow")
    out = tmp_path / "run"
    assert "limit" in genie(*line, "-o", str(out)).stdout.splitlines()[1].split()
    (row,) = json.loads((out / "limits.json").read_bytes())["collectives"]
    assert (row["op"], row["limit"], row["gpu_steps_ns"]) == ("all_reduce", WIRE, 0)
    assert genie("-q", *line, "-o", str(out)).code == 0
    assert not (out / "limits.json").exists(), "a file of an earlier run is not kept"
    assert genie("-q", *line, "--report", "-o", str(out)).code == 0
    assert (out / "limits.json").exists()
    page = (out / "report.html").read_text()
    assert "The limit is the largest part" in page
    assert f"<td>{row_of(out)['limit']} " in page
    assert simulation_report(out) == page, "a page made anew has the limits of the run folder"


def row_of(folder: Path) -> dict[str, Any]:
    (row,) = json.loads((folder / "limits.json").read_bytes())["collectives"]
    return row  # type: ignore[no-any-return]


def test_limits_are_read_back_from_the_run_folder(tmp_path: Path) -> None:
    twin, ring = twin_of("flow"), collective(Op.ALL_REDUCE, 2 * RAILS, 1 << 20)
    run, row = played(tmp_path / "run", twin, ring, GPUS)
    assert row.limit is not None
    assert [it.limit for it in digest_of(run, twin.network).collectives] == [None], "no file yet"
    for limit in (row.limit, replace(row.limit, name=""), None):
        write_limits(run.path, [replace(row, limit=limit)])
        (found,) = digest_of(run, twin.network).collectives
        assert str(found.limit or "") == str(limit or "")
        if limit is not None and found.limit is not None:
            assert found.limit.wire_ns == pytest.approx(limit.wire_ns, abs=0.5)
    write_limits(run.path, [replace(row, count=2)])
    assert [it.limit for it in digest_of(run, twin.network).collectives] == [None], "of other collectives"


def test_damaged_limits_are_refused_by_name(tmp_path: Path) -> None:
    run, row = played(tmp_path / "run", twin_of("flow"), collective(Op.ALL_REDUCE, 2 * RAILS, 8), GPUS)
    write_limits(run.path, [row])
    path = run.path / "limits.json"
    path.write_text(path.read_text().replace('"wire_ns": ', '"wire_ns": "x", "was": '))
    with pytest.raises(RecordError, match=r"limits\.json: is damaged: .*wire_ns"):
        simulation_report(run.path)
