"""Pinned paths of a fabric file: the path of a pair of hosts, switch by switch."""

from __future__ import annotations

import itertools

from simtwin.fabric.network import Network
from simtwin.fabric.schema import Fabric


class PathError(Exception):
    """A path that the network does not have; `key` is a key of the path's table."""

    def __init__(self, number: int, key: str, words: str) -> None:
        super().__init__(words)
        self.number = number  # of the path, from 0
        self.key = key


def pinned_paths(fabric: Fabric, network: Network) -> list[tuple[int, int, list[int]]]:
    """Return source host, target host and links of each [[path]]. Raises PathError."""
    if not fabric.path:
        return []
    node = {name: number for number, name in enumerate(network.node_names)}
    first_link: dict[tuple[int, int], int] = {}
    for link in range(network.links):
        first_link.setdefault((int(network.src_node[link]), int(network.dst_node[link])), link)
    paths: list[tuple[int, int, list[int]]] = []
    number_of: dict[tuple[str, str], int] = {}
    for number, path in enumerate(fabric.path):
        for key, name in (("source", path.source), ("target", path.target)):
            if not 0 <= node.get(name, -1) < network.hosts:
                raise PathError(number, key, f' = "{name}" is not a host: give one such as "{network.node_names[0]}"')
        if path.source == path.target:
            raise PathError(number, "target", f' = "{path.target}" is the source too: give another host')
        if (first := number_of.setdefault((path.source, path.target), number)) != number:
            pair = f"{path.source} to {path.target}"
            raise PathError(number, "source", f": path[{first}] leads from {pair} already: leave one of them out")
        names = (path.source, *path.via, path.target)
        links = []
        for a, b in itertools.pairwise(names):
            if b not in node or (node[b] < network.hosts and b != path.target):
                raise PathError(number, "via", f': "{b}" is not a switch: give the switches of the path in their order')
            if (node[a], node[b]) not in first_link:
                raise PathError(number, "via", f": no link leads from {a} to {b}")
            links.append(first_link[node[a], node[b]])
        paths.append((node[path.source], node[path.target], links))
    return paths
