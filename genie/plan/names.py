"""Names of nodes in messages: the native core has rows, the trace has ids and names."""

from __future__ import annotations

import re

from genie.workload.graph import Workload

_ROW = re.compile(r"rank (\d+), node row (\d+)")


def name_nodes(workload: Workload, text: str) -> str:
    """Replace every `rank R, node row N` by the node's id and name in the trace."""

    def named(match: re.Match[str]) -> str:
        graph = workload.ranks.get(int(match[1]))
        if graph is None:
            return match[0]
        row = int(match[2])
        return f"rank {match[1]}, node {graph.node_id[row]} ({graph.name[row]})"

    return _ROW.sub(named, text)
