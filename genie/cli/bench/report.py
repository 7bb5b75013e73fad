"""The results of a bench beside its table: the file of -J, the comparison with an earlier bench, and JUnit XML."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from genie.bench import baseline, comparison, nccl_json, nccl_table
from genie.bench.collectives import Operation
from genie.bench.measured import Measured
from genie.cli.bench.runs import check_json, write_json
from genie.cli.exits import text_of
from genie.cli.output import RUNS, print_verdict
from genie.errors import EXIT_FAILED, EXIT_INCONCLUSIVE, EXIT_OK, GenieError, UsageError
from genie.job.outputs import check_junit
from genie.job.warnings import warn

if TYPE_CHECKING:
    from genie.bench.asked import Asked
    from genie.bench.nccl_json import Device

LAST = "last"  # --baseline: the newest bench of the same job that passed


@dataclass(frozen=True)
class ReportFiles:
    """The files of a bench's results, as options name them. Raises UsageError, RecordError for those that cannot be."""

    json: Path | None
    junit: Path | None
    baseline: str | None
    minimum_gb_per_s: float | None

    def __post_init__(self) -> None:
        check_json(self.json)
        check_junit(self.junit)
        if self.baseline not in (None, LAST):
            path = Path(str(self.baseline))
            if self.json is not None and path.resolve() == self.json.resolve():
                raise UsageError(f"--baseline {path}: is replaced by this bench: choose another -J")
        elif self.baseline == LAST and self.json is None and RUNS.exists() and not RUNS.is_dir():
            raise UsageError(f"--baseline last: {RUNS} is no folder: give a -J FILE, whose folder is searched")


class Filled(Protocol):
    """A table's lines, as far as they are measured."""

    asked: Asked
    devices: Sequence[Device]
    lines: list[tuple[Operation, Measured]]
    info: dict[str, Any]  # run.json of the last size


class Report:
    """The files, written when the bench ends, with all finished lines, also after an error."""

    def __init__(self, files: ReportFiles, ours: dict[str, Any], asked: Mapping[str, Any]) -> None:
        """`asked`: the facts of the job that options alone decide. Raises UsageError, RecordError."""
        self._files, self._ours = files, ours
        self._started = time.strftime(nccl_table.TIME_FORMAT)
        self._tables: list[Filled] = []  # the measured table first, then the simulated one
        given = files.baseline
        self._before = None if given in (None, LAST) else baseline.read_baseline(Path(str(given)))
        self.code = EXIT_OK  # of the comparison with the baseline
        self.of_job(asked)

    def of_job(self, job: Mapping[str, Any]) -> None:
        """Refuse a baseline of another job, as far as the facts of this one are known. Raises UsageError."""
        if self._before is not None:
            other = baseline.differences(self._before.job, job)
            if other:
                raise UsageError(f"--baseline {self._before.path}: is of another job: it differs in {', '.join(other)}")
        self._ours["job"] = {**job}

    def add(self, table: Filled) -> None:
        """Add a table to the report, before it is filled."""
        self._tables.append(table)

    def __enter__(self) -> Report:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        errors = [] if error is None else [text_of(error) if isinstance(error, Exception) else "interrupted"]
        found: dict[str, Any] | None = None
        if self._tables and self._tables[0].lines:
            found = self._object(errors)
        if error is None and found is not None:
            try:
                self.of_job({**self._ours["job"], baseline.MTU: self._mtu()})
                found["genie"]["job"] = self._ours["job"]
                self._compare(found)
            finally:  # the measurements stay, although the baseline is of no use
                self._write(found, errors)
            return
        with suppress(GenieError, OSError):  # only the first error is reported
            self._write(found, errors)

    def _write(self, found: dict[str, Any] | None, errors: Sequence[str]) -> None:
        if found is not None and (path := self._path()) is not None:
            write_json(path, found)
        if self._files.junit is not None:
            from genie.report.junit import cases_of_bench, write_junit

            write_junit(self._files.junit, "genie", cases_of_bench(found, errors))

    def _mtu(self) -> int:
        """Return the path MTU, which ranks may have found themselves."""
        return int(self._ours["job"][baseline.MTU] or self._tables[0].info["settings"]["mtu"])

    def _path(self) -> Path | None:
        """Return the report's file; without -J the next bench can find one only if it is to look for one."""
        if self._files.json is not None or self._files.baseline != LAST:
            return self._files.json
        RUNS.mkdir(exist_ok=True)
        return RUNS / f"bench-{time.strftime('%Y%m%d-%H%M%S')}.json"

    def _compare(self, found: dict[str, Any]) -> None:
        """Compare with the baseline that is asked for, print the result, and put it into the report."""
        given = self._files.baseline
        if given is None:
            return
        before, job = self._before, self._ours["job"]
        if before is None:
            folder = RUNS if self._files.json is None else self._files.json.parent
            before = baseline.newest_bench(folder, job)
            if before is None:
                warn(f"--baseline last: no bench of this job in {folder} has passed: this bench is compared with none")
                return
        changes = baseline.changes_of(before, found)
        found["genie"]["baseline"] = {"file": str(before.path), "sizes": [each.to_dict() for each in changes]}
        measured = len({(each["size"], each["root"]) for each in found["results"]})
        print_verdict(baseline.in_words(before.path, changes, measured))
        self.code = (
            EXIT_FAILED if any(each.is_slower for each in changes) else EXIT_OK if changes else EXIT_INCONCLUSIVE
        )

    def _object(self, errors: list[str]) -> dict[str, Any]:
        first, *others = self._tables
        ours = {**self._ours, "run": first.info}
        for twin in (table for table in others if table.lines):
            ours["twin"] = twin.info
            ours["simulated"] = [nccl_json.result(operation, first.asked, line) for operation, line in twin.lines]
            ours["compared"] = comparison.compared(first.lines[: len(twin.lines)], twin.lines)
        about = nccl_json.Circumstances(
            sys.argv, os.environ, self._started, time.strftime(nccl_table.TIME_FORMAT), first.devices,
            self._files.minimum_gb_per_s, errors,
        )  # fmt: skip
        return nccl_json.report(first.asked, first.lines, about, ours)
