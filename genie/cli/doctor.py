"""`genie doctor`, and the global option --read-limit."""

from __future__ import annotations

import os
from collections.abc import Callable

import typer

from genie.errors import EXIT_ENVIRONMENT, EXIT_OK, UsageError
from genie.inputs.content import LIMIT_VARIABLE, ContentError, content_limit_bytes


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command("doctor")(doctor)


def limited(read_limit: str) -> Callable[[], None]:
    """Set --read-limit for this command and the processes that it starts; call the result to restore the earlier limit.

    Raises UsageError.
    """
    before = os.environ.get(LIMIT_VARIABLE)
    os.environ[LIMIT_VARIABLE] = read_limit
    try:
        content_limit_bytes()
    except ContentError as error:
        _set_limit(before)
        raise UsageError(f"--read-limit {read_limit}: give bytes, or a size such as 8GiB") from error
    return lambda: _set_limit(before)


def _set_limit(value: str | None) -> None:
    os.environ.pop(LIMIT_VARIABLE, None)
    if value is not None:
        os.environ[LIMIT_VARIABLE] = value


def doctor() -> int:
    """Check whether live runs can work on this machine, and say what to install.

    The state of each line is ok, limited or missing. Exit code 3: something is missing, and a live run cannot work on
    this machine.
    """
    from genie.live.launch.doctor import findings

    worst = EXIT_OK
    for finding in findings():
        print(f"{finding.state:<7} {finding.what}: {finding.detail}")
        if finding.state == "missing":
            worst = EXIT_ENVIRONMENT
    return worst
