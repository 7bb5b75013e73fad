"""NCCL's variables: their values, their sources, and their effect on messages.

They are read as NCCL reads them: the environment first, then `~/.nccl.conf` (or the file that NCCL_CONF_FILE names),
then `/etc/nccl.conf`. Files have lines of NAME=VALUE.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from genie.config.limits import QUEUE_PAIRS_MAX
from genie.errors import InputError
from genie.inputs.content import ContentError, read_bytes

FILE_NAME = "NCCL_CONF_FILE"
TUNER_FILE = "NCCL_TUNER_CONFIG_FILE"  # of NCCL's example tuner plugin
SYSTEM_FILE = Path("/etc/nccl.conf")
CHANNELS_MAX = 64
BUFFER_MIN_BYTES, BUFFER_MAX_BYTES = 8 * 1024, 1 << 30
CHUNK_MAX_BYTES = 1 << 30
RAILS_CHANNELS = 2  # default: channels for each rank of a node that has a NIC

ALGORITHMS, OTHER_ALGORITHMS = ("ring", "tree"), ("collnetdirect", "collnetchain", "nvls", "nvlstree", "pat")
PROTOCOLS = ("simple", "ll128", "ll")  # in the order of preference
# Operations with several algorithms -> NCCL's name of the function, and these algorithms.
FUNCTIONS = {
    "all_reduce": ("allreduce", ("ring", "tree", "nvls", "nvlstree", "collnetdirect", "collnetchain")),
    "all_gather": ("allgather", ("ring", "pat")),
    "reduce_scatter": ("reducescatter", ("ring", "pat")),
}

# Collectives that NCCL runs in channels, and those that it runs as grouped sends and receives.
IN_CHANNELS = frozenset({"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"})
IN_MESSAGES = frozenset({"all_to_all", "gather", "scatter"})
# Variables that shape messages, and the collectives that they apply to.
SHAPING = {
    "NCCL_ALGO": frozenset(FUNCTIONS),
    "NCCL_COLLNET_ENABLE": frozenset({"all_reduce"}),
    "NCCL_PAT_ENABLE": frozenset({"all_gather", "reduce_scatter"}),
    "NCCL_PROTO": IN_CHANNELS,
    "NCCL_BUFFSIZE": IN_CHANNELS | IN_MESSAGES,
    "NCCL_MIN_NCHANNELS": IN_CHANNELS,
    "NCCL_MAX_NCHANNELS": IN_CHANNELS,
    "NCCL_P2P_NET_CHUNKSIZE": IN_MESSAGES,
    "NCCL_PXN_DISABLE": frozenset({"all_to_all"}),
    "NCCL_CROSS_NIC": IN_CHANNELS,
}
# Settings of connections, for both transports.
CONNECTING = {"NCCL_IB_QPS_PER_CONNECTION": "queue_pairs", "NCCL_IB_SPLIT_DATA_ON_QPS": "split"}
# Settings of RDMA devices; all but the first are numbers.
HCA = "NCCL_IB_HCA"
DEVICE_SETTINGS = {
    HCA: "hca",
    "NCCL_IB_GID_INDEX": "gid_index",
    "NCCL_IB_ROCE_VERSION_NUM": "roce_version",
    "NCCL_IB_TC": "traffic_class",
    "NCCL_IB_SL": "service_level",
    "NCCL_IB_TIMEOUT": "timeout",
    "NCCL_IB_RETRY_CNT": "retry_count",
}

ENVIRONMENT = "environment"  # the source of a variable
SAME = "none: messages would be the same without it"


class NcclVariableError(InputError, ValueError):
    """A variable with an invalid value: one line that names it, where it is set and the allowed values."""


@dataclass(frozen=True)
class Setting:
    """One variable, as run.json lists it."""

    name: str
    value: str
    source: str  # environment, or the file
    effect: str  # effect on this run; begins with "none" where there is none


@dataclass(frozen=True)
class Played:
    """Facts of a run that decide the effect of variables."""

    shape: Mapping[str, Any] | None = None  # of NCCL's messages; None: --wire plain
    operations: Collection[str] | None = None  # names of its collectives; None: unknown
    verbs: bool = False  # some ranks use RDMA devices
    overruled: Mapping[str, str] = field(default_factory=dict)  # variable -> the option or file that takes precedence


class NcclVariables(Mapping[str, str]):
    """All variables whose names begin with NCCL_, by name.

    `warnings`: sources that were skipped, as NCCL skips them.
    """

    def __init__(self, environment: Mapping[str, str] | None = None, files: tuple[Path, ...] | None = None) -> None:
        """Read the variables.

        Raises NcclVariableError when a file cannot be read or has a line that is not NAME=VALUE.
        """
        environment = os.environ if environment is None else environment
        self._values: dict[str, str] = {}
        self.sources: dict[str, str] = {}
        self.warnings: list[str] = []
        named = environment.get(FILE_NAME, "")
        for path in reversed(_files(environment) if files is None else files):
            try:
                self._take(_read(path), str(path))
            except PermissionError:
                self.warnings.append(f"{path}: may not be read, and is passed over, as NCCL does: see its permissions")
            except (FileNotFoundError, NotADirectoryError):
                if named and path == Path(named):
                    self.warnings.append(f"{FILE_NAME}={named}: there is no such file: correct it, or unset it")
        self._take(environment, ENVIRONMENT)

    def _take(self, values: Mapping[str, str], source: str) -> None:
        for name, text in values.items():
            if name.startswith("NCCL_"):
                self._values[name] = text.strip()
                self.sources[name] = source

    def without(self, name: str) -> NcclVariables:
        """The others."""
        others = NcclVariables({}, ())
        others._values = {each: text for each, text in self._values.items() if each != name}
        others.sources = self.sources
        return others

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def wrong(self, name: str, allowed: str) -> NcclVariableError:
        """The error for a value that is not `allowed`."""
        where = f'{name}="{self[name]}" ({self.sources[name]})'
        return NcclVariableError(f"{where}: must be {allowed}; unset it, or correct it")


def _files(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Files that may set variables, the strongest first."""
    named = environment.get(FILE_NAME, "")
    home = environment.get("HOME", "")
    own = Path(named) if named else Path(home or "/") / ".nccl.conf"
    return own, SYSTEM_FILE


def _read(path: Path) -> dict[str, str]:
    try:
        lines = read_bytes(path).decode("utf-8", "replace").splitlines()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        raise  # NCCL goes on without the file
    except ContentError as error:
        raise NcclVariableError(f"{path}: {error}") from error
    except OSError as error:
        raise NcclVariableError(f"{path}: cannot be read: {error.strerror}") from error
    values = {}
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        name, equals, value = text.partition("=")
        if not equals:
            raise NcclVariableError(f"{path}, line {number}: '{text}' is not NAME=VALUE")
        values[name.strip()] = value.strip()
    return values


def shape_of(variables: NcclVariables, ranks_per_node: int) -> dict[str, Any]:
    """Channels, algorithm, protocol, buffer, chunks and relaying of NCCL's messages, from the variables.

    The default is two channels for each rank of a node. Raises NcclVariableError.
    """
    lowest = _number(variables, "NCCL_MIN_NCHANNELS", 1, CHANNELS_MAX, 1)
    highest = _number(variables, "NCCL_MAX_NCHANNELS", 1, CHANNELS_MAX, CHANNELS_MAX)
    buffer_bytes = _size(variables, "NCCL_BUFFSIZE", BUFFER_MIN_BYTES, BUFFER_MAX_BYTES, 4 << 20)
    chunk_bytes = _size(variables, "NCCL_P2P_NET_CHUNKSIZE", 256, CHUNK_MAX_BYTES, 128 << 10)
    _number(variables, "NCCL_CROSS_NIC", 0, 2, 2)
    return {
        "channels": min(max(min(RAILS_CHANNELS * ranks_per_node, CHANNELS_MAX), lowest), max(highest, lowest)),
        "algorithm": _algorithm(variables),
        "allowed": _allowed(variables),
        "collnet": _number(variables, "NCCL_COLLNET_ENABLE", 0, 1, 0) == 1,
        "protocol": _protocol(variables),
        "buffer_bytes": buffer_bytes,
        # At most a step, as in NCCL.
        "p2p_chunk_bytes": min(chunk_bytes, buffer_bytes // 8),
        "pxn": _number(variables, "NCCL_PXN_DISABLE", 0, 1, 0) == 0,
    }


def connections_of(variables: NcclVariables, queue_pairs: int | None, split: bool | None) -> tuple[int, bool]:
    """(queue pairs between two ranks, whether each message is split over all of them).

    Arguments take precedence over variables. Raises ValueError.
    """
    if queue_pairs is None:
        queue_pairs = _number(variables, "NCCL_IB_QPS_PER_CONNECTION", 1, QUEUE_PAIRS_MAX, 1)
    elif not 1 <= queue_pairs <= QUEUE_PAIRS_MAX:
        raise ValueError(f"queue pairs per connection = {queue_pairs}: must be in 1..{QUEUE_PAIRS_MAX}")
    return queue_pairs, _number(variables, "NCCL_IB_SPLIT_DATA_ON_QPS", 0, 1, 0) == 1 if split is None else split


def warnings_of(variables: NcclVariables) -> list[str]:
    """Warnings about variables, apart from their effects. Raises NcclVariableError."""
    lowest = _number(variables, "NCCL_MIN_NCHANNELS", 1, CHANNELS_MAX, 1)
    highest = _number(variables, "NCCL_MAX_NCHANNELS", 1, CHANNELS_MAX, CHANNELS_MAX)
    if lowest <= highest:
        return variables.warnings
    above = f"NCCL_MIN_NCHANNELS={lowest} is above NCCL_MAX_NCHANNELS={highest}"
    return [*variables.warnings, f"{above}: the former holds, as for NCCL"]


def changes_of_files(settings: Iterable[Setting]) -> list[str]:
    """One line for each file of variables that changes the run, because the command line does not show it."""
    found: dict[str, list[str]] = {}
    for each in settings:
        if each.source != ENVIRONMENT and not each.effect.startswith("none"):
            found.setdefault(each.source, []).append(f"{each.name}={each.value} ({each.effect})")
    return [f"{file}: changes this run: {', '.join(changes)}" for file, changes in found.items()]


def _number(variables: NcclVariables, name: str, lowest: int, highest: int, default: int) -> int:
    text = variables.get(name, "")
    if not text:
        return default
    try:
        number = int(text, 0)
    except ValueError:
        number = lowest - 1
    if not lowest <= number <= highest:
        raise variables.wrong(name, f"a number in {lowest}..{highest}")
    return number


def _size(variables: NcclVariables, name: str, lowest: int, highest: int, default: int) -> int:
    """A number of bytes; K, M and G are powers of 1024."""
    text = variables.get(name, "").upper()
    if not text:
        return default
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1], 1)
    try:
        size = int(text[:-1] if unit > 1 else text, 0) * unit
    except ValueError:
        size = lowest - 1
    if not lowest <= size <= highest:
        raise variables.wrong(name, f"a number of bytes in {lowest}..{highest}, such as 4194304 or 4M")
    return size


def _names(variables: NcclVariables, name: str, known: tuple[str, ...], of: str = "allreduce") -> set[str]:
    """Names that a list allows: `Ring,Tree`, or all but those of `^Tree`. `of`: the function whose list counts.

    `Ring;allreduce:Tree`: a list without a function applies to all functions without a list of their own.
    """
    allowed = set(known)
    lists = [part.rpartition(":") for part in variables.get(name, "").lower().split(";") if part.strip()]
    for function, _, names in sorted(lists, key=lambda each: each[0].strip() == of):
        without = names.strip().startswith("^")
        given = {each.strip() for each in names.strip().removeprefix("^").split(",") if each.strip()}
        if unknown := given - set(known):
            raise variables.wrong(name, f"of {', '.join(known)} (not {sorted(unknown)[0]})")
        if function.strip() in ("", of):
            allowed = set(known) - given if without else given
    return allowed


def _algorithm(variables: NcclVariables) -> str | None:
    """ "ring" or "tree" where only one of them is allowed; None: chosen by size."""
    allowed = _names(variables, "NCCL_ALGO", (*ALGORITHMS, *OTHER_ALGORITHMS)) & set(ALGORITHMS)
    return allowed.pop() if len(allowed) == 1 else None


def _allowed(variables: NcclVariables) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """(operation, algorithms that it may have), for operations that may not have all of theirs."""
    patless = {"pat"} if _number(variables, "NCCL_PAT_ENABLE", 0, 2, 2) == 0 else set()
    found = []
    own = {part.rpartition(":")[0].strip() for part in variables.get("NCCL_ALGO", "").lower().split(";")}
    for op, (function, known) in FUNCTIONS.items():
        names = _names(variables, "NCCL_ALGO", (*ALGORITHMS, *OTHER_ALGORITHMS), function)
        if function in own and not names & set(known):
            raise variables.wrong(
                "NCCL_ALGO", f"of {', '.join(known)} for {function} (Genie has no {' or '.join(sorted(names))} for it)"
            )
        possible = tuple(name for name in known if name in names - patless)
        if function in own and not possible:
            raise variables.wrong("NCCL_ALGO", f"more than pat for {function} (NCCL_PAT_ENABLE=0 leaves nothing)")
        if possible and possible != known:
            found.append((op, possible))
    return tuple(found)


def protocols_of(variables: NcclVariables) -> tuple[str, ...]:
    """Return the protocols that NCCL may choose. Raises NcclVariableError."""
    allowed = _names(variables, "NCCL_PROTO", PROTOCOLS)
    return tuple(name for name in PROTOCOLS if name in allowed)


def _protocol(variables: NcclVariables) -> str:
    allowed = _names(variables, "NCCL_PROTO", PROTOCOLS)
    return next((name for name in PROTOCOLS if name in allowed), PROTOCOLS[0])


def settings_list(variables: NcclVariables, played: Played) -> list[Setting]:
    """Every NCCL variable that is set, with its effect. Raises NcclVariableError."""
    return [
        Setting(name, variables[name], variables.sources[name], _effect(name, variables, played))
        for name in sorted(variables)
    ]


def _effect(name: str, variables: NcclVariables, played: Played) -> str:
    if name == FILE_NAME:
        return "names a file of variables"
    if name == TUNER_FILE:
        return _effect_of_tuner(variables[name], played.shape)
    if name in SHAPING and played.shape is None:
        return "none: --wire plain"
    if name in DEVICE_SETTINGS and not played.verbs:
        return "none: no rank is on --transport verbs"
    if not (name in SHAPING or name in DEVICE_SETTINGS or name in CONNECTING):
        return "none: Genie does not read it"
    if not variables[name]:
        return "none: it is empty"
    if name in played.overruled:
        return f"none: {played.overruled[name]} sets it"
    if name in CONNECTING:
        return f"queue pairs of each connection: {CONNECTING[name]} = {variables[name]}"
    if name in DEVICE_SETTINGS or played.shape is None:
        return "of --transport verbs"
    return _effect_on_messages(name, variables, played.shape, played.operations)


def _effect_of_tuner(path: str, shape: Mapping[str, Any] | None) -> str:
    if not path:
        return "none: it is empty"
    if shape is None:
        return "none: --wire plain"
    if shape["server"] is None:
        return "none: GPUs take no time, and nothing chooses: give --gpu"
    return f"{len(shape['tuner'])} rows of choices"


def _algorithms_said(shape: Mapping[str, Any]) -> str:
    """Algorithms of the operations that do not have all; without GPUs, those that differ from the default."""
    found = []
    for op, names in shape["allowed"]:
        if shape.get("server") is None:
            names = tuple(name for name in names if name in ("ring", "tree", "pat"))
            if len(names) != 1 or (op != "all_reduce" and names == ("ring",)):
                continue
        found.append(f"{' or '.join(names)} for {op.replace('_', '-')}")
    return "; ".join(found)


def _effect_on_messages(
    name: str, variables: NcclVariables, shape: Mapping[str, Any], operations: Collection[str] | None
) -> str:
    if name == "NCCL_CROSS_NIC":
        return "none: rings leave a node by the NIC by which they enter it"
    if operations is not None and not SHAPING[name] & set(operations):
        return f"none: it applies to {', '.join(sorted(SHAPING[name]))}, and the workload has none"
    ranks_per_node = shape["ranks_per_node"]
    if name == "NCCL_PXN_DISABLE" and ranks_per_node == 1:
        return "none: one rank a node"
    if shape_of(variables, ranks_per_node) == shape_of(variables.without(name), ranks_per_node):
        return SAME
    chunks = f"chunks of at most {shape['p2p_chunk_bytes']} bytes"
    match name:
        case "NCCL_ALGO":
            return _algorithms_said(shape) or SAME
        case "NCCL_COLLNET_ENABLE":
            return "CollNet" if shape["collnet"] else "none: the fabric has no [switch] reduces = true"
        case "NCCL_PAT_ENABLE":
            return SAME if shape.get("server") is None else "no PAT"
        case "NCCL_PROTO":
            return str(shape["protocol"])
        case "NCCL_MIN_NCHANNELS" | "NCCL_MAX_NCHANNELS":
            return f"{shape['channels']} channels"
        case "NCCL_PXN_DISABLE":
            return "no relays in all-to-all"
        case "NCCL_P2P_NET_CHUNKSIZE":
            return chunks
    said = []
    if shape["protocol"] == "simple" and (operations is None or IN_CHANNELS & set(operations)):
        said.append(f"steps of {shape['buffer_bytes'] // 8} bytes")
    without = shape_of(variables.without(name), ranks_per_node)["p2p_chunk_bytes"]
    if shape["p2p_chunk_bytes"] != without and (operations is None or IN_MESSAGES & set(operations)):
        said.append(chunks)
    return ", ".join(said) or SAME
