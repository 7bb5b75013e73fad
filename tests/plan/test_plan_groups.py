"""Colours of groups: different wherever two groups share a member, few however many groups there are."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from genie.plan.groups import colours
from genie.plan.tags import COLOURS_MAX
from genie.workload.graph import Group

GROUPS = st.lists(st.sets(st.integers(0, 11), min_size=1), max_size=20)


def _groups(members: list[set[int]]) -> list[Group]:
    return [Group(str(number), tuple(sorted(ranks))) for number, ranks in enumerate(members)]


@settings(max_examples=300, derandomize=True)
@given(GROUPS)
def test_groups_that_share_a_member_differ(members: list[set[int]]) -> None:
    groups = _groups(members)
    found = colours(groups)
    assert len(found) == len(groups)
    for (one, its), (other, others) in combinations(zip(groups, found, strict=True), 2):
        if set(one.ranks) & set(other.ranks):
            assert its != others, f"{one.ranks} and {other.ranks}"


@settings(max_examples=300, derandomize=True)
@given(GROUPS)
def test_a_colour_is_the_lowest_that_is_free(members: list[set[int]]) -> None:
    found = colours(_groups(members))
    for number, colour in enumerate(found):
        neighbours = {found[earlier] for earlier in range(number) if members[earlier] & members[number]}
        assert colour == min(set(range(number + 1)) - neighbours)


def test_the_groups_of_a_large_job_need_few_colours() -> None:
    """4,096 ranks: the world, 8-way tensor parallel, 16-way pipeline, 32-way data parallel."""
    ranks = range(4096)
    tensor = [tuple(ranks[at : at + 8]) for at in range(0, 4096, 8)]
    pipeline = [tuple(ranks[at + offset : at + 128 : 8]) for at in range(0, 4096, 128) for offset in range(8)]
    data = [tuple(ranks[offset::128]) for offset in range(128)]
    groups = [Group(str(number), members) for number, members in enumerate([tuple(ranks), *tensor, *pipeline, *data])]
    found = colours(groups)
    assert len(groups) == 1 + 512 + 256 + 128
    assert max(found) == 3 < COLOURS_MAX


def test_every_rank_computes_the_same_colours() -> None:
    """They depend on the list of groups only, which all ranks share."""
    groups = _groups([{0, 1}, {1, 2}, {0, 2}, {3, 4}])
    assert colours(groups) == colours(list(groups)) == [0, 1, 2, 0]
