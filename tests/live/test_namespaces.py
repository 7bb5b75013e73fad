"""One mpirun over two network namespaces, as over two machines: routes, path MTU, and clocks a day apart."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from live_runs import GENIE, Ended, rings, started

from genie.record import open_run

pytestmark = pytest.mark.live

ROOT = Path(__file__).resolve().parent.parent.parent
MPIRUN = str(Path(sys.executable).parent / "mpirun")
DAY_S = 86_400


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=120)


@pytest.fixture(scope="module")
def pair(as_root: None) -> Iterator[tuple[str, str]]:
    """Two namespaces with a cable between them: 10.77.0.1 and 10.77.0.2, Ethernet's usual MTU of 1500."""
    names = (f"genie{os.getpid()}a", f"genie{os.getpid()}b")
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", "cable", "netns", names[0], "type", "veth", "peer", "name", "cable", "netns", names[1])
        for number, name in enumerate(names, start=1):
            ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", "cable")
            ip("-n", name, "link", "set", "cable", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True, timeout=120)


HOSTS = """
[[host]]
name = "a"
ranks = "0-1"
address = "10.77.0.1"

[[host]]
name = "b"
ranks = "2-3"
address = "10.77.0.2"
"""


def run_in(pair: tuple[str, str], folder: Path, *given: str, far: str = "") -> Ended:
    """Ranks 0 and 1 in the first namespace, 2 and 3 in the second, as docs/the-lab.md has it."""
    (folder / "hosts.toml").write_text(HOSTS)
    wrapper = (
        f'case $PMI_RANK in 0|1) exec ip netns exec {pair[0]} "$@";; *) exec ip netns exec {pair[1]} {far} "$@";; esac'
    )
    job = ["run", rings(folder / "rings"), "--hosts", str(folder / "hosts.toml"), "--gpu", "none"]
    job += ["-o", str(folder / "out")]
    with started(line=[MPIRUN, "-n", "4", "sh", "-c", wrapper, "sh", str(GENIE), *job, *given]) as command:
        return command.end()


def ethernet(folder: Path) -> str:
    fabric = folder / "fabric.toml"
    text = (ROOT / "hosts" / "fabrics" / "single-switch.toml").read_text()
    fabric.write_text(text.replace("mtu = 4096", "mtu = 1024").replace("100Gb/s", "200Mb/s"))
    return str(fabric)


def test_two_ranks_on_each_of_two_hosts(pair: tuple[str, str], tmp_path: Path) -> None:
    ended = run_in(pair, tmp_path, "--fabric", ethernet(tmp_path), "-n", "3")
    assert (ended.code, ended.said, ended.left) == (0, [], [])
    run = open_run(tmp_path / "out")
    assert run.info["complete"] is True
    assert run.timeline.n_unique("rank") == 4
    assert run.info["clock_bound_ns"] == [0, 0, 0, 0]  # one kernel, one clock
    for counters in run.counters["ranks"]:
        assert counters["data_sent"] > 0
        assert counters["wrong_rank"] == counters["strangers"] == counters["bad_icrc"] == 0
        # A host that stalls beyond the timeout of an ACK sends a few packets again; a wrong address sends all again.
        assert counters["retransmitted"] <= counters["data_sent"] / 20


def test_without_a_fabric_the_path_mtu_is_found(pair: tuple[str, str], tmp_path: Path) -> None:
    ended = run_in(pair, tmp_path, "--rate", "200Mb/s")
    assert (ended.code, ended.said, ended.left) == (0, [], [])
    run = open_run(tmp_path / "out")
    assert run.info["settings"]["mtu"] == 1024
    assert all(counters["bytes_sent"] / counters["datagrams_sent"] < 1500 for counters in run.counters["ranks"])


def test_packets_that_are_too_long_for_the_path(pair: tuple[str, str], tmp_path: Path) -> None:
    large = Path(ethernet(tmp_path))
    large.write_text(large.read_text().replace("mtu = 1024", "mtu = 4096"))
    ended = run_in(pair, tmp_path, "--fabric", str(large))
    assert (ended.code, ended.left) == (2, [])
    assert len(ended.said) == 1
    assert "from rank 0 at 10.77.0.1 to rank 2 at 10.77.0.2 takes packets of 1500 bytes" in ended.said[0]
    assert "mtu = 1024" in ended.said[0]


def test_an_address_without_a_route(pair: tuple[str, str], tmp_path: Path) -> None:
    hosts = HOSTS.replace("10.77.0.2", "10.88.0.2")
    (tmp_path / "far.toml").write_text(hosts)
    ended = run_in(pair, tmp_path, "--hosts", str(tmp_path / "far.toml"))
    assert ended.code == 2
    assert len(ended.said) == 1
    assert "no route from rank 0 at 10.77.0.1 to rank 2 at 10.88.0.2: Network is unreachable" in ended.said[0]


def test_clocks_a_day_apart(pair: tuple[str, str], tmp_path: Path) -> None:
    """The second host's monotonic clock is a day ahead: the record says so, and the timeline has one origin."""
    ahead = f"unshare --time --fork --kill-child --monotonic {DAY_S}"
    ended = run_in(pair, tmp_path, "--fabric", ethernet(tmp_path), "-n", "5", far=ahead)
    assert (ended.code, ended.said, ended.left) == (0, [], [])
    run = open_run(tmp_path / "out")
    bounds, offsets = run.info["clock_bound_ns"], run.info["clock_offset_ns"]
    assert (bounds[:2], offsets[:2]) == ([0, 0], [0, 0])
    for rank in (2, 3):
        assert 0 < bounds[rank] < 1_000_000
        assert abs(offsets[rank] - DAY_S * 10**9) <= bounds[rank]
    slack_ns = 2 * max(bounds)
    # Nothing arrives before it was posted, or is acknowledged before it has arrived, on whatever clock.
    order = run.transfers.select(
        there=(pl.col("first_ns") - pl.col("post_ns")).min(), back=(pl.col("acked_ns") - pl.col("last_ns")).min()
    ).row(0)
    assert order[0] > -slack_ns
    assert order[1] > -slack_ns
    # Members of a collective end within a fraction of its duration of each other, where the machine was not busy.
    ends = (
        run.timeline.filter(pl.col("kind") == "coll")
        .group_by("iteration", "seq")
        .agg(
            apart=pl.col("end_ns").max() - pl.col("end_ns").min(),
            took=pl.col("end_ns").max() - pl.col("start_ns").max(),
        )
    )
    assert ends.select((pl.col("apart") / pl.col("took")).quantile(0.25)).item() < 0.5
