"""Reading SimAI's workload files, which AICB writes: a line of keys, a number, and one row per layer.

A row is `name dep`, three passes, then `update_ns`, the delay after each communication. The passes are forward, input
gradient and weight gradient, each `compute_ns communication size_bytes`. The meaning is SimAI's (aliyun/SimAI,
astra-sim/workload/Workload.cc).

Communication of the forward pass and of the input gradient is in a tensor group, that of the weight gradient in a data
group. A suffix names another group. An all-gather's size is the whole output, a reduce-scatter's the whole input, an
all-to-all's one rank's input.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from genie.inputs.content import ContentError, read_text
from genie.workload.aicb.parallel import Domain
from genie.workload.graph import SIZE_MAX_BYTES, Op, WorkloadError

TRANSFORMER = "HYBRID_TRANSFORMER"
RECOMPUTING = "HYBRID_TRANSFORMER_FWD_IN_BCKWD"
MICRO = "MICRO"
POLICIES = (TRANSFORMER, RECOMPUTING, MICRO)

SIZES = {
    "model_parallel_NPU_group": "tensor",
    "ep": "expert",
    "pp": "pipeline",
    "all_gpus": "ranks",
    "vpp": "stages",
    "ga": "accumulated",
    "pp_comm": "pipeline_bytes",
}
LISTS = ("checkpoints", "checkpoint_initiates")

OPERATIONS = {
    "ALLREDUCE": Op.ALL_REDUCE,
    "ALLGATHER": Op.ALL_GATHER,
    "REDUCESCATTER": Op.REDUCE_SCATTER,
    "ALLTOALL": Op.ALL_TO_ALL,
    "BROADCAST": Op.BROADCAST,
}
SUFFIXES = {"_EP": Domain.EXPERT, "_DP_EP": Domain.EXPERT_DATA}
FIELDS = 12
NUMBER_MAX = SIZE_MAX_BYTES  # of a size in bytes, and of a time in ns
ROWS_MAX = 1_000_000


@dataclass(frozen=True)
class Communication:
    op: Op
    domain: Domain
    size_bytes: int  # as in the file


@dataclass(frozen=True)
class Phase:
    """Compute and communication of a layer in one pass."""

    compute_ns: int
    communication: Communication | None


@dataclass(frozen=True)
class Layer:
    line: int
    name: str
    forward: Phase
    input_gradient: Phase
    weight_gradient: Phase
    update_ns: int


@dataclass
class LayerFile:
    where: str
    policy: str
    sizes: dict[str, int]  # keys of SIZES that the file has
    checkpoints: list[int]  # layers that keep their input
    initiates: list[int]  # before the backward pass of each, the forward pass is replayed from a checkpoint
    layers: list[Layer] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_layers(path: str | Path) -> LayerFile:
    """Read a file. Raises WorkloadError, and OSError if it cannot be opened."""
    try:
        return parse_layers(read_text(path), str(path))
    except ContentError as error:
        raise WorkloadError(f"{path}: {error}") from error
    except UnicodeDecodeError:
        raise WorkloadError(f"{path}: not a text file") from None


def parse_layers(text: str, where: str) -> LayerFile:
    """Read a workload. `where` names it in messages. Raises WorkloadError with the line that is wrong."""
    if not text.strip():
        raise WorkloadError(f"{where}: is empty: give a workload of SimAI's")
    lines = text.splitlines()
    file = _header(lines[0] if lines else "", where)
    rows = [(number, line.split()) for number, line in enumerate(lines[2:], 3) if line.strip()]
    declared = lines[1].strip() if len(lines) > 1 else ""
    if not declared.isdecimal():
        raise WorkloadError(f"{where}:2: {declared[:40]!r} where the number of rows must be")
    if len(declared) > len(str(ROWS_MAX)) or int(declared) != len(rows):
        raise WorkloadError(
            f"{where}:2: declares {declared[:40]} rows and has {len(rows)}: correct the number, or get the whole file"
        )
    if not rows:
        raise WorkloadError(f"{where}:2: no rows")
    warnings: Counter[str] = Counter()
    file.layers = [_layer(f"{where}:{number}", number, fields, warnings) for number, fields in rows]
    file.notes += [f"{what} ({count} rows)" for what, count in warnings.items()]
    for key, layers in zip(LISTS, (file.checkpoints, file.initiates), strict=True):
        for layer in layers:
            if layer >= len(rows):
                raise WorkloadError(f"{where}:1: {key} has layer {layer}; there are 0..{len(rows) - 1}")
    return file


def _header(line: str, where: str) -> LayerFile:
    policy, *tokens = line.split() or [""]
    if policy not in POLICIES:
        raise WorkloadError(f"{where}:1: parallelism {policy[:40]!r}: must be one of {', '.join(POLICIES)}")
    file = LayerFile(where, policy, {}, [], [])
    lists: dict[str, list[int]] = {"checkpoints": file.checkpoints, "checkpoint_initiates": file.initiates}
    at = 0
    while at < len(tokens):
        key = tokens[at].removesuffix(":")
        if key in SIZES:
            low = 0 if key == "pp_comm" else 1
            if SIZES[key] in file.sizes:
                raise WorkloadError(f"{where}:1: {key} a second time")
            file.sizes[SIZES[key]] = _number(tokens[at + 1 : at + 2], f"{where}:1: {key}", low)
            at += 2
        elif key in LISTS:
            count = _number(tokens[at + 1 : at + 2], f"{where}:1: {key}")
            items = tokens[at + 2 : at + 2 + count]
            if len(items) < count:
                raise WorkloadError(f"{where}:1: {key} declares {count} layers and has {len(items)}")
            lists[key] += [_number([item], f"{where}:1: {key}") for item in items]
            at += 2 + count
        else:
            file.notes.append(f"line 1: {tokens[at]!r} is not understood and changes nothing")
            at += 1
    return file


def _layer(where: str, line: int, fields: list[str], warnings: Counter[str]) -> Layer:
    if len(fields) != FIELDS:
        raise WorkloadError(f"{where}: {len(fields)} fields; a row has {FIELDS}: name, dep, 3 x 3 and update time")
    if fields[1] != "-1":
        warnings[f"dep {fields[1][:20]} is not understood and changes nothing, as in SimAI"] += 1
    domains = (Domain.TENSOR, Domain.TENSOR, Domain.DATA)
    names = ("forward", "input gradient", "weight gradient")
    phases = []
    for column, (domain, name) in enumerate(zip(domains, names, strict=True)):
        compute, kind, size = fields[2 + 3 * column : 5 + 3 * column]
        compute_ns = _number([compute], f"{where}: {name}'s compute")
        size_bytes = _number([size], f"{where}: {name}'s size")
        phases.append(Phase(compute_ns, _communication(f"{where}: {name}", kind, size_bytes, domain)))
    forward, input_gradient, weight_gradient = phases
    update_ns = _number([fields[11]], f"{where}: update time")
    return Layer(line, fields[0], forward, input_gradient, weight_gradient, update_ns)


def _communication(where: str, kind: str, size_bytes: int, domain: Domain) -> Communication | None:
    if kind == "NONE":
        return None  # AICB leaves a size here
    plain, _, suffix = kind.partition("_")
    suffix = f"_{suffix}" if suffix else ""
    if plain not in OPERATIONS or (suffix and suffix not in SUFFIXES):
        raise WorkloadError(
            f"{where}: communication {kind[:40]!r}: must be NONE or one of {', '.join(OPERATIONS)}, alone or with "
            f"{' or '.join(SUFFIXES)}"
        )
    return Communication(OPERATIONS[plain], SUFFIXES.get(suffix, domain), size_bytes)


def _number(text: list[str], what: str, low: int = 0) -> int:
    value = text[0] if text else ""
    if not (value.isascii() and value.isdecimal()) or len(value) > 20 or not low <= int(value) <= NUMBER_MAX:
        raise WorkloadError(f"{what} {value[:40]!r}: must be a whole number from {low} to {NUMBER_MAX}")
    return int(value)
