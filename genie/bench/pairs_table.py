"""The matrices of all pairs as text: rows send, columns receive."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from genie.bench.pairs import SLOW_SHARE, Matrix, PairsAsked, slow_in_words, warnings

RANKS_SHOWN_MAX = 32  # the width of a terminal
WORDS_MAX = 10
_CELL = 9
_UNITS = ((1e9, "Gb/s"), (1e6, "Mb/s"), (1e3, "kb/s"))


def rate_unit(bytes_per_s: float) -> tuple[float, str]:
    """(bytes per second of a readable unit for this rate, the unit's name)."""
    bits_per_s = 8 * bytes_per_s
    unit, name = next(((unit, name) for unit, name in _UNITS if bits_per_s >= unit), _UNITS[-1])
    return unit / 8, name


def head(asked: PairsAsked, places: Sequence[str], notes: Sequence[str] = ()) -> list[str]:
    """The lines above the matrices."""
    small = f"; {asked.small_messages} of {asked.small_bytes} bytes for latency" if asked.small_messages else ""
    return [
        f"# All pairs of {asked.ranks} ranks in {asked.words()}",
        f"# {asked.messages} messages of {asked.size_bytes} bytes{small}",
        *(f"# {note}" for note in notes),
        "#",
        "# Using devices",
        *(f"#  Rank {rank:2d} {place}" for rank, place in enumerate(places)),
        "#",
    ]


def body(asked: PairsAsked, matrix: Matrix) -> list[str]:
    """Both matrices, and a list of slow ranks and pairs."""
    lines: list[str] = []
    unit, name = rate_unit(matrix.best_bytes_per_s)
    best = f"{matrix.best_bytes_per_s / unit:.4g}"
    if matrix.ranks > RANKS_SHOWN_MAX:
        lines.append(f"# Bandwidth: the best is {best} {name}; the matrix of so many ranks is in --json and -o")
    else:
        marked = np.where(matrix.is_slow, "*", "")
        title = f"Bandwidth, {name}: rows send, columns receive; * below {SLOW_SHARE} of the best, {best}"
        lines += _grid(title, matrix, matrix.bytes_per_s / unit, marked)
        if not np.isnan(matrix.latency_us).all():
            lines += ["#"]
            title = "Latency, us: the median from a small message's post to its acknowledgement"
            lines += _grid(title, matrix, matrix.latency_us, np.full_like(marked, ""))
    return [*lines, "#", *_words(matrix), *(f"# {text}" for text in warnings(asked, matrix))]


def _grid(title: str, matrix: Matrix, values: np.ndarray, marks: np.ndarray) -> list[str]:
    width = max(4, *(len(host) for host in matrix.hosts))
    columns = "".join(f"{rank:>{_CELL - 1}} " for rank in range(matrix.ranks))
    lines = [f"# {title}", f"# {'rank':>4}  {'host':<{width}}{columns}"]
    for rank, host in enumerate(matrix.hosts):
        cells = (
            f"{'-' if np.isnan(value) else f'{value:.4g}':>{_CELL - 1}}{mark or ' '}"
            for value, mark in zip(values[rank], marks[rank], strict=True)
        )
        lines.append(f"  {rank:>4}  {host:<{width}}{''.join(cells)}".rstrip())
    return lines


def _words(matrix: Matrix) -> list[str]:
    pairs, slow = int((~np.isnan(matrix.bytes_per_s)).sum()), int(matrix.is_slow.sum())
    words = slow_in_words(matrix)
    more = [f"# and {len(words) - WORDS_MAX} more"] if len(words) > WORDS_MAX else []
    return [
        f"# {slow} of {pairs} directed pairs are below {SLOW_SHARE} of the best",
        *(f"# {text}" for text in words[:WORDS_MAX]),
        *more,
    ]
