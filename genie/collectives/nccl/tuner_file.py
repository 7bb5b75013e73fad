"""Rows of a tuner's file: choices that override NCCL's own, by operation, size and group.

The format is that of NCCL's example tuner plugin: COLLECTIVE,MIN,MAX,ALGORITHM,PROTOCOL,CHANNELS,NODES,RANKS and, if
given, NUMPIPEOPS and REGBUFF. The first row that fits holds. -1 stands for any number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from genie.collectives.lower import CHANNELS_MAX
from genie.collectives.nccl.tuning import LL, LL128, NVLS, NVLS_TREE, RING, SIMPLE, TREE
from genie.errors import InputError
from genie.inputs.content import ContentError, read_text

ROWS_MAX = 10_000
OPERATIONS = {
    "allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter", "broadcast": "broadcast",
    "reduce": "reduce",
}  # fmt: skip
ALGORITHMS = {
    "ring": RING, "tree": TREE, "nvls": NVLS, "nvls_tree": NVLS_TREE, "collnet_direct": "collnetdirect",
    "collnet_chain": "collnetchain", "pat": "pat",
}  # fmt: skip
COLUMNS = (
    "collective", "min bytes", "max bytes", "algorithm", "protocol", "channels", "nodes", "ranks", "numPipeOps",
    "regBuff",
)  # fmt: skip
REQUIRED = 8
ANY = -1
BYTES_MAX = 2**62
# Genie plays each collective as one operation of its own, from a buffer that is not registered.
PIPE_OPS, REGISTERED = 1, 0


class TunerFileError(InputError, ValueError):
    """A tuner's file that cannot be read, or a wrong cell: one line with file, line and column."""


@dataclass(frozen=True)
class TunerRow:
    """A row. `channels`, `nodes` and `ranks` are ANY where the row leaves them open."""

    op: str
    least_bytes: int
    most_bytes: int
    algorithm: str
    protocol: str
    channels: int
    nodes: int
    ranks: int

    def fits(self, op: str, size_bytes: int, members: int, nodes: int) -> bool:
        """Whether the row is for this operation. `size_bytes`: of the larger of the two buffers of a rank."""
        return (
            self.op == op
            and self.least_bytes <= size_bytes <= self.most_bytes
            and self.ranks in (ANY, members)
            and self.nodes in (ANY, nodes)
        )


def read_tuner(path: Path) -> tuple[TunerRow, ...]:
    """Read the rows of a tuner's file, in its order. Raises TunerFileError."""
    try:
        lines = read_text(path).splitlines()
    except OSError as error:
        raise TunerFileError(f"{path}: cannot be read: {error.strerror}: give a tuner's CSV file") from error
    except (ContentError, UnicodeDecodeError) as error:
        raise TunerFileError(f"{path}: cannot be read as text: {error}") from error
    rows: list[TunerRow] = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#") or (not rows and _is_header(line)):
            continue
        if len(rows) == ROWS_MAX:
            raise TunerFileError(f"{path}, line {number}: more than {ROWS_MAX} rows: give fewer")
        row = _row(_Cells(f"{path}, line {number}", [cell.strip() for cell in line.split(",")]))
        if row is not None:
            rows.append(row)
    return tuple(rows)


def _is_header(line: str) -> bool:
    return line.partition(",")[0].strip().lower() in ("collective", "collective_type", "colltype")


class _Cells:
    """The cells of a line, read by the name of their column."""

    def __init__(self, where: str, cells: Sequence[str]) -> None:
        self.where, self.cells = where, cells
        if not REQUIRED <= len(cells) <= len(COLUMNS):
            raise TunerFileError(
                f"{where}: {len(cells)} columns: give {REQUIRED} to {len(COLUMNS)}: {', '.join(COLUMNS)}"
            )

    def _at(self, column: str) -> int:
        return COLUMNS.index(column)

    def wrong(self, column: str, allowed: str) -> TunerFileError:
        at = self._at(column)
        return TunerFileError(f"{self.where}, column {at + 1} ({column}): {self.cells[at]!r} must be {allowed}")

    def word(self, column: str, known: dict[str, str]) -> str:
        cell = self.cells[self._at(column)].lower()
        if cell not in known:
            raise self.wrong(column, f"one of {', '.join(known)}")
        return known[cell]

    def number(self, column: str, allowed: Callable[[int], bool], words: str) -> int:
        if self._at(column) >= len(self.cells):
            return ANY
        try:
            value = int(self.cells[self._at(column)])
        except ValueError:
            raise self.wrong(column, words) from None
        if not allowed(value):
            raise self.wrong(column, words)
        return value

    def count(self, column: str, most: int = 2**31) -> int:
        return self.number(column, lambda value: value == ANY or 0 < value <= most, f"-1 or a number in 1..{most}")


def _row(cells: _Cells) -> TunerRow | None:
    """Return the row; None for one that fits no collective of Genie's."""
    op = cells.word("collective", OPERATIONS)
    least = cells.number("min bytes", lambda value: 0 <= value <= BYTES_MAX, "a number of bytes")
    most = cells.number("max bytes", lambda value: least <= value <= BYTES_MAX, f"a number of bytes from {least} on")
    row = TunerRow(
        op, least, most, cells.word("algorithm", ALGORITHMS),
        cells.word("protocol", {name: name for name in (LL, LL128, SIMPLE)}),
        cells.count("channels", CHANNELS_MAX), cells.count("nodes"), cells.count("ranks"),
    )  # fmt: skip
    pipe_ops = cells.count("numPipeOps")
    registered = cells.number("regBuff", lambda value: value in (ANY, 0, 1), "-1, 0 or 1")
    return row if pipe_ops in (ANY, PIPE_OPS) and registered in (ANY, REGISTERED) else None
