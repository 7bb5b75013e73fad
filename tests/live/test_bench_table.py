"""nccl-tests' table column by column, its JSON key by key, and both worlds side by side."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from genie.bench import comparison, nccl_json, nccl_table
from genie.bench.asked import Asked, Blocking
from genie.bench.collectives import OPERATIONS
from genie.bench.measured import Measured, MessageTimes

pytestmark = pytest.mark.live

OPERATION = OPERATIONS["all_reduce"]
ASKED = Asked(4, 1024, 5000, None, 1024, 5, 2, 1)
# Where the columns of nccl-tests 2.17 end: size, count, type, redop, root, then time, algbw, busbw, #wrong twice.
ENDS = (12, 26, 36, 44, 52, 61, 69, 77, 85, 94, 102, 110, 118)
PLACEMENT = ["time", "algbw", "busbw", "#wrong"]
ITERATIONS = ["i_min", "i_max", "i_p99", "i_cv%"]
MESSAGES = MessageTimes(40, True, 10.0, 20.0, 30.0, 40.0)


def a_line(time_us: float = 1234.5, wrong: int | None = 0, bus: float = 21.6e9) -> Measured:
    iterations = [[time_us, 2 * time_us], [time_us / 2, time_us]]
    return Measured(
        1 << 20, 1 << 18, time_us, [time_us, time_us], iterations, 12.345e9, bus, 1, wrong, 0, MESSAGES
    )  # fmt: skip


def test_columns_are_where_nccl_tests_has_them() -> None:
    *_, titles, names, units = nccl_table.head(OPERATION, ASKED, ["on here"])
    row = nccl_table.row(OPERATION, ASKED, a_line())
    assert "out-of-place" in titles
    assert titles.index("in-place ") > titles.index("out-of-place") + len("out-of-place")
    words = ["size", "count", "type", "redop", "root", *PLACEMENT * 2]
    cells = ["1048576", "262144", "float", "sum", "-1", "1234.50", "12.35", "21.60", "0", *["N/A"] * 4]
    for end, word, cell in zip(ENDS, words, cells, strict=True):
        assert names[:end].endswith(f" {word}")
        assert row[:end].endswith(f" {cell}")
    assert row.split() == cells
    assert [units[:end].endswith(unit) for end, unit in zip(ENDS[5:8], ("(us)", "(GB/s)", "(GB/s)"), strict=True)]
    assert len(row) == ENDS[-1]


def test_the_head_says_what_is_measured() -> None:
    asked = replace(ASKED, aggregated=3, blocking=Blocking.UNTIMED_BARRIER, per_iteration=True, skipped=1)
    head = nccl_table.head(OPERATION, asked, ["on a", "on b"], ["Simulated by the twin"])
    assert "step: 1024(bytes) warmup iters: 5 iters: 2 agg iters: 3 validation: 1" in head[1]
    assert head[2] == "# Simulated by the twin"
    assert "is not part of the time" in head[3]
    assert head[4].endswith("without the first 1")
    assert [line for line in head if "Rank" in line] == ["#  Rank  0 Group  0 on a", "#  Rank  1 Group  0 on b"]


def test_columns_that_are_asked_for() -> None:
    asked = replace(ASKED, per_iteration=True, percentiles=True, timestamps=True)
    names = nccl_table.head(OPERATION, asked, [])[-2]
    placement = PLACEMENT + ITERATIONS
    assert names.split()[1:] == [
        "size", "count", "type", "redop", "root", *placement * 2, "m_p50", "m_p95", "m_p99", "m_max", "timestamp",
    ]  # fmt: skip
    stamp = "2026-01-02T03:04:05"
    row = nccl_table.row(OPERATION, asked, a_line(), stamp)
    # The slower rank's iterations: 1234.5 and 2469 us, a third apart from their mean.
    assert row.split()[9:13] == ["1234.50", "2469.00", "2469.00", "33.33"]
    assert row.split()[13:21] == ["N/A"] * 8
    assert row.split()[21:] == ["10.00", "20.00", "30.00", "40.00", stamp]
    assert len(row) == len(names) - 1
    only_means = replace(a_line(), messages=replace(MESSAGES, single=False))
    assert nccl_table.row(OPERATION, asked, only_means, stamp).split()[21] == "~10.00"
    none = replace(a_line(), messages=None)
    assert nccl_table.row(OPERATION, asked, none, stamp).split()[21:25] == ["N/A"] * 4


@pytest.mark.parametrize(
    ("value", "width", "text"),
    [
        (0.0, 7, "0.00"),
        (9999.994, 7, "9999.99"),
        (9999.999, 7, "10000.0"),
        (123456.0, 7, "123456"),
        (12345678.0, 7, "1.2e+07"),
        (999.999, 6, "1000.0"),
        (1e9, 6, "1e+09"),
    ],
)
def test_numbers_keep_their_width(value: float, width: int, text: str) -> None:
    assert nccl_table.fitted(value, width) == text


def test_slow_networks_keep_their_digits() -> None:
    slow = replace(a_line(), algorithm_bytes_per_s=12.3456e6, bus_bytes_per_s=0.0)
    assert nccl_table.bandwidth_cells(slow) == ["1234.50", "0.0123", "0.00"]


def test_what_is_wrong_is_counted_and_what_was_not_checked_is_not_called_right() -> None:
    wrong = [a_line(wrong=0), a_line(wrong=17)]
    assert nccl_table.foot(OPERATION, wrong)[:2] == [
        "# Out of bounds values : 17 FAILED",
        "# Avg bus bandwidth    : 21.6 ",
    ]
    assert nccl_table.row(OPERATION, ASKED, wrong[1])[: ENDS[8]].endswith("     17")
    assert nccl_table.row(OPERATION, ASKED, a_line(wrong=None)).split()[8] == "N/A"
    assert nccl_table.foot(OPERATION, [a_line(wrong=None)])[0] == "# Out of bounds values : N/A"
    assert nccl_table.foot(OPERATION, [a_line(wrong=0)])[0] == "# Out of bounds values : 0 OK"


@pytest.mark.parametrize(
    ("minimum", "fast", "word"), [(None, None, ""), (24.0, True, "OK"), (24.01, False, "FAILED"), (0.0, True, "OK")]
)
def test_the_average_is_held_against_nine_tenths_of_what_is_asked(
    minimum: float | None, fast: bool | None, word: str
) -> None:
    lines = [a_line(bus=20.6e9), a_line(bus=22.6e9)]  # 21.6 on average
    assert nccl_table.is_fast_enough(lines, minimum) is fast
    assert nccl_table.foot(OPERATION, lines, minimum)[1] == f"# Avg bus bandwidth    : 21.6 {word}"


# The keys of nccl-tests' file of version 3, and of which type each value is: its truths are strings.
RESULT = {
    "size": int, "count": int, "type": str, "redop": str, "root": str, "out_of_place": dict,
    "out_of_place_per_iter": dict, "in_place": type(None), "actual_iterations": int, "experiment_name": str,
}  # fmt: skip
PER_ITERATION = {
    "skipped_iterations": int, "min_us": float, "max_us": float, "avg_us": float, "p50_us": float, "p95_us": float,
    "p99_us": float, "stdev_us": float, "cv_pct": float, "times_us": list, "per_process_max_times_us": list,
}  # fmt: skip
CONFIG = {
    "nthreads": int, "ngpus": int, "minimum_bytes": int, "maximum_bytes": int, "step_bytes": int, "warmup_iters": int,
    "iterations": int, "aggregated_iterations": int, "validation": int, "graph": int, "blocking_collectives": str,
    "per_iter_timing": str, "per_iter_skip": int, "parallel_init": str, "devices": list,
}  # fmt: skip
DEVICE = {
    "rank": int, "group": int, "pid": type(None), "hostname": str, "device": int, "device_hex": str, "device_info": str,
}  # fmt: skip
FILE = {
    "version": int, "start_time": str, "args": list, "env": list, "nccl_version": type(None), "config": dict,
    "results": list, "out_of_bounds": dict, "average_bus_bandwidth": dict, "errors": list, "end_time": str,
    "genie": dict,
}  # fmt: skip


def types_of(value: dict[str, object]) -> dict[str, type]:
    return {key: type(each) for key, each in value.items()}


def about(minimum: float | None = None) -> nccl_json.Circumstances:
    devices = [nccl_json.Device(0, "node1", 0, "10.0.0.1", "softroce 10.0.0.1")]
    environment = {"NCCL_IB_HCA": "mlx5", "HOME": "here", "SECRET_TOKEN": "x"}
    return nccl_json.Circumstances(["genie", "bench"], environment, "then", "now", devices, minimum)


def test_json_is_that_of_version_3() -> None:
    made = nccl_json.report(ASKED, [(OPERATION, a_line(wrong=3))], about(30.0), {"collective": "all_reduce"})
    report = json.loads(json.dumps(made))
    assert types_of(report) == FILE
    assert report["version"] == 3
    assert types_of(report["config"]) == CONFIG
    assert types_of(report["config"]["devices"][0]) == DEVICE
    (result,) = report["results"]
    assert types_of(result) == RESULT
    assert result["out_of_place"] == {"time": 1234.5, "alg_bw": 12.345, "bus_bw": 21.6, "nwrong": 3}
    times = result["out_of_place_per_iter"]
    assert types_of(times) == PER_ITERATION
    assert times["times_us"] == [max(each) for each in zip(*times["per_process_max_times_us"], strict=True)]
    assert (times["p50_us"], times["p99_us"]) == (2469.0, 2469.0)
    assert report["out_of_bounds"] == {"count": 3, "okay": "false"}
    assert report["average_bus_bandwidth"] == {"bandwidth": 21.6, "okay": "false"}
    assert report["env"] == ["NCCL_IB_HCA=mlx5"], "what may be a secret is not kept"
    assert report["genie"]["lines"][0]["messages"]["p95_us"] == 20.0


def test_json_of_what_was_not_checked() -> None:
    asked = replace(ASKED, step_factor=2, step_bytes=None, skipped=1, blocking=Blocking.WAIT)
    report = nccl_json.report(asked, [(OPERATION, a_line(wrong=None))], about(), {})
    assert report["config"]["step_factor"] == 2
    assert "step_bytes" not in report["config"]
    assert report["config"]["blocking_collectives"] == "true"
    assert report["results"][0]["out_of_place"]["nwrong"] is None
    assert report["average_bus_bandwidth"]["okay"] == "unchecked"
    per_iteration = report["results"][0]["out_of_place_per_iter"]
    assert (per_iteration["min_us"], len(per_iteration["times_us"])) == (2469.0, 2)


def test_both_worlds_side_by_side() -> None:
    live, simulated = [(OPERATION, a_line())], [(OPERATION, a_line(1000.0, None, 24e9))]
    titles, names, units, row = comparison.table(live, simulated)
    assert titles.split() == ["#", "measured", "simulated"]
    assert names.split()[1:] == ["size", "root", *["time", "algbw", "busbw"] * 2, "ratio"]
    assert len(names) == len(units) == len(row)
    assert row.split() == ["1048576", "-1", "1234.50", "12.35", "21.60", "1000.00", "12.35", "24.00", "0.900"]
    assert comparison.compared(live, simulated) == [{"size": 1 << 20, "bus_bw_ratio": pytest.approx(0.9)}]
    nothing = replace(a_line(), bus_bytes_per_s=0.0)
    assert comparison.ratio(a_line(), nothing) == 0.0
