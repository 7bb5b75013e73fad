"""The description of one option, from which the command line, job files and the reference are made."""

from __future__ import annotations

import types
import typing
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Any

from genie.errors import UsageError

WORKLOAD, NETWORK, WIRE, TWIN, FAULTS, OUTPUT, ADVANCED = (
    "Workload",
    "Network",
    "Messages and transport",
    "Twin",
    "Faults",
    "Output",
    "Advanced",
)


@dataclass(frozen=True)
class Option:
    """The metadata of a field of an option group: `field: Annotated[type, Option(...)] = default`.

    `names`: the spellings on the command line; empty for `--field-name`. `choices`: the allowed values; empty for all.
    `default`: the words that the help shows for a default that depends on other options.
    """

    help: str
    panel: str = ADVANCED
    names: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    metavar: str | None = None
    default: str | None = None
    is_argument: bool = False

    @property
    def text(self) -> str:
        """The help, with the default where that is not a single value."""
        return self.help if self.default is None else f"{self.help}  [default: {self.default}]"


@dataclass(frozen=True)
class Field:
    """A field of an option group: its name, the type of its value without None, its default and its option."""

    name: str
    kind: Any  # str, int, float, bool, Path, or tuple[str, ...]
    default: Any
    option: Option

    @property
    def is_repeated(self) -> bool:
        return typing.get_origin(self.kind) is tuple

    @property
    def flag(self) -> str:
        """The option as a user writes it: `--queue-pairs`; an argument in capitals."""
        if self.option.is_argument:
            return self.name.upper()
        long = [name for name in self.option.names if name.lstrip(" /").startswith("--")]
        return long[0].strip(" /").partition("/")[0] if long else f"--{self.name.replace('_', '-')}"


@cache
def fields_of(group: Any) -> tuple[Field, ...]:
    """The options of a group, in order."""
    hints = typing.get_type_hints(group, include_extras=True)
    found = []
    for each in fields(group):
        hint, option = typing.get_args(hints[each.name])
        kinds = [kind for kind in typing.get_args(hint) if kind is not types.NoneType]
        is_optional = typing.get_origin(hint) in (typing.Union, types.UnionType)
        default = "" if each.default is MISSING else each.default
        found.append(Field(each.name, kinds[0] if is_optional else hint, default, option))
    return tuple(found)


def check_choices(group: Any) -> None:
    """Raises UsageError for a value that is not among an option's choices."""
    kind: Any = type(group)
    for each in fields_of(kind):
        value, choices = getattr(group, each.name), each.option.choices
        if choices and value is not None and value not in choices:
            raise UsageError(f"{each.flag} {value}: must be {one_of(choices)}")


def one_of(choices: tuple[str, ...]) -> str:
    """`a, b or c`."""
    return " or ".join(filter(None, (", ".join(choices[:-1]), choices[-1])))
