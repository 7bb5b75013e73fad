"""What a bench of a collective plays, what its times mean, and the table, column by column."""

from __future__ import annotations

from fractions import Fraction

import polars as pl
import pytest

from genie.collectives import Action, block_sizes, choose, lower
from genie.live.bench import nccl_table
from genie.live.bench.collectives import OPERATIONS, Counters, Measured, Operation, chain, measured
from genie.live.bench.sizes import parse_size
from genie.workload.graph import Kind, Op

RANKS = 4


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("all_reduce", Fraction(2 * 7, 8)),
        ("all_gather", Fraction(7, 8)),
        ("reduce_scatter", Fraction(7, 8)),
        ("all_to_all", Fraction(7, 8)),
        ("gather", Fraction(7, 8)),
        ("scatter", Fraction(7, 8)),
        ("broadcast", Fraction(1)),
        ("reduce", Fraction(1)),
        ("sendrecv", Fraction(1)),
    ],
)
def test_bus_bandwidth_factors_of_eight_ranks(name: str, factor: Fraction) -> None:
    assert OPERATIONS[name].bus_factor(8) == factor


# Size asked for -> size played, element count, size of the graph's node, for 4 ranks.
SIZES = {
    ("all_reduce", 1000): (1000, 250, 1000),
    ("all_reduce", 1001): (1000, 250, 1000),
    ("broadcast", 8): (8, 2, 8),
    ("sendrecv", 8): (8, 2, 8),
    ("all_gather", 1024): (1024, 64, 256),  # the node has one rank's input
    ("gather", 1000): (960, 60, 240),  # shares are multiples of 16 bytes
    ("reduce_scatter", 1000): (960, 60, 960),
    ("all_to_all", 1024): (1024, 64, 1024),
    ("all_to_all", 63): (0, 0, 0),
}


@pytest.mark.parametrize(("name", "size_bytes"), SIZES)
def test_sizes_are_those_of_nccl_tests(name: str, size_bytes: int) -> None:
    operation = OPERATIONS[name]
    total = operation.total_bytes(size_bytes, RANKS)
    count = operation.share_bytes(size_bytes, RANKS) // 4
    assert (total, count, operation.node_bytes(size_bytes, RANKS)) == SIZES[name, size_bytes]


def busiest_bytes(operation: Operation, size_bytes: int) -> int:
    """The most that any rank sends or receives, by the template of the algorithm for large sizes."""
    op, root = operation.name, max(operation.root, 0)
    most = 0
    for position in range(RANKS):
        algorithm = choose(op, RANKS, operation.node_bytes(size_bytes, RANKS))
        template = lower(op, algorithm, RANKS, position, root=root)
        sizes = block_sizes(op, algorithm, RANKS, position, operation.node_bytes(size_bytes, RANKS), root=root)
        block = (position + template.block) % RANKS if template.relative else template.block
        step_bytes = sizes[template.block_base + block]
        sends = template.action == Action.SEND
        most = max(most, int(step_bytes[sends].sum()), int(step_bytes[~sends].sum()))
    return most


@pytest.mark.parametrize("name", sorted(set(OPERATIONS) - {"sendrecv"}))
def test_bus_bandwidth_is_what_the_busiest_link_carries(name: str) -> None:
    operation, size_bytes = OPERATIONS[name], 1 << 20
    assert busiest_bytes(operation, size_bytes) == size_bytes * operation.bus_factor(RANKS)


def test_sendrecv_goes_around_a_ring() -> None:
    graph = chain(OPERATIONS["sendrecv"], RANKS, 1024, count=1, warmup=0).ranks[3]
    assert [Kind(kind) for kind in graph.kind] == [Kind.SEND, Kind.RECV]
    assert graph.peer.tolist() == [0, 2]
    assert graph.size_bytes.tolist() == [1024] * 2


def test_a_chain_is_warm_ups_a_barrier_and_the_timed_ones() -> None:
    workload = chain(OPERATIONS["all_gather"], RANKS, 1024, count=2, warmup=3)
    for rank in range(RANKS):
        graph = workload.ranks[rank]
        assert graph.name == ["warm-up 0", "warm-up 1", "warm-up 2", "barrier", "timed 0", "timed 1"]
        assert graph.deps.tolist() == [0, 1, 2, 3, 4]  # each after the one before
        assert [Op(op) for op in graph.op][3] is Op.BARRIER
        assert graph.size_bytes.tolist() == [256, 256, 256, 0, 256, 256]
    pairs = chain(OPERATIONS["sendrecv"], RANKS, 64, count=2, warmup=0).ranks[3]
    assert pairs.name == ["timed 0", "timed 0", "timed 1", "timed 1"]
    assert pairs.deps.tolist() == [0, 1, 0, 1]  # both of the second wait for both of the first


def timeline() -> pl.DataFrame:
    """Two ranks, a warm-up and two timed operations: rank 0 takes 30 us from first to last, rank 1 50 us."""
    rows = [
        (0, "warm-up 0", 0, 9_000_000),
        (0, "timed 0", 10_000, 22_000),
        (0, "timed 1", 22_000, 40_000),
        (1, "warm-up 0", 0, 9_000_000),
        (1, "timed 0", 15_000, 40_000),
        (1, "timed 1", 41_000, 65_000),
    ]
    return pl.DataFrame(rows, schema=["rank", "name", "start_ns", "end_ns"], orient="row")


def test_times_are_the_mean_of_the_ranks_and_bandwidths_follow() -> None:
    counters: Counters = [
        {"verified_bytes": 7, "wrong_bytes": 2, "retransmitted": 3},
        None,  # lost with its rank
        {"verified_bytes": 5, "wrong_bytes": 1, "retransmitted": 4},
    ]
    line = measured(OPERATIONS["all_reduce"], 2, 8000, timeline(), counters, True)
    assert line.rank_times_us == [15.0, 25.0]
    assert line.time_us == 20.0
    assert line.times_us == [25.0, 24.0]
    assert line.algorithm_bytes_per_s == 400e6  # 8000 B in 20 us
    assert line.bus_bytes_per_s == line.algorithm_bytes_per_s  # 2 (2 - 1) / 2
    assert (line.verified_bytes, line.wrong_bytes, line.retransmitted) == (12, 3, 7)
    uncounted = measured(OPERATIONS["all_reduce"], 2, 8000, timeline(), [*counters, {"retransmitted": 0}], True)
    assert uncounted.wrong_bytes is None, "a rank that did not look has not found everything right"
    assert measured(OPERATIONS["all_reduce"], 2, 8000, timeline(), counters, False).wrong_bytes is None
    gathered = measured(OPERATIONS["all_gather"], 2, 8000, timeline(), counters, False)
    assert gathered.bus_bytes_per_s == gathered.algorithm_bytes_per_s / 2


def a_line(time_us: float = 1234.5, wrong: int | None = 0) -> Measured:
    return Measured(1 << 20, 1 << 18, time_us, [time_us], [time_us, 2 * time_us], 12.345e9, 21.6e9, 1, wrong, 0)


ASKED = nccl_table.Asked(4, 1024, 5000, None, 1024, 5, 20, 1)
# Where the columns of nccl-tests 2.17 end: size, count, type, redop, root, then time, algbw, busbw, #wrong twice.
ENDS = (12, 26, 36, 44, 52, 61, 69, 77, 85, 94, 102, 110, 118)


def test_columns_are_where_nccl_tests_has_them() -> None:
    operation = OPERATIONS["all_reduce"]
    *_, titles, names, units = nccl_table.head(operation, ASKED, ["on here"])
    row = nccl_table.row(operation, a_line())
    assert "out-of-place" in titles
    assert titles.index("in-place ") > titles.index("out-of-place") + len("out-of-place")
    words = ["size", "count", "type", "redop", "root", *["time", "algbw", "busbw", "#wrong"] * 2]
    cells = ["1048576", "262144", "float", "sum", "-1", "1234.50", "12.35", "21.60", "0", *["N/A"] * 4]
    for end, word, cell in zip(ENDS, words, cells, strict=True):
        assert names[:end].endswith(f" {word}")
        assert row[:end].endswith(f" {cell}")
    assert row.split() == cells
    assert [units[:end].endswith(unit) for end, unit in zip(ENDS[5:8], ("(us)", "(GB/s)", "(GB/s)"), strict=True)]
    assert len(row) == ENDS[-1]
    assert "step: 1024(bytes) warmup iters: 5 iters: 20 agg iters: 1 validation: 1" in "\n".join(
        nccl_table.head(operation, ASKED, [])
    )


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


def test_what_is_wrong_is_counted_and_what_was_not_checked_is_not_called_right() -> None:
    operation = OPERATIONS["all_reduce"]
    wrong = [a_line(wrong=0), a_line(wrong=17)]
    assert nccl_table.foot(operation, wrong)[:2] == [
        "# Out of bounds values : 17 FAILED",
        "# Avg bus bandwidth    : 21.6 ",
    ]
    assert nccl_table.row(operation, wrong[1])[: ENDS[8]].endswith("     17")
    assert nccl_table.row(operation, a_line(wrong=None)).split()[8] == "N/A"
    report = nccl_table.report(operation, ASKED, wrong, {})
    assert report["out_of_bounds"] == {"count": 17, "okay": False}
    assert [result["out_of_place"]["nwrong"] for result in report["results"]] == [0, 17]
    assert report["results"][0]["out_of_place_per_iter"]["p50_us"] == 1234.5
    assert report["results"][0]["out_of_place_per_iter"]["p99_us"] == 2469.0


def test_sizes_between_two() -> None:
    assert ASKED.sizes_bytes == [1024, 2048, 3072, 4096]
    by_factor = nccl_table.Asked(2, 8, 100, 3, None, 0, 1, 0)
    assert by_factor.sizes_bytes == [8, 24, 72]


@pytest.mark.parametrize(
    ("text", "size_bytes"), [("8", 8), ("1K", 1024), ("64k", 65536), ("4M", 4 << 20), ("1GiB", 1 << 30), ("2KB", 2048)]
)
def test_size_suffixes(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5K", "K", "8T", "1e3", "65G", "8 8"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="K, M or G"):
        parse_size(text)
