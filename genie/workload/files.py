"""Files of a workload: the trace of each rank, and the groups beside them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from genie.inputs.content import ContentError, read_bytes
from genie.workload.graph import WorkloadError

TRACE_NAME = re.compile(r"(?P<prefix>.*)\.(?P<rank>\d+)\.(?P<suffix>et|et\.gz|json|json\.gz)")
# If two files belong to one rank, the earlier suffix wins.
SUFFIXES = ("et", "et.gz", "json", "json.gz")
RANK_MAX = 1_000_000


@dataclass
class WorkloadFiles:
    """A workload on disk: its name, each rank's trace, and its groups file, if there is one."""

    name: str
    traces: dict[int, Path]
    groups: Path | None
    classes: Path | None = None  # ranks without a trace are of the classes in this file


def find_files(location: str | Path) -> WorkloadFiles:
    """The files of a folder, or of a prefix of `{prefix}.{rank}.et[.gz]` and `.json` files. Raises WorkloadError."""
    path = Path(location)
    if path.is_dir():
        folder, prefix = path, None
    elif path.is_file():
        match = TRACE_NAME.fullmatch(path.name)
        hint = f"; for all ranks give {path.with_name(match['prefix'])}" if match else ""
        raise WorkloadError(f"{path}: a file, but a workload is a folder or a prefix of PREFIX.RANK.et files{hint}")
    else:
        folder, prefix = path.parent, path.name.rstrip(".")
    if not folder.is_dir():
        raise WorkloadError(f"{path}: there is no folder {folder}")
    by_prefix = _traces(folder)
    if prefix is None:
        binary = {
            name: traces
            for name, traces in by_prefix.items()
            if any(".et" in trace.suffixes for trace in traces.values())
        }
        by_prefix = binary or by_prefix  # JSON files beside .et files are often something else
        if len(by_prefix) > 1:
            names = ", ".join(str(folder / name) for name in sorted(by_prefix))
            raise WorkloadError(f"{folder}: holds more than one workload; give one of the prefixes {names}")
        prefix = next(iter(by_prefix), "")
    traces = by_prefix.get(prefix, {})
    if not traces and path.is_dir():
        raise WorkloadError(f"{path}: no PREFIX.RANK.et, .et.gz or .json files here")
    if not traces:
        raise WorkloadError(
            f"{path}: there is no folder of this name, and no PREFIX.RANK.et, .et.gz or .json file has it as its prefix"
        )
    others = set(by_prefix) - {prefix}
    name = path.resolve().name if path.is_dir() else prefix
    classes = folder / classes_name(prefix)
    groups = _groups_file(folder, prefix, others)
    return WorkloadFiles(name, dict(sorted(traces.items())), groups, classes if classes.is_file() else None)


def classes_name(prefix: str) -> str:
    """The name of the file that has the classes of a workload's ranks."""
    return f"{prefix}.classes.json"


def _traces(folder: Path) -> dict[str, dict[int, Path]]:
    found: dict[str, dict[int, tuple[int, Path]]] = {}
    for path in sorted(folder.iterdir()):
        match = TRACE_NAME.fullmatch(path.name)
        if match is None or len(match["rank"]) > len(str(RANK_MAX)):
            continue
        candidate = (SUFFIXES.index(match["suffix"]), path)
        ranks = found.setdefault(match["prefix"], {})
        rank = int(match["rank"])
        ranks[rank] = min(candidate, ranks.get(rank, candidate))
    return {prefix: {rank: path for rank, (_, path) in ranks.items()} for prefix, ranks in found.items()}


def binary_traces(folder: Path, prefix: str) -> list[Path]:
    """The `.et` and `.et.gz` files of a prefix."""
    matches = ((TRACE_NAME.fullmatch(path.name), path) for path in sorted(folder.iterdir()) if not path.is_dir())
    return [path for match, path in matches if match and match["prefix"] == prefix and "json" not in match["suffix"]]


def _groups_file(folder: Path, prefix: str, others: set[str]) -> Path | None:
    for name in (prefix, "workload", "comm_groups"):
        path = folder / f"{name}.json"
        if name not in others and path.is_file():
            return path
    found = [
        path
        for path in sorted(folder.glob("*groups*.json"))
        if TRACE_NAME.fullmatch(path.name) is None
        and not path.name.endswith(classes_name(""))
        and not any(path.name.startswith(other) for other in others)
    ]
    own = [path for path in found if path.name.startswith(prefix)] or found
    if len(own) > 1:
        raise WorkloadError(f"{folder}: more than one groups file: {', '.join(path.name for path in own)}; keep one")
    return own[0] if own else None


def read_groups(path: Path) -> dict[str, list[int]]:
    """The groups of a `{"<id>": [ranks]}` file, members sorted; an empty list means every rank.

    Raises WorkloadError naming the file and the group.
    """
    try:
        value = json.loads(read_bytes(path))
    except ContentError as error:
        raise WorkloadError(f"{path}: {error}") from error
    except OSError as error:
        raise WorkloadError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise WorkloadError(f"{path}: not JSON: {' '.join(str(error).split())}") from error
    if not isinstance(value, dict):
        raise WorkloadError(f'{path}: not a groups file: expected {{"<id>": [ranks], ...}}')
    for name in value:
        if any("\ud800" <= letter <= "\udfff" for letter in name):
            raise WorkloadError(
                f"{path}: group {name!r}: its name has a lone surrogate (half of a character); give another name"
            )
    return {name: check_members(str(path), name, members) for name, members in value.items()}


def check_members(where: str, name: str, members: object) -> list[int]:
    """A group's members, sorted. Raises WorkloadError unless they are distinct ranks."""
    if not isinstance(members, list) or not all(type(rank) is int and 0 <= rank <= RANK_MAX for rank in members):
        raise WorkloadError(f"{where}: group {name!r}: expected a list of ranks")
    if len(set(members)) != len(members):
        raise WorkloadError(f"{where}: group {name!r}: a rank occurs twice")
    return sorted(members)
