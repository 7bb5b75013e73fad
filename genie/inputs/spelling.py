"""The spelling of an option in errors and warnings: `--slice-delay` on a command line, `slice_delay` in a script."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# Options whose name in scripts differs by more than dashes.
IN_SCRIPTS = {"algorithm": "algorithms"}

_in_script: ContextVar[bool] = ContextVar("_in_script", default=False)


def option(name: str) -> str:
    """Return an option as its user writes it. `name`: with underscores between words."""
    if _in_script.get():
        return IN_SCRIPTS.get(name, name)
    return f"--{name.replace('_', '-')}"


@contextmanager
def as_keywords() -> Iterator[None]:
    """Context in which a script, not a command line, gives the options."""
    before = _in_script.set(True)
    try:
        yield
    finally:
        _in_script.reset(before)
