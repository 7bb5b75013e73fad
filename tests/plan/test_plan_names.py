"""Node rows of the native core become the trace's ids and names."""

from __future__ import annotations

from genie.plan.names import name_nodes
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Workload


def _workload() -> Workload:
    workload = Workload("test", 13, [Group("0", tuple(range(13)))], {})
    for rank in (1, 12):
        builder = RankBuilder(rank)
        for node_id in (7, 40, 1_000_000_007):
            builder.add(node_id, f"op {node_id} of {rank}", Kind.META)
        workload.ranks[rank], _ = builder.finish()
    return workload


def test_a_row_becomes_id_and_name() -> None:
    text = "rank 12, node row 2: receive of 8 bytes from rank 1, tag 0"
    named = "rank 12, node 1000000007 (op 1000000007 of 12): receive of 8 bytes from rank 1, tag 0"
    assert name_nodes(_workload(), text) == named


def test_all_rows_of_a_text_are_named() -> None:
    text = "rank 1, node row 0: sleep; rank 12, node row 1: sleep"
    assert name_nodes(_workload(), text) == ("rank 1, node 7 (op 7 of 1): sleep; rank 12, node 40 (op 40 of 12): sleep")


def test_a_rank_that_is_not_loaded_keeps_its_row() -> None:
    assert name_nodes(_workload(), "rank 3, node row 0: sleep") == "rank 3, node row 0: sleep"


def test_other_text_stays_as_it_is() -> None:
    text = "rank 1 gave up sending to rank 12 after all retries"
    assert name_nodes(_workload(), text) == text
