"""`genie diff`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from genie.cli.groups import flattened
from genie.cli.judging import judged
from genie.job.outputs import VerdictOptions
from genie.record import lock_folder
from genie.scripting import compared

DIFF_EXAMPLES = """
Examples:

```text
genie diff runs/mine/live runs/mine/twin
genie diff runs/live runs/twin -o runs/verdict
genie diff runs/live runs/twin --require-coverage nics
```
"""


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command("diff", epilog=DIFF_EXAMPLES)(flattened(diff, {VerdictOptions: {"probe_time"}}))


def diff(
    live: Annotated[Path, typer.Argument(help="Run folder of the live run, from `genie run`.", show_default=False)],
    twin: Annotated[Path, typer.Argument(help="Run folder of the twin, from `genie simulate`.", show_default=False)],
    wanted: VerdictOptions,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            help="Folder for `verdict.json`, `report.html` and `timeline.pftrace`.  [default: none. The command then "
            "prints the verdict only]",
        ),
    ] = None,
) -> int:
    """Compare a live run with a simulated run, and name the component to blame.

    The time of each collective has three parts: wait (for the last rank), wire (the time in the twin) and excess (the
    rest). The cost of a fault comes from the folder expected beside LIVE, which genie validate writes.

    Exit codes: 0 pass, 1 fail, 4 inconclusive: run again, or longer.
    """
    if out is not None and out.is_dir():
        lock_folder(out)
    pair = compared(live, twin, wanted.known)
    return judged(pair.live, pair.twin, out, wanted, live.resolve().parent.parent, pair.probes, pair.expected)
