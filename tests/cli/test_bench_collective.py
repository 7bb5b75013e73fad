"""`genie bench COLLECTIVE`: nccl-tests' flags, table and gate, on loopback, in the twin, and both side by side."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from live_runs import Ended, genie, loopback
from test_bench import rows_of, said
from test_usage import in_this_process

from genie.bench.collectives import OPERATIONS
from genie.cli.bench import worlds as benching_worlds
from genie.cli.bench.flags import MEANINGLESS
from genie.cli.main import Interrupted
from genie.live.launch.launcher import LaunchError
from genie.live.settings import RunSettings

pytestmark = pytest.mark.exclusive


MORE = [pytest.param(name, marks=pytest.mark.extended) for name in ("all_to_all", "sendrecv")]


@pytest.mark.parametrize("name", ["all_reduce", *MORE])
def test_a_collective_of_three_sizes(name: str, tmp_path: Path) -> None:
    report_path = tmp_path / "report.json"
    ended = genie(
        *("bench", name, "--ranks", "4", "-b", "1K", "-e", "16K", "-f", "4", "-n", "5", "-w", "2"),
        *("--hosts", loopback(tmp_path), "--rate", "200Mb/s", "--json", str(report_path)),
    )
    assert (ended.code, ended.left, said(ended)) == (0, [], []), ended.stderr
    rows = rows_of(ended.stdout)
    assert [int(row[0]) for row in rows] == [1024, 4096, 16384]
    assert "# Out of bounds values : 0 OK" in ended.stdout
    report = json.loads(report_path.read_text())
    factor = float(OPERATIONS[name].bus_factor(4))
    for row, result in zip(rows, report["results"], strict=True):
        figures = result["out_of_place"]
        assert figures["alg_bw"] == pytest.approx(result["size"] / figures["time"] / 1e3, rel=1e-6)  # B/us to GB/s
        assert figures["bus_bw"] == pytest.approx(figures["alg_bw"] * factor, rel=1e-6)
        assert 0 < figures["bus_bw"] <= 0.025  # 25 MB/s per rank: no rank may be faster than its line
        assert [float(cell) for cell in row[5:8]] == pytest.approx([*figures.values()][:3], abs=0.051)
        assert (row[8:], figures["nwrong"]) == (["0", *["N/A"] * 4], 0)
        iterations = result["out_of_place_per_iter"]["per_process_max_times_us"]
        assert [len(times) for times in iterations] == [5] * 4
    lines = report["genie"]["lines"]
    assert all(line["verified_bytes"] >= 7 * line["size_bytes"] for line in lines)  # of 7 operations
    # One message to each peer of an all-to-all, or around the ring of sends; six around that of an all-reduce.
    assert lines[-1]["messages"]["single"] is (name != "all_reduce")
    for line in lines:
        assert 0 < line["messages"]["p50_us"] <= line["messages"]["p99_us"] <= line["messages"]["max_us"]
    assert report["genie"]["run"]["settings"]["verify"] is True
    assert report["genie"]["run"]["rate_bps"] == 200_000_000


def test_unchecked_bytes_are_not_called_right(tmp_path: Path) -> None:
    ended = genie(
        *("bench", "broadcast", "--hosts", loopback(tmp_path, ranks=2), "-b", "64", "-e", "128", "-i", "64"),
        *("-n", "2", "-w", "0", "-c", "0", "--events", "--rate", "200Mb/s", "--out", str(tmp_path / "kept")),
    )
    assert ended.code == 0, ended.stderr
    assert [row[8] for row in rows_of(ended.stdout)] == ["N/A", "N/A"]
    assert "validation: 0" in ended.stdout
    kept = sorted(path.name for path in (tmp_path / "kept").iterdir())
    assert kept == ["broadcast-128", "broadcast-128.trace", "broadcast-64", "broadcast-64.trace"]
    # The kept trace is a workload like any other.
    assert genie("inspect", str(tmp_path / "kept" / "broadcast-64.trace")).code == 0


def test_wrong_bytes_fail_the_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = benching_worlds.run_ranks

    def one_goes_wrong(settings: RunSettings, line: list[str], what: str, limit_s: float | None) -> None:
        real(settings, line, what, limit_s)
        if what.endswith(" 2048 bytes"):
            path = settings.out_path / "counters.json"
            counters: dict[str, Any] = json.loads(path.read_text())
            counters["ranks"][1]["wrong_bytes"] += 3
            path.write_text(json.dumps(counters))
            raise LaunchError("bytes are wrong", 1)

    monkeypatch.setattr(benching_worlds, "run_ranks", one_goes_wrong)
    ended = in_this_process(
        *("bench", "all_reduce", "--hosts", loopback(tmp_path, ranks=2), "-b", "1K", "-e", "4K", "-n", "2"),
        *("--rate", "200Mb/s"),
    )
    assert ended.code == 1, ended.stderr
    assert [row[8] for row in rows_of(ended.stdout)] == ["0", "3", "0"]
    assert "# Out of bounds values : 3 FAILED" in ended.stdout
    assert ended.stderr.splitlines()[-1] == "genie: 3 bytes of what arrived are not what was sent"


SIMULATED = ("--simulate", "--ranks", "4", "--rate", "200Mb/s", "-b", "64K", "-e", "256K", "-f", "4")


def simulated(*options: str, name: str = "all_reduce", code: int = 0) -> tuple[list[list[str]], Ended]:
    """Return the rows of a table of the twin, which needs no time on the wire."""
    ended = in_this_process("bench", name, *SIMULATED, *options)
    assert ended.code == code, ended.stderr
    return rows_of(ended.stdout), ended


def test_the_twin_fills_the_same_table(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    options = ("--wire", "plain", "-n", "3", "-w", "1", "--seed", "7")
    rows, ended = simulated(*options, "-J", str(path))
    assert "# Simulated by the twin: level packet+skip, seed 7, fabric loopback4" in ended.stdout
    assert [row[0] for row in rows] == ["65536", "262144"]
    assert all(row[8] == "N/A" for row in rows), "there is no payload that could be wrong"
    # A ring of 4 at 25 MB/s: 3/2 of the size, and headers beside it.
    assert [float(row[5]) for row in rows] == pytest.approx([65536 * 1.5 / 25, 262144 * 1.5 / 25], rel=0.05)
    report = json.loads(path.read_text())
    assert (report["version"], report["genie"]["world"]) == (3, "twin")
    assert report["genie"]["run"]["seed"] == 7
    assert report["config"]["devices"][3]["hostname"] == "host3"
    again, _ = simulated(*options)
    assert again == rows


def test_the_twin_takes_the_hosts_latency_from_their_file(tmp_path: Path) -> None:
    hosts = Path(loopback(tmp_path))
    options = (
        "bench",
        "all_reduce",
        "--simulate",
        "--hosts",
        str(hosts),
        "--rate",
        "200Mb/s",
        "--wire",
        "plain",
        *SMALL,
    )
    without = in_this_process(*options)
    assert "no calibrated host latency given" in without.stderr
    hosts.write_text(hosts.read_text() + '[calibration]\npacket_latency_ns = 50000\nrate = "200Mb/s"\n')
    calibrated = in_this_process(*options)
    assert calibrated.stderr == ""
    here, there = (float(rows_of(ended.stdout)[0][5]) for ended in (without, calibrated))
    assert there - here == pytest.approx(7 * 50, abs=1)  # six steps of a ring, and the last acknowledgement


SMALL = ("-b", "64K", "-e", "64K", "-n", "1", "-w", "0")


def test_the_fabric_says_how_many_ranks_there_are() -> None:
    fabric = "hosts/fabrics/leaf-spine.toml"
    ended = in_this_process("bench", "reduce", "--simulate", "--fabric", fabric, *SMALL)
    assert ended.code == 0, ended.stderr
    assert f"fabric leaf-spine ({fabric})" in ended.stdout
    assert "# Using devices" in ended.stdout
    assert ended.stdout.count(" Group  0 on ") == 16


def test_flags_mean_what_they_mean_in_nccl_tests() -> None:
    one, _ = simulated("-n", "2", "-w", "0")
    twice, _ = simulated("-n", "2", "-w", "0", "-N", "2")
    assert [row[0] for row in twice] == ["65536", "262144"] * 2
    bytes_each, _ = simulated("-n", "2", "-w", "0", "-d", "int8", "-o", "max")
    assert [row[1:4] for row in bytes_each] == [["65536", "int8", "max"], ["262144", "int8", "max"]]
    assert [row[5] for row in bytes_each] == [row[5] for row in one]
    apart, _ = simulated("-n", "2", "-w", "0", "-m", "2", "-z", "2")
    assert [float(row[5]) for row in apart] == pytest.approx([float(row[5]) for row in one], rel=0.01)
    met, _ = simulated("-n", "2", "-w", "0", "-z", "1")
    assert all(float(here[5]) > float(there[5]) for here, there in zip(met, one, strict=True)), "barriers take time"
    untimed, _ = simulated("-n", "2", "-w", "0", "-z", "3")
    assert [float(row[5]) for row in untimed] == pytest.approx([float(row[5]) for row in one], rel=0.01)
    spread, ended = simulated("-n", "2", "-w", "0", "-I", "1", "-K", "1", "--percentiles", "-S", "1", "-G", "0", "-g1")
    assert "without the first 1" in ended.stdout
    assert len(spread[0]) == 5 + 2 * 8 + 4 + 2  # a timestamp is two words


def test_a_rooted_operation_from_each_root() -> None:
    rows, _ = simulated("-n", "1", "-w", "0", "-r", "all", name="broadcast")
    assert [row[4] for row in rows] == ["0", "0", "1", "1", "2", "2", "3", "3"]
    rows, _ = simulated("-n", "1", "-w", "0", "-r", "2", name="gather")
    assert {row[4] for row in rows} == {"2"}
    rows, _ = simulated("-n", "1", "-w", "0", "-r", "2", name="all_gather")
    assert {row[4] for row in rows} == {"-1"}


@pytest.mark.parametrize(("minimum", "code", "okay"), [("0.02", 0, "true"), ("0.05", 1, "false")])
def test_a_bandwidth_below_what_is_asked_fails_the_bench(
    minimum: str, code: int, okay: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_TESTS_MIN_BW", minimum)  # GB/s; the line rate is 0.025
    path = tmp_path / "report.json"
    _, ended = simulated("-n", "1", "-w", "0", "-J", str(path), code=code)
    assert json.loads(path.read_text())["average_bus_bandwidth"]["okay"] == okay
    said = "genie: the average bus bandwidth, 0.02"
    assert (said in ended.stderr) is (code == 1)
    assert ("GB/s, is below 0.9 times NCCL_TESTS_MIN_BW, 0.05 GB/s" in ended.stderr) is (code == 1)


def test_a_minimum_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_TESTS_MIN_BW", "fast")
    _, ended = simulated(code=2)
    assert ended.stderr == "genie: NCCL_TESTS_MIN_BW=fast: give GB/s, such as 48.5\n"


@pytest.mark.parametrize("flag", MEANINGLESS)
def test_flags_without_a_meaning_are_refused_by_name(flag: str) -> None:
    long, neutral, _ = MEANINGLESS[flag]
    for given in ([flag, str(neutral + 1)], [f"{flag}{neutral + 1}"], [f"{long}={neutral + 1}"], [long]):
        ended = in_this_process("bench", "all_reduce", "--ranks", "2", *given)
        assert (ended.code, ended.stdout) == (2, ""), ended
        assert len(ended.stderr.splitlines()) == 1
        assert ended.stderr.startswith((f"genie: {flag} ", f"genie: {long} "))
        assert ended.stderr.endswith("; leave it out\n")


@pytest.mark.parametrize("wrong", [("--wire", "tin"), ("--algorithm", "nosuch"), ("--slice-delay", "long")])
def test_no_table_begins_that_is_refused(wrong: tuple[str, str]) -> None:
    rows, ended = simulated(*wrong, code=2)
    assert (rows, ended.stdout) == ([], "")
    assert ended.stderr.startswith(f"genie: {wrong[0]} ")


def test_measured_beside_simulated(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    ended = genie(
        *("bench", "all_reduce", "--compare", "--ranks", "4", "--hosts", loopback(tmp_path), "--rate", "200Mb/s"),
        *("-b", "256K", "-e", "1M", "-f", "4", "-n", "5", "-w", "2", "-J", str(path)),
    )
    assert (ended.code, ended.left) == (0, []), ended.stderr
    rows = rows_of(ended.stdout)
    assert [row[0] for row in rows] == ["262144", "1048576"] * 3, "measured, simulated, and both"
    measured, simulated, both = rows[:2], rows[2:4], rows[4:]
    for live, twin, beside in zip(measured, simulated, both, strict=True):
        assert beside[2:8] == [*live[5:8], *twin[5:8]]
        assert float(beside[8]) == pytest.approx(float(twin[5]) / float(live[5]), abs=0.002)
        assert 0.5 < float(beside[8]) < 1.1, "neither world is far from the other"
    report = json.loads(path.read_text())
    assert [result["size"] for result in report["genie"]["simulated"]] == [262144, 1048576]
    assert report["genie"]["compared"][0]["bus_bw_ratio"] == pytest.approx(float(both[0][8]), abs=0.001)
    assert report["genie"]["twin"]["world"] == "twin"
    assert report["results"][0]["out_of_place"]["nwrong"] == 0


@pytest.mark.extended
def test_a_size_that_takes_too_long_ends_the_bench(tmp_path: Path) -> None:
    ended = genie(
        *("bench", "all_reduce", "--hosts", loopback(tmp_path, ranks=2), "--rate", "1Mb/s", "-b", "4M", "-e", "4M"),
        *("-T", "0.5"),
    )
    assert (ended.code, ended.left) == (1, []), ended
    assert "all_reduce of 4194304 bytes: not done in 0.5 s" in said(ended)[0]
    assert ended.wall_s < 20


@pytest.mark.extended
def test_an_earlier_trace_with_more_ranks_is_replaced(tmp_path: Path) -> None:
    options = ("-b", "1K", "-e", "1K", "-n", "1", "-w", "1", "--rate", "200Mb/s", "--out", str(tmp_path / "kept"))
    for ranks in (3, 2):
        ended = in_this_process("bench", "reduce", "--hosts", loopback(tmp_path, ranks=ranks), *options)
        assert ended.code == 0, ended.stderr
    assert len(list((tmp_path / "kept" / "reduce-1024.trace").glob("*.et"))) == 2


@pytest.mark.extended
@pytest.mark.parametrize("world", ["LiveWorld", "TwinWorld"])
def test_lines_are_kept_when_a_later_size_fails(world: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, path = getattr(benching_worlds, world), tmp_path / "report.json"
    real = chosen.play
    error, code, words = {
        "LiveWorld": (LaunchError("a cable was pulled", 1), 1, "a cable was pulled"),
        "TwinWorld": (Interrupted(signal.SIGINT), 130, "interrupted"),
    }[world]

    def play(self: Any, workload: Any, name: str, what: str) -> Any:
        if what.endswith(" 4096 bytes"):
            raise error
        return real(self, workload, name, what)

    monkeypatch.setattr(chosen, "play", play)
    ended = in_this_process(
        *("bench", "all_reduce", "--hosts", loopback(tmp_path, ranks=2), "-b", "1K", "-e", "8K", "-n", "2"),
        *("--rate", "200Mb/s", "--compare", "-J", str(path)),
    )
    assert (ended.code, ended.stderr.splitlines()[-1]) == (code, f"genie: {words}")
    report = json.loads(path.read_text())
    sizes = [each["size"] for each in report["results"]]
    assert sizes == ([1024, 2048] if world == "LiveWorld" else [1024, 2048, 4096, 8192])
    assert report["errors"] == [words]
    assert len(report["genie"]["lines"]) == len(sizes)
    assert report["genie"]["run"]["world"] == "live"
    for key in ("simulated", "compared"):
        found = [each["size"] for each in report["genie"].get(key, [])]
        assert found == ([] if world == "LiveWorld" else [1024, 2048])
