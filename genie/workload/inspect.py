"""Statistics and findings of a workload, as text and as data."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genie.inputs.printable import printable
from genie.workload.classes import RankViews
from genie.workload.critical_path import CriticalPath, critical_path
from genie.workload.graph import Kind, Op, RankGraph, Workload
from genie.workload.lint import Lint, lint
from genie.workload.matching import GlobalRows, match_messages
from genie.workload.quotient import quotient

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
    """Count, add up and check a workload, with or without cycles (see `load`).

    A workload of classes is checked by one rank a class where that is the same, and by all ranks for what is wrong.
    """
    small = quotient(workload)
    checked = None if small is None else _check(small)
    findings, path = checked if checked is not None and not checked[0] else _check(workload)
    shared = _shared(workload)
    kinds = sum((len(each.ranks) * each.kinds() for each in shared), np.zeros(len(Kind), np.int64))
    return Inspection(
        name=workload.name,
        world_size=workload.world_size,
        ranks=list(workload.ranks),
        groups=len(workload.groups),
        nodes={kind.name.lower(): int(kinds[kind]) for kind in Kind if kinds[kind]},
        dependencies=sum(len(each.ranks) * len(each.graph.deps) for each in shared),
        traffic=[*_collectives(workload, shared), *_messages(shared)],
        durations=[entry for kind in (Kind.COMP, Kind.MEM) for entry in _durations(shared, kind)],
        critical_path=path,
        lints=findings,
        notes=[note for note in workload.notes if not note.endswith("dropped")],
    )


def _check(workload: Workload) -> tuple[list[Lint], CriticalPath]:
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
    return findings, path


@dataclass(frozen=True)
class _Shared:
    """A graph, and the ranks that have it."""

    graph: RankGraph
    ranks: NDArray[np.int64]  # (ranks,)
    groups: NDArray[np.int32] | None  # (ranks, columns) the groups that `graph.group` names; None: it has the groups

    def kinds(self) -> NDArray[np.int64]:
        return np.bincount(self.graph.kind, minlength=len(Kind)).astype(np.int64)


def _shared(workload: Workload) -> list[_Shared]:
    if not isinstance(workload.ranks, RankViews):
        return [_Shared(graph, np.array([rank]), None) for rank, graph in workload.ranks.items()]
    classes = workload.ranks.classes
    members = [classes.members(number) for number in range(len(classes.templates))]
    found = zip(classes.templates, members, strict=True)
    return [_Shared(template, ranks, classes.group_of[ranks]) for template, ranks in found if len(ranks)]


def _deadlock(rows: GlobalRows, circle: list[int], shown_max: int = 6) -> Lint:
    shown = [rows.describe(row) for row in circle[:shown_max]]
    if len(circle) > shown_max:
        shown.append(f"{len(circle) - shown_max} more")
    message = f"ranks wait for each other in a circle: {' waits for '.join([*shown, rows.describe(circle[0])])}"
    return Lint("deadlock", "error", message, len(circle))


def _collectives(workload: Workload, shared: list[_Shared]) -> list[Traffic]:
    counts: dict[tuple[int, int], Counter[int]] = {}  # (group, operation) -> rank -> collectives
    sizes: Counter[tuple[int, int]] = Counter()
    for each in shared:
        graph = each.graph
        rows = np.flatnonzero(graph.kind == Kind.COLL)
        pairs, pair_of = np.unique(np.stack([graph.group[rows], graph.op[rows]]), axis=1, return_inverse=True)
        for at, (column, op) in enumerate(pairs.T.tolist()):
            of_op = rows[pair_of.reshape(-1) == at]
            size_bytes = int(np.maximum(graph.size_bytes[of_op], 0).sum())
            groups = [column] if each.groups is None else each.groups[:, column].tolist()
            for rank, group in zip(each.ranks.tolist(), groups, strict=True):
                counts.setdefault((group, op), Counter())[rank] += len(of_op)
                sizes[group, op] += size_bytes
    return [
        Traffic(
            Op(op).name.lower(), workload.groups[group].name, len(workload.groups[group].ranks),
            max(counts[group, op].values()), sizes[group, op],
        )
        for group, op in sorted(counts)
    ]  # fmt: skip


def _messages(shared: list[_Shared]) -> list[Traffic]:
    found = []
    for kind in (Kind.SEND, Kind.RECV):
        sizes = [(len(each.ranks), each.graph.size_bytes[each.graph.kind == kind]) for each in shared]
        count = sum(ranks * len(own) for ranks, own in sizes)
        if count:
            members = sum(ranks for ranks, own in sizes if len(own))
            size_bytes = sum(ranks * int(np.maximum(own, 0).sum()) for ranks, own in sizes)
            found.append(Traffic(kind.name.lower(), None, members, count, size_bytes))
    return found


def _durations(shared: list[_Shared], kind: Kind) -> list[Durations]:
    by_graph = [each.graph.duration_ns[each.graph.kind == kind] for each in shared]
    weights = [len(each.ranks) for each in shared]
    everything = np.concatenate(by_graph) if by_graph else np.zeros(0, dtype=np.int64)
    if len(everything) == 0:
        return []
    ranks = np.repeat(weights, [len(own) for own in by_graph])
    known, ranks_known = everything[everything >= 0], ranks[everything >= 0]
    totals = [int(own[own >= 0].sum()) for own in by_graph]
    origins: Counter[str] = Counter()
    for each, weight in zip(shared, weights, strict=True):
        if each.graph.origin is not None:
            for row in np.flatnonzero(each.graph.kind == kind).tolist():
                origins[each.graph.origin[row]] += weight
    origins.pop("", None)
    return [
        Durations(
            kind=kind.name.lower(),
            count=int(ranks_known.sum()),
            total_ns=sum(weight * total for weight, total in zip(weights, totals, strict=True)),
            median_ns=_median(known, ranks_known),
            max_ns=int(known.max(initial=0)),
            unknown=int(ranks.sum() - ranks_known.sum()),
            rank_min_ns=min(totals),
            rank_max_ns=max(totals),
            origins=dict(origins.most_common()),
        )
    ]


def _median(values: NDArray[np.int64], times: NDArray[np.int64]) -> int:
    """Return the median of values that occur so many times; 0 of none."""
    if not len(values):
        return 0
    order = np.argsort(values)
    until = np.cumsum(times[order])
    middle = np.searchsorted(until, [(until[-1] - 1) // 2, until[-1] // 2], side="right")
    low, high = values[order[middle]].tolist()
    return (int(low) + int(high)) // 2


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
