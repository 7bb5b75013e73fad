"""Verdicts for scripts and notebooks: `genie.load_run` and `genie.diff`. Import these names from `genie`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from genie.config.known_faults import check_components, load_known
from genie.errors import UsageError
from genie.inputs.spelling import as_keywords
from genie.live.launch.merge import open_live_run
from genie.record import EXPECTED, Run, open_run

if TYPE_CHECKING:
    from genie.verdict import Options, Verdict
    from genie.verdict.probed.probes import Probes


def load_run(folder: str | Path) -> Run:
    """Read a run folder of either world: of `genie run` or `genie validate` (live), or of `genie simulate`.

    folder: of the run; of a validation its subfolder "live", "twin" or "expected".
    Returns the run. A live run that was cut off is put together first, as `genie diff` does.
    Raises RecordError for data that are missing, damaged or impossible.
    """
    return open_live_run(Path(folder))


@as_keywords()
def diff(
    live: Run | str | Path,
    twin: Run | str | Path,
    *,
    require_coverage: Literal["nics", "links", "none"] | None = None,
    known: str | Path | None = None,
) -> Verdict:
    """Compare a live run with its twin, and name the slow components, as `genie diff` does. No file is written.

    The verdict also uses the probes and the run without faults that `genie validate` wrote beside the live run.

    live: a live run, or its folder.
    twin: a simulation that followed the live run (`genie simulate --follow`), or its folder.
    require_coverage: components that a pass needs: "nics", "links" or "none"; None: all that the fabric has.
    known: a file of known faults, which fail no run.
    Returns the verdict. Its times are in ns; its slow-downs are fractions of the twin's time, 1.0 for twice as long.
    Raises VerdictError where the runs cannot be compared, RecordError, UsageError, and SettingsError of `known`.
    """
    from genie.verdict import judge
    from genie.verdict.coverage import Require

    if require_coverage not in (None, *get_args(Require)):
        raise UsageError(f"require_coverage {require_coverage!r}: give {', '.join(get_args(Require))}")
    file = None if known is None else Path(known)
    pair = compared(live, twin, file)
    return judge(pair.live, pair.twin, options_of(require_coverage, file), pair.probes, pair.expected)


@dataclass(frozen=True)
class Compared:
    """Two runs, with the records of a validation beside the live one."""

    live: Run
    twin: Run
    probes: Probes | None
    expected: Run | None


def compared(live: Run | str | Path, twin: Run | str | Path, known: Path | None) -> Compared:
    """Return the runs of a verdict, and check a file of known faults. Raises RecordError, SettingsError, UsageError."""
    from genie.verdict.probed.probes import read_probes

    beside = (live.path if isinstance(live, Run) else Path(live)) / ".."
    probe, free = beside / "probe" / "run.json", beside / EXPECTED
    probes = read_probes(probe) if probe.is_file() else None
    expected = open_run(free) if (free / "run.json").is_file() else None
    simulated = twin if isinstance(twin, Run) else open_run(Path(twin))
    check_known_of_run(known, simulated)
    return Compared(live if isinstance(live, Run) else open_live_run(Path(live)), simulated, probes, expected)


def check_known_of_run(path: Path | None, twin: Run) -> None:
    """Check a file of known faults against the links of a simulation. Raises SettingsError, UsageError."""
    links = [str(entry["link"]) for entry in twin.counters.get("links") or []]
    if path is not None and links:
        nodes = {end for link in links for end in link.split("->")}
        check_components(load_known(path), path, nodes, links, int(twin.info.get("ranks", 0)))


def options_of(require_coverage: str | None, known: Path | None) -> Options:
    """Return the thresholds of a verdict. Raises SettingsError of the file of known faults."""
    from genie.verdict import Options
    from genie.verdict.known import KnownFault

    listed = () if known is None else load_known(known)
    faults = tuple(KnownFault(each.component, each.fault, each.note) for each in listed)
    return Options(require_coverage=require_coverage, known=faults)  # type: ignore[arg-type]
