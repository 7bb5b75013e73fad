"""The batch script and the gate under real munged, slurmctld and slurmd: two nodes on this machine."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from documented_commands import small_cluster
from documents import batch_scripts, line_with
from live_runs import rings
from real_slurm import NODES, Slurm, cluster

from genie.workload.graph import Op
from genie.workload.synthetic import collectives
from genie.workload.write import save

pytestmark = [pytest.mark.live, pytest.mark.extended]

ROOT = Path(__file__).resolve().parents[2]
ENDED = ("COMPLETED", "FAILED", "CANCELLED")
RESULTS = {"pass": 0, "fail": 1, "inconclusive": 4}
SLOW_NIC = "[[rate]]\nrank = 5\nfactor = 0.3\n"


@pytest.fixture(scope="module")
def slurm(slurm_programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with cluster(tmp_path_factory.mktemp("slurm")) as built:
        yield built


def validate(slurm: Slurm, out: Path, *options: str) -> int:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    fabric = "hosts/fabrics/loopback8.toml"
    return slurm.submit(
        f"--output={out}.log", f"--chdir={ROOT}", "--nodes=2", "--ntasks-per-node=4", "hosts/slurm.sbatch",
        "examples/transformer", "--fabric", fabric, "--ranks-per-node", "1", *options,
        environment={"PATH": path, "GENIE_COMMAND": "validate", "GENIE_OUT": str(out)},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "options", "code"),
    [
        ("pass", ("-n", "8"), 0),
        ("fail", ("-n", "8", "--faults", "PLAN"), 1),
        ("inconclusive", ("-n", "1", "--warmup", "0"), 4),
    ],
)
def test_a_job_ends_with_the_exit_code_of_its_verdict(
    slurm: Slurm, tmp_path: Path, name: str, options: tuple[str, ...], code: int
) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(SLOW_NIC)
    out = tmp_path / name
    number = validate(slurm, out, *(str(plan) if word == "PLAN" else word for word in options))
    ended = slurm.until(number, ENDED)
    log = Path(f"{out}.log").read_text()
    assert ended["ExitCode"] == f"{code}:0", log
    assert json.loads((out / "verdict.json").read_text())["result"] == name, log
    assert log.count(f"\n{name.upper()} ") == 1


@pytest.mark.parametrize("number", [0, 1])
def test_the_batch_scripts_of_the_page(slurm: Slurm, tmp_path: Path, number: int) -> None:
    """`genie validate` as the job's own command starts its ranks with Slurm and no ssh; under srun it is a rank."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "ssh").write_text(f"#!/bin/sh\ntouch {tools}/asked\nexit 255\n")
    (tools / "ssh").chmod(0o755)
    hosts = "".join(
        f'[[host]]\nname = "{node}"\nranks = "{2 * at}-{2 * at + 1}"\naddress = "{node[:-1]}{{rank+11}}"\n\n'
        for at, node in enumerate(NODES)
    )
    (tmp_path / "HOSTS.toml").write_text(f'{hosts}[calibration]\npacket_latency_ns = 80000\nrate = "200Mb/s"\n')
    (tmp_path / "FABRIC.toml").write_text('[topology]\nkind = "single-switch"\nhosts = 4\n[link]\nrate = "200Mb/s"\n')
    (tmp_path / "TRACE").mkdir()
    save(collectives([Op.ALL_REDUCE], 4, [1 << 18]), tmp_path / "TRACE", "job")
    job = slurm.submit(
        f"--output={tmp_path}/job.log", f"--chdir={tmp_path}", "--nodes=2", "--ntasks-per-node=2",
        str(batch_scripts(tmp_path)[number]),
        environment={"PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )  # fmt: skip
    ended = slurm.until(job, ENDED)
    log = (tmp_path / "job.log").read_text()
    result = json.loads((tmp_path / "runs" / "checked" / "verdict.json").read_text())["result"]
    assert ended["ExitCode"] == f"{RESULTS[result]}:0", log
    assert len(json.loads((tmp_path / "runs" / "checked" / "live" / "run.json").read_text())["hosts"]) == 4
    assert not (tools / "asked").exists()


def test_the_line_of_srun(slurm_programs: None, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """`srun` as docs/validate-a-fabric.md has it, on machines with the names and addresses of hosts/slurm.toml."""
    rings(tmp_path / "TRACE", 8, size_bytes=1 << 18)
    (tmp_path / "hosts").symlink_to(ROOT / "hosts")
    line = line_with("srun --mpi=none genie run TRACE")
    assert line.startswith("MASTER_ADDR=gpu01 srun ")
    (tmp_path / "job.sbatch").write_text(f"#!/bin/bash\n{line}\n")
    with (
        small_cluster(tmp_path) as machine,
        cluster(tmp_path_factory.mktemp("named"), port=16837, nodes=("gpu01", "gpu02"), inside=machine.inside) as slurm,
    ):
        number = slurm.submit(
            f"--output={tmp_path}/job.log", f"--chdir={tmp_path}", "--nodes=2", "--ntasks-per-node=4",
            str(tmp_path / "job.sbatch"),
            environment={"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        )  # fmt: skip
        ended = slurm.until(number, ENDED)
    log = (tmp_path / "job.log").read_text()
    assert ended["ExitCode"] == "0:0", log
    assert "8 ranks played" in log
    run = json.loads((tmp_path / "runs" / "mine" / "run.json").read_text())
    assert run["complete"] is True
    assert len(run["hosts"]) == 8


def test_a_cancelled_job_leaves_no_rank_and_no_verdict(slurm: Slurm, tmp_path: Path) -> None:
    out = tmp_path / "cancelled"
    number = validate(slurm, out, "-n", "200")
    slurm.until(number, ("RUNNING",))
    deadline = time.monotonic() + 60
    while "iteration 2" not in (Path(f"{out}.log").read_text() if Path(f"{out}.log").exists() else ""):
        assert time.monotonic() < deadline, slurm.logs()
        time.sleep(0.2)
    slurm.call("scancel", str(number))
    ended = slurm.until(number, ENDED)
    assert ended["JobState"] == "CANCELLED"
    assert ended["ExitCode"] != "0:0"
    assert not (out / "verdict.json").exists()
    deadline = time.monotonic() + 20
    while left := [each for each in _command_lines() if str(out) in each]:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def _command_lines() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return [line for line in found if "genie" in line]


@pytest.mark.parametrize("limit_s", ["60", "0.2"])  # a check takes about a second
def test_the_gate_of_the_controller_lets_a_job_start_or_not(
    slurm_programs: None, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, limit_s: str
) -> None:
    folder = tmp_path_factory.mktemp("gated")
    runs, conf, gate = tmp_path / "runs", tmp_path / "check.conf", tmp_path / "gate.sh"
    genie = Path(sys.executable).parent / "genie"
    conf.write_text(
        f"GENIE={genie}\nGENIE_RUNS={runs}\nGENIE_LIMIT_S={limit_s}\nGENIE_OPTIONS='--rate 100Mb/s'\n"
        f"export PATH={tmp_path}:{genie.parent}:/usr/bin:/bin SLURM_CONF={folder}/slurm.conf\n"
    )
    ssh = tmp_path / "ssh"  # mpirun's way to the nodes, which are this machine
    ssh.write_text('#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nshift\nexec sh -c "$*"\n')
    ssh.chmod(0o755)
    gate.write_text(f"#!/bin/bash\nGENIE_CONF={conf} exec bash {ROOT}/hosts/slurm-check.sh\n")
    gate.chmod(0o755)
    with cluster(folder, f"PrologSlurmctld={gate}", port=16827) as slurm:
        began = tmp_path / "began"
        number = slurm.submit("--nodes=2", f"--output={tmp_path}/job.log", f"--wrap=touch {began}")
        if limit_s == "60":
            assert slurm.until(number, ENDED)["JobState"] == "COMPLETED", slurm.logs()
            assert (runs / f"check-{number}.json").exists()
        else:
            deadline = time.monotonic() + 30
            log = runs / f"check-{number}.log"
            while not (log.exists() and "took more than 0.2 s" in log.read_text()):
                assert time.monotonic() < deadline, slurm.logs()
                time.sleep(0.2)
            slurm.call("scancel", str(number))
        assert began.exists() == (limit_s == "60")
