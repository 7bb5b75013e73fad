"""`genie doctor`."""

from __future__ import annotations

import typer

from genie.live.doctor import findings


def register(app: typer.Typer) -> None:
    """Add this file's commands."""
    app.command()(doctor)


def doctor() -> int:
    """What this machine can do, what it lacks, and what to install. Exit code 3 when a run could not work."""
    worst = 0
    for finding in findings():
        print(f"{finding.state:<7} {finding.what}: {finding.detail}")
        if finding.state == "missing":
            worst = 3
    return worst
