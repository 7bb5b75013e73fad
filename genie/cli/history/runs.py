"""`genie runs`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from genie.cli.bench.runs import AsJson, check_json
from genie.cli.groups import flattened
from genie.cli.output import RUNS
from genie.errors import UsageError
from genie.record import marked_json, refuse_foreign, replace_own

if TYPE_CHECKING:
    from genie.verdict.history.archive import Entry, Step

RUNS_EXAMPLES = """
Examples:

```text
genie runs
genie runs /data/fabric-tests --last 100 -o runs.html
genie runs --json runs.json
```
"""
ARCHIVE_KIND = "archive"


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command("runs", epilog=RUNS_EXAMPLES)(flattened(runs))


def runs(
    folder: Annotated[Path | None, typer.Argument(help="Folder whose folders are runs.  [default: runs]")] = None,
    last: Annotated[int, typer.Option(min=1, max=100_000, help="Number of runs to list, the newest first.")] = 20,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="HTML file with the trend of each job.  [default: none]")
    ] = None,
    as_json: AsJson = None,
) -> int:
    """List the runs of a folder, the newest first, and mark those at which a job became slower or faster.

    Runs are of one job if they have the same workload, fabric and settings of the traffic. A run is marked if its
    iterations take 10 % longer, or less long, than those of the job's runs before it, beyond their noise.
    """
    from genie.verdict.history.archive import entries, steps_of

    if out is not None:
        from genie.report.archive_page import PAGE_KIND

        if out.suffix != ".html":
            raise UsageError(f"-o {out}: must end in .html")
        if not out.parent.is_dir():
            raise UsageError(f"-o {out}: its folder is not there")
        refuse_foreign(out, PAGE_KIND)
    check_json(as_json, ARCHIVE_KIND)
    folder = folder or RUNS
    if not folder.is_dir():
        raise UsageError(f"{folder}: is not a folder: give the folder that holds the runs, such as runs")
    found = entries(folder)
    steps = {step.entry.folder: step for step in steps_of(found)}
    if not found:
        print(f"{folder}: holds no runs")
    for line in _table(found[:last], steps) if found else []:
        print(line)
    if len(found) > last:
        print(f"{len(found) - last} older runs are left out: see --last")
    if out is not None:
        from genie.report.archive_page import write_archive

        write_archive(out, folder, found, list(steps.values()))
        print(f"report: {out}")
    if as_json is not None:
        rows = [
            {**entry.to_dict(), "change": steps[entry.folder].fraction if entry.folder in steps else None}
            for entry in found
        ]
        replace_own(as_json, marked_json(ARCHIVE_KIND, {"runs": rows}), ARCHIVE_KIND)
    return 0


def _table(found: list[Entry], steps: dict[Path, Step]) -> list[str]:
    rows = [("run", "time (UTC)", "job", "workload", "ranks", "result", "iteration ms", "change")]
    for entry in found:
        step = steps.get(entry.folder)
        rows.append((
            entry.folder.name,
            entry.recorded_at[:19].replace("T", " "),
            entry.job[:6],
            entry.workload,
            str(entry.ranks or ""),
            entry.result or entry.command or "cannot be read",
            f"{entry.iteration_ns / 1e6:.3f}" if entry.iteration_ns else "",
            f"{100 * step.fraction:+.0f} %" if step else "",
        ))  # fmt: skip
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
