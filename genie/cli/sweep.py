"""`genie sweep`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from genie.cli.exits import counted
from genie.errors import EXIT_FAILED, EXIT_OK, UsageError
from genie.invocation import is_quiet, note
from genie.live.launched import launched_by
from genie.plan.facts import commit
from genie.progress import Display
from genie.record import refuse_inputs_in

if TYPE_CHECKING:
    import polars as pl

from simtwin.sweep.communication import BUS_BANDWIDTHS
from simtwin.sweep.grid import CASE, SweepRun

SWEEP_EXAMPLES = """
Examples:

```text
genie sweep examples/sweep.toml -o runs/sweep
genie sweep examples/sweep.toml -o runs/sweep --dry-run
genie sweep examples/suite.toml -o runs/suite --case '*-128'
mpiexec -n 9 python -m mpi4py.futures -m genie sweep SWEEP.toml -o DIR
```
"""
ROWS_SHOWN = 40
# Column of the table -> heading and what it is divided by.
SHOWN = {
    "completion_s": ("completion ms", 1e-3),
    "exposed_s": ("exposed ms", 1e-3),
    **{name: (f"{kind} busbw GB/s", 1e9) for kind, name in BUS_BANDWIDTHS.items()},
    "fct_p50_ns": ("FCT p50 us", 1e3),
    "fct_p99_ns": ("FCT p99 us", 1e3),
    "slowdown_p99": ("slowdown p99", 1.0),
    "longest_queue_bytes": ("queue kB", 1e3),
    "marked": ("marks", 1),
    "pauses": ("pauses", 1),
    "dropped": ("drops", 1),
    "wall_s": ("wall s", 1.0),
}
# Columns shown for training jobs, where any run has a value, and those for generated traffic.
OF_JOBS = ("completion_s", "exposed_s", *BUS_BANDWIDTHS.values(), "longest_queue_bytes", "dropped", "wall_s")
OF_TRAFFIC = tuple(
    name for name in SHOWN if name not in OF_JOBS or name in ("completion_s", "longest_queue_bytes", "dropped")
)


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command(epilog=SWEEP_EXAMPLES)(sweep)


def sweep(
    file: Annotated[Path, typer.Argument(metavar="SWEEP", help="Sweep file (TOML).", show_default=False)],
    out: Annotated[
        Path,
        typer.Option(
            "-o",
            "--out",
            help="Folder for the results. The sweep does not repeat a run whose result is already in this folder.",
        ),
    ],
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=4096,
            help="Number of runs at the same time. Do not give this option under mpiexec.  [default: one for each core "
            "that the command may use]",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the runs, and play none.")] = False,
    case: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Play only the cases whose names match, such as `*-128`. Repeat the option for several patterns.  "
            "[default: all]",
        ),
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Play failed runs again.")] = False,
) -> int:
    """Simulate each combination of a grid of parameters, on all cores or under mpiexec.

    Each run is one row of sweep.parquet. If the sweep was stopped or killed, the same command plays the missing runs. A
    failed run is a row with its error.

    Exit codes: 0 done, 1 a run failed.
    """
    # Imported here, because no other command needs them.
    from simtwin.sweep.grid import load_sweep
    from simtwin.sweep.page import sweep_page
    from simtwin.sweep.rows import PAGE_FILE, RUNS_FOLDER, SWEEP_FILE, Rows, read_rows
    from simtwin.sweep.workers import abandon_mpi, mpi_workers, played, under_mpi

    mpi = under_mpi()
    if launched_by() is not None and not mpi:
        line = "mpiexec -n K python -m mpi4py.futures -m genie sweep ..."
        raise UsageError(f"each process that the launcher has started would be a sweep of its own: give {line}")
    if mpi and jobs is not None:
        raise UsageError("--jobs: under mpiexec all processes but the first play runs; leave it out")
    preparing = _Preparing("values checked")
    try:
        described = load_sweep(file, preparing, case or ())
        runs = []
        preparing.what = "runs prepared"
        for run in described.runs():
            runs.append(run)
            preparing(len(runs), described.size)
    finally:
        preparing.end()
    refuse_inputs_in(out, sorted(described.inputs))
    keep = out.resolve() / RUNS_FOLDER if described.keep else None
    if dry_run:
        return _show_plan(runs, _missing(runs, read_rows(out), keep, retry), out)
    rows = Rows(out)
    rows.write_beside(SWEEP_FILE, described.document.text)
    missing = _missing(runs, rows.kept, keep, retry)
    workers = None if mpi else max(min(jobs or len(os.sched_getaffinity(0)), len(missing)), 1)
    progress = _Progress(missing, len(runs), mpi_workers() if workers is None else workers)
    _warn_of_commits([rows.kept[run.identity] for run in runs if run.identity in rows.kept], out)
    named = [(run.identity, run.parameters) for run in runs]
    ended_early = True
    try:
        with closing(played(missing, workers, keep)) as done:
            for row in done:
                rows.add(row)
                progress.add(row)
        ended_early = False
    finally:
        progress.end()
        table = rows.write_tables(named)
        if ended_early:
            print(f"genie: {len(table)} of {len(runs)} runs are in {out}; the same command goes on", file=sys.stderr)
            if mpi:
                abandon_mpi()
    failed = table.filter(table["error"] != "")
    axes = [axis.key for axis in described.axes if len(axis.values) > 1]
    drawn = sorted(axes, key=lambda key: key == CASE)  # cases along the horizontal axis
    rows.write_beside(PAGE_FILE, sweep_page(table, drawn, file.name))
    _show_table(table, axes, is_of_jobs=described.is_of_jobs)
    print(f"{counted(len(table), 'run')}, {len(missing)} played now, {len(failed)} failed; {out / PAGE_FILE}")
    if len(failed):
        words = f"{counted(len(failed), 'run')} failed (--retry plays them again); the first: {failed['error'][0]}"
        print(f"genie: {words}", file=sys.stderr)
    return EXIT_FAILED if len(failed) else EXIT_OK


def _missing(
    runs: Sequence[SweepRun], kept: dict[str, dict[str, Any]], keep: Path | None, retry: bool
) -> list[SweepRun]:
    """Return the runs without a row, or without a run folder where these are kept; with `retry`, failed runs too.

    Runs that differ only in settings without effect on the results count as one.
    """

    def is_there(run: SweepRun) -> bool:
        row = kept.get(run.identity)
        if row is None or (retry and row["error"]):
            return False
        return bool(keep is None or row["error"] or (keep / run.identity / "run.json").exists())

    return list({run.identity: run for run in runs if not is_there(run)}.values())


def _warn_of_commits(rows: Sequence[dict[str, Any]], out: Path) -> None:
    """Warn when the folder has rows of another commit of Genie."""
    others = {str(row["commit"]) for row in rows if row.get("commit") not in (None, commit())}
    if others:
        what = f"rows of commit {', '.join(sorted(others))}, and this is {commit()}"
        print(f"genie: {out} has {what}: choose another -o to have all rows of one commit", file=sys.stderr)


class _Due:
    """Whether an update of the progress is due: often on a terminal, now and then elsewhere."""

    def __init__(self, display: Display, first_after_s: float) -> None:
        self._display = display
        self._next = time.monotonic() + first_after_s

    def __call__(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + (0.2 if self._display.is_terminal else 10.0)
        return True


class _Preparing:
    """The progress before the first run, where that takes more than a second."""

    def __init__(self, what: str) -> None:
        self._display = Display()
        self._is_due = _Due(self._display, 1.0)
        self.what = what

    def __call__(self, done: int, total: int) -> None:
        """Show that so many of all are done."""
        if self._is_due():
            self._display.update(f"{done:,} of {total:,} {self.what}", done / max(total, 1))

    def end(self) -> None:
        """Remove the progress."""
        self._display.end()


class _Progress:
    """The runs that are done and failed, and the time that is left."""

    def __init__(self, missing: Sequence[SweepRun], total: int, workers: int) -> None:
        self._display = Display()
        self._is_due = _Due(self._display, 0.2 if self._display.is_terminal else 10.0)
        self._total = len(missing)
        self._done = self._failed = 0
        self._began = time.monotonic()
        self._said: set[str] = set()
        note(f"{counted(total, 'run')}, {self._total} to play, {workers} at once")

    def add(self, row: dict[str, Any]) -> None:
        """Count a run that has ended. Each warning is printed once."""
        self._done += 1
        self._failed += bool(row["error"])
        for line in row.get("warnings", ()):
            if line not in self._said and not is_quiet():
                self._said.add(line)
                print(line, file=sys.stderr, flush=True)
        if self._is_due():
            left_s = (time.monotonic() - self._began) / self._done * (self._total - self._done)
            text = f"{self._done} of {self._total} runs, {self._failed} failed, about {left_s:.0f} s left"
            self._display.update(text, self._done / self._total)

    def end(self) -> None:
        """Remove the progress."""
        self._display.end()


def _show_plan(runs: Sequence[SweepRun], missing: Sequence[SweepRun], out: Path) -> int:
    names = {run.identity for run in missing}
    for run in runs:
        given = ", ".join(f"{key} = {value}" for key, value in run.parameters.items())
        print(f"{run.identity}  {'to play' if run.identity in names else 'is there'}  {given}")
    print(f"{counted(len(runs), 'run')}, {len(missing)} to play; {out}")
    return EXIT_OK


def _show_table(table: pl.DataFrame, keys: Sequence[str], *, is_of_jobs: bool) -> None:
    """Print the grid and the main results in columns."""
    shown = [name for name in OF_JOBS if table[name].count()] if is_of_jobs else OF_TRAFFIC
    heads = [*(key.rpartition(".")[2] for key in keys), *(SHOWN[name][0] for name in shown)]
    heads = [head.replace("completion", "iteration") if is_of_jobs else head for head in heads]
    lines = [heads]
    for row in table.head(ROWS_SHOWN).iter_rows(named=True):
        cells = [_cell(row[name], SHOWN[name][1]) for name in shown]
        lines.append([*(str(row[key]) for key in keys), *(["failed"] if row["error"] else cells)])
    widths = [max(len(line[at]) for line in lines if at < len(line)) for at in range(len(heads))]
    for line in lines:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=False)).rstrip())
    if len(table) > ROWS_SHOWN:
        print(f"... and {len(table) - ROWS_SHOWN} more in sweep.csv")


def _cell(value: float | None, unit: float) -> str:
    if value is None:
        return "-"
    return str(value) if unit == 1 and isinstance(value, int) else f"{value / unit:.2f}"
