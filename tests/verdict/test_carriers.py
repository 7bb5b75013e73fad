"""Which collectives carry a cost: medians over iterations, the most first, small ones left out."""

from __future__ import annotations

import pytest

from genie.verdict.carriers import Carrier, carriers_of
from genie.verdict.decompose import Collective
from genie.verdict.model import Cost
from genie.verdict.words import cost_in_words

MIB = 1 << 20


def played(
    iteration: int, seq: int, measured_ns: int, wire_ns: int, op: str = "all_reduce", group: str = "0"
) -> Collective:
    return Collective(
        iteration,
        group,
        seq,
        op,
        MIB,
        [0, 1],
        [0, 0],
        [0, 0],
        [0, 0],
        0,
        measured_ns,
        wire_ns,
        measured_ns - wire_ns,
        1,
        0,
    )


def test_the_one_that_takes_most_more_comes_first() -> None:
    collectives = [
        played(iteration, seq, wire + extra + iteration, wire)
        for iteration in range(3)
        for seq, wire, extra in ((0, 1000, 300), (1, 5000, 600), (2, 700, 0), (3, 900, -50), (4, 100, 20))
    ]
    found = carriers_of(collectives, 1.0)
    assert [(it.seq, it.extra_ns) for it in found] == [(1, 601), (0, 301)]
    assert [it.share for it in found] == pytest.approx([601 / 924, 301 / 924])


def test_what_the_whole_fleet_takes_more_is_not_charged() -> None:
    collectives = [played(0, 0, 1300, 1000), played(0, 1, 6500, 5000)]
    assert [it.seq for it in carriers_of(collectives, 1.2)] == [1, 0]
    assert carriers_of(collectives, 1.3) == []


def test_in_words() -> None:
    carriers = [
        Carrier("all_reduce", "0", 1, 3 * MIB // 2, 100, 0.61),
        Carrier("all_to_all", "expert", 4, MIB, 50, 0.3),
    ]
    assert cost_in_words(Cost(1, 1, 0.21)) == "21 % an iteration"
    assert cost_in_words(Cost(1, 1, 0.21, carriers[:1])) == "21 % an iteration, 61 % of it in all_reduce 1 (1.5 MiB)"
    assert cost_in_words(Cost(1, 1, 0.21, carriers)).endswith("(1.5 MiB), 30 % in 1 more")
    assert cost_in_words(Cost(1, 1, 0.21, carriers[1:])).endswith("30 % of it in all_to_all 4 of expert (1 MiB)")
