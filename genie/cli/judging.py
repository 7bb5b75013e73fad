"""Judging two runs, and writing the verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from genie.cli.output import print_verdict
from genie.record import RecordError, Run, marked_json, replace_own, unwritable

if TYPE_CHECKING:
    from genie.verdict import Verdict

VERDICT_KIND = "verdict"


def conclude(live: Run, twin: Run, out: Path | None, require: str | None = None) -> Verdict:
    """Judge, write the files of the verdict, and print its line. Raises RecordError, RecordWriteError, VerdictError."""
    from genie.report.page import write_report
    from genie.report.perfetto_trace import write_perfetto
    from genie.verdict import Options, judge

    verdict = judge(live, twin, Options(require_coverage=require))  # type: ignore[arg-type]
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
            record = marked_json(VERDICT_KIND, {**verdict.to_dict(), "runs": _runs(live, twin)})
            replace_own(out / "verdict.json", record, VERDICT_KIND)
            write_report(out / "report.html", verdict, live, twin)
            write_perfetto(out / "timeline.pftrace", live, twin)
        except RecordError:
            print_verdict(verdict.line())
            raise
        except OSError as error:
            print_verdict(verdict.line())
            raise unwritable(out, error) from error
    print_verdict(verdict.line())
    if out is not None:
        print(f"report: {out / 'report.html'}")
    return verdict


def _runs(live: Run, twin: Run) -> dict[str, str]:
    """The two runs that the verdict is about, for verdict.json."""
    return {
        "live": str(live.path.resolve()),
        "twin": str(twin.path.resolve()),
        "workload": str(live.info.get("workload", "")),
        "fabric": str(twin.info.get("fabric", "")),
    }
