"""Finding the trace of each rank in a folder."""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from genie.inputs.content import JSON_MAX_BYTES, ContentError, read_content
from genie.workload.graph import WorkloadError

NAMES = ("*.json", "*.json.gz")
RANK_WORD = re.compile(r"(?:rank|worker|npu|gpu)[-_.]?(\d+)", re.IGNORECASE)
RANK_INSIDE = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d+)')
NUMBER = re.compile(r"\d+")
KINDS = {b'"nodes"': "it is a host execution trace", b'"traceEvents"': "it is a profiler trace"}


@dataclass
class FoundTraces:
    """Traces of one kind: file by rank, and the reason why each other file was not taken."""

    by_rank: dict[int, Path]
    passed_over: dict[Path, str] = field(default_factory=dict)


def find_host_traces(location: str | Path) -> FoundTraces:
    """Host execution traces by rank: `find_traces` of files with nodes."""
    return find_traces(location, b'"nodes"')


def find_device_traces(location: str | Path) -> FoundTraces:
    """Profiler traces by rank: `find_traces` of files with trace events."""
    return find_traces(location, b'"traceEvents"')


def find_traces(location: str | Path, marker: bytes = b"") -> FoundTraces:
    """Files by rank in a folder (searched with its subfolders if it has none itself), of one file, or of a glob.

    If there are several files, those without `marker` in them are passed over, with the reason.

    The rank is the number after "rank" or "worker" in a file's name. Otherwise it is the rank that the profiler wrote
    into the file, or else the last number in the name. The first of these that distinguishes all files counts. A single
    file is rank 0's unless one of the first two gives another. Raises WorkloadError.
    """
    files = _files(str(location))
    if not files:
        raise WorkloadError(f"{location}: no .json or .json.gz traces here; unpack archives first")
    passed_over: dict[Path, str] = {}
    if len(files) > 1 and marker:
        reasons = {path: _why_not(_content(path), marker) for path in files}
        files = [path for path, reason in reasons.items() if reason is None]
        others = [(path, reason) for path, reason in reasons.items() if reason is not None]
        passed_over = dict(sorted(others, key=lambda other: other[1] in KINDS.values()))  # damaged files first
        if not files:
            raise WorkloadError(
                f"{location}: none of {len(reasons)} files holds {marker.decode()}; is it the other folder?"
            )
    methods: tuple[Callable[[Path], int | None], ...] = (_rank_word, _rank_inside, _last_number)
    for method in methods:
        ranks = [method(path) for path in files]
        if None not in ranks and len(set(ranks)) == len(files):
            found = {rank: path for rank, path in zip(ranks, files, strict=True) if rank is not None}
            if len(files) > 1 or method is not _last_number:
                return FoundTraces(dict(sorted(found.items())), passed_over)
    if len(files) == 1:
        return FoundTraces({0: files[0]}, passed_over)
    raise WorkloadError(
        f"{location}: cannot tell which rank each of {len(files)} files is of ({files[0].name}, {files[1].name}, ...); "
        f"name them rank0.json, rank1.json, ..."
    )


def _files(location: str) -> list[Path]:
    path = Path(location)
    if path.is_file():
        return [path]
    if not path.is_dir():
        return _visible(file for file in map(Path, glob.glob(location, recursive=True)) if file.is_file())
    own = _visible(file for name in NAMES for file in path.glob(name))
    return own or _visible(file for name in NAMES for file in path.rglob(name))


def _visible(files: Iterable[Path]) -> list[Path]:
    """Sorted, without the "._" files that macOS adds to archives."""
    return sorted(file for file in files if not file.name.startswith("."))


def _rank_word(path: Path) -> int | None:
    found = RANK_WORD.findall(path.name)
    return int(found[0]) if found else None


def _rank_inside(path: Path) -> int | None:
    found = RANK_INSIDE.search(_content(path))
    return int(found[1]) if found else None


def _content(path: Path) -> bytes:
    try:
        return read_content(path, JSON_MAX_BYTES)
    except (OSError, ContentError) as error:
        raise WorkloadError(f"{path}: cannot be read: {error}") from error


def _why_not(data: bytes, marker: bytes) -> str | None:
    """Reason why a file is not a trace of the wanted kind; None if it may be one."""
    if marker in data:
        return None
    if not data.strip():
        return "it is empty"
    for other, kind in KINDS.items():
        if other in data:
            return kind
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "it is not JSON"
    return "it is neither a host execution trace nor a profiler trace"


def _last_number(path: Path) -> int | None:
    found = NUMBER.findall(path.name)
    return int(found[-1]) if found else None
