"""Measured times of operators: a CSV file with the columns `gpu,op,shape,dtype,ns`.

An operator with a row has its time. A row of op `operator` has an operator's name in place of the shape. Another
operator gets the time of a straight line through the rows of its kind, over floating-point operations. Without rows of
its GPU, the line of another GPU is scaled by the roofline. Without any, the roofline gives the time.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from genie.compute.gpus import Gpu, gpus
from genie.compute.operators import Operator, Timed, attention, gemm, grouped_gemm
from genie.compute.roofline import Roofline
from genie.errors import UsageError
from genie.inputs.content import ContentError, read_text

COLUMNS = ["gpu", "op", "shape", "dtype", "ns"]
DIMENSIONS = {"gemm": 3, "grouped-gemm": 4, "attention": 6}  # of a shape such as 8192x4096x14336
BY_NAME = "operator"  # a row that names an operator of any kind, such as `attention qkv`
NAME_MAX = 80
FITTED_MIN = 3  # rows that a line needs
DTYPES = ("bf16", "fp8")
NS_MAX = 10**13
ROWS_MAX = 1_000_000
SLOWEST, FASTEST = 1e-3, 2.0  # of the GPU's peak: a row outside has another unit, or another GPU

Kind = tuple[str, str]  # operation, data type
Shape = tuple[int, ...]


@dataclass(frozen=True)
class MeasuredTimes:
    """The rows of a table: GPU -> kind -> shape -> ns."""

    rows: dict[str, dict[Kind, dict[Shape, int]]]
    where: str
    named: dict[str, dict[str, int]] = field(default_factory=dict)  # GPU -> name of the operator -> ns


def read_times(path: Path) -> MeasuredTimes:
    """Read a table. Raises UsageError with line and column."""
    try:
        lines = read_text(path).splitlines()
    except OSError as error:
        raise UsageError(f"--compute {path}: cannot be read: {error.strerror}") from error
    except (ContentError, UnicodeDecodeError) as error:
        raise UsageError(f"--compute {path}: {error}") from error
    table = csv.reader(lines[: ROWS_MAX + 1])
    if next(table, None) != COLUMNS:
        raise UsageError(f"{path}:1: the columns must be {','.join(COLUMNS)}")
    rows: dict[str, dict[Kind, dict[Shape, int]]] = {}
    named: dict[str, dict[str, int]] = {}
    for line, row in enumerate(table, 2):
        if not row:
            continue
        where = f"{path}:{line}"
        if len(row) != len(COLUMNS):
            raise UsageError(f"{where}: has {len(row)} columns: give {','.join(COLUMNS)}")
        gpu, op, shape, dtype, ns = (cell.strip() for cell in row)
        known = gpus().get(gpu)
        if known is None:
            raise UsageError(f"{where}: gpu: {gpu!r} is not known: give one of {', '.join(gpus())}")
        if op == BY_NAME:
            if not 0 < len(shape) <= NAME_MAX or not shape.isprintable():
                raise UsageError(f"{where}: shape: {shape!r}: give the name of an operator, such as attention qkv")
            named.setdefault(gpu, {})[shape] = _time(where, ns)
            continue
        sizes = _shape(where, op, shape)
        if dtype not in DTYPES:
            raise UsageError(f"{where}: dtype: {dtype!r}: give {' or '.join(DTYPES)}")
        time_ns = _time(where, ns)
        _check_unit(where, known, _operator(op, sizes, dtype), time_ns)
        rows.setdefault(gpu, {}).setdefault((op, dtype), {})[sizes] = time_ns
    return MeasuredTimes(rows, str(path), named)


def _shape(where: str, op: str, text: str) -> Shape:
    if op not in DIMENSIONS:
        raise UsageError(f"{where}: op: {op!r}: give one of {', '.join((*DIMENSIONS, BY_NAME))}")
    parts = text.split("x")
    if len(parts) != DIMENSIONS[op] or not all(part.isdecimal() and 0 < int(part) < 1 << 31 for part in parts):
        raise UsageError(f"{where}: shape: {text!r}: a {op} has {DIMENSIONS[op]} sizes, such as 8x16x32")
    return tuple(map(int, parts))


def _time(where: str, text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 0 < value <= NS_MAX:
        raise UsageError(f"{where}: ns: {text!r}: give a whole number of nanoseconds, from 1 to {NS_MAX}")
    return value


def _operator(op: str, shape: Shape, dtype: str) -> Operator:
    if op == "gemm":
        m, k, n = shape
        return gemm(op, m, k, n, dtype)
    if op == "grouped-gemm":
        groups, m, k, n = shape
        return grouped_gemm(op, groups, m, k, n, dtype)
    batch, queries, keys, heads, query_dim, value_dim = shape
    return attention(op, batch, queries, keys, heads, query_dim, value_dim)


def _check_unit(where: str, gpu: Gpu, operator: Operator, time_ns: int) -> None:
    """Raises UsageError for a time that no GPU of this kind can have: it is in another unit."""
    peak = (gpu.fp8_tflops if operator.dtype == "fp8" else gpu.bf16_tflops) * 1e12
    if not peak:
        raise UsageError(f"{where}: dtype: {gpu.label} has no FP8")
    share = operator.flops / (time_ns * 1e-9) / peak
    if operator.flops > 1e9 and not SLOWEST <= share <= FASTEST:
        raise UsageError(
            f"{where}: ns: {time_ns} is {share:.2g} times the peak of {gpu.label}: is it in another unit than ns?"
        )


@dataclass
class TableTimes:
    """Times of operators on one GPU, from a table where it has some."""

    table: MeasuredTimes
    gpu_name: str
    roofline: Roofline

    def __post_init__(self) -> None:
        self._lines = {
            gpu: {kind: line for kind, rows in own.items() if (line := _fitted(kind, rows)) is not None}
            for gpu, own in self.table.rows.items()
        }
        self._known: dict[tuple[str, Shape, str, int, int], Timed] = {}

    def timed(self, operator: Operator) -> Timed:
        """Return the time of an operator, with its origin."""
        if (named_ns := self.table.named.get(self.gpu_name, {}).get(_plain_name(operator.name))) is not None:
            return Timed(round(self.roofline.scale * named_ns), "measured by name")
        key = (operator.kind, operator.shape, operator.dtype, operator.flops, operator.moved_bytes)
        if key not in self._known:
            self._known[key] = self._found(operator)
        time_ns, origin = self._known[key]
        return Timed(round(self.roofline.scale * time_ns), origin)

    def _found(self, operator: Operator) -> Timed:
        kind = (operator.kind, operator.dtype)
        plain = Roofline(self.roofline.gpu)
        measured = self.table.rows.get(self.gpu_name, {}).get(kind, {}).get(operator.shape)
        if measured is not None and operator.flops == _operator(operator.kind, operator.shape, operator.dtype).flops:
            return Timed(measured, "measured")
        line = self._lines.get(self.gpu_name, {}).get(kind)
        if line is not None:
            return Timed(line.time_ns(operator), "fitted")
        for name in sorted(self._lines):
            line = self._lines[name].get(kind)
            if line is not None:
                ratio = plain.duration_ns(operator) / Roofline(gpus()[name]).duration_ns(operator)
                return Timed(max(1, round(ratio * line.time_ns(operator))), f"scaled from {name}")
        return plain.timed(operator)


def _plain_name(name: str) -> str:
    """Return an operator's name without the numbers of layers."""
    return re.sub(r"\s*\d+", "", name)


@dataclass(frozen=True)
class Line:
    """A straight line through measured times. `error`: its median relative error on these."""

    fixed_ns: float
    ns_per_flop: float
    error: float

    def time_ns(self, operator: Operator) -> int:
        return max(1, round(self.fixed_ns + self.ns_per_flop * operator.flops))


def _fitted(kind: Kind, rows: dict[Shape, int]) -> Line | None:
    """Return the line of least relative squares, with no negative part; None for too few rows."""
    if len(rows) < FITTED_MIN:
        return None
    flops = np.array([_operator(kind[0], shape, kind[1]).flops for shape in rows], np.float64)
    times = np.array(list(rows.values()), np.float64)
    fixed, slope = np.linalg.lstsq(np.stack([1 / times, flops / times], axis=1), np.ones(len(times)), rcond=None)[0]
    if fixed < 0:
        fixed, slope = 0.0, float(np.sum(flops / times) / np.sum((flops / times) ** 2))
    elif slope < 0:
        fixed, slope = float(np.sum(1 / times) / np.sum(1 / times**2)), 0.0
    error = float(np.median(np.abs((fixed + slope * flops) / times - 1)))
    return Line(float(fixed), float(slope), error)
