"""Statistics and findings of a workload, as text and as data."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from genie.inputs.printable import printable
from genie.workload.critical_path import CriticalPath, critical_path
from genie.workload.graph import Kind, Op, Workload
from genie.workload.lint import Lint, lint
from genie.workload.matching import GlobalRows, collective_rows, match_messages

# Codes of findings that keep ranks from being joined into one graph.
UNJOINABLE = frozenset({"cycle", "sequence"})


@dataclass
class Traffic:
    """All nodes of one operation in one group, or all sends, or all receives."""

    op: str  # all_reduce, ..., send, recv
    group: str | None
    members: int  # ranks in the group; for messages, the ranks that have any
    count: int  # collectives, or messages
    size_bytes: int  # over the nodes of all loaded ranks


@dataclass
class Durations:
    """Statistics of the known durations of nodes of one kind."""

    kind: str
    count: int
    total_ns: int
    median_ns: int
    max_ns: int
    unknown: int  # nodes without a duration
    rank_min_ns: int  # total of the least busy rank
    rank_max_ns: int  # total of the busiest rank
    origins: dict[str, int] = field(default_factory=dict)  # where durations come from -> nodes whose trace says so


@dataclass
class Inspection:
    """Result of `genie inspect`."""

    name: str
    world_size: int
    ranks: list[int]  # loaded
    groups: int
    nodes: dict[str, int]  # by kind, over the loaded ranks
    dependencies: int
    traffic: list[Traffic]
    durations: list[Durations]
    critical_path: CriticalPath
    lints: list[Lint]
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether no finding is an error."""
        return not any(finding.severity == "error" for finding in self.lints)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, with `ok`."""
        return {**asdict(self), "ok": self.ok}

    def lines(self) -> list[str]:
        """The inspection as text, one line each."""
        loaded = "" if len(self.ranks) == self.world_size else f", {len(self.ranks)} of them loaded"
        nodes = sum(self.nodes.values())
        text = [
            f"{self.name}: {self.world_size} ranks{loaded}, {self.groups} groups, {nodes:,} nodes, "
            f"{self.dependencies:,} dependencies",
            "  nodes      " + (", ".join(f"{count:,} {kind}" for kind, count in self.nodes.items()) or "none"),
        ]
        text += _traffic_lines(self.traffic)
        text += [line for durations in self.durations for line in _durations_lines(durations)]
        text.append(_path_line(self.critical_path))
        text += [f"  note       {note}" for note in self.notes]
        text += [f"  {finding.severity:<10} {finding.message}" for finding in self.lints]
        if not self.lints:
            text.append("  lint       nothing found")
        return [printable(line) for line in text]


def inspect_workload(workload: Workload) -> Inspection:
    """Count, add up and check a workload, with or without cycles (see `load`)."""
    rows = GlobalRows(workload)
    messages = match_messages(workload, rows)
    findings = lint(workload, rows, messages)
    codes = {finding.code for finding in findings}
    path = CriticalPath(across_ranks=False)
    if "cycle" not in codes:
        path = critical_path(workload, rows, messages, across_ranks=not codes & UNJOINABLE)
        if path.deadlock:
            findings.insert(0, _deadlock(rows, path.deadlock))
            path = critical_path(workload, rows, messages, across_ranks=False)
    kinds = np.bincount(rows.column("kind"), minlength=len(Kind))
    return Inspection(
        name=workload.name,
        world_size=workload.world_size,
        ranks=list(workload.ranks),
        groups=len(workload.groups),
        nodes={kind.name.lower(): int(kinds[kind]) for kind in Kind if kinds[kind]},
        dependencies=sum(len(graph.deps) for graph in workload.ranks.values()),
        traffic=[*_collectives(workload), *_messages(workload)],
        durations=[entry for kind in (Kind.COMP, Kind.MEM) for entry in _durations(workload, kind)],
        critical_path=path,
        lints=findings,
        notes=[note for note in workload.notes if not note.endswith("dropped")],
    )


def _deadlock(rows: GlobalRows, circle: list[int], shown_max: int = 6) -> Lint:
    shown = [rows.describe(row) for row in circle[:shown_max]]
    if len(circle) > shown_max:
        shown.append(f"{len(circle) - shown_max} more")
    message = f"ranks wait for each other in a circle: {' waits for '.join([*shown, rows.describe(circle[0])])}"
    return Lint("deadlock", "error", message, len(circle))


def _collectives(workload: Workload) -> list[Traffic]:
    found: dict[tuple[int, int], Traffic] = {}
    for group, by_rank in collective_rows(workload).items():
        for rank, own in by_rank.items():
            graph = workload.ranks[rank]
            for op in np.unique(graph.op[own]).tolist():
                of_op = own[graph.op[own] == op]
                traffic = found.setdefault(
                    (group, op),
                    Traffic(Op(op).name.lower(), workload.groups[group].name, len(workload.groups[group].ranks), 0, 0),
                )
                traffic.count = max(traffic.count, len(of_op))
                traffic.size_bytes += int(np.maximum(graph.size_bytes[of_op], 0).sum())
    return [found[key] for key in sorted(found)]


def _messages(workload: Workload) -> list[Traffic]:
    found = []
    for kind in (Kind.SEND, Kind.RECV):
        sizes = [graph.size_bytes[graph.kind == kind] for graph in workload.ranks.values()]
        count = sum(len(size) for size in sizes)
        if count:
            members = sum(1 for size in sizes if len(size))
            size_bytes = sum(int(np.maximum(size, 0).sum()) for size in sizes)
            found.append(Traffic(kind.name.lower(), None, members, count, size_bytes))
    return found


def _durations(workload: Workload, kind: Kind) -> list[Durations]:
    by_rank = [graph.duration_ns[graph.kind == kind] for graph in workload.ranks.values()]
    everything = np.concatenate(by_rank) if by_rank else np.zeros(0, dtype=np.int64)
    if len(everything) == 0:
        return []
    known = everything[everything >= 0]
    totals = [int(duration[duration >= 0].sum()) for duration in by_rank]
    return [
        Durations(
            kind=kind.name.lower(),
            count=len(known),
            total_ns=int(known.sum()),
            median_ns=int(np.median(known)) if len(known) else 0,
            max_ns=int(known.max(initial=0)),
            unknown=len(everything) - len(known),
            rank_min_ns=min(totals),
            rank_max_ns=max(totals),
            origins=_origins(workload, kind),
        )
    ]


def _origins(workload: Workload, kind: Kind) -> dict[str, int]:
    found: Counter[str] = Counter()
    for graph in workload.ranks.values():
        if graph.origin is not None:
            found.update(graph.origin[row] for row in np.flatnonzero(graph.kind == kind).tolist())
    found.pop("", None)
    return dict(found.most_common())


def _traffic_lines(traffic: list[Traffic], shown_max: int = 4) -> list[str]:
    """One line for all groups of a size that have the same operations equally often."""
    alike: dict[tuple[str, int, int], list[Traffic]] = {}
    for entry in traffic:
        alike.setdefault((entry.op, entry.members, entry.count), []).append(entry)
    lines = []
    for (op, members, count), entries in alike.items():
        size_bytes = sum(entry.size_bytes for entry in entries)
        if entries[0].group is None:
            lines.append(f"  {op:<10} {count:,} messages, {size_bytes:,} B, {members} ranks")
            continue
        names = ", ".join(repr(entry.group) for entry in entries[:shown_max])
        names += ", ..." if len(entries) > shown_max else ""
        where = f"group {names}" if len(entries) == 1 else f"each of {len(entries)} groups ({names})"
        lines.append(f"  collective {count:,} {op} in {where} of {members} ranks, {size_bytes:,} B in total")
    return lines


def _durations_lines(durations: Durations) -> list[str]:
    unknown = f", {durations.unknown:,} without a duration" if durations.unknown else ""
    if not durations.count:
        return [f"  {durations.kind:<10} {durations.unknown:,} nodes, none with a duration"]
    lines = [
        f"  {durations.kind:<10} {durations.total_ns / 1e6:,.3f} ms in {durations.count:,} nodes{unknown}; "
        f"median {durations.median_ns / 1e3:,.1f} µs, longest {durations.max_ns / 1e3:,.1f} µs; "
        f"by rank {durations.rank_min_ns / 1e6:,.3f} to {durations.rank_max_ns / 1e6:,.3f} ms"
    ]
    if durations.origins:
        counts = ", ".join(f"{count:,} {origin}" for origin, count in durations.origins.items())
        lines.append(f"  {'':<10} times from: {counts}")
    return lines


def _path_line(path: CriticalPath) -> str:
    if not path.nodes:
        return "  critical path: none"
    parts = [
        f"{count:,} {kind}" + (f" {path.duration_ns[kind] / 1e6:,.3f} ms" if path.duration_ns[kind] else "")
        for kind, count in sorted(path.nodes.items())
    ]
    scope = "through all ranks" if path.across_ranks else "of the longest rank"
    return f"  critical path: {path.length_ns:,} ns {scope}, network not counted: {', '.join(parts)}"
