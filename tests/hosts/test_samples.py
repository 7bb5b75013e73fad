"""Every sample in hosts/ loads and means what its comments say; the batch script writes a hosts file that loads."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from documents import batch_scripts

from genie.config.hosts import load_hosts, loopback_hosts
from simtwin.fabric.placement import host_of_rank
from simtwin.fabric.reading import load_fabric, loopback_fabric, parse_fabric, to_toml
from simtwin.fabric.routing import shortest_path_routes
from simtwin.fabric.topology import build_network

pytestmark = pytest.mark.live

HOSTS = Path(__file__).resolve().parents[2] / "hosts"
FABRICS = sorted((HOSTS / "fabrics").glob("*.toml"))
INVENTORIES = sorted(HOSTS.glob("*.toml"))


def test_the_samples_are_there() -> None:
    assert [path.stem for path in FABRICS] == [
        "explicit",
        "failing-link",
        "fat-tree-lossless",
        "lab-8",
        "leaf-spine",
        "loopback8",
        "photonic",
        "rails-sprayed",
        "single-switch",
    ]
    assert [path.stem for path in INVENTORIES] == ["cluster", "loopback", "slurm"]


@pytest.mark.parametrize("path", FABRICS, ids=lambda path: path.stem)
def test_fabrics_load_route_and_are_written_back(path: Path) -> None:
    fabric = load_fabric(path)
    assert fabric.name == path.stem
    network = build_network(fabric)
    routes = shortest_path_routes(network)
    pairs = [(a, b) for a in range(network.hosts) for b in range(network.hosts) if a != b]
    assert pairs
    assert all(len(routes.choices(a, b)) >= 1 for a, b in pairs)
    assert parse_fabric(to_toml(fabric)) == fabric


@pytest.mark.parametrize("path", INVENTORIES, ids=lambda path: path.stem)
def test_inventories_load(path: Path) -> None:
    hosts = load_hosts(path)
    assert hosts.ranks == 8
    assert hosts.calibration is None


def test_loopback_samples_are_the_defaults() -> None:
    assert load_hosts(HOSTS / "loopback.toml").places == loopback_hosts(8).places
    assert load_fabric(HOSTS / "fabrics" / "loopback8.toml") == loopback_fabric(8, 200_000_000)


def test_cluster_ranks_share_the_hosts_of_the_explicit_fabric() -> None:
    hosts = load_hosts(HOSTS / "cluster.toml")
    network = build_network(load_fabric(HOSTS / "fabrics" / "explicit.toml"))
    ports = [place.port for place in hosts.places]
    assert host_of_rank(network, hosts.ranks, ports).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert f"mpirun -hosts {hosts.mpirun_hosts()} genie run" in (HOSTS / "cluster.toml").read_text()


def test_explicit_sample_says_what_its_comments_say() -> None:
    network = build_network(load_fabric(HOSTS / "fabrics" / "explicit.toml"))
    routes = shortest_path_routes(network)
    assert network.packet_latency_ps.tolist() == [10**6, 10**6, 3 * 10**6, 10**6]
    left = network.node_names.index("left")
    crossing = routes.choices(left, 3)
    assert network.rate_bps[crossing].tolist() == [40 * 10**9, 10 * 10**9]
    assert network.rate_bps[network.link_names.index("right->node3")] == 5 * 10**9


def test_leaf_spine_sample_is_not_oversubscribed() -> None:
    network = build_network(load_fabric(HOSTS / "fabrics" / "leaf-spine.toml"))
    leaf = network.node_names.index("leaf0")
    to_hosts = (network.src_node == leaf) & (network.dst_node < network.hosts)
    to_spines = (network.src_node == leaf) & (network.dst_node >= network.hosts)
    assert network.rate_bps[to_hosts].sum() == network.rate_bps[to_spines].sum() == 100 * 10**9


FAKES = {
    "scontrol": 'printf "gpu01\\ngpu02\\n"',
    "getent": 'case "$2" in gpu01*) echo "10.1.0.1 STREAM $2";; gpu02) echo "10.1.0.2 STREAM $2";; *) exit 2;; esac',
    "srun": 'while [ "${1#-}" != "$1" ]; do shift; done; SLURM_PROCID=3 exec "$@"',
    "genie": 'echo "rank $RANK of $WORLD_SIZE at $MASTER_ADDR: $*"',
}


def batch(folder: Path, script: str = "slurm.sbatch", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script with Slurm's and Genie's programs replaced by fakes."""
    tools = folder / "tools"
    tools.mkdir()
    for name, body in FAKES.items():
        (tools / name).write_text(f"#!/bin/sh\n{body}\n")
        (tools / name).chmod(0o755)
    slurm = {
        "SLURM_JOB_ID": "77",
        "SLURM_JOB_NODELIST": "gpu[01-02]",
        "SLURM_NTASKS_PER_NODE": "4",
        "SLURM_NTASKS": "8",
    }
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [HOSTS / script, "my job.et", "--iterations", "3"],
        cwd=folder, env={**slurm, "PATH": path, **environment}, capture_output=True, text=True,
        check=False, timeout=120,
    )  # fmt: skip


def test_the_batch_script_writes_the_slurm_sample_and_starts_the_ranks(tmp_path: Path) -> None:
    done = batch(tmp_path)
    assert done.returncode == 0, done.stderr
    arguments = "run my job.et --hosts runs/slurm-77.hosts.toml -o runs/slurm-77 --iterations 3"
    assert done.stdout == f"rank 3 of 8 at gpu01: {arguments}\n"
    written = load_hosts(tmp_path / "runs" / "slurm-77.hosts.toml")
    assert written.places == load_hosts(HOSTS / "slurm.toml").places


def test_the_batch_scripts_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `srun`, genie is started once and is no rank. With it, the ranks meet at the first machine."""
    told = 'echo "rank ${RANK:-$SLURM_PROCID} at ${MASTER_ADDR:-no}:${MASTER_PORT:-no}: $*"'
    monkeypatch.setitem(FAKES, "genie", told)
    common = "--hosts HOSTS.toml --fabric FABRIC.toml -o runs/checked"
    expected = (
        f"rank  at no:no: validate --collectives all_reduce,all_to_all {common}\n",
        f"rank 3 at gpu01:20077: validate TRACE {common}\n",
    )
    for script, printed in zip(batch_scripts(tmp_path), expected, strict=True):
        (folder := tmp_path / script.stem).mkdir()
        done = batch(folder, str(script))
        assert done.stdout == printed, done.stderr


def test_the_batch_script_stops_at_a_node_without_address(tmp_path: Path) -> None:
    done = batch(tmp_path, GENIE_DOMAIN="-ib0")
    assert done.returncode == 3
    assert "no IPv4 address for gpu02-ib0" in done.stderr
    assert done.stdout == ""


def test_the_batch_script_plays_another_command_and_ends_with_its_code(tmp_path: Path) -> None:
    done = batch(tmp_path, GENIE_COMMAND="validate")
    assert done.stdout.startswith("rank 3 of 8 at gpu01: validate my job.et --hosts runs/slurm-77.hosts.toml")


def test_a_check_that_takes_too_long_does_not_start_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAKES, "genie", "exec sleep 600")
    done = batch(tmp_path, "slurm-check.sh", GENIE_LIMIT_S="0.2")
    assert done.returncode == 3
    assert done.stderr == "slurm-check.sh: the check took more than 0.2 s\n"


@pytest.mark.parametrize("code", [1, 3])
def test_a_check_that_finds_something_ends_with_its_code(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FAKES, "genie", f"exit {code}")
    assert batch(tmp_path, "slurm-check.sh").returncode == code


@pytest.mark.parametrize("script", ["slurm-check.sh", "slurm.sbatch"])
def test_without_the_names_of_the_nodes_no_job_starts(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FAKES, "scontrol", "echo no configuration >&2; exit 1")
    done = batch(tmp_path, script)
    assert done.returncode == 3
    assert done.stdout == ""


@pytest.mark.parametrize("script", ["slurm-check.sh", "slurm.sbatch"])
@pytest.mark.parametrize("lacking", ["SLURM_JOB_ID", "SLURM_JOB_NODELIST"])
def test_an_empty_list_of_nodes_starts_nothing(script: str, lacking: str, tmp_path: Path) -> None:
    done = batch(tmp_path, script, **{lacking: ""})
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(f"{script}: SLURM_JOB_NODELIST names no nodes: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("script", ["slurm-check.sh", "slurm.sbatch"])
def test_a_list_of_nodes_that_scontrol_expands_to_nothing_starts_nothing(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FAKES, "scontrol", "true")
    done = batch(tmp_path, script)
    assert (done.returncode, done.stdout) == (3, "")
    assert "scontrol does not name the nodes of job 77" in done.stderr


def test_the_check_before_a_job_has_a_rank_on_each_node(tmp_path: Path) -> None:
    done = batch(tmp_path, "slurm-check.sh")
    assert done.returncode == 0, done.stderr
    assert "check --hosts runs/check-77.hosts.toml --out runs/check-77 --json runs/check-77.json" in done.stdout
    written = load_hosts(tmp_path / "runs" / "check-77.hosts.toml")
    assert [(place.rank, place.host) for place in written.places] == [(0, "gpu01"), (1, "gpu02")]
    (tmp_path / "prolog").mkdir()
    (tmp_path / "genie.conf").write_text(f"GENIE_RUNS={tmp_path}/shared\nGENIE_OPTIONS='--rate 25Gb/s'\n")
    context = {"SLURM_SCRIPT_CONTEXT": "prolog_slurmctld", "GENIE_CONF": str(tmp_path / "genie.conf")}
    prolog = batch(tmp_path / "prolog", "slurm-check.sh", **context)
    assert (prolog.returncode, prolog.stdout, prolog.stderr) == (0, "", ""), "nobody reads it"
    log = (tmp_path / "shared" / "check-77.log").read_text()
    assert f"--out {tmp_path}/shared/check-77" in log
    assert " --rate 25Gb/s my job.et" in log
    failed = batch(tmp_path / "runs", "slurm-check.sh", GENIE_DOMAIN="-ib0")
    assert (failed.returncode, failed.stdout) == (3, "")
    assert "no IPv4 address for gpu02-ib0" in failed.stderr
