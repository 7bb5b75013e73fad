"""Values at dotted keys, changed in tables that came from a file: what sweeps and scripts do to a fabric."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genie.config.strict_toml import Document, SettingsError, Tables, changed_tables, parts_of

NAMES = st.sampled_from(["a", "b", "rate-2", "switch"])
LEAVES = st.one_of(st.integers(), st.text(max_size=3), st.booleans())
TABLES = st.dictionaries(
    NAMES, st.recursive(LEAVES, lambda inner: st.one_of(st.dictionaries(NAMES, inner), st.lists(inner)), max_leaves=8)
)


def value_at(tables: Any, key: tuple[str | int, ...]) -> Any:
    for part in key:
        tables = tables[part]
    return tables


def first_that_is_no_table(tables: Any, names: list[str]) -> str | None:
    """The part of a key below which nothing can be."""
    for at, name in enumerate(names):
        if not isinstance(tables, dict):
            return names[at]
        if name not in tables:
            return None
        tables = tables[name]
    return None


@given(TABLES, st.lists(NAMES, min_size=1, max_size=4), LEAVES)
def test_what_is_set_is_there_and_nothing_else_has_changed(data: dict[str, Any], names: list[str], value: Any) -> None:
    dotted_key = ".".join(names)
    before = deepcopy(data)
    in_the_way = first_that_is_no_table(data, names)
    if in_the_way is not None:
        with pytest.raises(KeyError) as raised:
            changed_tables(data, {dotted_key: value})
        assert raised.value.args == (in_the_way,)
        return
    changed = changed_tables(data, {dotted_key: value})
    assert data == before
    assert value_at(changed, tuple(names)) == value
    assert changed_tables(changed, {dotted_key: None}).keys() <= changed.keys()
    for name in before.keys() - {names[0]}:
        assert changed[name] == before[name]


def test_numbers_are_places_in_lists() -> None:
    data = {"link": [{"rate": 1}, {"rate": 2}]}
    assert parts_of("link.1.rate") == ("link", 1, "rate")
    assert changed_tables(data, {"link.1.rate": 5}) == {"link": [{"rate": 1}, {"rate": 5}]}
    with pytest.raises(KeyError, match="2"):
        changed_tables(data, {"link.2.rate": 5})


def test_an_error_is_named_where_the_value_was_said() -> None:
    base = Document('[switch]\nbuffer = "1MiB"\n', "fabric.toml")
    places = {("switch", "alpha"): "sweep.toml:7: grid.fabric.switch.alpha"}
    tables = Tables({"switch": {"buffer": "1MiB", "alpha": -1}}, "x", changed_from=base, places=places)
    assert str(tables.error(("switch", "alpha"), " = -1: give more")) == (
        "sweep.toml:7: grid.fabric.switch.alpha = -1: give more"
    )
    assert str(tables.error(("switch", "buffer"), " is odd")) == "fabric.toml:2: switch.buffer is odd"
    alone = Tables({}, "the fabric", SettingsError)
    assert str(alone.error(("link", 2, "rate"), " is odd")) == "the fabric: link[2].rate is odd"
