"""Learned paths in the record: the table of a run folder, and facts for run.json."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from genie.live.path_names import Graph, TracePlan

if TYPE_CHECKING:
    import polars as pl

SHOWN_MAX = 100  # flows without links that are listed


def paths_of(plan: TracePlan, facts: list[dict[str, Any] | None]) -> tuple[pl.DataFrame | None, dict[str, Any]]:
    """Return the links of flows whose full path is known on the fabric, and facts of other flows and of changes."""
    import polars as pl

    from genie.record.schemas import PATHS_SCHEMA

    graph = Graph(plan)
    rows: list[tuple[int, int, int, int, str, int | None]] = []
    changes: list[str] = []
    unnamed: list[list[Any]] = []
    flows = compared = 0
    for rank, fact in enumerate(facts):
        traced = (fact or {}).get("traced") or {"paths": [], "probes": []}
        probes = {(peer, port): times for peer, port, times in traced["probes"]}
        for peer, port, before, after in traced["paths"]:
            flows += 1
            compared += bool(before) and bool(after)
            if differs(graph, rank, peer, before, after):
                changes.append(f"rank {rank} to rank {peer} from port {port}")
            links = graph.links(rank, peer, before) or graph.links(rank, peer, after)
            if not links:
                unnamed.append([rank, peer, port, graph.names(before or after)])
            times = _at_links(links, probes.get((peer, port), []), plan)
            rows += [(rank, peer, port, hop, link, times[hop]) for hop, link in enumerate(links)]
    said: dict[str, Any] = {
        "changed": bool(changes),
        "flows": flows,
        "known": flows - len(unnamed),
        "compared": compared,
        "changes": changes[:SHOWN_MAX],
        "unnamed": unnamed[:SHOWN_MAX],
    }
    return pl.DataFrame(rows, schema=PATHS_SCHEMA, orient="row") if rows else None, said


def differs(graph: Graph, source: int, target: int, before: list[str], after: list[str]) -> bool:
    """Return whether two traces of a flow show different paths. A silent hop is not a difference."""
    if not before or not after:
        return False
    one, other = graph.links(source, target, before), graph.links(source, target, after)
    if one and other:
        return one != other
    pairs = zip(graph.names(before), graph.names(after), strict=False)
    return any(a and b and a != b for a, b in pairs)


def _at_links(links: list[str], times_ns: list[int], plan: TracePlan) -> list[int | None]:
    """Return the times of hops as times of the links that end at them; None where no hop answers."""
    hops = set(plan.nodes.values()) - set(plan.hosts)
    left = list(times_ns)
    result: list[int | None] = []
    for link in links:
        is_hop = link.partition("->")[2] in hops
        time_ns = left.pop(0) if is_hop and left else -1
        result.append(time_ns if time_ns >= 0 else None)
    return result
