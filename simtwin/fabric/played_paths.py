"""Paths of a simulation's queue pairs: those of another run, or those that switches hash."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from genie.config.source_ports import NCCL, SourcePorts, rdma_source_port

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from simtwin.fabric.network import Network
    from simtwin.fabric.routing import Routes
    from simtwin.fabric.schema import Fabric

PAIRS_MAX = 20_000  # pairs of ranks; the paths of more pairs are not recorded
ROCE_PORT = 4791
FIRST_ADDRESS = 0x0A000001  # 10.0.0.1 is host 0
GOLDEN_GAMMA = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1
Pair = tuple[int, int]
# Source port and link names of each queue pair.
PortPaths = tuple[tuple[int, tuple[str, ...]], ...]


def mixed(state: int) -> int:
    """SplitMix64's finaliser, as in native/core/mix.hpp."""
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & MASK
    state = (state ^ state >> 27) * 0x94D049BB133111EB & MASK
    return state ^ state >> 31


def hashed_path(routes: Routes, network: Network, source: int, target: int, port: int) -> list[int]:
    """Return the links from host to host for this UDP source port, as native/twin/fabric/paths.cpp computes them."""
    addresses = (FIRST_ADDRESS + source) << 32 | FIRST_ADDRESS + target
    hashed = mixed(addresses ^ mixed(port << 16 | ROCE_PORT))
    links: list[int] = []
    node = source
    while node != target:
        choices = routes.choices(node, target)
        drawn = mixed((node * GOLDEN_GAMMA + hashed + 0x632BE59BD9B4E019) & MASK)
        links.append(int(choices[drawn % len(choices) if len(choices) > 1 else 0]))
        node = int(network.dst_node[links[-1]])
    return links


class TwinPorts:
    """UDP source ports of the kernel's queue pairs. `pairs`: all pairs of ranks, in both directions."""

    def __init__(self, rule: str, queue_pairs: int, seed: int, pairs: Sequence[Pair], spray: int = 1) -> None:
        self._rule, self._queue_pairs, self._spray, self._ports = rule, queue_pairs, spray, SourcePorts(rule)
        # The first queue pair number differs from run to run.
        self._first = 2 + (mixed(seed + GOLDEN_GAMMA & MASK) & 0xFFFFF)
        self._number = {pair: at * queue_pairs for at, pair in enumerate(sorted(pairs))}

    def of(self, source: int, target: int) -> list[int]:
        """Return the source ports from one rank to another, by queue pair, or those of the one that is sprayed."""
        own, other = self._number[source, target], self._number[target, source]
        if self._spray > 1:
            numbers_of_both = self._first + own & 0xFFFFFF, self._first + other & 0xFFFFFF
            return self._ports.sprayed(source, target, self._spray, *numbers_of_both)
        numbers = range(self._queue_pairs)
        if self._rule != NCCL:
            return [self._ports.port(source, target, at, self._queue_pairs, 0, 0) for at in numbers]
        return [
            rdma_source_port(self._first + own + at & 0xFFFFFF, self._first + other + at & 0xFFFFFF) for at in numbers
        ]


def port_paths_of(paths: pl.DataFrame) -> dict[Pair, PortPaths]:
    """Return each pair's paths from the table of a run folder."""
    ordered = paths.sort("src", "dst", "source_port", "hop")
    found: dict[Pair, list[tuple[int, tuple[str, ...]]]] = {}
    rows = ordered.select("src", "dst", "source_port", "link").iter_rows()
    for (src, dst, port), of_path in itertools.groupby(rows, key=lambda row: row[:3]):
        found.setdefault((src, dst), []).append((port, tuple(row[3] for row in of_path)))
    return {pair: tuple(port_paths) for pair, port_paths in found.items()}


@dataclass(frozen=True)
class Followed:
    """Paths of another run that the twin's queue pairs take too, and the reasons for those that they do not."""

    port_paths: dict[Pair, PortPaths] = field(default_factory=dict)
    pins: dict[Pair, list[list[int]]] = field(default_factory=dict)  # hosts -> links, of each sprayed source port
    problems: dict[Pair, str] = field(default_factory=dict)


def follow_paths(paths: pl.DataFrame, fabric: Fabric, network: Network, host_of_rank: Sequence[int]) -> Followed:
    """Return the paths of a run to which its twin can be pinned.

    All links of such a path are in the fabric, and all queue pairs between its two hosts take it. The source ports of a
    sprayed queue pair may have different paths.
    """
    number = {name: link for link, name in reversed(list(enumerate(network.link_names)))}
    kept = {(path.source, path.target) for path in fabric.path}
    spray = fabric.spray
    result = Followed()
    for (src, dst), port_paths in port_paths_of(paths).items():
        hosts = (int(host_of_rank[src]), int(host_of_rank[dst]))
        paths_of_pair = [names for _, names in port_paths]
        problem = next(filter(None, (_problem_of(names, number, network, hosts) for names in paths_of_pair)), "")
        if spray == 1 and any(names != paths_of_pair[0] for names in paths_of_pair):
            problem = "its queue pairs have different paths"
        elif spray > 1 and len(paths_of_pair) != spray:
            problem = f"it was sprayed over {len(paths_of_pair)} source ports"
        elif (network.node_names[hosts[0]], network.node_names[hosts[1]]) in kept:
            problem = "the fabric has a [[path]] for it"
        elif not problem:
            links = [[number[name] for name in names] for names in paths_of_pair[:spray]]
            if result.pins.setdefault(hosts, links) != links:
                problem = "ranks of the same hosts have different paths"
        if problem:
            result.problems[src, dst] = problem
        else:
            result.port_paths[src, dst] = port_paths
    return result


def _problem_of(names: Sequence[str], number: dict[str, int], network: Network, hosts: Pair) -> str:
    """Return why the twin cannot take a path; "" when it can."""
    if missing := next((name for name in names if name not in number), ""):
        return f"the fabric has no link {missing}"
    if not _joins([number[name] for name in names], network, *hosts):
        return f"{', '.join(names)} is not a path between their hosts"
    return ""


def _joins(links: list[int], network: Network, source: int, target: int) -> bool:
    nodes = [source, *(int(network.dst_node[link]) for link in links)]
    begins = [int(network.src_node[link]) for link in links]
    return nodes[-1] == target and begins == nodes[:-1]


@dataclass(frozen=True)
class PlayedPaths:
    """Paths of a simulation: a table of the record, and facts for run.json."""

    table: pl.DataFrame | None
    facts: dict[str, Any]


def played_paths(
    fabric: Fabric,
    network: Network,
    routes: Routes,
    host_of_rank: Sequence[int],
    seeds: Sequence[int],
    pairs: Sequence[Pair],
    pins: dict[Pair, list[int]],
    followed: Followed | None,
    reroutes: bool,
) -> PlayedPaths:
    """Return the paths of the pairs of ranks that exchanged data; those of the first seed where seeds differ.

    `pins`: (source host, target host) -> links that the fabric pins. A pair has no path where its packets are spread
    over several paths, or where its ranks share a host.
    """
    import polars as pl

    from genie.record.schemas import PATHS_SCHEMA

    facts: dict[str, Any] = {"changed": reroutes, "pairs": len(pairs)}
    if followed is not None:
        own = [
            pair for pair in pairs if pair not in followed.port_paths and host_of_rank[pair[0]] != host_of_rank[pair[1]]
        ]
        facts |= {"followed": len(followed.port_paths), "not_followed": len(own)}
        if own:
            why = followed.problems.get(own[0], "the run to follow does not know its path")
            facts["why"] = f"rank {own[0][0]} to rank {own[0][1]}: {why}"
    if len(pairs) > PAIRS_MAX:
        return PlayedPaths(None, facts | {"not_written": f"more than {PAIRS_MAX} pairs of ranks"})
    both = sorted({*pairs, *((target, source) for source, target in pairs)})
    rule, queue_pairs = fabric.load_balancing.source_ports, fabric.transport.queue_pairs or 1
    spray = fabric.spray
    ports = [TwinPorts(rule, queue_pairs, seed, both, spray) for seed in dict.fromkeys(seeds[:2])]
    rows: list[tuple[int, int, int, int, str]] = []
    for source, target in sorted(pairs):
        a, b = int(host_of_rank[source]), int(host_of_rank[target])
        if a == b:
            continue
        port_paths = followed.port_paths.get((source, target)) if followed else None
        pinned = pins.get((a, b))
        if port_paths is None and pinned is None and fabric.load_balancing.mode != "ecmp":
            continue
        if port_paths is None:
            found = [
                [(port, pinned or hashed_path(routes, network, a, b, port)) for port in of_seed.of(source, target)]
                for of_seed in ports
            ]
            facts["changed"] |= any(
                [links for _, links in other] != [links for _, links in found[0]] for other in found
            )
            port_paths = tuple((port, tuple(network.link_names[link] for link in links)) for port, links in found[0])
        for port, names in dict(port_paths).items():
            rows += [(source, target, port, hop, name) for hop, name in enumerate(names)]
    table = pl.DataFrame(rows, schema=list(PATHS_SCHEMA)[:5], orient="row").with_columns(probe_ns=None)
    return PlayedPaths(table.cast(PATHS_SCHEMA) if rows else None, facts)
