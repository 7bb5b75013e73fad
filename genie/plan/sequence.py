"""Sequence numbers of collectives in their group: the timelines' `seq`, by which ranks match them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from genie.workload.graph import Kind, RankGraph


def sequence_numbers(graph: RankGraph) -> NDArray[np.int32]:
    """Per node: k for the k-th collective of its group in ascending id, from 0; -1 elsewhere."""
    seq = np.full(len(graph), -1, np.int32)
    collective = graph.kind == Kind.COLL
    for group in np.unique(graph.group[collective]):
        rows = np.flatnonzero(collective & (graph.group == group))
        seq[rows] = np.arange(len(rows), dtype=np.int32)
    return seq
