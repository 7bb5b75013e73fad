"""Legal jobs without payload, or without nodes, and options without effect: each ends as a user expects."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from live_runs import Ended, genie, in_this_process, loopback, rings

from genie.config.hosts import Calibration, write_calibration
from genie.record import open_run
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, Workload
from genie.workload.write import save

pytestmark = pytest.mark.live

RANKS = 4
NO_PAYLOAD = "INCONCLUSIVE no payload went between ranks: no NIC or link judged; an iteration takes "
LEVELS = ("packet", "flow", "analytic")
# The collective follows 3 ms of compute.
AFTER = {"compute": None, "barriers": Op.BARRIER, "no bytes": Op.ALL_REDUCE}


def job(folder: Path, after: Op | None = None, *, idle: frozenset[int] = frozenset()) -> str:
    """A trace of compute and a collective of 0 bytes. `idle`: ranks without a node."""
    workload = Workload("job", RANKS, [Group("world", tuple(range(RANKS)))], {})
    for rank in range(RANKS):
        builder = RankBuilder(rank)
        if rank not in idle:
            last = (builder.add(0, "compute", Kind.COMP, (), duration_ns=3_000_000),)
            if after is not None:
                builder.add(1, "after", Kind.COLL, last, size_bytes=0, op=after, group=0)
        workload.ranks[rank], _ = builder.finish()
    save(workload, folder, "job")
    return str(folder)


def validated(tmp_path: Path, trace: str, *more: str) -> Ended:
    """Validate on hosts that need no calibration."""
    hosts = Path(loopback(tmp_path))
    write_calibration(hosts, Calibration(packet_latency_ns=80_000, rate="200Mb/s"))
    return genie("validate", trace, "--hosts", str(hosts), "--rate", "200Mb/s", "-n", "3", "--warmup", "1",
                 "-o", str(tmp_path / "out"), *more)  # fmt: skip


@pytest.mark.extended
@pytest.mark.parametrize("after", AFTER)
def test_a_job_without_payload_is_played_and_judges_nothing(tmp_path: Path, after: str) -> None:
    ended = validated(tmp_path, job(tmp_path / "job", AFTER[after]))
    assert ended.code == 4, ended.stderr
    assert ended.stdout.startswith(NO_PAYLOAD)
    assert ("ms in the twin" in ended.stdout) == (after == "compute")  # compute before a followed start is left out
    verdict = json.loads((tmp_path / "out" / "verdict.json").read_text())
    assert (verdict["coverage"]["nics"]["judged"], verdict["coverage"]["nics"]["total"]) == (0, RANKS)
    assert "No payload went between ranks" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize("after", AFTER)
def test_a_job_without_payload_is_simulated_at_each_level(tmp_path: Path, after: str) -> None:
    trace = job(tmp_path / "job", AFTER[after])
    for level in LEVELS:
        out = str(tmp_path / level)
        ended = in_this_process("simulate", trace, "--rate", "200Mb/s", "--level", level, "-o", out)
        assert ended.code == 0, ended.stderr
        assert "ms an iteration" in ended.stdout


@pytest.mark.extended
def test_ranks_without_nodes_are_followed(tmp_path: Path) -> None:
    ended = validated(tmp_path, job(tmp_path / "job", idle=frozenset({1, 2, 3})))
    assert ended.code == 4, ended.stderr
    assert ended.stdout.startswith(NO_PAYLOAD)


@pytest.mark.parametrize("command", ["inspect", "validate", "run", *LEVELS])
def test_a_job_without_any_node_is_refused_alike(tmp_path: Path, command: str) -> None:
    trace = job(tmp_path / "job", idle=frozenset(range(RANKS)))
    out = ("--rate", "200Mb/s", "-o", str(tmp_path / "out"))
    arguments = ("simulate", trace, "--level", command, *out) if command in LEVELS else (command, trace, *out)
    ended = in_this_process(*arguments[:2]) if command == "inspect" else in_this_process(*arguments)
    assert ended.code == 2
    line = f"genie: {tmp_path / 'job'}: no rank has a node, so that there is nothing to play: give a trace with nodes\n"
    assert ended.stderr == line
    assert not (tmp_path / "out").exists()


def test_ranks_that_disagree_are_said_before_they_wait_for_each_other(tmp_path: Path) -> None:
    workload = Workload("job", RANKS, [Group("world", tuple(range(RANKS)))], {})
    for rank in range(RANKS):
        builder = RankBuilder(rank)
        op = Op.ALL_GATHER if rank == 2 else Op.ALL_REDUCE
        builder.add(0, "ring", Kind.COLL, (), size_bytes=65536, op=op, group=0)
        workload.ranks[rank], _ = builder.finish()
    save(workload, tmp_path / "job", "job")
    disagree = "group 'world': ranks disagree on its collective 0: ranks 0, 1, 3 have all_reduce (65536 B); rank 2 has"
    inspected = in_this_process("inspect", str(tmp_path / "job"))
    assert inspected.code == 1
    assert f"error      {disagree}" in inspected.stdout
    out = ("--hosts", loopback(tmp_path), "--rate", "200Mb/s", "--stall", "1", "-o", str(tmp_path / "out"))
    ended = genie("run", str(tmp_path / "job"), *out)
    assert ended.code != 0
    assert f"genie: {tmp_path / 'job'}: {disagree}" in ended.stderr


def test_faults_without_effect_are_said_and_kept(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(
        "[[rate]]\nrank = 1\nfactor = 0.5\nfrom_iteration = 20\n\n[[delay]]\nrank = 0\npeer = 2\ndelay_us = 100\n"
    )
    trace = rings(tmp_path / "rings", RANKS, collectives=1)
    ended = validated(tmp_path, trace, "--algorithm", "all_reduce=ring", "--wire", "plain", "--faults", str(plan))
    beyond = (
        f"{plan}: fault [[rate]] of rank 1 has no effect: from_iteration = 20 lies beyond the run, which plays "
        "iterations 0 to 3, warm-up included"
    )
    unmet = "fault [[delay]] of rank 0 has no effect: it sends rank 2 no payload"
    for text in (beyond, unmet):
        assert ended.stderr.count(f"genie: {text}\n") == 1, ended.stderr
    assert open_run(tmp_path / "out" / "live").info["warnings"] == [beyond, unmet]
    assert open_run(tmp_path / "out" / "twin").info["warnings"] == []
    verdict = json.loads((tmp_path / "out" / "verdict.json").read_text())
    assert verdict["warnings"] == [f"live: {beyond}", f"live: {unmet}"]
    assert f"live: {unmet}" in (tmp_path / "out" / "report.html").read_text()


def test_the_twin_s_remarks_are_in_its_record(tmp_path: Path) -> None:
    fabric = tmp_path / "fabric.toml"
    fabric.write_text(
        '[topology]\nkind = "single-switch"\nhosts = 4\n\n[link]\nrate = "1Gb/s"\n\n[transport]\ncongestion = "dcqcn"\n'
    )
    trace = rings(tmp_path / "rings", RANKS, collectives=1)
    for _ in range(2):  # a second command prints its own
        out = tmp_path / "out"
        ended = in_this_process("simulate", trace, "--fabric", str(fabric), "-o", str(out))
        assert ended.code == 0, ended.stderr
        (warning,) = open_run(out).info["warnings"]
        assert "no switch marks the packets by which dcqcn would slow down" in warning
        assert ended.stderr.count(f"genie: {warning}\n") == 1


def test_coverage_that_is_no_choice_is_refused(tmp_path: Path) -> None:
    for command in (("diff", "live", "twin"), ("validate", "trace", "-o", str(tmp_path / "out"))):
        ended = in_this_process(*command, "--require-coverage", "all")
        assert ended.code == 2
        assert ended.stderr == "genie: --require-coverage all: must be nics, links or none\n"
