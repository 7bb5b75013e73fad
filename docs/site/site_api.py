"""The reference of the Python interface, from signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import Any

MODULES = ("simtwin", "genie")
ARGUMENT = re.compile(r"^(\w+): (.+)$")
ENDING = re.compile(r"^(Returns|Raises) (.+)$")


def directives() -> str:
    """Return the directives that document all names of the public modules."""
    parts, indexed = list[str](), set[Any]()
    for module in MODULES:
        kinds: dict[str, list[str]] = {"function": [], "class": [], "exception": []}
        for name in import_module(module).__all__:
            kinds[kind_of(getattr(import_module(module), name))].append(name)
        for title, kind in (("Functions", "function"), ("Classes", "class"), ("Errors", "exception")):
            if kinds[kind]:
                parts.append(f"## {title} of `{module}`")
            for name in kinds[kind]:
                named = getattr(import_module(module), name)
                parts.append(directive(module, name, kind, is_first=named not in indexed))
                indexed.add(named)
    return "\n\n" + "\n\n".join(parts) + "\n"


def kind_of(named: Any) -> str:
    """Return the kind of directive for a public object."""
    if not inspect.isclass(named):
        return "function"
    return "exception" if issubclass(named, Exception) else "class"


def directive(module: str, name: str, kind: str, *, is_first: bool = True) -> str:
    """Return the directive of one name. `is_first`: whether no other module has the same object before."""
    options = [] if kind == "function" else ["exclude-members: __init__, __new__"]
    options += ["members:", "no-index-entry:"] if kind == "class" else []
    options += ["show-inheritance:"] if kind == "exception" else []
    options += [] if is_first else ["no-index:"]
    lines = "".join(f"\n   :{option}" for option in options)
    return f"```{{eval-rst}}\n.. auto{kind}:: {module}.{name}{lines}\n```"


def as_fields(_app: object, _what: str, _name: str, named: Any, _options: object, lines: list[str]) -> None:
    """Turn the lines `argument: words`, `Returns ...` and `Raises ...` of a docstring into fields, shown as a list.

    The lines of a class are about its attributes.
    """
    if inspect.isclass(named):
        types = dict(getattr(named, "__annotations__", {}))
        arguments, field = set(types), "ivar"
    else:
        try:
            arguments = set(inspect.signature(named).parameters)
        except (TypeError, ValueError):  # of a property
            arguments = set()
        types, field = {}, "param"
    made, in_field = list[str](), False
    for line in [part for given in lines for part in parts_of(given, arguments)]:
        found, end = ARGUMENT.match(line), ENDING.match(line)
        if (found and found[1] in arguments) or end:
            made += [] if in_field else [""]
            in_field = True
        if found and found[1] in arguments:
            made.append(f":{field} {found[1]}: {found[2]}")
            if found[1] in types:
                made.append(f":vartype {found[1]}: {shown(types[found[1]])}")
        elif end:
            made.append(f":{end[1].lower()}: {end[2]}")
        elif in_field and line:
            # A continued field: its type comes after it.
            at = len(made) - 1 if made[-1].startswith(":vartype ") else len(made)
            made.insert(at, f"    {line}")
        else:
            made += [*([""] if in_field else []), line]
            in_field = False
    lines[:] = made


def shown(kind: Any) -> str:
    """Return a type as text."""
    text = getattr(kind, "__forward_arg__", kind)
    return text if isinstance(text, str) else inspect.formatannotation(text)


def parts_of(line: str, arguments: set[str]) -> list[str]:
    """Split `fabric: ...; workload: ...`, a line with several arguments."""
    names = "|".join(map(re.escape, sorted(arguments)))
    return re.split(rf"; (?=(?:{names}): )", line) if ARGUMENT.match(line) and names else [line]
