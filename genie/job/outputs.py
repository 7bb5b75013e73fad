"""Options of a command's results: how a verdict is reached, and the files that it leaves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from genie.errors import UsageError
from genie.job.option import OUTPUT, Option, check_choices
from genie.record import JUNIT_KIND, refuse_foreign

COVERAGES = ("nics", "links", "none")


@dataclass(frozen=True)
class VerdictOptions:
    """Options of a verdict."""

    require_coverage: Annotated[
        str | None,
        Option(
            "Components that the verdict must have judged for a PASS. `nics`: all NICs. `links`: all NICs and all "
            "links between switches. `none`: no component.",
            OUTPUT,
            choices=COVERAGES,
            default="`links` if the fabric has links between switches, otherwise `nics`",
        ),
    ] = None
    probe_time: Annotated[
        float,
        Option(
            "Time in seconds for probes after the run. Genie first tests all paths, whatever time this takes. It then "
            "measures the rates of NICs and links that the traffic does not settle, until the time is over. 0: no "
            "probes.",
            OUTPUT,
            minimum=0,
            maximum=3600,
        ),
    ] = 20.0
    baseline: Annotated[
        str | None,
        Option(
            "Compare the live run with an earlier run too: a run folder, or `last` for the newest validation of the "
            "same job that passed, beside the output folder. A run that is slower than its baseline fails.",
            OUTPUT,
            metavar="FOLDER|last",
            default="none",
        ),
    ] = None
    known: Annotated[
        Path | None,
        Option(
            "TOML file of known faults. A suspect that it names is reported as known, and does not fail the run.",
            OUTPUT,
            default="none",
        ),
    ] = None
    junit: Annotated[
        Path | None,
        Option("NAME.xml: the result as JUnit XML, with a test case for each component.", OUTPUT, default="none"),
    ] = None

    def __post_init__(self) -> None:
        check_choices(self)
        check_junit(self.junit)


def check_junit(path: Path | None) -> None:
    """Raises UsageError for a name that is not of an XML file, RecordError for a file that is not Genie's."""
    if path is None:
        return
    if path.suffix != ".xml":
        raise UsageError(f"--junit {path}: must end in .xml")
    if not path.parent.is_dir():
        raise UsageError(f"--junit {path}: its folder is not there")
    refuse_foreign(path, JUNIT_KIND)


@dataclass(frozen=True)
class OutputOptions:
    """Options of a run's results."""

    out: Annotated[
        Path | None,
        Option(
            "Folder for the results. Genie replaces an earlier run in this folder. Under a launcher this option is "
            "required.",
            OUTPUT,
            ("-o", "--out"),
            default="`runs/COMMAND-TIME`. The symbolic link `runs/latest` then points to this folder",
        ),
    ] = None
    metrics: Annotated[
        Path | None,
        Option(
            "File `NAME.prom` for metrics, in the format of the textfile collector of node_exporter. The command "
            "writes the file at its end, also after a failure.",
            OUTPUT,
        ),
    ] = None
