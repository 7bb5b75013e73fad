"""NCCL's variables: what is set, where, and what it means for the messages that are sent.

Read as NCCL does: the environment, else `~/.nccl.conf`, else `/etc/nccl.conf` (or the file that NCCL_CONF_FILE names),
lines of NAME=VALUE.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SYSTEM_FILE = Path("/etc/nccl.conf")
CHANNELS_MAX = 64
BUFFER_MIN_BYTES, BUFFER_MAX_BYTES = 8 * 1024, 1 << 30
CHUNK_MAX_BYTES = 1 << 30
RAILS_CHANNELS = 2  # channels of each rank at a node's door, where nothing says how many

ALGORITHMS, OTHER_ALGORITHMS = ("ring", "tree"), ("collnetdirect", "collnetchain", "nvls", "nvlstree", "pat")
PROTOCOLS = ("simple", "ll128", "ll")  # in the order of preference

# Those that decide messages. The others are recorded as they are.
SHAPING = (
    "NCCL_ALGO", "NCCL_PROTO", "NCCL_BUFFSIZE", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_P2P_NET_CHUNKSIZE",
    "NCCL_PXN_DISABLE", "NCCL_CROSS_NIC",
)  # fmt: skip
CONNECTING = ("NCCL_IB_QPS_PER_CONNECTION", "NCCL_IB_SPLIT_DATA_ON_QPS")


class NcclVariableError(ValueError):
    """A variable with a value that means nothing: one line that names it, where it is set and what is allowed."""


@dataclass(frozen=True)
class Setting:
    """One variable, as run.json lists it."""

    name: str
    value: str
    source: str  # environment, or the file
    effect: str  # what it does here; begins with "none" where it does nothing


class NcclVariables(Mapping[str, str]):
    """All variables whose names begin with NCCL_, by name."""

    def __init__(self, environment: Mapping[str, str] | None = None, files: tuple[Path, ...] | None = None) -> None:
        """Raises NcclVariableError when a file cannot be read or has a line that is no NAME=VALUE."""
        environment = os.environ if environment is None else environment
        self._values: dict[str, str] = {}
        self.sources: dict[str, str] = {}
        for path in reversed(_files(environment) if files is None else files):
            self._take(_read(path), str(path))
        self._take({name: text for name, text in environment.items() if name.startswith("NCCL_")}, "environment")

    def _take(self, values: Mapping[str, str], source: str) -> None:
        for name, text in values.items():
            self._values[name] = text.strip()
            self.sources[name] = source

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def wrong(self, name: str, allowed: str) -> NcclVariableError:
        """The error of a value that is not `allowed`."""
        where = f'{name}="{self[name]}" ({self.sources[name]})'
        return NcclVariableError(f"{where}: must be {allowed}; unset it, or correct it")


def _files(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Where variables may stand, the strongest first."""
    named = environment.get("NCCL_CONF_FILE", "")
    home = environment.get("HOME", "")
    own = Path(named) if named else Path(home or "/") / ".nccl.conf"
    return own, SYSTEM_FILE


def _read(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return {}
    except OSError as error:
        raise NcclVariableError(f"{path}: cannot be read: {error.strerror}") from error
    values = {}
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        name, equals, value = text.partition("=")
        if not equals:
            raise NcclVariableError(f"{path}, line {number}: '{text}' is no NAME=VALUE")
        values[name.strip()] = value.strip()
    return values


def shape_of(variables: NcclVariables, ranks_per_node: int) -> dict[str, Any]:
    """Channels, algorithm, protocol, buffer, chunks and relaying of NCCL's messages, as variables say.

    Channels that nobody says are two for each rank at a node's door. Raises NcclVariableError.
    """
    lowest = _number(variables, "NCCL_MIN_NCHANNELS", 1, CHANNELS_MAX, 1)
    highest = _number(variables, "NCCL_MAX_NCHANNELS", 1, CHANNELS_MAX, CHANNELS_MAX)
    buffer_bytes = _size(variables, "NCCL_BUFFSIZE", BUFFER_MIN_BYTES, BUFFER_MAX_BYTES, 4 << 20)
    chunk_bytes = _size(variables, "NCCL_P2P_NET_CHUNKSIZE", 256, CHUNK_MAX_BYTES, 128 << 10)
    _number(variables, "NCCL_CROSS_NIC", 0, 2, 2)
    return {
        "channels": min(max(min(RAILS_CHANNELS * ranks_per_node, CHANNELS_MAX), lowest), max(highest, lowest)),
        "algorithm": _algorithm(variables),
        "protocol": _protocol(variables),
        "buffer_bytes": buffer_bytes,
        # Not more than a step, as NCCL has it.
        "p2p_chunk_bytes": min(chunk_bytes, buffer_bytes // 8),
        "pxn": _number(variables, "NCCL_PXN_DISABLE", 0, 1, 0) == 0,
    }


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
    """A number of bytes; K, M and G are 1024s."""
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


def _names(variables: NcclVariables, name: str, known: tuple[str, ...]) -> set[str]:
    """Names that a list allows: `Ring,Tree`, or all but those of `^Tree`; by function, that of all-reduce."""
    text = variables.get(name, "").lower()
    if not text:
        return set(known)
    for part in text.split(";"):
        function, colon, names = part.rpartition(":")
        if not colon or function.strip() == "allreduce":
            text = names
            break
    else:
        return set(known)
    without = text.startswith("^")
    given = {each.strip() for each in text.removeprefix("^").split(",") if each.strip()}
    if unknown := given - set(known):
        raise variables.wrong(name, f"of {', '.join(known)} (not {sorted(unknown)[0]})")
    return set(known) - given if without else given


def _algorithm(variables: NcclVariables) -> str | None:
    """ring or tree, where only one of them is allowed; None: by size."""
    allowed = _names(variables, "NCCL_ALGO", (*ALGORITHMS, *OTHER_ALGORITHMS)) & set(ALGORITHMS)
    return allowed.pop() if len(allowed) == 1 else None


def _protocol(variables: NcclVariables) -> str:
    allowed = _names(variables, "NCCL_PROTO", PROTOCOLS)
    return next((name for name in PROTOCOLS if name in allowed), PROTOCOLS[0])


def settings_list(variables: NcclVariables, shape: Mapping[str, Any] | None, verbs: bool) -> list[Setting]:
    """Every NCCL variable that is set, and whether it matters: `shape` as played, None with plain messages."""
    return [
        Setting(name, variables[name], variables.sources[name], _effect(name, variables, shape, verbs))
        for name in sorted(variables)
    ]


def _effect(name: str, variables: NcclVariables, shape: Mapping[str, Any] | None, verbs: bool) -> str:
    if name in CONNECTING:
        return "queue pairs of each connection, unless an option or the fabric says it"
    if name.startswith("NCCL_IB_") and name not in SHAPING:
        return "of --transport verbs" if verbs else "none: no rank is on --transport verbs"
    if name not in SHAPING:
        return "none: Genie does not read it"
    if shape is None:
        return "none: --wire plain"
    match name:
        case "NCCL_ALGO":
            chosen = shape["algorithm"]
            return f"{chosen} for all-reduce" if chosen else "none: of ring and tree both or neither is named"
        case "NCCL_PROTO":
            return f"{shape['protocol']}"
        case "NCCL_MIN_NCHANNELS" | "NCCL_MAX_NCHANNELS":
            return f"{shape['channels']} channels"
        case "NCCL_BUFFSIZE":
            return f"steps of {shape['buffer_bytes'] // 8} bytes" if shape["protocol"] == "simple" else "none: Simple's"
        case "NCCL_P2P_NET_CHUNKSIZE":
            return f"chunks of at most {shape['p2p_chunk_bytes']} bytes"
        case "NCCL_PXN_DISABLE":
            alone = "none: one rank a node" if shape["ranks_per_node"] == 1 else ""
            return alone or ("relays by rail in all-to-all" if shape["pxn"] else "no relays in all-to-all")
        case _:
            return "none: rings leave a node by the NIC by which they enter it"
