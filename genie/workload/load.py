"""Loading of a workload from trace files and their groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path

from chakra_schemas.errors import TraceError
from chakra_schemas.reader import read_trace
from genie.workload.decode import NodeDecoder
from genie.workload.files import WorkloadFiles, find_files
from genie.workload.graph import RankGraph, Workload, WorkloadError
from genie.workload.groups import GroupTable, find_definitions
from genie.workload.order import describe_cycle, find_cycle


def load(location: str | Path, ranks: Collection[int] | None = None, *, allow_cycles: bool = False) -> Workload:
    """Load a folder, or a prefix of `{prefix}.{rank}.et[.gz]` or `.json` files, with its groups file.

    ranks: only these ranks' traces are loaded (default: all, and none may be missing); the world's size and the
        groups are the same whichever ranks are asked for.
    allow_cycles: leave cycles to the caller (the lint names them).
    Raises WorkloadError: one line that says which file or node, what is wrong and what to do.
    """
    try:
        return _load(find_files(location), ranks, allow_cycles)
    except TraceError as error:
        raise WorkloadError(str(error)) from error
    except OSError as error:
        raise WorkloadError(f"{error.filename or location}: cannot be read: {error.strerror}") from error


def _load(files: WorkloadFiles, ranks: Collection[int] | None, allow_cycles: bool) -> Workload:
    definitions = find_definitions(files)
    members = [rank for group in definitions.values() for rank in group]
    world_size = 1 + max([*files.traces, *members])
    wanted = sorted(range(world_size) if ranks is None else set(ranks))
    _check_present(files, wanted, world_size)
    table = GroupTable(definitions, world_size)
    notes: Counter[str] = Counter()
    workload = Workload(files.name, world_size, table.groups, {})
    for rank in wanted:
        decoder = NodeDecoder(files.traces[rank], rank, world_size, table)
        for node in read_trace(decoder.path).nodes:
            decoder.add(node)
        graph = decoder.finish()
        if not allow_cycles:
            _check_acyclic(decoder.path, graph)
        workload.ranks[rank] = graph
        workload.dangling += decoder.dangling
        notes.update(decoder.notes)
    if ranks is None and not any(map(len, workload.ranks.values())):
        raise WorkloadError(f"{next(iter(files.traces.values())).parent}: no rank has a node, so that there is nothing "
                            "to play: give a trace with nodes")  # fmt: skip
    workload.notes = [f"{count} {what}" for what, count in sorted(notes.items())]
    if workload.dangling:
        workload.notes.append(f"{workload.dangling} dependencies on nodes that are not in the files, dropped")
    return workload


def _check_present(files: WorkloadFiles, wanted: list[int], world_size: int) -> None:
    missing = [rank for rank in wanted if rank not in files.traces]
    if not missing:
        return
    first = next(iter(files.traces.values()))
    shown = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
    raise WorkloadError(
        f"{first.parent}: {len(missing)} of {world_size} ranks have no trace ({shown}); found {len(files.traces)}, "
        f"the first is {first.name}"
    )


def _check_acyclic(path: Path, graph: RankGraph) -> None:
    cycle = find_cycle(graph)
    if cycle:
        raise WorkloadError(f"{path}: a cycle of {len(cycle)} nodes: node {describe_cycle(graph, cycle)}")
