"""TrioSim's tables of one GPU's operators: `trace.csv` and `tensor.csv` in a folder. Times are in µs."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from genie.extrapolate.step import Stage, Tensor, TracedOperator, TracedStep, checked, kind_of, paired, split_inputs
from genie.inputs.content import ContentError, read_text
from genie.workload.graph import WorkloadError

TIME = "Operator_cudatimenooverlap"  # the sum of the kernels' times; the other column has gaps between them
COLUMNS = ("OperatorName", "Operator_input", "Operator_output", TIME, "stage")
TENSOR_COLUMNS = ("TensorID", "TensorShape", "TensorEachByte")
STAGES = {stage.value: stage for stage in Stage}
TIME_MAX_US = 10**9


def is_triosim(path: Path) -> bool:
    """Whether a folder holds TrioSim's tables."""
    return (path / "trace.csv").is_file() and (path / "tensor.csv").is_file()


def read_triosim(folder: Path) -> TracedStep:
    """Read a step. Raises WorkloadError with file and line."""
    tensors = _tensors(folder / "tensor.csv")
    operators = []
    path = folder / "trace.csv"
    for line, row in _rows(path, COLUMNS):
        where = f"{path}:{line}"
        stage = STAGES.get(row["stage"])
        if stage is None:
            raise WorkloadError(f"{where}: stage: {row['stage']!r}: give one of {', '.join(STAGES)}")
        time_us = _whole(where, TIME, row[TIME])
        if time_us > TIME_MAX_US:
            raise WorkloadError(f"{where}: {TIME}: {time_us} is more than {TIME_MAX_US}: is it in µs?")
        inputs, outputs = (_named(where, row[name], tensors) for name in ("Operator_input", "Operator_output"))
        kind = kind_of(row["OperatorName"])
        parameters, buffers = split_inputs(kind, inputs) if stage is Stage.FORWARD else ((), ())
        operators.append(
            TracedOperator(row["OperatorName"], stage, time_us * 1000, inputs, outputs, parameters, buffers)
        )
    first = next((each.inputs[0] for each in operators if each.parameters and each.inputs), None)
    batch = first.shape[0] if first is not None and first.shape else 1
    return checked(TracedStep(folder, batch, "", paired(operators)))


def _tensors(path: Path) -> dict[int, Tensor]:
    found = {}
    for line, row in _rows(path, TENSOR_COLUMNS):
        where = f"{path}:{line}"
        try:
            shape = json.loads(row["TensorShape"])
        except (ValueError, RecursionError):
            shape = None
        if not isinstance(shape, list) or not all(type(size) is int and 0 <= size < 1 << 40 for size in shape):
            raise WorkloadError(f"{where}: TensorShape: {row['TensorShape']!r} is not a list of sizes")
        number = _whole(where, "TensorID", row["TensorID"])
        found[number] = Tensor(tuple(shape), _whole(where, "TensorEachByte", row["TensorEachByte"]), number)
    return found


def _rows(path: Path, columns: tuple[str, ...]) -> list[tuple[int, dict[str, str]]]:
    try:
        lines = read_text(path).splitlines()
    except OSError as error:
        raise WorkloadError(f"{path}: cannot be read: {error.strerror}") from error
    except (ContentError, UnicodeDecodeError) as error:
        raise WorkloadError(f"{path}: {error}") from error
    reader = csv.DictReader(lines)
    if missing := [name for name in columns if name not in (reader.fieldnames or ())]:
        raise WorkloadError(f"{path}:1: has no column {missing[0]}: give a table that TrioSim's tracer wrote")
    found = []
    for line, row in enumerate(reader, 2):
        if any(row[name] is None for name in columns):
            raise WorkloadError(f"{path}:{line}: has fewer columns than the first line")
        found.append((line, row))
    return found


def _whole(where: str, column: str, text: str) -> int:
    if not text.strip().isdecimal() or len(text) > 18:
        raise WorkloadError(f"{where}: {column}: {text!r} is not a whole number from 0")
    return int(text)


def _named(where: str, text: str, tensors: dict[int, Tensor]) -> tuple[Tensor, ...]:
    """Return the tensors of a cell such as `[4; 6; 8]`; unknown numbers are scalars."""
    words = [word.strip() for word in text.strip().removeprefix("[").removesuffix("]").split(";") if word.strip()]
    if not all(word.isdecimal() for word in words):
        raise WorkloadError(f"{where}: {text!r} is not a list of tensors such as [4; 6; 8]")
    return tuple(tensors[int(word)] for word in words if int(word) in tensors)
