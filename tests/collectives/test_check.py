"""The proof holds for every algorithm and drawn group, and fails for every kind of broken template."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from drawing import drawn
from draws import CASES, Drawn, collectives
from hypothesis import given

from genie.collectives import Action, Template
from genie.collectives.algorithms import EAGER
from genie.collectives.check import bytes_sent, check, check_sizes, lower_all, meaning_of, prove
from genie.collectives.meaning import CheckError

DRAWS = drawn(1200, 240)


@DRAWS
@given(collectives())
def test_proof_of_drawn_collectives(drawn: Drawn) -> None:
    traffic = check(*drawn.arguments())
    if drawn.members == 1:
        assert traffic.bytes_sent == traffic.messages_sent == [0]


@pytest.mark.parametrize(("op", "algorithm"), CASES)
@pytest.mark.parametrize("credit", [False, True])
def test_proof_of_large_groups(op: str, algorithm: str, credit: bool) -> None:
    for members in (32, 47):
        local = 8 if members % 8 == 0 else 1
        size_bytes = 0 if op == "barrier" else 999_999
        traffic = check(op, algorithm, members, size_bytes, 1, members // 3, credit, None, local)
        assert sum(traffic.messages_sent) > 0


@pytest.mark.parametrize("members", [64, 100])
@pytest.mark.parametrize("op", ["all_reduce", "all_to_all", "broadcast", "barrier"])
def test_proof_of_larger_groups_by_the_smallest_template(op: str, members: int) -> None:
    algorithm = {"all_to_all": "pairwise", "barrier": "dissemination", "all_reduce": "recursive_doubling"}
    check(op, algorithm.get(op, "binomial"), members, 0 if op == "barrier" else 10**6)


# The closed forms against the textbook's totals over all members.
@pytest.mark.parametrize(
    ("op", "algorithm", "total"),
    [
        ("all_reduce", "ring", lambda n, s: 2 * (n - 1) * s),
        ("all_reduce", "hierarchical", lambda n, s: 2 * (n - 1) * s),
        ("all_reduce", "recursive_doubling", lambda n, s: 3 * 8 * s if n == 8 else (2 * 8 + 2) * s),
        ("reduce_scatter", "ring", lambda n, s: (n - 1) * s),
        ("reduce_scatter", "direct", lambda n, s: (n - 1) * s),
        ("all_gather", "ring", lambda n, s: n * (n - 1) * s),
        ("all_gather", "direct", lambda n, s: n * (n - 1) * s),
        ("all_to_all", "pairwise", lambda n, s: (n - 1) * s),
        ("all_to_all", "direct", lambda n, s: (n - 1) * s),
        ("broadcast", "ring", lambda n, s: (n - 1) * s),
        ("broadcast", "binomial", lambda n, s: (n - 1) * s),
        ("reduce", "ring", lambda n, s: (n - 1) * s),
        ("reduce", "binomial", lambda n, s: (n - 1) * s),
        ("gather", "direct", lambda n, s: (n - 1) * s),
        ("scatter", "direct", lambda n, s: (n - 1) * s // n),
    ],
)
@pytest.mark.parametrize("members", [5, 8])
def test_totals_are_the_textbooks(op: str, algorithm: str, total: Callable[[int, int], int], members: int) -> None:
    size = 40 * 1024
    if algorithm == "recursive_doubling" and members == 5:  # two messages of the fold, two rounds among four
        wanted = 2 * size + 4 * 2 * size
    else:
        wanted = total(members, size)
    assert sum(check(op, algorithm, members, size, channels=2, root=3).bytes_sent) == wanted


@pytest.mark.parametrize("members", range(2, 20))
def test_a_barrier_takes_the_fewest_rounds(members: int) -> None:
    rounds = (members - 1).bit_length()
    assert check("barrier", "dissemination", members, 0).messages_sent == [rounds] * members


def _change(template: Template, column: str, step: int, value: int) -> Template:
    values = getattr(template, column).copy()
    values[step] = value
    return replace(template, **{column: values})


def _without_dep(template: Template, entry: int) -> Template:
    start = template.dep_start - (template.dep_start > entry)
    return replace(template, deps=np.delete(template.deps, entry), dep_start=start.astype(np.int32))


def _without_step(template: Template, step: int) -> Template:
    """Drops a step; what depended on it depends on nothing in its place."""
    owner = np.repeat(np.arange(len(template)), np.diff(template.dep_start))
    keep = (template.deps != step) & (owner != step)
    counts = np.delete(np.bincount(owner[keep], minlength=len(template)), step)
    columns = ("action", "peer", "block_base", "block", "channel", "credit")
    deps = template.deps[keep]
    return replace(
        template,
        **{column: np.delete(getattr(template, column), step) for column in columns},
        deps=(deps - (deps > step)).astype(np.int32),
        dep_start=np.concatenate(([0], np.cumsum(counts))).astype(np.int32),
    )


def _rejected(drawn: Drawn, change: Callable[[Template], Template], at: int) -> str:
    """Text of the proof's error when the member `at` has a changed template."""
    templates, sizes = lower_all(*drawn.arguments())
    meaning = meaning_of(drawn.op, templates, drawn.root)
    eager = drawn.algorithm in EAGER
    prove(meaning, templates, sizes, eager)
    templates[at] = change(templates[at])
    with pytest.raises(CheckError) as error:
        prove(meaning, templates, sizes, eager)
    return str(error.value)


GROUP = 5
MUTANTS = [Drawn(op, algorithm, GROUP, 0 if op == "barrier" else 4000, 2, 1, False) for op, algorithm in CASES]


def _ids(drawn: Drawn) -> str:
    return f"{drawn.op}-{drawn.algorithm}"


@pytest.mark.parametrize("drawn", MUTANTS, ids=_ids)
def test_every_wrong_peer_is_rejected(drawn: Drawn) -> None:
    templates, _ = lower_all(*drawn.arguments())
    for at in range(GROUP):
        for step in range(min(len(templates[at]), 12)):
            peer = (int(templates[at].peer[step]) + 1) % GROUP
            _rejected(drawn, lambda t, s=step, p=peer: _change(t, "peer", s, p), at)


@pytest.mark.parametrize("drawn", MUTANTS, ids=_ids)
def test_every_missing_step_is_rejected(drawn: Drawn) -> None:
    templates, _ = lower_all(*drawn.arguments())
    for at in range(GROUP):
        for step in range(min(len(templates[at]), 12)):
            _rejected(drawn, lambda t, s=step: _without_step(t, s), at)


@pytest.mark.parametrize("drawn", [it for it in MUTANTS if it.op != "barrier"], ids=_ids)
def test_every_wrong_block_is_rejected(drawn: Drawn) -> None:
    templates, _ = lower_all(*drawn.arguments())
    rows = templates[0].own_blocks // 2
    for at in range(GROUP):
        for step in range(min(len(templates[at]), 12)):
            if templates[at].relative:
                block = (int(templates[at].block[step]) + 1) % GROUP
            else:
                block = (int(templates[at].block[step]) + 1) % rows
            if rows > 1 or templates[at].relative:
                _rejected(drawn, lambda t, s=step, b=block: _change(t, "block", s, b), at)
            other = (int(templates[at].block_base[step]) + rows) % (2 * rows)
            _rejected(drawn, lambda t, s=step, b=other: _change(t, "block_base", s, b), at)


# A pairwise exchange is right without its dependencies (it is then the direct one): they say when, not what.
ORDERED = [it for it in MUTANTS if it.algorithm not in ("pairwise", "direct")]


@pytest.mark.parametrize("drawn", ORDERED, ids=_ids)
def test_every_missing_dependency_is_rejected(drawn: Drawn) -> None:
    if drawn.op == "barrier":  # in a group that is no power of two, some things are heard twice
        drawn = replace(drawn, members=8)
    templates, _ = lower_all(*drawn.arguments())
    assert any(len(template.deps) for template in templates)
    for at in range(drawn.members):
        for entry in range(min(len(templates[at].deps), 12)):
            _rejected(drawn, lambda t, e=entry: _without_dep(t, e), at)


@pytest.mark.parametrize(
    "drawn", [it for it in MUTANTS if it.op in ("all_reduce", "reduce", "reduce_scatter")], ids=_ids
)
def test_every_confusion_of_reduce_and_receive_is_rejected(drawn: Drawn) -> None:
    templates, _ = lower_all(*drawn.arguments())
    for at in range(GROUP):
        for step in np.flatnonzero(templates[at].action != Action.SEND)[:12]:
            other = Action.RECV if templates[at].action[step] == Action.REDUCE else Action.REDUCE
            _rejected(drawn, lambda t, s=int(step), v=other: _change(t, "action", s, v), at)


def test_a_cycle_of_waits_is_a_deadlock() -> None:
    """Both members receive before they send."""
    drawn = Drawn("all_to_all", "direct", 2, 64, 1, 0, False)
    templates, sizes = lower_all(*drawn.arguments())
    order = np.array([1, 0])
    swapped = {name: getattr(templates[0], name)[order] for name in ("action", "peer", "block_base", "block")}
    waiting = replace(templates[0], **swapped, deps=np.array([0], np.int32), dep_start=np.array([0, 0, 1], np.int32))
    with pytest.raises(CheckError, match="deadlock"):
        prove(meaning_of("all_to_all", templates), [waiting, waiting], sizes)


def test_credits_that_wait_for_each_other_are_a_deadlock() -> None:
    """Each member clears its receive once its own send is through: fine without credits, a deadlock with them."""
    templates, sizes = lower_all("all_to_all", "direct", 2, 64, credit=True)
    chained = replace(templates[0], deps=np.array([0], np.int32), dep_start=np.array([0, 0, 1], np.int32))
    meaning = meaning_of("all_to_all", templates)
    with pytest.raises(CheckError, match="deadlock"):
        prove(meaning, [chained, chained], sizes)
    free = replace(chained, credit=np.zeros(2, np.uint8))
    assert prove(meaning, [free, free], sizes).bytes_sent == [32, 32]


def test_a_credit_on_one_end_only_is_rejected() -> None:
    templates, sizes = lower_all("all_gather", "ring", 3, 64, credit=True)
    templates[1] = _change(templates[1], "credit", 1, 0)
    with pytest.raises(CheckError, match="credits on both ends"):
        prove(meaning_of("all_gather", templates), templates, sizes)


def test_ends_that_disagree_on_a_size_are_rejected() -> None:
    templates, sizes = lower_all("all_gather", "ring", 3, 64)
    sizes[2] = sizes[2] + 4
    with pytest.raises(CheckError, match=r"has 68 B, .* expects 64 B"):
        prove(meaning_of("all_gather", templates), templates, sizes)


def test_a_write_into_a_block_that_is_being_sent_is_a_race() -> None:
    """Recursive doubling is right only because it is eager."""
    templates, sizes = lower_all("all_reduce", "recursive_doubling", 4, 64)
    meaning = meaning_of("all_reduce", templates)
    assert sum(prove(meaning, templates, sizes, eager=True).bytes_sent) == 4 * 2 * 64
    with pytest.raises(CheckError, match="race"):
        prove(meaning, templates, sizes)


def test_sizes_that_do_not_cover_the_buffer_are_rejected() -> None:
    templates, sizes = lower_all("all_reduce", "ring", 3, 64)
    with pytest.raises(CheckError, match="not its buffer"):
        check_sizes(meaning_of("all_reduce", templates), sizes, 65, None)


def test_no_closed_form_is_an_error() -> None:
    with pytest.raises(CheckError, match="no closed form"):
        bytes_sent("all_reduce", "gossip", 2, 0, 8, [4, 4])
