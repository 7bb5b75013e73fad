"""The groups of a workload: from its groups file, or from the traces' own `## process_group:init ##` nodes."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable
from pathlib import Path

from chakra_protobuf.et_def_pb2 import Node

from chakra_schemas.attributes import attributes_of
from chakra_schemas.reader import read_content, read_trace
from genie.workload.files import WorkloadFiles, check_members, read_groups
from genie.workload.graph import Group, WorkloadError

INIT_NAME = "## process_group:init ##"
# Names for all ranks unless a definition says otherwise; the first is the group's name in memory.
WORLD_NAMES = ("0", "")


class GroupTable:
    """All groups of a workload, in an order that all ranks share, and the index of each name."""

    def __init__(self, definitions: dict[str, list[int]], world_size: int) -> None:
        """`definitions`: members by name; an empty list stands for every rank. The implicit world group comes first."""
        world = tuple(range(world_size))
        self.groups: list[Group] = []
        self.index: dict[str, int] = {}
        undefined = [name for name in WORLD_NAMES if name not in definitions]
        if undefined and not any(self._is_world(definitions, name, world) for name in WORLD_NAMES):
            self.groups.append(Group(undefined[0], world))
            self.index.update(dict.fromkeys(undefined, 0))
        for name, members in definitions.items():
            self.index[name] = len(self.groups)
            self.groups.append(Group(name, tuple(members) or world))
        for name in undefined:
            if name not in self.index:
                self.index[name] = next(self.index[other] for other in WORLD_NAMES if other in definitions)

    @staticmethod
    def _is_world(definitions: dict[str, list[int]], name: str, world: tuple[int, ...]) -> bool:
        return name in definitions and tuple(definitions[name] or world) == world


def find_definitions(files: WorkloadFiles) -> dict[str, list[int]]:
    """Members by group name, in order of names: from the groups file, else from the traces of all ranks.

    All traces are searched, whichever ranks will be loaded. Each trace lists only its own rank's groups, and every rank
    must number the groups alike.
    """
    if files.groups is not None:
        return read_groups(files.groups)
    definitions: dict[str, list[int]] = {}
    for path in files.traces.values():
        if INIT_NAME.encode() not in read_content(path):
            continue
        for name, members in init_groups(path, read_trace(path).nodes).items():
            if definitions.setdefault(name, members) != members:
                raise WorkloadError(f"{path}: group {name!r} has members {members}, elsewhere {definitions[name]}")
    return dict(sorted(definitions.items()))


def init_groups(path: Path, nodes: Iterable[Node]) -> dict[str, list[int]]:
    """Members by group name, from the trace's process_group:init nodes; an empty list stands for every rank."""
    groups: dict[str, list[int]] = {}
    for node in nodes:
        if node.name != INIT_NAME:
            continue
        text = node.inputs.values or attributes_of(node).get("inputs") or ""
        for entry in _entries(path, text):
            name = str(entry.get("pg_name", entry.get("pg_id", "")))
            ranks = entry.get("ranks") or []
            members = check_members(str(path), name, list(ranks) if isinstance(ranks, (list, dict)) else ranks)
            groups[name] = members
    return groups


def _entries(path: Path, text: object) -> list[dict[str, object]]:
    """The list of groups in a string, which producers wrap in a list, in JSON or in Python's notation."""
    value = text
    while isinstance(value, str) or (isinstance(value, list) and len(value) == 1 and isinstance(value[0], str)):
        value = _literal(path, value[0] if isinstance(value, list) else value)
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise WorkloadError(f"{path}: {INIT_NAME} does not hold a list of groups; put a groups file beside the traces")
    return value


def _literal(path: Path, text: str) -> object:
    for parse in (json.loads, ast.literal_eval):
        try:
            value: object = parse(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if value != text:
            return value
    raise WorkloadError(f"{path}: {INIT_NAME} cannot be read; put a groups file beside the traces")
