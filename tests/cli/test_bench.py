"""`genie bench` of a path, on loopback, and the errors and notes of all benches."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from live_runs import Ended, genie, loopback, pid_of, started
from test_usage import in_this_process

from genie.bench.collectives import OPERATIONS
from genie.cli.bench import paths as benching_paths
from genie.cli.bench.collective import COLLECTIVE_EXAMPLES
from genie.cli.bench.pairs import PAIRS_EXAMPLES
from genie.cli.bench.paths import PINGPONG_EXAMPLES, WRITE_EXAMPLES
from genie.config.hosts import load_hosts
from genie.live.settings import RunSettings

pytestmark = pytest.mark.live


def rows_of(table: str) -> list[list[str]]:
    """Return the lines of a table without its head and foot."""
    return [line.split() for line in table.splitlines() if line and not line.startswith(("#", "-"))]


def said(ended: Ended) -> list[str]:
    """Lines of a bench except its command and retransmissions, which a busy machine may cause."""
    return [line for line in ended.said if "packets were sent again" not in line]


def test_a_ping_pong_of_two_ranks(tmp_path: Path) -> None:
    report_path = tmp_path / "report.json"
    ended = genie(
        *("bench", "pingpong", "-n", "250", "--hosts", loopback(tmp_path, ranks=2), "--rate", "10Mb/s", "--events"),
        *("--json", str(report_path)),
    )
    assert (ended.code, ended.left, said(ended)) == (0, [], []), ended.stderr
    (row,) = rows_of(ended.stdout)[-1:]
    least, most, typical, average, deviation, percentile_99, percentile_99_9 = map(float, row[2:])
    assert row[:2] == ["64", "250"]
    # 64 bytes at 10 Mb/s: half a round trip cannot be shorter than one message's time on the line.
    assert 51.2 < least <= typical <= percentile_99 <= percentile_99_9 == most
    assert least <= average <= most
    assert deviation <= most - least
    report = json.loads(report_path.read_text())
    assert report["bench"] == "pingpong"
    assert [line["wrong_bytes"] for line in report["lines"]] == [0]
    assert report["settings"]["rate_bps"] == 10_000_000
    # 250 counted round trips in two batches or more, each with one that is not counted; both ranks send.
    assert all(rank["counters"]["data_sent"] >= 252 for rank in report["ranks"])


@pytest.mark.parametrize("options", [[], ["--queue-pairs", "4", "--depth", "8", "--mtu", "1024", "--no-offload"]])
def test_a_stream_of_writes(options: list[str], tmp_path: Path) -> None:
    report_path = tmp_path / "report.json"
    ended = genie(
        *("bench", "write", "-s", "16K", "-n", "100", "--hosts", loopback(tmp_path, ranks=2), "--rate", "200Mb/s"),
        *("--json", str(report_path), "--report-gbits", *options),
    )
    assert (ended.code, ended.left, said(ended)) == (0, [], []), ended.stderr
    (row,) = rows_of(ended.stdout)[-1:]
    assert row[:2] == ["16384", "100"]
    peak, average, messages = float(row[2]), float(row[3]), float(row[4])
    assert 0.02 < average <= peak
    assert average < 0.2  # the line rate; headers take some of it
    assert messages == pytest.approx(average * 1e3 / 16384 / 8, rel=0.1)
    report = json.loads(report_path.read_text())
    (line,) = report["lines"]
    assert (line["messages"], line["wrong_bytes"]) == (100, 0)
    sender = report["ranks"][0]["counters"]
    mtu_bytes = 1024 if options else report["mtu_bytes"]
    assert sender["data_sent"] - sender["retransmitted"] == 100 * 16384 // mtu_bytes
    if options:
        assert report["settings"]["offload"] is False
        assert sender["datagrams_sent"] >= 100 * 16


def test_all_sizes_of_a_ping_pong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benching_paths, "ALL_SIZES", [2, 4096, 100_000])
    ended = in_this_process("bench", "pingpong", "-a", "-n", "5", "--hosts", loopback(tmp_path, ranks=2))
    assert ended.code == 0, ended.stderr
    assert [row[:2] for row in rows_of(ended.stdout) if row[0].isdigit()] == [
        ["2", "5"], ["4096", "5"], ["100000", "5"],
    ]  # fmt: skip


def test_a_wrong_byte_fails_the_bench_of_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = benching_paths.run_ranks

    def one_goes_wrong(settings: RunSettings, line: list[str], what: str) -> None:
        real(settings, line, what)
        path = settings.out_path / "run.json"
        info: dict[str, Any] = json.loads(path.read_text())
        info["lines"][0]["wrong_bytes"] += 5
        path.write_text(json.dumps(info))

    monkeypatch.setattr(benching_paths, "run_ranks", one_goes_wrong)
    ended = in_this_process("bench", "write", "-n", "5", "--hosts", loopback(tmp_path, ranks=2))
    assert ended.code == 1
    assert ended.stderr.splitlines()[-1] == "genie: 5 bytes of what arrived are not what was sent"


def test_both_ranks_at_one_address_are_refused(tmp_path: Path) -> None:
    hosts = loopback(tmp_path, ranks=2, shared=True)
    ended = in_this_process("bench", "pingpong", "--hosts", hosts)
    assert (ended.code, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"genie: {hosts}: ranks 0 and 1 have one address, 127.")
    assert ended.stderr.endswith(": choose others with --ends\n")


def test_the_ends_of_a_path_are_chosen(tmp_path: Path) -> None:
    report_path, hosts = tmp_path / "report.json", loopback(tmp_path, ranks=4)
    options = ("--hosts", hosts, "--ends", "3,1", "--json", str(report_path))
    softroce = ("--congestion", "dcqcn", "--source-ports", "50001", "--traffic-class", "104", "--icrc", "plain")
    ended = in_this_process("bench", "write", "-n", "5", "--rate", "200Mb/s", *options, *softroce)
    assert ended.code == 0, ended.stderr
    settings = json.loads(report_path.read_text())["settings"]
    assert settings["addresses"] == [load_hosts(Path(hosts)).places[rank].address for rank in (3, 1)]
    assert [settings[key] for key in ("congestion", "source_ports", "traffic_class", "icrc")] == [
        {"kind": "dcqcn"}, "50001", 104, "plain",
    ]  # fmt: skip


@pytest.mark.extended
def test_a_bench_of_a_slow_path_ends_within_its_limits(tmp_path: Path) -> None:
    """8 KiB at 1 Mb/s: 66 ms one way, so that a hundred round trips are no measure of a limit."""
    options = ("bench", "pingpong", "-s", "8K", "--rate", "1Mb/s", "--hosts", loopback(tmp_path, ranks=2))
    ended = genie(*options, "-n", "4", "--stall", "1")
    assert ended.code == 0, ended.stderr
    late = genie(*options, "-n", "1000", "--limit", "0.5")
    assert (late.code, late.left) == (1, [])
    assert "not done in 0.5 s: give a smaller -n, or a larger --limit" in said(late)[0]
    stalled = genie(*options, "-n", "4", "--stall", "0.1")
    assert (stalled.code, stalled.left) == (1, [])
    assert "did not end in 0.1 s: slow paths need more --stall" in said(stalled)[0]


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_bench_that_is_told_to_end_leaves_nothing(end: signal.Signals, tmp_path: Path) -> None:
    environment = {"TMPDIR": str(tmp_path / "temporary")}
    (tmp_path / "temporary").mkdir()
    options = ("bench", "write", "-n", "100000000", "--rate", "1Mb/s", "--hosts", loopback(tmp_path, ranks=2))
    with started(*options, environment=environment) as command:
        command.until(lambda: any((tmp_path / "temporary").glob("genie-bench-*")))
        os.kill(command.process.pid, end)
        ended = command.end()
    assert (ended.code, ended.left) == (128 + end, [])
    assert (end.name if end != signal.SIGINT else "interrupted") in ended.stderr
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_failed_run_is_one_line_below_the_table(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.toml"
    # 192.0.2.0/24 is for documentation: no address of it can be bound here.
    hosts.write_text('[[host]]\nname = "localhost"\nranks = "0-1"\naddress = "192.0.2.{rank+1}"\n')
    for test in ("all_reduce", "write"):
        ended = in_this_process("bench", test, "--hosts", str(hosts))
        assert ended.code in (2, 3), ended
        (line,) = said(ended)
        assert "192.0.2.1" in line
        assert "genie-bench-" not in line, "it names a folder that is gone"


def test_packets_sent_again_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = benching_paths.run_ranks

    def one_is_lost(settings: RunSettings, line: list[str], what: str) -> None:
        real(settings, line, what)
        path = settings.out_path / "run.json"
        info: dict[str, Any] = json.loads(path.read_text())
        info["ranks"][0]["counters"]["retransmitted"] += 3
        path.write_text(json.dumps(info))

    monkeypatch.setattr(benching_paths, "run_ranks", one_is_lost)
    ended = in_this_process("bench", "write", "-n", "5", "--rate", "200Mb/s", "--hosts", loopback(tmp_path, ranks=2))
    assert ended.code == 0
    assert "3 packets were sent again" in ended.stderr


def test_a_rank_that_dies_ends_the_bench(tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ("-n", "1000000", "--rate", "200Mb/s", "-o", str(out), "--hosts", loopback(tmp_path, ranks=2))
    with started("bench", "write", *options) as command:
        command.until(lambda: (out / "write" / "parts" / "00001.facts.json").exists())
        victim = pid_of(out / "write", 1)
        assert victim is not None
        os.kill(victim, signal.SIGKILL)
        ended = command.end()
    assert (ended.code, ended.left) == (1, []), ended
    assert len(said(ended)) == 1
    assert "rank 1 died" in said(ended)[0]


WRONG = {
    "all_reduce": "give --ranks N for loopback, or --hosts FILE",
    "all_reduce --ranks 1": "'--ranks'",
    "all_reduce --ranks 2 -b 8x": "-b 8x: give bytes, or a number with K, M or G",
    "all_reduce --ranks 2 -b 2M -e 1M": "-b 2M is more than -e 1M",
    "all_reduce --ranks 2 -f 2 -i 1K": "-f 2 and -i 1K: give one of the two",
    "all_reduce --ranks 2 -n 0": "'--iters'",
    "all_reduce --ranks 2 --algorithm magic": "all_reduce has ring, tree",
    "sendrecv --ranks 2 --algorithm ring": "sendrecv has no other algorithm",
    "all_reduce --ranks 2 --rate fast": "--rate fast: is not a number with a unit",
    "all_reduce --ranks 2 --transport carrier-pigeon": "--transport carrier-pigeon: must be softroce or verbs",
    "all_reduce --ranks 2 --queue-pairs 129": "'--queue-pairs'",
    "all_reduce --hosts nowhere.toml": "nowhere.toml: cannot be read",
    "all_reverse --ranks 2": "all_reverse",
    "all_reduce --ranks 2 -o runs/mine": "-o runs/mine: must be one of sum, prod, max, min, avg, mulsum; --out is",
    "all_reduce --ranks 2 -d complex": "-d complex: must be one of int8, uint8, int32",
    "broadcast --ranks 2 -r 2": "-r 2: must be a rank in 0..1, or all",
    "all_reduce --ranks 2 -N 0": "'--run_cycles'",
    "all_reduce --ranks 2 -a 4": "'--average'",
    "all_reduce --ranks 2 -z 4": "'--blocking'",
    "all_reduce --ranks 2 -n 5 -K 5": "-K 5: leaves none of 5 iterations",
    "all_reduce --ranks 2 --simulate": "--simulate: a loopback without a rate takes no time: give --rate, or --fabric",
    "all_reduce --ranks 2 --simulate --level psychic": "--level psychic: must be one of packet, packet+skip, flow",
    "all_reduce --ranks 99 --simulate --fabric hosts/fabrics/leaf-spine.toml": "16 hosts",
    "pairs": "give --ranks N for loopback, or --hosts FILE",
    "pairs --ranks 2 -n 257": "'--iters'",
    "pairs --ranks 1000 --rate 1Gb/s": "1000 ranks are more than 4000000: give a smaller -n or --small-iters",
    "pairs --ranks 2 --small-size 8x": "--small-size 8x: give bytes",
    "pairs --ranks 2 --simulate": "--simulate: a loopback without a rate takes no time",
    "all_reduce --ranks 2 --congestion prayer": "--congestion prayer: must be one of none, window, dcqcn,",
    "all_reduce --ranks 2 --source-ports pinned": "--source-ports pinned: is for genie run and validate",
    "all_reduce --ranks 2 --source-ports 80": "source ports '80': must be pair, nccl",
    "all_reduce --ranks 2 -b 8 -e 4M -i 8": "-i 8: is more than 1000 sizes from 8 to 4M",
    "all_reduce --ranks 2 --json nowhere/a.json": "--json nowhere/a.json: its folder is not there",
    "write --json .": "--json .: is a folder",
    "pingpong --transport verbs --rate 1Gb/s": "a line rate of 1000000000 b/s: --transport verbs sends as fast as",
    "pingpong --transport verbs --verbs timeout=99": "--verbs timeout=99: timeout must be a number in 0..31",
    "all_reduce --ranks 2 --verbs timeout=14": "--verbs timeout=14: no rank of this run is on verbs",
    "all_reduce --ranks 2 --transport verbs --verbs pages=on": "--verbs pages=on: must be KEY=VALUE, with one of",
    "write --verbs timeout=14": "--verbs timeout=14: no rank of this run is on verbs",
    "write --mtu 1500": "--mtu 1500: must be 256, 512, 1024, 2048, 4096",
    "write -s 2G": "-s 2G: give bytes, or a number with K, M or G, from 1 to 1G",
    "write -s 64 -a": "-s 64 and -a: give one of the two",
    "write --ends 0,0": "--ends 0,0: give two ranks of the hosts file",
    "write --ends 0,2": "--ends 0,2: are ranks of a hosts file: give --hosts FILE too",
    "write --ends 0,8 --hosts hosts/cluster.toml": "--ends 0,8: hosts/cluster.toml has ranks 0 to 7",
    "write --hosts hosts/cluster.toml": "ranks 0 and 1 have one address, 10.0.0.1: choose others with --ends",
    "write --source-ports 4780-4800": "--source-ports 4780-4800: 4791 is the port that softroce receives at",
    "all_reduce --ranks 2 --mtu 1500": "--mtu 1500: must be 256, 512, 1024, 2048, 4096",
    "write -s much": "-s much: give bytes, or a number with K, M or G",
    "write --depth 0": "'--depth'",
    "pingpong --rate 0": "--rate 0: is out of range",
    "pingpong -n 0": "'--iters'",
    "pingpong --hosts nowhere.toml": "nowhere.toml: cannot be read",
}


@pytest.mark.parametrize("given", WRONG)
def test_wrong_usage_is_one_line(given: str) -> None:
    ended = in_this_process("bench", *given.split())
    assert ended.code == 2
    assert ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    assert ended.stderr.startswith("genie: ")
    assert WRONG[given] in ended.stderr


@pytest.mark.parametrize(
    ("name", "examples"),
    [
        ("all_reduce", COLLECTIVE_EXAMPLES),
        ("pingpong", PINGPONG_EXAMPLES),
        ("write", WRITE_EXAMPLES),
        ("pairs", PAIRS_EXAMPLES),
    ],
)
def test_help_has_examples_that_keep_their_lines(name: str, examples: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    shown = in_this_process("bench", name, "--help")
    assert (shown.code, shown.stderr) == (0, "")
    assert max(map(len, shown.stdout.splitlines())) <= 100
    lines = [line.strip() for line in shown.stdout.splitlines()]
    for line in examples.splitlines():
        assert line.strip() in lines or "```" in line


def test_the_overview_of_benches_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    shown = in_this_process("bench", "--help")
    assert shown.code == 0
    for name in (*OPERATIONS, "pairs", "pingpong", "write"):
        assert f"│ {name} " in shown.stdout
