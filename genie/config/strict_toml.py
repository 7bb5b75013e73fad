"""Reading TOML into strict structs; errors name the file, the line, the key and the allowed values."""

from __future__ import annotations

import re
import tomllib
import types
import typing
from collections.abc import Mapping
from copy import deepcopy
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from genie.config.toml_lines import Key, key_lines
from genie.config.units import Duration, Rate, Size, parse_duration, parse_rate, parse_size
from genie.errors import InputError
from genie.inputs.printable import shown_value

_PARSERS: dict[type, Any] = {Rate: parse_rate, Duration: parse_duration, Size: parse_size}
_PATH_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_MESSAGE = re.compile(r"(?P<what>.*?)(?: - at `\$?(?P<path>.*)`)?", re.DOTALL)
_FIELD = re.compile(r"Object (contains unknown|missing required) field `(.+)`")

CHARACTERS_MAX = 32 * 2**20  # of a file; enough for half a million cables, listed one by one

T = TypeVar("T")


class SettingsError(InputError):
    """A mistake in a configuration file: one line that names file, line, key and allowed values (exit code 2)."""


class Document:
    """Text of a TOML file and the lines of its keys; `name` is the file's name in errors."""

    def __init__(self, text: str, name: str, error: type[SettingsError] = SettingsError) -> None:
        self.text = text
        self.name = name
        self._error = error
        self._old_keys: dict[Key, Key] = {}  # new name -> name in the file
        try:
            self.data: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as wrong:
            at = re.search(r"line (\d+)", str(wrong))
            line = int(at.group(1)) if at else text.count("\n") + 1
            problem = str(wrong).split(" (at ")[0]
            if problem == "Cannot overwrite a value":
                problem = "this key is given twice"
            raise error(f"{name}:{line}: is not TOML: {problem}") from wrong
        except (ValueError, RecursionError) as wrong:  # integers beyond Python's limit, nesting beyond its stack
            problem = "values are nested too deeply" if isinstance(wrong, RecursionError) else str(wrong)
            raise error(f"{name}:1: is not TOML that can be read: {problem}") from wrong

    @classmethod
    def open(cls, path: Path, error: type[SettingsError] = SettingsError) -> Document:
        """Read a file, with or without a byte order mark. Raises `error` when it cannot be read or is not TOML."""
        try:
            with path.open(encoding="utf-8-sig") as file:
                text = file.read(CHARACTERS_MAX + 1)
        except OSError as wrong:
            raise error(f"{path}: cannot be read: {wrong.strerror}; give the path of a TOML file") from wrong
        except UnicodeDecodeError as wrong:
            raise error(f"{path}: is not text; give the path of a TOML file") from wrong
        except ValueError as wrong:  # a null character in a path given by a file
            raise error(f"{path}: cannot be read: {wrong}; give the path of a TOML file") from wrong
        if len(text) > CHARACTERS_MAX or text.startswith("\0"):
            if text.startswith("\0"):
                raise error(f"{path}: is not text; give the path of a TOML file")
            raise error(f"{path}: has more than {CHARACTERS_MAX} characters: give a shorter file")
        return cls(text, str(path), error)

    def error(self, key: Key, problem: str) -> SettingsError:
        """An error at `key`; for a key that is not in the file, at the nearest table that is."""
        return self._error(f"{self.name}:{self.line_of(key)}: {dotted(key)}{problem}")

    @cached_property
    def _lines(self) -> Mapping[Key, int]:
        return key_lines(self.text)

    def line_of(self, key: Key) -> int:
        """Line, from 1, of a key or of the nearest table around it that is in the file."""
        lines, key = self._lines, self._in_file(key)
        return next((lines[key[:n]] for n in range(len(key), 0, -1) if key[:n] in lines), 1)

    def rename(self, old: tuple[str, ...], new: str) -> None:
        """Give the value at `old` the name `new`; errors at the new key show the line of the old one."""
        *tables, last = old
        data = self.data = deepcopy(self.data)
        for name in tables:
            data = data[name]
        data[new] = data.pop(last)
        renamed = (*tables, new)
        self._old_keys = {**self._old_keys, renamed: old}

    def _in_file(self, key: Key) -> Key:
        for renamed, old in self._old_keys.items():
            if key[: len(renamed)] == renamed:
                return (*old, *key[len(renamed) :])
        return key

    def convert(self, into: type[T]) -> T:
        """The file as a strict struct. Raises the document's error for any value that does not fit."""
        try:
            return msgspec.convert(self.data, into, dec_hook=_parse_quantity)
        except msgspec.ValidationError as wrong:
            raise self._explain(into, str(wrong)) from wrong

    def _explain(self, into: Any, message: str) -> SettingsError:
        match = _MESSAGE.fullmatch(message)
        assert match is not None
        what, path = match["what"], match["path"] or ""
        key: Key = tuple(name or (int(i) if i.isdigit() else i) for name, i in _PATH_STEP.findall(path))
        field = _FIELD.fullmatch(what)
        if field is None:
            value = _value_at(self.data, key)
            detail = what if key and _type_at(into, self.data, key) in _PARSERS else ""
            allowed = _allowed(_type_at(into, self.data, key), key[-1] if key else "")
            return self.error(key, f" = {shown_value(value)}{' ' + detail if detail else ''}: give {allowed or what}")
        table = _type_at(into, self.data, key)
        name = field[2]
        if field[1] == "missing required":
            allowed = _allowed(_type_at(into, self.data, (*key, name)), name)
            return self.error((*key, name), f" is missing: give {allowed or f'a table [{name}]'}")
        return self.error((*key, name), f" is an unknown key; the keys here are {', '.join(_keys(table))}")


class Tables(Document):
    """Tables without a text: made by a program, or a document's tables with some values changed.

    `places`: the keys of changed values, and the name of each in errors, such as "sweep.toml:7: fabric.link.rate".
    """

    def __init__(
        self,
        data: dict[str, Any],
        name: str,
        error: type[SettingsError] = SettingsError,
        *,
        changed_from: Document | None = None,
        places: Mapping[Key, str] | None = None,
    ) -> None:
        super().__init__("", name, error)
        self.data = data
        self._base = changed_from
        self._places = dict(places or {})

    def error(self, key: Key, problem: str) -> SettingsError:
        """An error at `key`: at its changed place, else at its line in the document, else by name only."""
        for changed, place in self._places.items():
            if key[: len(changed)] == changed:
                below = dotted(key[len(changed) :])
                return self._error(f"{place}{'.' if below else ''}{below}{problem}")
            if changed[: len(key)] == key and (self._base is None or _value_at(self._base.data, key) == "..."):
                return self._error(f"{place}: {dotted(key)}{problem}")
        if self._base is not None:
            return self._base.error(key, problem)
        return self._error(f"{self.name}: {dotted(key)}{problem}")


def changed_tables(data: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy with other values at dotted keys such as "switch.buffer" or "topology.link.2.rate".

    None removes a value. Raises KeyError with the part of a dotted key that cannot contain other keys.
    """
    copy: dict[str, Any] = deepcopy(dict(data))
    for dotted_key, value in changes.items():
        *tables, last = parts_of(dotted_key)
        table: Any = copy
        for part in tables:
            if isinstance(table, dict) and isinstance(part, str):
                table = table.setdefault(part, {})
            elif isinstance(table, list) and isinstance(part, int) and part < len(table):
                table = table[part]
            else:
                raise KeyError(part)
        if isinstance(table, dict) and isinstance(last, str):
            table.pop(last, None)
            if value is not None:
                table[last] = value
        elif isinstance(table, list) and isinstance(last, int) and last < len(table) and value is not None:
            table[last] = value
        else:
            raise KeyError(last)
    return copy


def parts_of(dotted_key: str) -> Key:
    """The names in a dotted key; a number is an index into a list, from 0."""
    return tuple(int(part) if part.isdecimal() else part for part in dotted_key.split("."))


def _parse_quantity(kind: type, value: object) -> object:
    if kind in _PARSERS:
        return _PARSERS[kind](value)
    raise NotImplementedError(kind)  # msgspec requires this error for types that the hook does not handle


def dotted(key: Key) -> str:
    """A key as errors show it: `topology.link[2].rate`."""
    text = "".join(f"[{part}]" if isinstance(part, int) or part == "..." else f".{part}" for part in key)
    return text.removeprefix(".")


def _value_at(data: Any, key: Key) -> Any:
    for part in key:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return "..."
    return data


def _type_at(kind: Any, data: Any, key: Key) -> Any:
    """The declared type at `key`; the data decide between the members of a tagged union."""
    kind = _narrow(kind, data)
    if not key:
        return kind
    part, rest = key[0], key[1:]
    inner = _value_at(data, (part,))
    if typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind, include_extras=True)
        return _type_at(hints[str(part)], inner, rest) if part in hints else kind
    if typing.get_origin(kind) in (list, dict):
        return _type_at(typing.get_args(kind)[-1], inner, rest)
    if typing.get_origin(kind) is tuple:
        return _type_at(typing.get_args(kind)[0], inner, rest)
    return kind


def _narrow(kind: Any, data: Any) -> Any:
    if typing.get_origin(kind) not in (typing.Union, types.UnionType):
        return kind
    members = [member for member in typing.get_args(kind) if member is not types.NoneType]
    for member in members:
        if isinstance(member, type) and issubclass(member, msgspec.Struct) and isinstance(data, dict):
            config = member.__struct_config__
            if config.tag_field is None or data.get(config.tag_field) == config.tag:
                return member
        if isinstance(data, list) and typing.get_origin(member) is list:
            return member
    return members[0] if len(members) == 1 else kind


def _keys(struct: Any) -> list[str]:
    tag = struct.__struct_config__.tag_field
    return ([tag] if tag else []) + list(struct.__struct_encode_fields__)


def _allowed(kind: Any, name: Any) -> str:
    """Description of the allowed values of a key of this type."""
    members = typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)
    structs = [m for m in members if isinstance(m, type) and issubclass(m, msgspec.Struct)]
    tags = [str(s.__struct_config__.tag) for s in structs if s.__struct_config__.tag_field]
    if tags:
        tag_field = str(structs[0].__struct_config__.tag_field)
        choice = " or ".join(f'"{tag}"' for tag in tags)
        return choice if name == tag_field else f"a table with {tag_field} = {choice}"
    words = [_words(inspect.type_info(member)) for member in members if member is not types.NoneType]
    return " or ".join(word for word in words if word)


def _words(info: inspect.Type) -> str:
    if isinstance(info, inspect.Metadata):
        return str((info.extra_json_schema or {}).get("description") or _words(info.type))
    if isinstance(info, inspect.CustomType):
        return str(getattr(info.cls, "allowed", info.cls.__name__))
    if isinstance(info, inspect.LiteralType):
        return " or ".join(repr(value) if isinstance(value, int) else f'"{value}"' for value in info.values)
    if isinstance(info, inspect.IntType | inspect.FloatType):
        noun = "an integer" if isinstance(info, inspect.IntType) else "a number"
        if info.multiple_of == 2:
            noun = "an even integer"
        if info.ge is not None and info.le is not None:
            return f"{noun} from {info.ge} to {info.le}"
        if info.gt is not None and info.le is not None:
            return f"{noun} above {info.gt}, at most {info.le}"
        return noun if info.ge is None else f"{noun} of at least {info.ge}"
    if isinstance(info, inspect.ListType):
        return f"a list of {_words(info.item_type).removeprefix('a ').removeprefix('an ')}"
    if isinstance(info, inspect.TupleType):
        return f"a list of {len(info.item_types)}, each {_words(info.item_types[0])}"
    if isinstance(info, inspect.VarTupleType):
        least, most = info.min_length or 0, info.max_length
        count = f" of {least} to {most}" if most else f" of {least} or more" if least else ""
        return f"a list{count}, each {_words(info.item_type)}"
    nouns = {inspect.StrType: "a string", inspect.BoolType: "true or false", inspect.StructType: "a table"}
    return nouns.get(type(info), "")
