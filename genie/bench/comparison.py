"""A measured table next to the simulated one of the same sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from genie.bench.collectives import Operation
from genie.bench.measured import Measured
from genie.bench.nccl_table import bandwidth_cells

Line = tuple[Operation, Measured]

_LEAD = (12, 6)  # size, root
_HALF = (7, 6, 6)
_RATIO = 6
_NAMES = ("size", "root", *("time", "algbw", "busbw") * 2, "ratio")
_UNITS = ("(B)", "", *("(us)", "(GB/s)", "(GB/s)") * 2, "")


def ratio(live: Measured, simulated: Measured) -> float:
    """Measured over simulated bus bandwidth, equal to simulated over measured time; 0 when no data was moved."""
    return live.bus_bytes_per_s / simulated.bus_bytes_per_s if simulated.bus_bytes_per_s > 0 else 0.0


def table(live: Sequence[Line], simulated: Sequence[Line]) -> list[str]:
    """Lines of both tables, which must have the same sizes; the ratio is measured over simulated bus bandwidth."""
    half, lead = sum(width + 2 for width in _HALF), sum(width + 2 for width in _LEAD)
    lines = [
        "#" + " " * (lead - 1) + "measured".center(half) + "simulated".center(half),
        "# " + _joined(_NAMES)[2:],
        "# " + _joined(_UNITS)[2:],
    ]
    for (operation, measured), (_, expected) in zip(live, simulated, strict=True):
        cells = [*bandwidth_cells(measured), *bandwidth_cells(expected), f"{ratio(measured, expected):.3f}"]
        lines.append(_joined([str(measured.size_bytes), str(operation.root), *cells]))
    return lines


def _joined(words: Sequence[str]) -> str:
    widths = (*_LEAD, *_HALF, *_HALF, _RATIO)
    return "  ".join(f"{word:>{width}}" for word, width in zip(words, widths, strict=True))


def compared(live: Sequence[Line], simulated: Sequence[Line]) -> list[dict[str, Any]]:
    """The comparison as data: size and ratio of each line."""
    return [
        {"size": measured.size_bytes, "bus_bw_ratio": ratio(measured, expected)}
        for (_, measured), (_, expected) in zip(live, simulated, strict=True)
    ]
