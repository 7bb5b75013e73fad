"""Job files: the options of a command in TOML, so that a check is versioned and repeated.

The keys are the options' names with underscores: `queue_pairs = 4` is --queue-pairs 4. Paths are relative to the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from genie.config.strict_toml import Document, SettingsError
from genie.job.option import Field

SUFFIX = ".toml"
COMMAND = "command"  # a key: the command that the file is for


class JobFileError(SettingsError):
    """A job file that cannot be used: one line that names file, line, key and allowed values (exit code 2)."""


def read_job_file(path: Path, command: str, fields: Sequence[Field]) -> dict[str, Any]:
    """Return the values that a job file gives for the options of a command, by the options' field names.

    Raises JobFileError.
    """
    document = Document.open(path, JobFileError)
    meant = document.data.pop(COMMAND, command)
    if meant != command:
        raise document.error((COMMAND,), f" = {meant!r}: this is genie {command}: give the file to that command")
    kinds = [(each.name, _kind(each) | None, None) for each in fields]
    read = document.convert(msgspec.defstruct("JobFile", kinds, kw_only=True, forbid_unknown_fields=True))
    values = {each.name: getattr(read, each.name) for each in fields if each.name in document.data}
    if "workload" in {each.name for each in fields} and "workload" not in values:
        raise document.error(("workload",), " is missing: give a folder of .et files, or their prefix")
    return {each.name: _placed(each, values[each.name], path.parent) for each in fields if each.name in values}


def _kind(field: Field) -> Any:
    """Return the type of a key, with its limits."""
    option = field.option
    if option.choices:
        return Literal[option.choices]
    if field.kind in (int, float) and (option.minimum is not None or option.maximum is not None):
        return Annotated[field.kind, msgspec.Meta(ge=option.minimum, le=option.maximum)]
    if field.is_repeated:
        return list[str]
    return str if field.kind is Path else field.kind


def _placed(field: Field, value: Any, folder: Path) -> Any:
    """Return the value, with its paths taken relative to the file's folder."""
    if field.kind is Path:
        return folder / value
    if field.name == "workload":
        return str(folder / value)
    if field.name == "algorithm":
        return [_with_file(text, folder) for text in value]
    return value


def _with_file(text: str, folder: Path) -> str:
    operation, sign, name = text.partition("=")
    return f"{operation}{sign}{folder / name}" if name.endswith(".xml") else text
