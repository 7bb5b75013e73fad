"""`genie bench`, on loopback: tables that parse, figures that agree with one another, wrong bytes that are found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from live_runs import genie, loopback
from test_usage import in_this_process

from genie.cli import benching
from genie.cli.benching import COLLECTIVE_EXAMPLES
from genie.live.bench.collectives import OPERATIONS
from genie.live.launcher import LaunchError
from genie.live.settings import RunSettings


def rows_of(table: str) -> list[list[str]]:
    """The lines of a table that are none of its head and foot."""
    return [line.split() for line in table.splitlines() if line and not line.startswith(("#", "-"))]


@pytest.mark.parametrize("name", ["all_reduce", "all_to_all", "sendrecv"])
def test_a_collective_of_three_sizes(name: str, tmp_path: Path) -> None:
    report_path = tmp_path / "report.json"
    ended = genie(
        *("bench", name, "--ranks", "4", "-b", "1K", "-e", "16K", "-f", "4", "-n", "5", "-w", "2"),
        *("--hosts", loopback(tmp_path), "--rate", "200Mb/s", "--json", str(report_path)),
    )
    assert (ended.code, ended.left) == (0, []), ended.stderr
    assert ended.said == []
    rows = rows_of(ended.stdout)
    assert [int(row[0]) for row in rows] == [1024, 4096, 16384]
    assert "# Out of bounds values : 0 OK" in ended.stdout
    report = json.loads(report_path.read_text())
    factor = float(OPERATIONS[name].bus_factor(4))
    for row, result in zip(rows, report["results"], strict=True):
        figures = result["out_of_place"]
        assert figures["alg_bw"] == pytest.approx(result["size"] / figures["time"] / 1e3, rel=1e-6)  # B/us to GB/s
        assert figures["bus_bw"] == pytest.approx(figures["alg_bw"] * factor, rel=1e-6)
        assert 0 < figures["bus_bw"] <= 0.025  # 25 MB/s a rank: nothing may be faster than its line
        assert [float(cell) for cell in row[5:8]] == pytest.approx([*figures.values()][:3], abs=0.051)
        assert (row[8:], figures["nwrong"]) == (["0", *["N/A"] * 4], 0)
    lines = report["genie"]["lines"]
    assert all(line["verified_bytes"] >= 7 * line["size_bytes"] for line in lines)  # of 7 operations
    assert all(len(line["times_us"]) == 5 and len(line["rank_times_us"]) == 4 for line in lines)
    assert report["genie"]["run"]["settings"]["verify"] is True
    assert report["genie"]["run"]["rate_bps"] == 200_000_000


def test_unchecked_bytes_are_not_called_right(tmp_path: Path) -> None:
    ended = genie(
        *("bench", "broadcast", "--hosts", loopback(tmp_path, ranks=2), "-b", "64", "-e", "128", "-i", "64"),
        *("-n", "2", "-w", "0", "-c", "0", "--rate", "200Mb/s", "-o", str(tmp_path / "kept")),
    )
    assert ended.code == 0, ended.stderr
    assert [row[8] for row in rows_of(ended.stdout)] == ["N/A", "N/A"]
    assert "validation: 0" in ended.stdout
    kept = sorted(path.name for path in (tmp_path / "kept").iterdir())
    assert kept == ["broadcast-128", "broadcast-128.trace", "broadcast-64", "broadcast-64.trace"]
    # The kept trace is a workload as any other.
    assert genie("inspect", str(tmp_path / "kept" / "broadcast-64.trace")).code == 0


def test_wrong_bytes_fail_the_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = benching.run_ranks

    def one_goes_wrong(settings: RunSettings, line: list[str], what: str) -> None:
        real(settings, line, what)
        if what.endswith(" 2048 bytes"):
            path = settings.out_path / "counters.json"
            counters: dict[str, Any] = json.loads(path.read_text())
            counters["ranks"][1]["wrong_bytes"] += 3
            path.write_text(json.dumps(counters))
            raise LaunchError("bytes are wrong", 1)

    monkeypatch.setattr(benching, "run_ranks", one_goes_wrong)
    ended = in_this_process(
        *("bench", "all_reduce", "--hosts", loopback(tmp_path, ranks=2), "-b", "1K", "-e", "4K", "-n", "2"),
        *("--rate", "200Mb/s"),
    )
    assert ended.code == 1, ended.stderr
    assert [row[8] for row in rows_of(ended.stdout)] == ["0", "3", "0"]
    assert "# Out of bounds values : 3 FAILED" in ended.stdout


WRONG = {
    "all_reduce": "give --ranks N for loopback, or --hosts FILE",
    "all_reduce --ranks 1": "'--ranks'",
    "all_reduce --ranks 2 -b 8x": "-b 8x: give bytes, or a number with K, M or G",
    "all_reduce --ranks 2 -b 2M -e 1M": "-b 2M is more than -e 1M",
    "all_reduce --ranks 2 -f 2 -i 1K": "-f 2 and -i 1K: give one of the two",
    "all_reduce --ranks 2 -n 0": "'--iters'",
    "all_reduce --ranks 2 --algorithm magic": "all_reduce has ring, recursive_doubling",
    "sendrecv --ranks 2 --algorithm ring": "sendrecv has none to choose from",
    "all_reduce --ranks 2 --rate fast": "--rate fast: is not a number with a unit",
    "all_reduce --ranks 2 --transport carrier-pigeon": "--transport carrier-pigeon: must be softroce or verbs",
    "all_reduce --ranks 2 --queue-pairs 129": "'--queue-pairs'",
    "all_reduce --hosts nowhere.toml": "nowhere.toml: cannot be read",
    "all_reverse --ranks 2": "all_reverse",
}


@pytest.mark.parametrize("given", WRONG)
def test_wrong_usage_is_one_line(given: str) -> None:
    ended = in_this_process("bench", *given.split())
    assert ended.code == 2
    assert ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    assert ended.stderr.startswith("genie: ")
    assert WRONG[given] in ended.stderr


@pytest.mark.parametrize("name", ["all_reduce", "alltoall"])
def test_help_has_examples_that_keep_their_lines(name: str) -> None:
    shown = genie("bench", name, "--help")
    assert (shown.code, shown.stderr) == (0, "")
    assert max(map(len, shown.stdout.splitlines())) <= 100
    lines = [line.strip() for line in shown.stdout.splitlines()]
    for line in COLLECTIVE_EXAMPLES.splitlines():
        assert line.strip() in lines or "```" in line


def test_the_overview_of_benches_names_them() -> None:
    shown = genie("bench", "--help")
    assert shown.code == 0
    for name in OPERATIONS:
        assert f"│ {name} " in shown.stdout
