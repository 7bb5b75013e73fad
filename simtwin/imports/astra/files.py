"""ASTRA-sim's files: network, system, logical topology and remote memory.

Communicator groups are a workload's groups file, which `genie.workload.files.read_groups` reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import yaml
from msgspec import Meta, Struct

from genie.inputs.printable import shown_value
from genie.workload.compute import Roofline
from simtwin.fabric.schema import HOSTS_MAX
from simtwin.imports.astra.network import Dimension, Kind, Network
from simtwin.imports.words import ForeignFileError, shown

FILE_MAX_BYTES = 2**16
RATE_MIN = 1e-6  # GB/s: at lower rates, times exceed 64 bits
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")  # operations with algorithms in ASTRA-sim
# Keys of a system file without an effect on times here, with the reason.
WITHOUT_EFFECT = {
    "scheduling-policy": "a rank's collectives run one at a time",
    "local-reduction-delay": "it is of a shared bus, which is not modelled",
    "L": "it is of a shared bus, which is not modelled",
    "o": "it is of a shared bus, which is not modelled",
    "g": "it is of a shared bus, which is not modelled",
    "G": "it is of a shared bus, which is not modelled",
    "boost-mode": "ASTRA-sim itself does not read it",
    "trace-enabled": "it is about what ASTRA-sim writes",
    "track-local-mem": "it is about what ASTRA-sim writes",
    "local-mem-trace-filename": "it is about what ASTRA-sim writes",
}

_ALGORITHM = re.compile(r"ring|oneRing|(?:direct|oneDirect)([1-9]\d{0,4})?|(?:h|oneH)alvingDoubling|doubleBinaryTree")
_MESSAGE = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<key>.*)`)?", re.DOTALL)
_FIELD = re.compile(r"Object missing required field `(.+)`")
_EXPECTED = re.compile(r"Expected `([^`]+)`( .+?)?(?:, got `.*`)?")
_NOUNS = {"int": "a whole number", "float": "a number", "str": "a string", "array": "a list"}

Positive = Annotated[int, Meta(ge=1, le=10**9)]
Whole = Annotated[int, Meta(ge=0, le=10**15)]
Number = Annotated[float, Meta(ge=1e-6, le=1e12)]
NotNegative = Annotated[float, Meta(ge=0, le=1e15)]
Flag = bool | Literal[0, 1]
T = TypeVar("T", bound=Struct)


class AstraError(ForeignFileError):
    """An invalid file or collective: one line with the place, the problem and the remedy (exit code 2)."""


class Algorithm(str):
    """An algorithm of a collective on one dimension, as a system file names it."""

    allowed: ClassVar = (
        "ring, oneRing, direct[W], oneDirect[W], halvingDoubling, oneHalvingDoubling or doubleBinaryTree"
    )

    @property
    def is_one(self) -> bool:
        """Whether it runs on all NPUs as one line, whatever the dimensions."""
        return self.startswith("one")

    @property
    def base(self) -> str:
        """ring, direct, halvingDoubling or doubleBinaryTree."""
        name = self.rstrip("0123456789").removeprefix("one")
        return name[0].lower() + name[1:]

    @property
    def window(self) -> int | None:
        """For direct, messages in flight at once; None: all of them."""
        digits = re.search(r"\d+$", self)
        return int(digits[0]) if digits else None


Algorithms = Annotated[list[Algorithm], Meta(min_length=1, max_length=16)]
Prefix = Annotated[list[str], Meta(min_length=1, max_length=1)]


class _NetworkFile(Struct, kw_only=True, frozen=True):
    topology: Annotated[list[Kind], Meta(min_length=1, max_length=16)]
    npus_count: list[Annotated[int, Meta(ge=2, le=HOSTS_MAX)]]
    bandwidth: list[Annotated[float, Meta(ge=1e-6, le=1e5)]]  # GB/s, 2^30 bytes
    latency: list[Annotated[float, Meta(ge=0, le=1e12)]]  # ns


class _LogicalFile(Struct, rename="kebab", frozen=True):
    logical_dims: Annotated[list[str], Meta(min_length=1, max_length=16)]


class RemoteMemory(Struct, rename="kebab", kw_only=True, frozen=True):
    """The memory that memory nodes access."""

    memory_type: Literal["NO_MEMORY_EXPANSION", "PER_NODE_MEMORY_EXPANSION", "PER_NPU_MEMORY_EXPANSION", "MEMORY_POOL"]
    remote_mem_latency: NotNegative = 0  # ns
    remote_mem_bw: NotNegative = 0  # GB/s, 10^9 bytes, which is bytes a ns
    num_nodes: Whole = 0
    num_npus_per_node: Whole = 0

    def duration_ns(self, size_bytes: int) -> int | None:
        """Return the time of an access without contention, in ns; None where there is no such memory."""
        if self.memory_type == "NO_MEMORY_EXPANSION":
            return None
        return int(self.remote_mem_latency) + int(size_bytes / self.remote_mem_bw)


class System(Struct, rename="kebab", kw_only=True, frozen=True):
    """The content of system.json, and its path."""

    scheduling_policy: Literal["LIFO", "FIFO", "EXPLICIT"] = "LIFO"
    all_reduce_implementation: Algorithms | None = None
    all_gather_implementation: Algorithms | None = None
    reduce_scatter_implementation: Algorithms | None = None
    all_to_all_implementation: Algorithms | None = None
    all_reduce_implementation_custom: Prefix | None = None
    all_gather_implementation_custom: Prefix | None = None
    reduce_scatter_implementation_custom: Prefix | None = None
    all_to_all_implementation_custom: Prefix | None = None
    preferred_dataset_splits: Annotated[int, Meta(ge=1, le=65536)]  # chunks of a collective
    active_chunks_per_dimension: Positive = 1
    collective_optimization: Literal["baseline", "localBWAware"] = "baseline"
    endpoint_delay: Whole = 10  # ns, before a message is sent and after one has come
    local_reduction_delay: Whole = 1
    local_mem_bw: Number | None = None  # GB/s, 10^9 bytes
    peak_perf: Number | None = None  # 10^12 operations a second
    roofline_enabled: Flag = 0
    replay_only: Flag = 0
    trace_enabled: Flag = 0
    track_local_mem: Flag = 0
    local_mem_trace_filename: str = ""
    boost_mode: Whole = 0
    model_shared_bus: Flag = 0
    path: str = "system.json"

    def algorithms(self, op: str) -> tuple[Algorithm, ...]:
        """Return one of OPS' algorithms, one a dimension. Raises AstraError where the file has no built-in ones."""
        key = f"{op.replace('_', '-')}-implementation"
        if getattr(self, f"{op}_implementation_custom") is not None:
            raise AstraError(f"{self.path}: {key}-custom: a trace as algorithm has no closed form; give {key} instead")
        algorithms: list[Algorithm] | None = getattr(self, f"{op}_implementation")
        if algorithms is None:
            raise AstraError(f'{self.path}: {key}: is missing, and the workload needs it; give it, such as ["ring"]')
        return tuple(algorithms)

    @property
    def roofline(self) -> Roofline | None:
        """The compute model of nodes with num_ops and tensor_size; None unless it is enabled."""
        if not self.roofline_enabled or self.peak_perf is None or self.local_mem_bw is None:
            return None
        return Roofline(self.peak_perf * 1e12, self.local_mem_bw * 1e9)


def read_network(path: Path) -> tuple[Network, tuple[str, ...]]:
    """Return a network file, and a note for each unknown key. Raises AstraError."""
    file, notes = _read(path, _load_yaml, "YAML", _NetworkFile)
    for key in ("npus_count", "bandwidth", "latency"):
        if len(values := getattr(file, key)) != len(file.topology):
            raise AstraError(
                f"{path}: {key}: has {len(values)} values for {len(file.topology)} of topology; give one each"
            )
    if (npus := prod(file.npus_count)) > HOSTS_MAX:
        raise AstraError(f"{path}: npus_count: makes {npus} NPUs; give at most {HOSTS_MAX}")
    columns = zip(file.topology, file.npus_count, file.bandwidth, file.latency, strict=True)
    return Network(tuple(Dimension(*column) for column in columns), str(path)), notes


def read_system(path: Path) -> tuple[System, tuple[str, ...]]:
    """Return a system file, and a note for each key that is unknown or has no effect. Raises AstraError."""
    system, notes = _read(path, msgspec.json.decode, "JSON", System, WITHOUT_EFFECT)
    system = msgspec.structs.replace(system, path=str(path))
    if system.replay_only:
        raise AstraError(f"{path}: replay-only: plays the traces' durations without a network; give 0")
    if system.model_shared_bus:
        raise AstraError(f"{path}: model-shared-bus: a bus that messages share is not modelled; give 0")
    if system.roofline_enabled and (system.peak_perf is None or system.local_mem_bw is None):
        missing = "peak-perf" if system.peak_perf is None else "local-mem-bw"
        raise AstraError(f"{path}: {missing}: is missing, and roofline-enabled needs it; give it or roofline-enabled 0")
    if system.local_mem_bw is None:
        notes = (*notes, f"{path}: local-mem-bw: is missing: reductions take no time")
    return system, notes


def read_logical_topology(path: Path) -> tuple[int, ...]:
    """Return the sizes of the logical dimensions; the first counts fastest. Raises AstraError."""
    file, notes = _read(path, msgspec.json.decode, "JSON", _LogicalFile)
    if notes:
        raise AstraError(notes[0])
    for number, size in enumerate(file.logical_dims):
        if not re.fullmatch("[1-9][0-9]{0,5}", size):
            raise AstraError(
                f'{path}: logical-dims[{number}] = {shown_value(size)}: give a size as a string, such as "8"'
            )
    return tuple(int(size) for size in file.logical_dims)


def read_remote_memory(path: Path) -> tuple[RemoteMemory, tuple[str, ...]]:
    """Return a remote memory file, and a note for each unknown key. Raises AstraError."""
    memory, notes = _read(path, msgspec.json.decode, "JSON", RemoteMemory)
    if memory.memory_type != "NO_MEMORY_EXPANSION" and memory.remote_mem_bw < RATE_MIN:
        raise AstraError(f"{path}: remote-mem-bw: is missing; give GB/s above 0 (at least {RATE_MIN:g})")
    return memory, notes


def _read(
    path: Path, decode: Callable[[bytes], Any], form: str, into: type[T], without_effect: dict[str, str] | None = None
) -> tuple[T, tuple[str, ...]]:
    try:
        with path.open("rb") as file:
            content = file.read(FILE_MAX_BYTES + 1)
    except OSError as wrong:
        raise AstraError(f"{path}: cannot be read: {wrong.strerror}; give a {form} file of ASTRA-sim's") from wrong
    if len(content) > FILE_MAX_BYTES:
        raise AstraError(f"{path}: has more than {FILE_MAX_BYTES} bytes; give a {form} file of ASTRA-sim's")
    try:
        data = decode(content)
    except (ValueError, yaml.YAMLError, RecursionError) as wrong:
        raise AstraError(f"{path}: is not {form}: {' '.join(str(wrong).split())}") from wrong
    if not isinstance(data, dict):
        raise AstraError(f"{path}: is not a table of keys; give a {form} file of ASTRA-sim's")
    known = set(into.__struct_encode_fields__) - {"path"}
    idle = without_effect or {}
    notes = [f"{path}: {key}: has no effect: {idle[key]}" for key in data if key in idle]
    notes += [
        f"{path}: {shown(str(key))}: is not understood and left out"
        for key in data
        if key not in known and key not in idle
    ]
    try:
        file = msgspec.convert({key: data[key] for key in data if key in known}, into, dec_hook=_parse_algorithm)
    except UnicodeEncodeError as wrong:
        raise AstraError(
            f"{path}: {shown_value(wrong.object)}: has half of a letter (a lone surrogate); correct it"
        ) from wrong
    except msgspec.ValidationError as wrong:
        raise AstraError(f"{path}: {_explain(str(wrong), data, into)}") from wrong
    return file, tuple(notes)


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML without aliases: a network file needs none, and a few of them expand to gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.composer.ComposerError(
                None, None, f"*{event.anchor} is an alias: write its value", event.start_mark
            )
        return super().compose_node(parent, index)


def _load_yaml(content: bytes) -> Any:
    return yaml.load(content, _Loader)


def _parse_algorithm(kind: type, value: object) -> object:
    assert kind is Algorithm
    if not isinstance(value, str) or not _ALGORITHM.fullmatch(value):
        raise ValueError(f"give {Algorithm.allowed}")
    return Algorithm(value)


def _explain(message: str, data: dict[str, Any], into: type[Struct]) -> str:
    """Return msgspec's message with the key first, its value, and the allowed values."""
    match = _MESSAGE.fullmatch(message)
    assert match is not None
    if field := _FIELD.fullmatch(match["what"]):
        return f"{field[1]}: is missing; give it"
    key, value, expected = match["key"], data, _EXPECTED.fullmatch(match["what"])
    for step in re.findall(r"[^.\[\]]+", key):
        value = value[int(step) if isinstance(value, list) else step]
    shown = f"{key} = {shown_value(value)}"
    if expected:
        return f"{shown}: give {_NOUNS.get(expected[1], expected[1])}{expected[2] or ''}"
    if match["what"].startswith("Invalid enum value"):
        names = dict(zip(into.__struct_encode_fields__, into.__struct_fields__, strict=True))
        kind = get_type_hints(into)[names[re.split(r"[.\[]", key)[0]]]
        return f"{shown}: give {' or '.join(map(str, _choices(kind)))}"
    return f"{shown}: {match['what']}"


def _choices(kind: object) -> list[object]:
    """Return the allowed values of a Literal inside a type."""
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    return [choice for inner in get_args(kind) for choice in _choices(inner)]
