"""Loading of a workload from trace files and their groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from chakra_schemas.errors import TraceError
from chakra_schemas.reader import read_trace
from genie.workload.class_files import read_table
from genie.workload.decode import NodeDecoder
from genie.workload.files import WorkloadFiles, find_files
from genie.workload.graph import RankGraph, Workload, WorkloadError
from genie.workload.groups import GroupTable, find_definitions
from genie.workload.order import describe_cycle, find_cycle


def load(location: str | Path, ranks: Collection[int] | None = None, *, allow_cycles: bool = False) -> Workload:
    """Load a folder, or a prefix of `{prefix}.{rank}.et[.gz]` or `.json` files, with its groups file.

    location: of the traces.
    ranks: numbers of the ranks to load; None: all, and none may be missing. The world's size and the groups are the
    same for all choices.
    allow_cycles: leave cycles to the caller (the lint names them).
    Returns the workload. Its compute times are in ns, its sizes in bytes.
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
    table = GroupTable(definitions, world_size)
    notes: Counter[str] = Counter()
    graphs: dict[int, RankGraph] = {}
    workload = Workload(files.name, world_size, table.groups, graphs)

    def read(rank: int) -> tuple[RankGraph, dict[int, int]]:
        decoder = NodeDecoder(files.traces[rank], rank, world_size, table)
        for node in read_trace(decoder.path).nodes:
            decoder.add(node)
        graph = decoder.finish()
        if not allow_cycles:
            _check_acyclic(decoder.path, graph)
        workload.dangling += decoder.dangling
        notes.update(decoder.notes)
        return graph, decoder.peer_columns

    if files.classes is not None:
        workload.ranks = _of_classes(files, files.classes, table, ranks, read)
    else:
        wanted = sorted(range(world_size) if ranks is None else set(ranks))
        _check_present(files, wanted, world_size)
        for rank in wanted:
            graphs[rank], _ = read(rank)
    if ranks is None and not any(map(len, workload.ranks.values())):
        raise WorkloadError(f"{next(iter(files.traces.values())).parent}: no rank has a node, so that there is nothing "
                            "to play: give a trace with nodes")  # fmt: skip
    workload.notes = [f"{count} {what}" for what, count in sorted(notes.items())]
    if workload.dangling:
        workload.notes.append(f"{workload.dangling} dependencies on nodes that are not in the files, dropped")
    return workload


def _of_classes(
    files: WorkloadFiles,
    path: Path,
    table: GroupTable,
    ranks: Collection[int] | None,
    read: Callable[[int], tuple[RankGraph, dict[int, int]]],
) -> Mapping[int, RankGraph]:
    """Return the graphs of these ranks: of all as views, of some as graphs. Only their classes' traces are read."""
    found = read_table(path, table.index, [group.ranks for group in table.groups])
    world_size = len(found.class_of)
    wanted = range(world_size) if ranks is None else sorted(set(ranks))
    if outside := [rank for rank in wanted if not 0 <= rank < world_size]:
        raise WorkloadError(f"{path}: has no rank {outside[0]}: the ranks are 0 to {world_size - 1}")
    used = sorted({int(found.class_of[rank]) for rank in wanted})
    _check_present(files, [found.lowest[number] for number in used], world_size)
    made = {number: found.as_template(*read(found.lowest[number])) for number in used}
    first = next(iter(made.values()), None)
    if first is None:
        return {}
    classes = found.with_templates([made.get(number, first) for number in range(len(found.lowest))])
    return classes.view() if ranks is None else {rank: classes.graph(rank) for rank in wanted}


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
