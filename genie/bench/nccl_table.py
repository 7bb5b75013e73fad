"""nccl-tests' table: the same lines and columns, so that a parser of theirs reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from genie.bench.asked import Asked, Blocking
from genie.bench.collectives import Operation
from genie.bench.measured import Measured

GIGA = 1e9
NOT_THERE = "N/A"
MINIMUM_SHARE = 0.9  # of the bandwidth that NCCL_TESTS_MIN_BW requires
TIME_FORMAT = "%Y-%m-%d %H:%M:%S"

_BLOCKING = {
    Blocking.BARRIER: "a barrier after each operation is part of the time",
    Blocking.WAIT: "operations go one after another, without a barrier",
    Blocking.UNTIMED_BARRIER: "a barrier after each iteration is not part of the time",
}


@dataclass(frozen=True)
class Column:
    """One column: its two header lines and its width."""

    name: str
    unit: str
    width: int


_LEAD = [
    Column("size", "(B)", 12),
    Column("count", "(elements)", 12),
    Column("type", "", 8),
    Column("redop", "", 6),
    Column("root", "", 6),
]
_HALF = [Column("time", "(us)", 7), Column("algbw", "(GB/s)", 6), Column("busbw", "(GB/s)", 6), Column("#wrong", "", 6)]
_ITERATIONS = [Column(f"i_{name}", "(us)", 7) for name in ("min", "max", "p99")] + [Column("i_cv%", "(%)", 7)]
_MESSAGES = [Column(f"m_{name}", "(us)", 8) for name in ("p50", "p95", "p99", "max")]
_STAMP = [Column("timestamp", TIME_FORMAT, 19)]


def _placement(asked: Asked) -> list[Column]:
    return _HALF + (_ITERATIONS if asked.per_iteration else [])


def columns(asked: Asked) -> list[Column]:
    """Columns from left to right: nccl-tests' and, with --percentiles, those of messages."""
    placement = _placement(asked)
    return (
        _LEAD + placement * 2 + (_MESSAGES if asked.percentiles else []) + (_STAMP if asked.timestamps else [])
    )  # fmt: skip


def head(operation: Operation, asked: Asked, places: Sequence[str], notes: Sequence[str] = ()) -> list[str]:
    """The lines above the table. `places`: the place of each rank; `notes`: more notes for the reader."""
    step = f"{asked.step_factor}(factor)" if asked.step_factor else f"{asked.step_bytes}(bytes)"
    warnings = [*notes]
    if blocking := _BLOCKING.get(asked.blocking):
        warnings.append(f"Blocking: {blocking}")
    if asked.per_iteration:
        without = f", without the first {asked.skipped}" if asked.skipped else ""
        warnings.append(f"i_: iterations, each on its slowest rank{without}")
    if asked.percentiles:
        warnings.append("m_: messages, from post to acknowledgement; with ~ means of each transfer's messages")
    shown, lead = columns(asked), sum(column.width + 2 for column in _LEAD)
    half = sum(column.width + 2 for column in _placement(asked))
    return [
        f"# Collective test starting: {operation.name}",
        f"# nThread 1 nGpus 1 minBytes {asked.minimum_bytes} maxBytes {asked.maximum_bytes} step: {step} "
        f"warmup iters: {asked.warmup} iters: {asked.iterations} agg iters: {asked.aggregated} "
        f"validation: {asked.check} graph: 0",
        *(f"# {warning}" for warning in warnings),
        "#",
        "# Using devices",
        *(f"#  Rank {rank:2d} Group  0 {place}" for rank, place in enumerate(places)),
        "#",
        "#" + " " * (lead - 1) + "out-of-place".center(half) + "in-place".center(half),
        "# " + _joined([column.name for column in shown], shown)[2:] + " ",
        "# " + _joined([column.unit for column in shown], shown)[2:] + " ",
    ]  # fmt: skip


def _joined(words: Sequence[str], shown: Sequence[Column]) -> str:
    return "  ".join(f"{word:>{column.width}}" for word, column in zip(words, shown, strict=True))


def row(operation: Operation, asked: Asked, line: Measured, timestamp: str = "") -> str:
    """The line of one size. No data is reduced, so that in place and out of place are the same."""
    return _joined(
        [
            str(line.size_bytes),
            str(line.count),
            operation.data_type,
            operation.redop,
            str(operation.root),
            *placement_cells(line),
            *(_iteration_cells(asked, line) if asked.per_iteration else []),
            *[NOT_THERE] * len(_placement(asked)),
            *(_message_cells(line) if asked.percentiles else []),
            *([timestamp] if asked.timestamps else []),
        ],
        columns(asked),
    )


def bandwidth_cells(line: Measured) -> list[str]:
    """Time, algorithm and bus bandwidth."""
    values = (line.time_us, line.algorithm_bytes_per_s / GIGA, line.bus_bytes_per_s / GIGA)
    time_us, *bandwidths = values
    return [fitted(time_us, _HALF[0].width), *(_bandwidth(value) for value in bandwidths)]


def _bandwidth(gb_per_s: float) -> str:
    """A bandwidth as nccl-tests prints it; low values, which would round to 0, get as many decimals as fit."""
    return f"{gb_per_s:.4f}" if 0 < gb_per_s < 1 else fitted(gb_per_s, 6)


def placement_cells(line: Measured) -> list[str]:
    """Cells for time, bandwidths and wrong bytes."""
    return [*bandwidth_cells(line), NOT_THERE if line.wrong_bytes is None else f"{line.wrong_bytes:g}"]


def _iteration_cells(asked: Asked, line: Measured) -> list[str]:
    times = line.iterations(asked.skipped)
    values = (times.minimum_us, times.maximum_us, times.percentile_99_us, times.variation_percent)
    return [fitted(value, 7) for value in values]


def _message_cells(line: Measured) -> list[str]:
    times = line.messages
    if times is None:
        return [NOT_THERE] * len(_MESSAGES)
    values = (times.percentile_50_us, times.percentile_95_us, times.percentile_99_us, times.maximum_us)
    return [("" if times.single else "~") + fitted(value, 7) for value in values]


def fitted(value: float, width: int) -> str:
    """The value with up to two decimals, as many as fit."""
    for decimals in (2, 1, 0):
        text = f"{value:.{decimals}f}"
        if len(text) <= width:
            return text
    return f"{value:.{1 if width >= 7 else 0}e}"


def average_bus_bytes_per_s(lines: Sequence[Measured]) -> float:
    """Mean over all lines."""
    return sum(line.bus_bytes_per_s for line in lines) / len(lines) if lines else 0.0


def is_fast_enough(lines: Sequence[Measured], minimum_gb_per_s: float | None) -> bool | None:
    """Whether the average meets NCCL_TESTS_MIN_BW; None when it is not set."""
    if minimum_gb_per_s is None:
        return None
    return average_bus_bytes_per_s(lines) / GIGA >= MINIMUM_SHARE * minimum_gb_per_s


def wrong_bytes(lines: Sequence[Measured]) -> int:
    """Wrong bytes over all lines."""
    return sum(line.wrong_bytes or 0 for line in lines)


def retransmitted(lines: Sequence[Measured]) -> int:
    """Retransmitted packets over all sizes."""
    return sum(line.retransmitted for line in lines)


def foot(operation: Operation, lines: Sequence[Measured], minimum_gb_per_s: float | None = None) -> list[str]:
    """The lines below the table."""
    wrong, fast = wrong_bytes(lines), is_fast_enough(lines, minimum_gb_per_s)
    is_checked = any(line.wrong_bytes is not None for line in lines)
    found = f"{wrong} {'FAILED' if wrong else 'OK'}" if is_checked else NOT_THERE
    judged = "" if fast is None else "OK" if fast else "FAILED"
    return [
        f"# {'Out of bounds values':<20} : {found}",
        f"# {'Avg bus bandwidth':<20} : {average_bus_bytes_per_s(lines) / GIGA:g} {judged}",
        "#",
        f"# Collective test concluded: {operation.name}",
    ]
