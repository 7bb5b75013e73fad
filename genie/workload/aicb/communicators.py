"""Reading AICB's lists of communications: CSV with one collective a row, played one after another.

The meaning is that of AICB's own player (aliyun/aicb, workload_applyer.py). An all-gather's size is the whole output, a
reduce-scatter's the whole input, an all-to-all's one rank's input. A broadcast comes from its group's first rank. A row
of computation has its time, or the shapes of a matrix product for a compute model.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, field
from pathlib import Path

from genie.inputs.content import ContentError, read_text
from genie.workload.aicb.layers import NUMBER_MAX, Communication
from genie.workload.aicb.parallel import Domain
from genie.workload.graph import Op, WorkloadError

OPERATIONS = {
    "all_reduce": Op.ALL_REDUCE,
    "all_gather": Op.ALL_GATHER,
    "all_gather_into_tensor": Op.ALL_GATHER,
    "reduce_scatter": Op.REDUCE_SCATTER,
    "reduce_scatter_tensor": Op.REDUCE_SCATTER,
    "all_to_all": Op.ALL_TO_ALL,
    "broadcast": Op.BROADCAST,
    "barrier": Op.BARRIER,
}
GROUPS = {
    "tp_group": Domain.TENSOR,
    "dp_group": Domain.DATA,
    "ep_group": Domain.EXPERT,
    "ep_dp_group": Domain.EXPERT_DATA,
    "ep_tp_group": Domain.EXPERT_TENSOR,
    "all": Domain.ALL,
    "all_nodes": Domain.ALL,
}
NEEDED = ("comm_type", "comm_group", "msg_size")
KNOWN = {*NEEDED, "comm_group_size", "stage", "dst", "src", "additional", "_elapsed_time", "algbw", "busbw", "count"}
ELEMENT_BYTES = 2  # of AICB's matrices: bfloat16
_RANKS = re.compile(r"\[\s*rank0\s*~\s*rank([0-9]{1,7})\s*\]")
_SHAPE = re.compile(r"\(([0-9 ]+)\)")
_WHOLE = re.compile(r"([0-9]{1,19})(?:\.0)?")


@dataclass(frozen=True)
class Row:
    line: int
    name: str
    communication: Communication | None
    compute_ns: int = -1  # computation time; -1: unknown
    num_ops: int = -1
    tensor_bytes: int = -1


@dataclass
class ListFile:
    where: str
    ranks: int | None = None  # from the first line
    members: dict[Domain, tuple[int, int]] = field(default_factory=dict)  # (ranks of a group, line that defines them)
    epochs: list[list[Row]] = field(default_factory=list)  # the first epoch is the job's start
    notes: list[str] = field(default_factory=list)


def read_list(path: str | Path) -> ListFile:
    """Read a file. Raises WorkloadError, and OSError if it cannot be opened."""
    try:
        return parse_list(read_text(path), str(path))
    except ContentError as error:
        raise WorkloadError(f"{path}: {error}") from error
    except UnicodeDecodeError:
        raise WorkloadError(f"{path}: not a text file") from None


def parse_list(text: str, where: str) -> ListFile:
    """Read a list of communications. `where` names it in messages. Raises WorkloadError with the line that is wrong."""
    if not text.strip():
        raise WorkloadError(f"{where}: is empty: give a list of AICB's")
    file = ListFile(where, epochs=[[]])
    lines = text.splitlines()
    start = 0
    if lines and lines[0].lstrip().startswith("["):
        ranks = _RANKS.fullmatch(lines[0].strip())
        if ranks is None:
            raise WorkloadError(
                f"{where}:1: {lines[0][:60]!r}: must be [rank0 ~ rankN]; lists of several stages are not converted"
            )
        file.ranks, start = int(ranks[1]) + 1, 1
    columns = [name.strip() for name in lines[start].split(",")] if len(lines) > start else []
    for name in NEEDED:
        if columns.count(name) != 1:
            raise WorkloadError(f"{where}:{start + 1}: {columns.count(name)} columns {name}; a list has one")
    for name in columns:
        if name not in KNOWN:
            file.notes.append(f"line {start + 1}: column {name!r} is not understood and changes nothing")
    for line, fields in enumerate(csv.reader(lines[start + 1 :], quoting=csv.QUOTE_NONE), start + 2):
        if not any(field.strip() for field in fields):
            continue
        at = f"{where}:{line}"
        if len(fields) != len(columns):
            raise WorkloadError(f"{at}: {len(fields)} fields under {len(columns)} columns")
        _row(file, line, at, dict(zip(columns, fields, strict=True)))
    if not any(file.epochs):
        raise WorkloadError(f"{where}:{len(lines)}: no rows")
    return file


def _row(file: ListFile, line: int, at: str, row: dict[str, str]) -> None:
    kind = row["comm_type"].strip().removeprefix("CommType.")
    if row.get("count", "1") not in ("1", "1.0", "None", ""):
        raise WorkloadError(f"{at}: count {row['count']!r}: must be 1")
    if kind == "epoch_end":
        if file.epochs[-1]:
            file.epochs.append([])
        return
    name = row.get("stage") or kind
    if kind == "computation":
        file.epochs[-1].append(_computation(line, at, name, row))
        return
    if kind not in OPERATIONS:
        raise WorkloadError(f"{at}: comm_type {kind[:40]!r}: must be {', '.join(OPERATIONS)}, computation or epoch_end")
    group = row["comm_group"].strip().removeprefix("CommGroup.")
    if group not in GROUPS:
        raise WorkloadError(f"{at}: comm_group {group[:40]!r}: must be one of {', '.join(GROUPS)}")
    domain = GROUPS[group]
    _group_size(file, line, at, domain, row.get("comm_group_size"))
    op = OPERATIONS[kind]
    size_bytes = 0 if op is Op.BARRIER else _whole(row["msg_size"], f"{at}: msg_size")
    if op is Op.BARRIER:
        domain = Domain.ALL  # regardless of the row, as AICB plays it
    file.epochs[-1].append(Row(line, name, Communication(op, domain, size_bytes)))


def _group_size(file: ListFile, line: int, at: str, domain: Domain, text: str | None) -> None:
    if text is None or text in ("None", ""):
        return
    size = _whole(text, f"{at}: comm_group_size")
    if size < 1:
        raise WorkloadError(f"{at}: comm_group_size 0")
    known, where = file.members.setdefault(domain, (size, line))
    if known != size:
        raise WorkloadError(f"{at}: comm_group_size {size} of {domain.value} groups; line {where} has {known}")


def _computation(line: int, at: str, name: str, row: dict[str, str]) -> Row:
    elapsed = row.get("_elapsed_time", "None")
    if elapsed not in ("None", ""):
        return Row(line, name, None, compute_ns=_whole(elapsed, f"{at}: _elapsed_time"))
    shapes = [[int(side) for side in shape.split()] for shape in _SHAPE.findall(row["msg_size"])]
    if len(shapes) != 2 or not all(shapes) or max(max(shape) for shape in shapes) >= 1 << 31:
        raise WorkloadError(f"{at}: msg_size {row['msg_size'][:60]!r}: must be the shapes of two matrices")
    left, right = shapes
    rows = 1
    for side in left[:-1]:
        rows *= side
    inner, columns = left[-1], right[-1]
    return Row(
        line,
        name,
        None,
        num_ops=min(2 * rows * inner * columns, (1 << 62)),
        tensor_bytes=min(ELEMENT_BYTES * (rows * inner + inner * columns + rows * columns), 1 << 62),
    )


def _whole(text: str, what: str) -> int:
    found = _WHOLE.fullmatch(text.strip())
    if found is None or int(found[1]) > NUMBER_MAX:
        raise WorkloadError(f"{what} {text[:40]!r}: must be a whole number from 0 to {NUMBER_MAX}")
    return int(found[1])
