"""Attributes of nodes and traces: reading any member of the oneof, writing by Python type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from chakra_protobuf.et_def_pb2 import AttributeProto

Scalar = bool | int | float | str | bytes
AttributeValue = Scalar | Sequence[int] | Sequence[float] | Sequence[str] | Sequence[bytes]

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
UINT64_MAX = 2**64 - 1

# Every member of the oneof, in field order.
MEMBERS: tuple[str, ...] = tuple(field.name for field in AttributeProto.DESCRIPTOR.oneofs_by_name["value"].fields)


class HasAttributes(Protocol):
    """A Node or a GlobalMetadata."""

    @property
    def attr(self) -> Iterable[AttributeProto]: ...


def value_of(attribute: AttributeProto) -> AttributeValue | None:
    """The attribute's value, lists as Python lists; None when no member is set."""
    member = attribute.WhichOneof("value")
    if member is None:
        return None
    value = getattr(attribute, member)
    return list(value.values) if member.endswith("_list") else value


def attributes_of(message: HasAttributes) -> dict[str, AttributeValue | None]:
    """All attributes by name; if a name occurs twice, the last one."""
    return {attribute.name: value_of(attribute) for attribute in message.attr}


def make_attribute(name: str, value: AttributeValue) -> AttributeProto:
    """An attribute whose oneof member follows the value's Python type.

    Allowed are bool, int (int64, or uint64 above its range), float (double), str, bytes, and sequences of one of these.
    An empty sequence is an int64 list. Raises TypeError or ValueError for other values.
    """
    attribute = AttributeProto(name=name)
    if isinstance(value, (bool, int, float, str, bytes)):
        setattr(attribute, _scalar_member(name, value), value)
        return attribute
    if not isinstance(value, Sequence):
        raise TypeError(f"attribute {name}: a {type(value).__name__} has no place in the schema")
    values = list(value)
    target = getattr(attribute, _list_member(name, values))
    target.SetInParent()
    target.values.extend(values)
    return attribute


def make_attributes(values: Mapping[str, AttributeValue]) -> list[AttributeProto]:
    """One attribute per item, in the mapping's order."""
    return [make_attribute(name, value) for name, value in values.items()]


def _scalar_member(name: str, value: Scalar) -> str:
    if isinstance(value, bool):
        return "bool_val"
    if isinstance(value, int):
        return f"{_integer_type(name, (value,))}_val"
    if isinstance(value, float):
        return "double_val"
    return "string_val" if isinstance(value, str) else "bytes_val"


def _list_member(name: str, values: list[object]) -> str:
    if values and all(isinstance(value, bool) for value in values):
        return "bool_list"
    if any(isinstance(value, bool) for value in values):
        raise TypeError(f"attribute {name}: a list that mixes booleans with other types has no place in the schema")
    integers = [value for value in values if isinstance(value, int)]
    if len(integers) == len(values):
        return f"{_integer_type(name, integers)}_list"
    if all(isinstance(value, (int, float)) for value in values):
        return "double_list"
    if all(isinstance(value, str) for value in values):
        return "string_list"
    if all(isinstance(value, bytes) for value in values):
        return "bytes_list"
    raise TypeError(f"attribute {name}: a list of {type(values[0]).__name__} has no place in the schema")


def _integer_type(name: str, values: Sequence[int]) -> str:
    low, high = min(values, default=0), max(values, default=0)
    if low >= INT64_MIN and high <= INT64_MAX:
        return "int64"
    if low >= 0 and high <= UINT64_MAX:
        return "uint64"
    raise ValueError(f"attribute {name}: {low if low < INT64_MIN else high} does not fit 64 bits")
