"""`genie bench pairs`: the matrix of all pairs, measured and simulated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from live_runs import genie, loopback
from test_bench import said
from test_usage import in_this_process

from genie.cli.bench import pairs as benching_pairs
from genie.cli.bench.runs import BenchSite
from genie.config.hosts import load_hosts
from genie.job.job import Job
from genie.job.options import LiveOptions, TrafficOptions
from genie.job.site import ExecutionSite
from genie.workload.graph import Workload
from simtwin.fabric.reading import loopback_fabric

pytestmark = pytest.mark.live


def test_a_matrix_of_all_pairs(tmp_path: Path) -> None:
    out, path = tmp_path / "kept", tmp_path / "pairs.json"
    ended = genie(
        *("bench", "pairs", "--hosts", loopback(tmp_path), "--rate", "200Mb/s", "-s", "64K", "-n", "2"),
        *("--small-iters", "5", "-o", str(out), "--json", str(path)),
    )
    assert (ended.code, ended.left, said(ended)) == (0, [], []), ended.stderr
    assert "# All pairs of 4 ranks in 3 rounds of disjoint pairs, one direction after the other" in ended.stdout
    report = json.loads(path.read_text())
    assert (report["rounds"], report["world"], report["wrong_bytes"]) == (3, "live", 0)
    for source in range(4):
        for target in range(4):
            bandwidth, latency = report["bytes_per_s"][source][target], report["latency_us"][source][target]
            if source == target:
                assert bandwidth is latency is None
            else:
                assert 5e6 < bandwidth < 25e6  # the line rate; headers take some of it
                assert 0 < latency <= report["latency_99_us"][source][target]
    assert (out / "pairs.html").read_text().startswith("<!doctype html>")
    assert sorted(entry.name for entry in out.iterdir()) == ["pairs", "pairs.html", "pairs.trace"]


def test_a_matrix_of_the_twin_names_a_slow_rank(tmp_path: Path) -> None:
    fabric = tmp_path / "fabric.toml"
    fabric.write_text(
        'name = "four"\n[topology]\nkind = "single-switch"\nhosts = 4\n[link]\nrate = "1Gb/s"\ndelay = "1us"\n'
        '[[fault]]\nlink = "host2->switch"\nat = "0s"\nrate = "500Mb/s"\n'
    )
    ended = in_this_process("bench", "pairs", "--simulate", "--fabric", str(fabric), "-s", "256K", "--both-ways")
    assert ended.code == 0, ended.stderr
    assert "# Simulated by the twin: level packet+skip, seed 1, fabric four" in ended.stdout
    assert "# 3 of 12 directed pairs are below 0.93 of the best" in ended.stdout
    assert "# rank 2 (host2) sends to all others at 0.50 of the best" in ended.stdout


def test_a_stage_that_others_have_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = load_hosts(Path(loopback(tmp_path, ranks=2)))

    class ElsewhereSite(ExecutionSite):
        def wrapper(self, ranks: int) -> tuple[str, ...]:
            return ("env", "GENIE_PLACE=there")

    @contextmanager
    def staged(traffic: TrafficOptions, live: LiveOptions, *_: object, **__: object) -> Iterator[BenchSite]:
        job = Job(traffic, live, Workload("bench", 2, [], {}), hosts, loopback_fabric(2, 10**8))
        yield BenchSite(ElsewhereSite(traffic, live), job)

    monkeypatch.setattr(benching_pairs, "staged", staged)
    path = tmp_path / "pairs.json"
    ended = in_this_process("-v", "bench", "pairs", "-s", "64K", "-n", "1", "--small-iters", "1", "--json", str(path))
    assert ended.code == 0, ended.stderr
    assert " -n 2 env GENIE_PLACE=there " in ended.stderr
    report = json.loads(path.read_text())
    assert report["run"]["rate_bps"] == 10**8, "the fabric's links have that rate"
    assert report["run"]["settings"]["addresses"] == [place.address for place in hosts.places]
