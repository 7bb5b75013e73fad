"""Checks of a workload before it is played."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from genie.workload.compute import missing_rows
from genie.workload.graph import Kind, Op, RankGraph, Workload
from genie.workload.matching import GlobalRows, Messages, Rows, collective_rows
from genie.workload.order import describe_cycle, find_cycle


@dataclass(frozen=True)
class Lint:
    """One finding. An `error` would stop a replay or make it meaningless; a `warning` would not."""

    code: str  # cycle, deadlock, unmatched, size-mismatch, sequence, splits, no-size, no-duration, dangling
    severity: str  # error, warning
    message: str  # one line with the first case and the number of cases
    count: int = 1


def lint(workload: Workload, rows: GlobalRows, messages: Messages) -> list[Lint]:
    """All findings except deadlocks, which `inspect` adds. Ranks that are not loaded are not checked."""
    return [
        *_cycles(workload),
        *_unmatched(rows, messages),
        *sequences(workload),
        *_splits(workload),
        *_without_size(workload),
        *_without_duration(workload),
        *_dangling(workload),
    ]


def _cycles(workload: Workload) -> list[Lint]:
    found = []
    for rank, graph in workload.ranks.items():
        cycle = find_cycle(graph)
        if cycle:
            message = f"rank {rank}: a cycle of {len(cycle)} nodes: node {describe_cycle(graph, cycle)}"
            found.append(Lint("cycle", "error", message, len(cycle)))
    return found


def _unmatched(rows: GlobalRows, messages: Messages) -> list[Lint]:
    found = []
    for alone, what, other in (
        (messages.unmatched_send, "sends", "receive"),
        (messages.unmatched_recv, "receives", "send"),
    ):
        if len(alone):
            graph, row = rows.locate(int(alone[0]))
            ends = f"to rank {graph.peer[row]}" if other == "receive" else f"from rank {graph.peer[row]}"
            first = f"{rows.describe(int(alone[0]))} {ends}, tag {graph.tag[row]}"
            found.append(Lint("unmatched", "error", f"{len(alone)} {what} without a {other}: {first}", len(alone)))
    size = rows.column("size_bytes")
    differ = np.flatnonzero(size[messages.send] != size[messages.recv])
    if len(differ):
        send, recv = int(messages.send[differ[0]]), int(messages.recv[differ[0]])
        first = f"{rows.describe(send)} sends {size[send]} B, {rows.describe(recv)} receives {size[recv]} B"
        message = f"{len(differ)} messages whose ends disagree on the size: {first}"
        found.append(Lint("size-mismatch", "error", message, len(differ)))
    return found


def sequences(workload: Workload) -> list[Lint]:
    """Groups whose members' collectives differ, with the first difference."""
    found = []
    for group, by_rank in collective_rows(workload).items():
        position = _first_difference(workload, by_rank)
        if position is None:
            continue
        ranks_of: dict[str, list[int]] = {}
        for rank, own in by_rank.items():
            what = _describe(workload.ranks[rank], int(own[position])) if position < len(own) else "nothing"
            ranks_of.setdefault(what, []).append(rank)
        parts = [f"{_ranks(ranks)} {'has' if len(ranks) == 1 else 'have'} {what}" for what, ranks in ranks_of.items()]
        name = workload.groups[group].name
        message = f"group {name!r}: ranks disagree on its collective {position}: {'; '.join(parts)}"
        found.append(Lint("sequence", "error", message))
    return found


def _first_difference(workload: Workload, by_rank: dict[int, Rows]) -> int | None:
    """Position (from 0) of the first collective on which the members disagree."""
    shortest = min(len(own) for own in by_rank.values())
    columns = []
    for rank, own in by_rank.items():
        graph = workload.ranks[rank]
        own = own[:shortest]
        size = graph.size_bytes[own].copy()
        for index, row in enumerate(own.tolist()) if graph.splits else ():
            if row in graph.splits:
                size[index] = -2  # members of an uneven collective have different sizes
        columns.append(np.stack([graph.op[own], size, graph.root[own]]))
    table = np.stack(columns)  # (member, property, position)
    differ = np.flatnonzero((table != table[0]).any(axis=(0, 1)))
    if len(differ):
        return int(differ[0])
    return shortest if any(len(own) != shortest for own in by_rank.values()) else None


def _describe(graph: RankGraph, row: int) -> str:
    op = Op(int(graph.op[row]))
    uneven = "uneven, " if row in graph.splits else ""
    root = f", root at position {graph.root[row]}" if op in (Op.BROADCAST, Op.REDUCE, Op.GATHER, Op.SCATTER) else ""
    return f"{op.name.lower()} ({uneven}{graph.size_bytes[row]} B{root})"


def _ranks(ranks: list[int], shown_max: int = 8) -> str:
    shown = ", ".join(map(str, ranks[:shown_max])) + (", ..." if len(ranks) > shown_max else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"


def _splits(workload: Workload) -> list[Lint]:
    """Uneven collectives where a member sends other sizes than its peers expect to receive."""
    found: list[Lint] = []
    if not any(graph.splits for graph in workload.ranks.values()):
        return found
    for group, by_rank in collective_rows(workload).items():
        ranks = list(by_rank)
        positions = [workload.groups[group].ranks.index(rank) for rank in ranks]
        for seq, together in enumerate(zip(*(own.tolist() for own in by_rank.values()), strict=False)):
            splits = [workload.ranks[rank].splits.get(row) for rank, row in zip(ranks, together, strict=True)]
            given = [split for split in splits if split is not None]
            if len(given) < len(splits):
                continue
            sent = np.stack([split[0] for split in given])[:, positions]
            received = np.stack([split[1] for split in given])[:, positions].T
            differ = np.argwhere(sent != received)
            if len(differ):
                i, j = differ[0].tolist()
                message = (
                    f"group {workload.groups[group].name!r}: collective {seq}: rank {ranks[i]} sends {sent[i, j]} B "
                    f"to rank {ranks[j]}, which receives {received[i, j]} B"
                )
                found.append(Lint("splits", "error", message, len(differ)))
                break
    return found


def _counted(workload: Workload, rows_of: dict[int, Rows], code: str, severity: str, what: str) -> list[Lint]:
    count = sum(len(own) for own in rows_of.values())
    if count == 0:
        return []
    rank, own = next((rank, own) for rank, own in rows_of.items() if len(own))
    graph = workload.ranks[rank]
    first = f"rank {rank} node {graph.node_id[own[0]]} ({graph.name[int(own[0])]})"
    return [Lint(code, severity, f"{count} {what}, the first is {first}", count)]


def _without_size(workload: Workload) -> list[Lint]:
    sized = (Kind.COLL, Kind.SEND, Kind.RECV)
    rows_of = {
        rank: np.flatnonzero(np.isin(graph.kind, sized) & (graph.size_bytes < 0))
        for rank, graph in workload.ranks.items()
    }
    return _counted(workload, rows_of, "no-size", "error", "collectives or messages without a size")


def _without_duration(workload: Workload) -> list[Lint]:
    rows_of = {rank: missing_rows(graph) for rank, graph in workload.ranks.items()}
    what = "compute nodes without a duration (give --compute)"
    return _counted(workload, rows_of, "no-duration", "warning", what)


def _dangling(workload: Workload) -> list[Lint]:
    if workload.dangling == 0:
        return []
    message = f"{workload.dangling} dependencies on nodes that are not in the files, dropped"
    return [Lint("dangling", "warning", message, workload.dangling)]
