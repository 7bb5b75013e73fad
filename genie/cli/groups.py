"""Option groups on the command line: a command takes groups, and users see their options one by one, in panels."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass, replace
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.models import OptionInfo

from genie.job.file import SUFFIX, read_job_file
from genie.job.option import Field, Option, fields_of

Command = Callable[..., int | None]
CONTEXT = "typer_context"  # the parameter in which typer gives its context


def flattened(
    command: Command,
    leave_out: Mapping[Any, set[str]] | None = None,
    shown_defaults: Mapping[str, str] | None = None,
    **defaults: Any,
) -> Command:
    """Return the command with each option of its groups as a parameter of its own.

    `leave_out`: options of a group that the command does not have. `defaults` are other
    defaults by field name, and `shown_defaults` the words that the help shows for them.
    """
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    own: list[Field] = []
    groups: dict[str, tuple[type, list[Field]]] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if not (isinstance(kind, type) and is_dataclass(kind)):
            parameters.append(parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))
            own += _own_fields(parameters[-1])
            continue
        without = (leave_out or {}).get(kind, set())
        words = shown_defaults or {}
        shown = [
            replace(each, option=replace(each.option, default=words[each.name])) if each.name in words else each
            for each in fields_of(kind)
            if each.name not in without
        ]
        groups[name] = kind, shown
        parameters += [
            _parameter(each, defaults.get(each.name, None if each.option.is_argument else each.default))
            for each in shown
        ]
    parameters.sort(key=lambda each: each.default is not inspect.Parameter.empty)  # arguments first
    if not any(each.annotation is typer.Context for each in parameters):
        parameters.insert(0, inspect.Parameter(CONTEXT, inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context))

    def complete(values: dict[str, Any]) -> dict[str, Any]:
        """Return the values, with those of a job file in place of defaults."""
        context = values.pop(CONTEXT, None)
        file = Path(str(values.get("workload", "")))
        if context is None or file.suffix != SUFFIX:
            return values
        known = [each for _, shown in groups.values() for each in shown] + own
        for name, value in read_job_file(file, str(context.info_name), known).items():
            source = context.get_parameter_source(name)
            if name == "workload" or source is None or source.name == "DEFAULT":
                values[name] = value
        return values

    def called(**values: Any) -> int | None:
        made = {
            name: kind(**{each.name: _value(each, values.pop(each.name)) for each in shown})
            for name, (kind, shown) in groups.items()
        }
        return command(**made, **values)

    called.__name__, called.__doc__, called.__module__ = command.__name__, command.__doc__, command.__module__
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    called.complete = complete  # type: ignore[attr-defined]
    return called


def _own_fields(parameter: inspect.Parameter) -> Iterator[Field]:
    """Yield the option of a parameter of the command itself, which a job file may give; none for other parameters."""
    hint = parameter.annotation
    info = next((each for each in getattr(hint, "__metadata__", ()) if isinstance(each, OptionInfo)), None)
    if info is None:
        return
    kinds = [kind for kind in get_args(get_args(hint)[0]) or (get_args(hint)[0],) if kind is not NoneType]
    option = Option(info.help or "", minimum=info.min, maximum=info.max)
    yield Field(parameter.name, kinds[0], parameter.default, option)


def _value(field: Field, value: Any) -> Any:
    return tuple(value or ()) if field.is_repeated else value


def _parameter(field: Field, default: Any) -> inspect.Parameter:
    option = field.option
    hint: Any = list[str] if field.is_repeated else field.kind
    if option.is_argument:
        info = typer.Argument(help=option.text, show_default=False)
        required = inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[hint, info])
        return required if default is None else required.replace(default=default)
    metavar = option.metavar or ("|".join(option.choices) if option.choices else None)
    names = option.names or ((field.flag,) if field.kind is bool or "_" in field.name else ())
    info = typer.Option(
        *names,
        help=option.text,
        min=option.minimum,
        max=option.maximum,
        metavar=metavar,
        rich_help_panel=option.panel,
        autocompletion=_completion(option.choices),
        show_default=option.default is None and default is not None and default is not False and default != (),
    )
    is_optional = default is None or field.is_repeated
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None if field.is_repeated and not default else default,
        annotation=Annotated[hint | None if is_optional else hint, info],
    )


def _completion(choices: tuple[str, ...]) -> Callable[[str], list[str]] | None:
    if not choices:
        return None

    def complete(incomplete: str) -> list[str]:
        return [choice for choice in choices if choice.startswith(incomplete)]

    return complete
