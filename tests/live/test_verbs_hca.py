"""NCCL_IB_HCA's grammar: who is taken, in which order, and what is said of mistakes."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genie.live.verbs.hca import Hca, HcaFilter, Port, parse_hca

pytestmark = pytest.mark.live

PORTS = [Port("mlx5_0", 1), Port("mlx5_0", 2), Port("mlx5_1", 1), Port("mlx5_10", 1), Port("rxe0", 1)]


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("", PORTS),
        ("mlx5", PORTS[:4]),
        ("mlx5_1", [Port("mlx5_1", 1), Port("mlx5_10", 1)]),
        ("=mlx5_1", [Port("mlx5_1", 1)]),
        ("mlx5_0:2", [Port("mlx5_0", 2)]),
        ("=mlx5_0:1,rxe0", [Port("mlx5_0", 1), Port("rxe0", 1)]),
        ("^mlx5", [Port("rxe0", 1)]),
        ("^=mlx5_1,rxe0", [Port("mlx5_0", 1), Port("mlx5_0", 2), Port("mlx5_10", 1)]),
        ("^mlx5_0:2", [Port("mlx5_0", 1), Port("mlx5_1", 1), Port("mlx5_10", 1), Port("rxe0", 1)]),
        ("=rxe0:1:0,mlx5_0:1:1", [Port("rxe0", 1), Port("mlx5_0", 1)]),  # in the order of rails
        ("=rxe0:1:3:1,mlx5_1", [Port("rxe0", 1), Port("mlx5_1", 1)]),  # without a rail: last
        ("efa", []),
    ],
)
def test_which_ports_are_taken(text: str, taken: list[Port]) -> None:
    assert parse_hca(text).select(PORTS) == taken


def test_all_four_fields() -> None:
    assert parse_hca("=mlx5_0:1:2:3") == HcaFilter((Hca("mlx5_0", 1, 2, 3),), exact=True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("^", "no device after ^"),
        ("=", "no device after ="),
        ("mlx5_0,,mlx5_1", 'NCCL_IB_HCA="mlx5_0,,mlx5_1": "" names no device'),
        (":1", '":1" names no device'),
        ("mlx5_0:0", 'port = "0": must be a number in 1..255'),
        ("mlx5_0:", 'port = "": must be a number in 1..255'),
        ("mlx5_0:1:x", 'rail = "x": must be a number in 0..65535'),
        ("mlx5_0:1:0:-1", 'plane = "-1": must be'),
        ("mlx5_0:1:0:0:0", "has 5 fields"),
        ("=^mlx5_0", "^ and = come once, before the first"),
        ("mlx5_0,=mlx5_1", '"=mlx5_1" is not a device'),
        ("mlx5 0", '"mlx5 0" is not a device'),
        ("mlx5_0:\u00b2", 'port = "\u00b2"'),
    ],
)
def test_mistakes_are_named(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        parse_hca(text)


names = st.from_regex(r"[a-z]{1,4}[0-9]?_[0-9]{1,2}", fullmatch=True)
ports = st.builds(Port, names, st.integers(1, 4))
entries = st.builds(Hca, names, st.none() | st.integers(1, 4))


def written(chosen: list[Hca]) -> str:
    return ",".join(entry.device + ("" if entry.port is None else f":{entry.port}") for entry in chosen)


@given(st.lists(ports, unique=True), st.lists(entries, min_size=1), st.booleans())
def test_excluding_is_the_complement_of_choosing(there: list[Port], chosen: list[Hca], exact: bool) -> None:
    text = ("=" if exact else "") + written(chosen)
    taken, left = parse_hca(text).select(there), parse_hca("^" + text).select(there)
    assert sorted(taken + left) == sorted(there)
    assert not set(taken) & set(left)


@given(st.lists(ports, unique=True), st.lists(entries, min_size=1))
def test_an_exact_choice_is_among_that_by_prefix(there: list[Port], chosen: list[Hca]) -> None:
    text = written(chosen)
    assert set(parse_hca("=" + text).select(there)) <= set(parse_hca(text).select(there))


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    told = "NCCL_IB_HCA"
    try:
        assert parse_hca(text).select(PORTS) is not None
    except ValueError as error:
        told = str(error)
    assert told.startswith("NCCL_IB_HCA")
