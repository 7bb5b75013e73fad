"""nccl-tests' table and its JSON: the same lines and columns, so that what reads theirs reads ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from genie.live.bench.collectives import Measured, Operation

GIGA = 1e9
JSON_VERSION = 2
NOT_THERE = "N/A"
_LEAD = (12, 12, 8, 6, 6)  # widths of size, count, type, redop, root
_HALF = (7, 6, 6, 6)  # and of time, algbw, busbw, #wrong, twice


@dataclass(frozen=True)
class Asked:
    """What was asked for, as the table's head and the JSON say it."""

    ranks: int
    minimum_bytes: int
    maximum_bytes: int
    step_factor: int | None
    step_bytes: int | None
    warmup: int
    iterations: int
    check: int

    @property
    def sizes_bytes(self) -> list[int]:
        """From the smallest to the largest."""
        sizes, size = [], self.minimum_bytes
        while size <= self.maximum_bytes:
            sizes.append(size)
            size = size * self.step_factor if self.step_factor else size + (self.step_bytes or 0)
        return sizes


def head(operation: Operation, asked: Asked, places: Sequence[str]) -> list[str]:
    """The lines above the table. `places`: what each rank is and where."""
    step = f"{asked.step_factor}(factor)" if asked.step_factor else f"{asked.step_bytes}(bytes)"
    return [
        f"# Collective test starting: {operation.name}",
        f"# nThread 1 nGpus 1 minBytes {asked.minimum_bytes} maxBytes {asked.maximum_bytes} step: {step} "
        f"warmup iters: {asked.warmup} iters: {asked.iterations} agg iters: 1 validation: {asked.check} graph: 0",
        "#",
        "# Using devices",
        *(f"#  Rank {rank:2d} Group  0 {place}" for rank, place in enumerate(places)),
        "#",
        _header(["", "", "", "", ""]) + "           out-of-place                       in-place          ",
        _header(["size", "count", "type", "redop", "root", *["time", "algbw", "busbw", "#wrong"] * 2]) + " ",
        _header(["(B)", "(elements)", "", "", "", *["(us)", "(GB/s)", "(GB/s)", ""] * 2]) + " ",
    ]  # fmt: skip


def _header(words: list[str]) -> str:
    return "# " + _joined(words)[2:]


def _joined(words: Sequence[str]) -> str:
    widths = (*_LEAD, *_HALF, *_HALF)
    return "  ".join(f"{word:>{width}}" for word, width in zip(words, widths, strict=False))


def row(operation: Operation, line: Measured) -> str:
    """One size. No data is reduced, so that there is nothing in place to tell from out of place."""
    wrong = NOT_THERE if line.wrong_bytes is None else f"{line.wrong_bytes:g}"
    return _joined(
        [
            str(line.size_bytes),
            str(line.count),
            "float",
            operation.redop,
            str(operation.root),
            fitted(line.time_us, _HALF[0]),
            fitted(line.algorithm_bytes_per_s / GIGA, _HALF[1]),
            fitted(line.bus_bytes_per_s / GIGA, _HALF[2]),
            wrong,
            *[NOT_THERE] * 4,
        ]
    )


def fitted(value: float, width: int) -> str:
    """With as many decimals, up to two, as there is room for."""
    for decimals in (2, 1, 0):
        text = f"{value:.{decimals}f}"
        if len(text) <= width:
            return text
    return f"{value:.{1 if width >= 7 else 0}e}"


def average_bus_bytes_per_s(lines: Sequence[Measured]) -> float:
    """Mean of all lines."""
    return sum(line.bus_bytes_per_s for line in lines) / len(lines) if lines else 0.0


def wrong_bytes(lines: Sequence[Measured]) -> int:
    """Of all lines."""
    return sum(line.wrong_bytes or 0 for line in lines)


def retransmitted(lines: Sequence[Measured]) -> int:
    """Packets sent again, in all sizes."""
    return sum(line.retransmitted for line in lines)


def foot(operation: Operation, lines: Sequence[Measured]) -> list[str]:
    """The lines below the table."""
    wrong = wrong_bytes(lines)
    return [
        f"# {'Out of bounds values':<20} : {wrong} {'FAILED' if wrong else 'OK'}",
        f"# {'Avg bus bandwidth':<20} : {average_bus_bytes_per_s(lines) / GIGA:g} ",
        "#",
        f"# Collective test concluded: {operation.name}",
    ]


def report(operation: Operation, asked: Asked, lines: Sequence[Measured], settings: dict[str, Any]) -> dict[str, Any]:
    """All figures and the settings, in the shape of nccl-tests' JSON; `genie`: what only we have."""
    wrong = wrong_bytes(lines)
    return {
        "version": JSON_VERSION,
        "config": {
            "nthreads": 1,
            "ngpus": 1,
            "minimum_bytes": asked.minimum_bytes,
            "maximum_bytes": asked.maximum_bytes,
            **({"step_factor": asked.step_factor} if asked.step_factor else {"step_bytes": asked.step_bytes}),
            "warmup_iters": asked.warmup,
            "iterations": asked.iterations,
            "aggregated_iterations": 1,
            "validation": asked.check,
            "graph": 0,
        },
        "results": [_result(operation, line) for line in lines],
        "out_of_bounds": {"count": wrong, "okay": wrong == 0},
        "average_bus_bandwidth": {"bandwidth": average_bus_bytes_per_s(lines) / GIGA, "okay": "unchecked"},
        "genie": {"collective": operation.name, **settings, "lines": [asdict(line) for line in lines]},
    }


def _result(operation: Operation, line: Measured) -> dict[str, Any]:
    return {
        "size": line.size_bytes,
        "count": line.count,
        "type": "float",
        "redop": operation.redop,
        "root": str(operation.root),
        "out_of_place": {
            "time": line.time_us,
            "alg_bw": line.algorithm_bytes_per_s / GIGA,
            "bus_bw": line.bus_bytes_per_s / GIGA,
            "nwrong": line.wrong_bytes,
        },
        "out_of_place_per_iter": {
            "min_us": min(line.times_us),
            "max_us": max(line.times_us),
            "avg_us": sum(line.times_us) / len(line.times_us),
            "p50_us": line.percentile_us(50),
            "p95_us": line.percentile_us(95),
            "p99_us": line.percentile_us(99),
            "times_us": line.times_us,
        },
        "in_place": None,
    }
