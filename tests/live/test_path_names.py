from __future__ import annotations

import pytest

from genie.live.path_names import SILENT, Graph, TracePlan

pytestmark = pytest.mark.live

# Two leaves, two spines; host 0 hangs on leaf0 by a port that is no hop.
CABLES = [("h0", "p0"), ("p0", "leaf0"), ("h1", "leaf0"), ("h2", "leaf1"), ("h3", "leaf1")]
CABLES += [(f"leaf{leaf}", f"spine{spine}") for leaf in range(2) for spine in range(2)]
NODES = {"10.0.0.1": "leaf0", "10.0.0.2": "leaf0", "10.0.1.1": "leaf1", "10.0.2.1": "spine0", "10.0.3.1": "spine1"}
GRAPH = Graph(TracePlan(["h0", "h1", "h2", "h3"], {**NODES, "10.9.0.3": "h3"}, CABLES))
ACROSS = ["h0->p0", "p0->leaf0", "leaf0->spine1", "spine1->leaf1", "leaf1->h2"]


@pytest.mark.parametrize(
    ("ends", "answers", "links"),
    [
        ((0, 2), ["10.0.0.1", "10.0.3.1", "10.0.1.1"], ACROSS),
        ((0, 2), [SILENT, "10.0.3.1", SILENT], ACROSS),
        ((0, 2), ["10.0.0.2", SILENT, "10.0.1.1"], []),  # by either spine
        ((0, 2), ["192.0.2.1", "10.0.3.1", "10.0.1.1"], ACROSS),  # an address that the table lacks
        ((0, 2), ["10.0.1.1", "10.0.3.1", "10.0.1.1"], []),  # another leaf than the host's
        ((0, 2), ["10.0.0.1", "10.0.3.1"], []),  # too short
        ((0, 1), ["10.0.0.1"], ["h0->p0", "p0->leaf0", "leaf0->h1"]),
        ((2, 3), [SILENT], ["h2->leaf1", "leaf1->h3"]),
        ((2, 3), [], []),
    ],
)
def test_links_of_the_hops(ends: tuple[int, int], answers: list[str], links: list[str]) -> None:
    assert GRAPH.links(*ends, answers) == links


def test_addresses_that_nobody_knows_stay() -> None:
    assert GRAPH.names(["10.0.0.2", "192.0.2.1", SILENT]) == ["leaf0", "192.0.2.1", SILENT]


def test_without_a_fabric_there_are_no_links() -> None:
    assert Graph(TracePlan()).links(0, 1, ["10.0.0.1"]) == []


def test_a_pair_without_any_hop_is_joined_by_what_is_none() -> None:
    """A bridge forwards and does not count: no address, no hop."""
    plan = TracePlan(["a", "b"], {}, [("a", "bridge"), ("b", "bridge")])
    assert Graph(plan).links(0, 1, []) == ["a->bridge", "bridge->b"]
