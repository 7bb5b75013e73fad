"""`genie diff`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from genie.cli.groups import flattened
from genie.cli.judging import check_known_of_run, judged
from genie.job.outputs import VerdictOptions
from genie.live.launch.merge import open_live_run
from genie.record import EXPECTED, lock_folder, open_run

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
    from genie.verdict.probed.probes import read_probes

    probe = live / ".." / "probe" / "run.json"  # of a validation
    probes = read_probes(probe) if probe.is_file() else None
    free = live / ".." / EXPECTED
    expected = open_run(free) if (free / "run.json").is_file() else None
    simulated = open_run(twin)
    check_known_of_run(wanted.known, simulated)
    return judged(open_live_run(live), simulated, out, wanted, live.resolve().parent.parent, probes, expected)
