"""A network as a drawing: switches by their distance to hosts, their cables, and hosts under their switch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simtwin.fabric.tiers import distances

if TYPE_CHECKING:
    import polars as pl

    from simtwin.fabric.network import Network

CELLS_MAX = 1000  # above it, the cables of a switch or a server are drawn as one
TRUNKS_MAX = 3000  # directed links between switches; above it, only the busiest are drawn
SUMMED = ("size_bytes", "marked", "trimmed", "pauses", "paused_ns", "dropped")
COLUMNS = ("link", "rate_bps", "mean", "peak", "longest_queue_bytes", *SUMMED)

Cable = list[Any]  # name of its lower end, link up, link down (places in `links`)


def drawing(network: Network, loads: pl.DataFrame) -> dict[str, Any]:
    """Return the data of the page's script. `loads`: from `link_loads`.

    A link is given by its place in `links`.

    - `tiers`: from the lowest: the kinds of its switches, and the name of each.
    - `trunks`: [tier, place in it, tier, place in it, link] of each directed link between switches.
    - `left_out`: number of trunks that are not drawn.
    - `below`: for each switch of the lowest tier, the cables of its hosts.
    - `inside`: name and cables of each server with internal cables.
    - `links`: the load of each link, by column.
    - `one_by_one`: whether each cable of a host is drawn.
    - `members`: names of the links at each place, several where they are drawn as one.
    """
    links = _Links(loads)
    distance = distances(network)
    tiers = [np.flatnonzero(distance == tier) for tier in range(1, int(distance.max()) + 1)]
    place = {int(node): (tier, at) for tier, nodes in enumerate(tiers) for at, node in enumerate(nodes)}
    source, target = distance[network.src_node], distance[network.dst_node]
    trunks = np.flatnonzero((source > 0) & (target > 0))
    kept = _busiest(trunks, loads)
    ends = zip(network.src_node[kept].tolist(), network.dst_node[kept].tolist(), kept.tolist(), strict=True)
    access = np.flatnonzero((source == 0) & (target > 0))
    # Link 2i + 1 is the reverse direction of link 2i.
    inside = np.flatnonzero((source == 0) & (target == 0) & (np.arange(network.links) % 2 == 0))
    one_by_one = len(access) <= CELLS_MAX
    under: dict[int, list[int]] = {int(node): [] for node in tiers[0]} if tiers else {}
    for link in access.tolist():
        under[int(network.dst_node[link])].append(link)
    names = network.node_names
    return {
        "tiers": [[kinds([names[node] for node in nodes]), [names[node] for node in nodes]] for nodes in tiers],
        "trunks": [[*place[a], *place[b], links.one(link)] for a, b, link in ends],
        "left_out": len(trunks) - len(kept),
        "below": [_cables(network, links, own, names[node], one_by_one) for node, own in under.items()],
        "inside": [
            [name, _cables(network, links, own, name, len(inside) <= CELLS_MAX)]
            for name, own in _servers(network, inside.tolist())
        ],
        "one_by_one": one_by_one,
        "links": links.columns(),
        "members": links.members,
    }


def kinds(names: Sequence[str]) -> str:
    """Return the kinds of nodes, their names without numbers: `rail0leaf0, rail1leaf0` → `rail leaf`."""
    found = dict.fromkeys(" ".join(re.findall(r"[^\W\d_]+", name)) or name for name in names)
    return ", ".join(found) if len(found) <= 3 else "switch"


def _busiest(trunks: NDArray[np.int64], loads: pl.DataFrame) -> NDArray[np.int64]:
    if len(trunks) <= TRUNKS_MAX:
        return trunks
    mean = loads["mean"].fill_null(0.0).to_numpy()
    return np.sort(trunks[np.argsort(-mean[trunks], kind="stable")[:TRUNKS_MAX]])


def _cables(network: Network, links: _Links, up: Sequence[int], name: str, one_by_one: bool) -> list[Cable]:
    """Return cables by their links up; too many are one cable with the load of the busiest."""
    if one_by_one or len(up) < 2:
        return [[network.node_names[network.src_node[link]], links.one(link), links.one(link ^ 1)] for link in up]
    down = [link ^ 1 for link in up]
    return [[f"{len(up)} cables", links.together(up, f"to {name}"), links.together(down, f"from {name}")]]


def _servers(network: Network, cables: Sequence[int]) -> list[tuple[str, list[int]]]:
    """Return the cables inside servers, by server."""
    root = list(range(network.nodes)) if cables else []

    def find(node: int) -> int:
        while root[node] != node:
            root[node] = root[root[node]]
            node = root[node]
        return node

    for link in cables:
        ends = find(int(network.src_node[link])), find(int(network.dst_node[link]))
        root[max(ends)] = min(ends)
    members: dict[int, list[int]] = {}
    for link in cables:
        members.setdefault(find(int(network.src_node[link])), []).append(link)
    result = []
    for own in members.values():
        joined = sorted({int(node) for link in own for node in (network.src_node[link], network.dst_node[link])})
        bridges = [node for node in joined if network.is_bridge[node]]
        hosts = [node for node in joined if node < network.hosts]
        name = network.node_names[max(bridges)] if bridges else ""
        if not name.startswith("server"):
            name = f"{network.node_names[hosts[0]]} to {network.node_names[hosts[-1]]}"
        result.append((name, own))
    return result


class _Links:
    """The drawn links, in the order of first use."""

    def __init__(self, loads: pl.DataFrame) -> None:
        self._loads = loads
        self.members: list[list[str]] = []
        self._rows: dict[str, list[Any]] = {name: [] for name in COLUMNS}
        self._place: dict[int, int] = {}
        self._of = {name: loads[name].to_list() for name in COLUMNS}

    def one(self, link: int) -> int:
        if link not in self._place:
            row = {name: values[link] for name, values in self._of.items()}
            self._place[link] = self._add(row, [link])
        return self._place[link]

    def together(self, links: Sequence[int], words: str) -> int:
        """Return the load of the busiest link, with the counts of all."""
        busiest = max(links, key=lambda link: self._of["mean"][link] or 0.0)
        row = {name: values[busiest] for name, values in self._of.items()}
        row |= {name: sum(self._of[name][link] for link in links) for name in SUMMED}
        row["longest_queue_bytes"] = max(self._of["longest_queue_bytes"][link] for link in links)
        row["peak"] = max((it for link in links if (it := self._of["peak"][link]) is not None), default=None)
        return self._add(row | {"link": f"{len(links)} links {words}; the busiest is {row['link']}"}, links)

    def columns(self) -> dict[str, list[Any]]:
        return {
            name: [round(it, 4) if isinstance(it, float) else it for it in values]
            for name, values in self._rows.items()
        }

    def _add(self, row: dict[str, Any], links: Sequence[int]) -> int:
        self.members.append([self._of["link"][link] for link in links])
        for name, values in self._rows.items():
            values.append(row[name])
        return len(self._rows["link"]) - 1
