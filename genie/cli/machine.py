"""`genie doctor` and `genie --version`."""

from __future__ import annotations

from typing import Annotated

import typer

from genie.live.doctor import findings
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
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Version, and how the native core was built."
        ),
    ] = False,
) -> None:
    """Options of genie itself."""


def doctor() -> int:
    """What this machine can do, what it lacks, and what to install. Exit code 3 when a run could not work."""
    worst = 0
    for finding in findings():
        print(f"{finding.state:<7} {finding.what}: {finding.detail}")
        if finding.state == "missing":
            worst = 3
    return worst
