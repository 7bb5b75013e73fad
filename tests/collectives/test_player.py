"""Drawn and adversarial timings: what the proof says of all timings is true of those played."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from drawing import drawn
from draws import Drawn, collectives
from hypothesis import given
from hypothesis import strategies as st

from genie.collectives.algorithms import EAGER
from genie.collectives.check import check, lower_all, meaning_of
from genie.collectives.meaning import CheckError
from genie.collectives.player import POLICIES, play

DRAWS = drawn(1000, 250)


@DRAWS
@given(collectives(members_max=13, channels_max=3), st.sampled_from(list(POLICIES)), st.integers(0, 2**32))
def test_drawn_timings(drawn: Drawn, policy: str, seed: int) -> None:
    templates, sizes = lower_all(*drawn.arguments())
    meaning = meaning_of(drawn.op, templates, drawn.root)
    sent = play(meaning, templates, sizes, policy, seed, drawn.algorithm in EAGER)
    assert sent == check(*drawn.arguments()).bytes_sent


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("credit", [False, True])
def test_a_larger_ring_under_every_policy(policy: str, credit: bool) -> None:
    templates, sizes = lower_all("all_reduce", "ring", 32, 999, 2, credit=credit)
    sent = play(meaning_of("all_reduce", templates), templates, sizes, policy, 7)
    assert sum(sent) == 2 * 31 * 999


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("column", ["peer", "block"])
@pytest.mark.parametrize("step", range(6))
def test_wrong_peers_and_blocks_fail_under_every_policy(policy: str, column: str, step: int) -> None:
    templates, sizes = lower_all("all_gather", "ring", 4, 64)
    values = getattr(templates[1], column).copy()
    values[step] = (values[step] + 1) % 4
    templates[1] = replace(templates[1], **{column: values})
    with pytest.raises(CheckError):
        play(meaning_of("all_gather", templates), templates, sizes, policy)


def test_a_missing_dependency_fails_under_some_policy() -> None:
    templates, sizes = lower_all("all_reduce", "ring", 4, 64)
    free = replace(templates[0], deps=np.zeros(0, np.int32), dep_start=np.zeros_like(templates[0].dep_start))
    with pytest.raises(CheckError):
        play(meaning_of("all_reduce", templates), [free] * 4, sizes, "newest")


def test_a_barrier_that_does_not_wait_fails_when_a_member_is_late() -> None:
    templates, sizes = lower_all("barrier", "dissemination", 4, 0)
    free = replace(templates[0], deps=np.zeros(0, np.int32), dep_start=np.zeros_like(templates[0].dep_start))
    with pytest.raises(CheckError, match="passes the barrier"):
        play(meaning_of("barrier", templates), [free] * 4, sizes, "late_member", 1)


def test_credits_that_wait_for_each_other_deadlock() -> None:
    templates, sizes = lower_all("all_to_all", "direct", 2, 64, credit=True)
    chained = replace(templates[0], deps=np.array([0], np.int32), dep_start=np.array([0, 0, 1], np.int32))
    meaning = meaning_of("all_to_all", templates)
    for policy in POLICIES:
        with pytest.raises(CheckError, match="deadlock"):
            play(meaning, [chained] * 2, sizes, policy)


def test_a_send_that_overtakes_an_earlier_one_fails() -> None:
    """Two parts of a chain whose second send does not wait for its receive."""
    templates, sizes = lower_all("broadcast", "ring", 3, 480)
    middle = templates[1]
    owner = np.repeat(np.arange(len(middle)), np.diff(middle.dep_start))
    keep = owner != 3
    counts = np.bincount(owner[keep], minlength=len(middle))
    loose = replace(middle, deps=middle.deps[keep], dep_start=np.concatenate(([0], np.cumsum(counts))).astype(np.int32))
    with pytest.raises(CheckError, match="is ready before"):
        play(meaning_of("broadcast", templates), [templates[0], loose, templates[2]], sizes, "oldest")
