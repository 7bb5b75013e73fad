"""`genie doctor`, and options of genie itself."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from genie.inputs.content import LIMIT_VARIABLE, ContentError, content_limit_bytes
from genie.job.resolve import UsageError
from genie.live.launch.doctor import findings
from genie.plan.facts import facts_of_build


def register(app: typer.Typer) -> None:
    """Add this file's commands."""
    app.command()(doctor)
    app.callback()(without_command)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        facts = facts_of_build()
        version = facts["versions"].get("genie-fabric", "(not installed)")
        commit = f", commit {facts['commit']}" if facts["commit"] else ""
        print(f"genie {version}, native core {facts['native']}, Python {facts['versions']['python']}{commit}")
        raise typer.Exit


def without_command(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Version, and how the native core was built."
        ),
    ] = False,
    read_limit: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help=f"Longest content of a trace, after decompression; also {LIMIT_VARIABLE}.  "
            "[default: 1GiB; JSON 256MiB]",
        ),
    ] = None,
) -> None:
    """Options of genie itself. Ranks and workers inherit the limit by the environment."""
    if read_limit is None:
        return
    before = os.environ.get(LIMIT_VARIABLE)
    os.environ[LIMIT_VARIABLE] = read_limit
    context.call_on_close(lambda: _set_limit(before))
    try:
        content_limit_bytes()
    except ContentError as error:
        raise UsageError(f"--read-limit {read_limit}: give bytes, or a size such as 8GiB") from error


def _set_limit(value: str | None) -> None:
    os.environ.pop(LIMIT_VARIABLE, None)
    if value is not None:
        os.environ[LIMIT_VARIABLE] = value


def doctor() -> int:
    """What this machine can do, what it lacks, and what to install. Exit code 3 when a run could not work."""
    worst = 0
    for finding in findings():
        print(f"{finding.state:<7} {finding.what}: {finding.detail}")
        if finding.state == "missing":
            worst = 3
    return worst
