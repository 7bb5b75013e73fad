"""Which collectives carry a cost: parts of the time that an iteration takes longer, the most first."""

from __future__ import annotations

import pytest

from genie.verdict.carriers import Carrier, carriers_of, parts_of
from genie.verdict.decompose import Collective
from genie.verdict.model import Cost
from genie.verdict.words import cost_in_words

MIB = 1 << 20
MS = 1_000_000


def played(iteration: int, seq: int, start_ns: int, measured_ns: int, wire_ns: int, group: str = "0") -> Collective:
    return Collective(
        iteration, group, seq, "all_reduce", MIB, [0, 1], [0, 0], [0, 0], [0, 0], start_ns, measured_ns, wire_ns,
        measured_ns - wire_ns, 1, 0,
    )  # fmt: skip


def in_turn(iterations: int = 3) -> list[Collective]:
    return [
        played(iteration, seq, 10_000 * seq, wire + extra + iteration, wire)
        for iteration in range(iterations)
        for seq, wire, extra in ((0, 1000, 300), (1, 5000, 600), (2, 700, -5), (3, 900, -50), (4, 100, 20))
    ]


def test_the_one_that_takes_most_more_comes_first_and_shares_are_of_the_cost() -> None:
    found = carriers_of(in_turn(), 1.0, 1000)
    assert [(it.seq, it.extra_ns) for it in found] == [(1, 601), (0, 301)]
    assert [it.share for it in found] == pytest.approx([0.601, 0.301])


def test_parts_never_exceed_the_cost() -> None:
    found = carriers_of(in_turn(), 1.0, 500)
    assert sum(it.extra_ns for it in found) <= 500
    assert sum(it.share for it in found) <= 1.0


def test_what_the_whole_fleet_takes_more_is_not_charged() -> None:
    collectives = [played(0, 0, 0, 1300, 1000), played(0, 1, 10_000, 6500, 5000)]
    assert [it.seq for it in carriers_of(collectives, 1.2, 10_000)] == [1]
    assert carriers_of(collectives, 1.3, 10_000) == []


def test_groups_that_are_late_together_share_the_time() -> None:
    """Two groups 16 ms late at once make the iteration 16 ms longer and not 32."""
    both = [played(0, 0, 0, 116, 100, group) for group in ("a", "b")]
    assert parts_of(both, 1.0) == [8, 8]
    # The other one is on the wire as the twin says: nothing is added to the iteration.
    assert parts_of([played(0, 0, 0, 116, 100, "a"), played(0, 0, 0, 200, 200, "b")], 1.0) == [0, 0]
    assert parts_of([played(0, 0, 0, 116, 100, "a"), played(0, 0, 50, 60, 60, "b")], 1.0) == [6, 0]


def test_in_words() -> None:
    carriers = [
        Carrier("reduce_scatter", "2", 13, 545 << 10, 16_800_000, 0.16),
        Carrier("all_to_all", "expert", 4, MIB, 5 * MS, 0.05),
        Carrier("all_reduce", "0", 1, MIB, 4 * MS, 0.04),
    ]
    assert cost_in_words(Cost(4 * MS, 650 * MS, 0.006, carriers[2:])) == "iterations take less than 1 % longer"
    first = "iterations take 16 % longer (+104 ms); +16.8 ms of it in reduce_scatter #13 of group 2 (545 KiB)"
    assert cost_in_words(Cost(104 * MS, 650 * MS, 0.16)) == "iterations take 16 % longer (+104 ms)"
    assert cost_in_words(Cost(104 * MS, 650 * MS, 0.16, carriers[:1])) == f"{first}, +87.2 ms elsewhere"
    assert cost_in_words(Cost(104 * MS, 650 * MS, 0.16, carriers)) == f"{first}, +9 ms in 2 more, +78.2 ms elsewhere"
    whole = cost_in_words(Cost(4 * MS, 65 * MS, 0.06, carriers[2:]))
    assert whole.endswith("of it in all_reduce #1 (1 MiB)"), "nothing is left"
