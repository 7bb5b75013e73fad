"""The guard around every command: an output never replaces an input of the same command."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo

from genie.errors import UsageError
from genie.record import refuse_inputs_in

FOLDER = "out"  # the parameter of -o
FILES = ("as_json", "output_file", "metrics", "target")  # parameters of single files that a command writes
# Commands whose -o is a file, and commands that write into a folder beside its other files.
OUT_IS_A_FILE, OUT_IS_KEPT = ("metrics", "convert_fabric"), ("diff",)


def guard(app: typer.Typer) -> None:
    """Put the guard around all commands of an application and of its groups.

    Every parameter that holds a path counts as an input unless it is named above, so that a new option is guarded.
    """
    for command in app.registered_commands:
        assert command.callback is not None
        command.callback = _guarded(command.callback)
    for group in app.registered_groups:
        assert group.typer_instance is not None
        guard(group.typer_instance)


def _guarded(command: Callable[..., Any]) -> Callable[..., Any]:
    options = _options(command)

    @functools.wraps(command)
    def checked(**values: Any) -> Any:
        complete = getattr(command, "complete", None)
        values = values if complete is None else complete(values)
        inputs = list(inputs_of(options, values))
        files = [values[name] for name in FILES if isinstance(values.get(name), Path)]
        out = values.get(FOLDER)
        if out is not None and command.__name__ in OUT_IS_A_FILE:
            files.append(out)
        elif out is not None and command.__name__ not in OUT_IS_KEPT:
            refuse_inputs_in(out, inputs)
        for file in files:
            for name, path in inputs:
                if file.exists() and path.exists() and file.samefile(path):
                    raise UsageError(f"{file}: is also the input {name}; give another file to write")
        return command(**values)

    # Annotations are text, which only the command's own module can evaluate.
    checked.__signature__ = inspect.signature(command, eval_str=True)  # type: ignore[attr-defined]
    return checked


def _options(command: Callable[..., Any]) -> dict[str, str]:
    """Return parameter name -> the option or argument as a user writes it."""
    names = {}
    for name, hint in get_type_hints(command, include_extras=True).items():
        given = next((each for each in getattr(hint, "__metadata__", ()) if isinstance(each, OptionInfo)), None)
        is_argument = any(isinstance(each, ArgumentInfo) for each in getattr(hint, "__metadata__", ()))
        declared = [text for text in (given.param_decls or ()) if text.startswith("--")] if given else []
        option = declared[0].partition("/")[0] if declared else f"--{name.replace('_', '-')}"
        names[name] = name.upper() if is_argument else option
    return names


def inputs_of(options: dict[str, str], values: dict[str, Any]) -> Iterator[tuple[str, Path]]:
    """Yield the inputs of a command: the option as a user writes it, and the path."""
    for name, value in values.items():
        if name == FOLDER or name in FILES:
            continue
        option = options.get(name, f"--{name}")
        if isinstance(value, Path):
            yield option, value
        elif name == "workload" and isinstance(value, str):  # a folder, or a prefix of files in one
            yield option, Path(value) if Path(value).exists() else Path(value).parent
        elif name == "algorithm":
            yield from ((option, Path(text.partition("=")[2])) for text in value or () if text.endswith(".xml"))
