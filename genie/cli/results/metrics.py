"""`genie metrics`, and the option `--metrics` of the commands that play."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Annotated

import typer

from genie.cli.exits import text_of
from genie.errors import EXIT_FAILED, EXIT_OK, UsageError, exit_code_of
from genie.live.launch.merge import open_live_run
from genie.live.launched import expected_rank, launched_by
from genie.record import METRICS_FILE, RecordError, RecordWriteError, is_special, refuse_foreign

SUFFIX = ".prom"
METRICS_EXAMPLES = """
Examples:

```text
cd /var/lib/node_exporter/textfile
genie metrics ~/runs/nightly -o genie.prom
genie validate TRACE -o ~/runs/nightly --metrics genie.prom
```
"""


def register(app: typer.Typer) -> None:
    """Add this file's commands."""
    app.command(epilog=METRICS_EXAMPLES)(metrics)


def metrics(
    folder: Annotated[Path, typer.Argument(help="Folder of a run or of a verdict.", show_default=False)],
    out: Annotated[
        Path,
        typer.Option(
            "-o", "--out", help="File `NAME.prom`. Genie replaces an earlier file of metrics.", show_default=False
        ),
    ],
) -> int:
    """Write the results of a run or of a verdict as metrics for Prometheus.

    The textfile collector of node_exporter reads the file.
    """
    from genie.report.metrics import read_source, write_metrics

    check_metrics_file(out)
    if not (folder / "verdict.json").exists():
        with suppress(RecordError):
            open_live_run(folder)  # completes the record of a run that was cut off
    write_metrics(out, read_source(folder))
    return EXIT_OK


def check_metrics_file(path: Path) -> None:
    """Raises UsageError or RecordWriteError where node_exporter would not read the file, or it cannot be written."""
    if path.suffix != SUFFIX:
        raise UsageError(f"{path}: node_exporter reads only files that end in {SUFFIX}; choose such a name")
    if not is_special(path):
        refuse_foreign(path, METRICS_FILE)
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise RecordWriteError(f"{path}: {path.parent} is not a folder that can be written; make it, or choose another")


class MetricsAtTheEnd:
    """Write metrics when a command ends, whatever its result.

    The command sets `code`, its exit code, and under a launcher `rank`.
    A record from before the command is not its result: the metrics then say that nothing was recorded.
    """

    def __init__(self, path: Path | None, out: Path, workload: str) -> None:
        self._path, self._out, self._workload = path, out, workload
        self.rank = expected_rank() or 0
        self.code = EXIT_FAILED

    def __enter__(self) -> MetricsAtTheEnd:
        self._before = self._records()
        if launched_by() is None:
            self.check()
        return self

    def check(self) -> None:
        """Raises UsageError or RecordWriteError. Under a launcher rank 0 checks, when all can leave together."""
        path, self._path = self._path, None  # set again once the checks have passed
        if path is None or self.rank != 0:
            return
        check_metrics_file(path)
        if self._out.resolve() in path.resolve().parents:
            raise UsageError(f"--metrics {path}: lies in -o {self._out}, which each run empties; put it elsewhere")
        self._path = path
        if launched_by() is not None:
            self._write()  # a rank that fails may have no later chance

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._path is None or self.rank != 0:
            return
        if isinstance(error, Exception):
            self.code = exit_code_of(error) or EXIT_FAILED
        elif error is not None:  # ended by a signal
            self.code = 128 + int(getattr(error, "number", signal.SIGINT))
        try:
            self._write()
        except RecordWriteError as problem:
            if error is None and self.code == EXIT_OK:
                raise
            print(f"genie: {text_of(problem)}", file=sys.stderr)

    def _write(self) -> None:
        from genie.report.metrics import Source, read_source, write_metrics

        assert self._path is not None
        source = Source(self._out.resolve().name, Path(self._workload).name)
        if self._records() != self._before:
            with suppress(RecordError):
                source = read_source(self._out)
        source.exit_code = self.code
        write_metrics(self._path, source)

    def _records(self) -> list[tuple[int, int] | None]:
        """Return inode and modification time of each record, None without it: they tell it from a later one."""
        found: list[tuple[int, int] | None] = []
        for name in ("run.json", "live/run.json"):
            try:
                status = (self._out / name).stat()
            except OSError:
                found.append(None)
            else:
                found.append((status.st_ino, status.st_mtime_ns))
        return found
