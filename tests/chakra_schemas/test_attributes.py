"""Attributes: every member of the oneof is read, and Python values find their member."""

from __future__ import annotations

import math

import pytest
from chakra_protobuf.et_def_pb2 import AttributeProto, Node
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra_schemas.attributes import MEMBERS, AttributeValue, attributes_of, make_attribute, make_attributes, value_of

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
UINT32 = st.integers(0, 2**32 - 1)
UINT64 = st.integers(0, 2**64 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = {
    "double": st.floats(allow_nan=False),
    "float": st.floats(allow_nan=False, width=32),
    "int32": INT32,
    "int64": INT64,
    "uint32": UINT32,
    "uint64": UINT64,
    "sint32": INT32,
    "sint64": INT64,
    "fixed32": UINT32,
    "fixed64": UINT64,
    "sfixed32": INT32,
    "sfixed64": INT64,
    "bool": st.booleans(),
    "string": TEXT,
    "bytes": st.binary(max_size=20),
}


def test_members_are_those_of_the_schema() -> None:
    assert set(MEMBERS) == {f"{kind}_{shape}" for kind in VALUES for shape in ("val", "list")}
    assert len(MEMBERS) == 30


def set_member(member: str, value: object) -> AttributeProto:
    attribute = AttributeProto(name=f"a_{member}")
    if member.endswith("_list"):
        target = getattr(attribute, member)
        target.SetInParent()
        target.values.extend(value)
    else:
        setattr(attribute, member, value)
    return attribute


@st.composite
def attributes(draw: st.DrawFn, member: str) -> tuple[AttributeProto, object]:
    values = VALUES[member.rpartition("_")[0]]
    value = draw(st.lists(values, max_size=5) if member.endswith("_list") else values)
    return set_member(member, value), value


@pytest.mark.parametrize("member", MEMBERS)
@settings(derandomize=True, deadline=None)
@given(data=st.data())
def test_every_member_is_read(member: str, data: st.DataObject) -> None:
    attribute, value = data.draw(attributes(member))
    node = Node.FromString(Node(id=1, attr=[attribute]).SerializeToString())
    assert attributes_of(node) == {f"a_{member}": value}


def test_no_member_is_no_value() -> None:
    assert value_of(AttributeProto(name="outputs")) is None


@pytest.mark.parametrize(
    ("value", "member"),
    [
        (True, "bool_val"),
        (-5, "int64_val"),
        (2**63 - 1, "int64_val"),
        (2**63, "uint64_val"),
        (1.5, "double_val"),
        ("x", "string_val"),
        (b"x", "bytes_val"),
        ([], "int64_list"),
        ([1, -2], "int64_list"),
        ((2**64 - 1, 0), "uint64_list"),
        ([1, 2.5], "double_list"),
        ([True, False], "bool_list"),
        (["a", ""], "string_list"),
        ([b"a"], "bytes_list"),
    ],
)
def test_member_follows_the_python_type(value: AttributeValue, member: str) -> None:
    attribute = make_attribute("name", value)
    assert attribute.WhichOneof("value") == member
    read = value_of(attribute)
    assert read == (list(value) if isinstance(value, tuple) else value)


@settings(derandomize=True, deadline=None)
@given(
    st.dictionaries(
        TEXT,
        st.one_of(st.booleans(), INT64, UINT64, st.floats(), TEXT, st.binary(), st.lists(INT64), st.lists(TEXT)),
        max_size=6,
    )
)
def test_python_values_round_trip(values: dict[str, AttributeValue]) -> None:
    node = Node(attr=make_attributes(values))
    read = attributes_of(Node.FromString(node.SerializeToString()))
    assert list(read) == list(values)
    for name, value in values.items():
        other = read[name]
        if isinstance(value, float) and math.isnan(value):
            assert isinstance(other, float)
            assert math.isnan(other)
        else:
            assert other == value
            assert type(other) is type(value)


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, [1, 2**64], [-1, 2**63]])
def test_integers_beyond_64_bits(value: AttributeValue) -> None:
    with pytest.raises(ValueError, match=r"size.*does not fit"):
        make_attribute("size", value)


@pytest.mark.parametrize("value", [[True, 1], [1, "a"], [["nested"]], {"a": 1}.items()])
def test_types_without_a_member(value: AttributeValue) -> None:
    with pytest.raises(TypeError, match="size"):
        make_attribute("size", value)
