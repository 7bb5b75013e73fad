"""Templates: shared, well-formed, and chosen by size."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from draws import CASES

from genie.collectives import ALGORITHMS, Action, LoweringError, choose, lower
from genie.collectives.algorithms import CREDIT_WINDOW
from genie.collectives.lower import LATENCY_BOUND_SHARE_BYTES

ROOTED = {"reduce", "gather", "scatter", "broadcast"}


@pytest.mark.parametrize(("op", "algorithm"), CASES)
def test_equal_collectives_share_templates(op: str, algorithm: str) -> None:
    templates = [lower(op, algorithm, 6, at, 2, root=1) for at in range(6)]
    assert all(lower(op, algorithm, 6, at, 2, root=1) is template for at, template in enumerate(templates))
    assert (len({id(template) for template in templates}) == 1) == templates[0].relative
    if op in ROOTED:
        assert not templates[0].relative


@pytest.mark.parametrize(("op", "algorithm"), CASES)
@pytest.mark.parametrize("credit", [False, True])
def test_columns_are_as_the_contract_says(op: str, algorithm: str, credit: bool) -> None:
    for position in range(7):
        template = lower(op, algorithm, 7, position, 3, root=2, credit=credit)
        steps = len(template)
        assert steps > 0
        kinds = {"action": "u1", "peer": "i4", "block_base": "i4", "block": "i4", "channel": "u1", "credit": "u1"}
        for name, kind in {**kinds, "dep_start": "i4", "deps": "i4"}.items():
            column = getattr(template, name)
            assert column.dtype == kind
            assert not column.flags.writeable
            assert name in ("dep_start", "deps") or column.shape == (steps,)
        assert template.dep_start.shape == (steps + 1,)
        assert template.dep_start[0] == 0
        assert template.dep_start[-1] == len(template.deps)
        owner = np.repeat(np.arange(steps), np.diff(template.dep_start))
        assert (template.deps < owner).all()
        assert (template.deps >= 0).all()
        assert (template.channel[owner] == template.channel[template.deps]).all()
        assert set(template.channel) == (set(range(3)) if op != "barrier" else {0})
        assert (template.credit == (credit and algorithm != "recursive_doubling")).all()
        assert template.empty_messages == (op == "barrier")
        assert template.peer.min() >= 0
        assert template.peer.max() < 7
        if template.relative:
            assert template.block.min() >= 0
            assert template.block.max() < 7


@pytest.mark.parametrize(("op", "algorithm"), CASES)
def test_a_group_of_one_has_nothing_to_do(op: str, algorithm: str) -> None:
    template = lower(op, algorithm, 1, 0, 4, credit=True)
    assert len(template) == 0
    assert template.dep_start.tolist() == [0]


def test_a_ring_in_full() -> None:
    template = lower("all_reduce", "ring", 3, 2)
    assert template.action.tolist() == [Action.SEND, Action.REDUCE] * 2 + [Action.SEND, Action.RECV] * 2
    assert template.peer.tolist() == [1, 2] * 4
    assert template.block.tolist() == [2, 1, 1, 0, 0, 2, 2, 1]
    deps = [template.deps[a:b].tolist() for a, b in pairwise(template.dep_start)]
    assert deps == [[], [], [1], [], [3], [], [5], []]


def test_a_pairwise_exchange_waits_for_both_directions() -> None:
    template = lower("all_to_all", "pairwise", 4, 0)
    assert template.peer.tolist() == [1, 3, 2, 2, 3, 1]
    assert template.deps.tolist() == [0, 1, 0, 1, 2, 3, 2, 3]


def test_credits_are_a_window_ahead() -> None:
    """While no block is empty, a receive is cleared when the one a window before it is done."""
    template = lower("all_gather", "ring", 12, 0, credit=True)
    for step in range(1, len(template), 2):
        deps = template.deps[template.dep_start[step] : template.dep_start[step + 1]]
        cleared_by = step - 2 * CREDIT_WINDOW
        assert max(deps, default=None) == (cleared_by if cleared_by > 0 else None)


@pytest.mark.parametrize(("op", "algorithm"), [c for c in CASES if c[0] in ("all_reduce", "all_to_all")])
def test_what_a_template_holds_grows_with_the_group_only(op: str, algorithm: str) -> None:
    """Not with its square, and not with the size: a member of 16,384 has a small and constant number per member."""
    template = lower(op, algorithm, 16384, 17, 2)
    assert 0 < len(template) <= 2 * 4 * 16384
    assert len(template.deps) <= 2 * len(template)


@pytest.mark.parametrize(
    ("op", "size_bytes", "algorithm"),
    [
        ("all_reduce", 8 * LATENCY_BOUND_SHARE_BYTES, "ring"),
        ("all_reduce", 8 * LATENCY_BOUND_SHARE_BYTES - 1, "recursive_doubling"),
        ("all_gather", LATENCY_BOUND_SHARE_BYTES, "ring"),
        ("all_gather", LATENCY_BOUND_SHARE_BYTES - 1, "direct"),
        ("reduce_scatter", 1 << 20, "ring"),
        ("reduce_scatter", 100, "direct"),
        ("broadcast", 1 << 20, "ring"),
        ("broadcast", 0, "binomial"),
        ("reduce", 1 << 20, "ring"),
        ("reduce", 4, "binomial"),
        ("all_to_all", 4, "pairwise"),
        ("all_to_all", 1 << 30, "pairwise"),
        ("gather", 1, "direct"),
        ("scatter", 1, "direct"),
        ("barrier", 0, "dissemination"),
    ],
)
def test_the_algorithm_follows_the_size(op: str, size_bytes: int, algorithm: str) -> None:
    assert choose(op, 8, size_bytes) == algorithm
    assert algorithm in ALGORITHMS[op]


@pytest.mark.parametrize(("op", "algorithm"), CASES)
def test_the_algorithm_asked_for_is_taken(op: str, algorithm: str) -> None:
    assert choose(op, 8, 1, algorithm) == choose(op, 8, 1 << 30, algorithm) == algorithm


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: lower("all_sum", "ring", 2, 0), "unknown collective 'all_sum'; known: all_reduce"),
        (
            lambda: lower("all_reduce", "rong", 2, 0),
            "all_reduce has no algorithm 'rong'; known: ring, hierarchical, recursive",
        ),
        (lambda: lower("all_reduce", "ring", 0, 0), "a group of 0 members"),
        (lambda: lower("all_reduce", "ring", 2, 2), r"position 2 and root 0 must be in 0\.\.1"),
        (lambda: lower("broadcast", "ring", 2, 0, root=-1), "root -1 must be in"),
        (lambda: lower("all_reduce", "ring", 2, 0, 0), r"0 channels; allowed are 1\.\.64"),
        (lambda: choose("all_sum", 2, 0), "unknown collective"),
        (lambda: choose("all_reduce", 2, 0, "rong"), "no algorithm 'rong'"),
    ],
)
def test_errors_say_what_is_allowed(call: object, words: str) -> None:
    assert callable(call)
    with pytest.raises(LoweringError, match=words):
        call()
