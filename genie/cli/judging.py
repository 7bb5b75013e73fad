"""Judging two runs, and writing the verdict."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from genie.cli.output import print_verdict
from genie.config.known_faults import check_components, load_known
from genie.errors import EXIT_FAILED, UsageError
from genie.job.outputs import VerdictOptions
from genie.job.probing import Targets
from genie.job.warnings import warn
from genie.record import TWIN, RecordError, Run, marked_json, open_run, replace_own, unwritable
from genie.scripting import options_of

if TYPE_CHECKING:
    from genie.job.job import Job
    from genie.live.settings import RunSettings
    from genie.verdict import Verdict
    from genie.verdict.probed.probes import Probes

VERDICT_KIND = "verdict"
LAST = "last"  # --baseline: the newest validation of the same job that passed


def judged(
    live: Run,
    twin: Run,
    out: Path | None,
    wanted: VerdictOptions,
    archive: Path,
    probes: Probes | None = None,
    expected: Run | None = None,
) -> int:
    """Judge as `conclude` does, compare with the baseline that is asked for, and return the exit code.

    `archive`: the folder in which `last` looks for earlier validations. Raises RecordError, VerdictError.
    """
    verdict = conclude(live, twin, out, wanted, probes, expected)
    code, found = verdict.exit_code, []
    try:
        before = None if wanted.baseline is None else _baseline(wanted.baseline, live, out, archive)
        if before is not None:
            from genie.verdict.history.comparison import compare

            found = [compare(before.run, live, (before.twin, twin), (before.probes, probes))]
            print_verdict(found[0].line())
            code = EXIT_FAILED if found[0].exit_code == EXIT_FAILED else code
    finally:  # the verdict holds although the baseline is of no use
        if wanted.junit is not None:
            from genie.report.junit import (
                BASELINE,
                NOT_SLOWER,
                Case,
                cases_of_comparisons,
                cases_of_verdict,
                write_junit,
            )

            cases = [*cases_of_verdict(verdict), *cases_of_comparisons(found, [BASELINE] * len(found))]
            if wanted.baseline is not None and not found:
                cases.append(Case(BASELINE, NOT_SLOWER, "skipped", "this run was compared with no earlier one"))
            write_junit(wanted.junit, "genie", cases, verdict.line())
    return code


def told_of_failed_run(probes: Probes | None, wanted: VerdictOptions) -> None:
    """Say which faults probes have found after a live run that did not end, which no verdict can judge."""
    from genie.verdict import Options
    from genie.verdict.probed.doubt import with_doubts
    from genie.verdict.probed.probes import suspects_from

    found = suspects_from(probes, Options().practical) if probes is not None else []
    if probes is not None:
        found = with_doubts(found, found, probes.waits, {}, {})
        if not found:
            print("note: probes of all paths found no fault after the run")
    for suspect in found:
        result, beside = ("INCONCLUSIVE", f"; open: {suspect.doubt}") if suspect.doubt else ("FAIL", "")
        print_verdict(f"{result} {suspect.evidence}{beside}; the live run died: no verdict on the other components")
        print(f"next: Check {suspect.name}, then run again.")
    if wanted.junit is not None:
        from genie.report.junit import cases_of_dead_run, write_junit

        write_junit(wanted.junit, "genie", cases_of_dead_run(found))


def check_baseline(given: str | None, out: Path) -> None:
    """Check, before anything runs, that a baseline can be read. Raises RecordError, UsageError."""
    if given is None or given == LAST:
        return
    folder = Path(given)
    if out.resolve() in (folder.resolve(), *folder.resolve().parents):
        raise UsageError(f"--baseline {given}: is replaced by this run: choose another -o")
    from genie.verdict.history.reference import check_complete

    before = opened(folder).run
    if before.info.get("world") == TWIN:
        raise UsageError(f"--baseline {given}: is a simulation: give a live run, or the folder of a validation")
    check_complete(before)


def check_baseline_of(given: str | None, settings: RunSettings) -> None:
    """Refuse, before anything runs, a baseline that is not of the job with these settings. Raises UsageError."""
    if given is None or given == LAST:
        return
    info = opened(Path(given)).run.info
    if (ranks := info.get("ranks")) not in (None, settings.ranks):
        raise UsageError(f"--baseline {given}: is of another job: it has {ranks} ranks, and this one {settings.ranks}")
    if info.get("lowering") not in (None, json.loads(json.dumps(settings.lowering.facts()))):
        raise UsageError(f"--baseline {given}: is of another job: it differs in its lowering to messages")
    fabric = fabric_of(opened(Path(given)))
    if fabric is not None and settings.fabric and fabric != settings.fabric:
        raise UsageError(f"--baseline {given}: is of another job: it ran on the fabric {fabric}, not {settings.fabric}")


def check_known(path: Path | None, job: Job) -> None:
    """Check, before anything runs, a file of known faults against the fabric. Raises SettingsError, UsageError."""
    if path is not None:
        network = job.network
        check_components(load_known(path), path, network.node_names, network.link_names, job.ranks)


def probe_targets(live: Run, twin: Run) -> Targets:
    """Return what the probes after a run are to settle, by a first verdict on its traffic."""
    from genie.verdict import judge

    verdict = judge(live, twin)
    slow = {rank for suspect in verdict.suspects if suspect.kind in ("nic", "host", "rail") for rank in suspect.ranks}
    suspected = {link for suspect in verdict.suspects for link in suspect.links}
    links = verdict.judged.links
    if links is None or live.paths is None:
        return Targets((), tuple(sorted(slow)), tuple(sorted(suspected)))
    names = {name for names in links.not_judged.values() for name in names if "->" in name}
    accused = [each for each in verdict.suspects if each.kind in ("link", "switch")]
    names |= {name for each in accused for name in (*each.links, *each.also) if "->" in name}
    names |= _links_of_nics(verdict, twin, slow)
    return Targets(tuple(sorted(names)), tuple(sorted(slow)), tuple(sorted(suspected)))


def _links_of_nics(verdict: Verdict, twin: Run, slow: set[int]) -> set[str]:
    """Return both directions of the links of NICs that are not judged, or not at their full rate."""
    judged = verdict.judged
    open_names = {name for names in judged.nics.not_judged.values() for name in names} | set(judged.partly_used)
    links = {
        str(entry["link"])
        for entry in twin.info.get("hosts") or []
        if entry.get("link") and f"rank {entry['rank']}" in open_names and int(entry["rank"]) not in slow
    }
    return links | {"->".join(reversed(link.split("->"))) for link in links}


def _baseline(given: str, live: Run, out: Path | None, archive: Path) -> Played | None:
    """Return the baseline; None if no validation of this job has passed."""
    from genie.verdict.history.archive import job_of, newest_pass

    if given != LAST:
        return opened(Path(given))
    folder = newest_pass(archive, job_of(live), out or live.path.parent)
    if folder is None:
        warn(f"--baseline last: no validation of this job in {archive} has passed: this run is compared with none")
        return None
    return opened(folder)


@dataclass(frozen=True)
class Played:
    """A run, with its twin and its probes if it is of a validation."""

    run: Run
    twin: Run | None = None
    probes: Probes | None = None


def fabric_of(played: Played) -> str | None:
    """Return the name of the fabric of a run; None where it is not known."""
    if played.twin is not None:
        return str(played.twin.info.get("fabric") or "") or None
    return str((played.run.info.get("settings") or {}).get("fabric") or "") or None


def opened(path: Path) -> Played:
    """Return the run in a folder, or the live run of a validation's folder. Raises RecordError."""
    from genie.verdict.probed.probes import read_probes

    if not (path / "live" / "run.json").is_file():
        return Played(open_run(path))
    twin, probe = path / "twin", path / "probe" / "run.json"
    return Played(
        open_run(path / "live"),
        open_run(twin) if (twin / "run.json").is_file() else None,
        read_probes(probe) if probe.is_file() else None,
    )


def conclude(
    live: Run,
    twin: Run,
    out: Path | None,
    wanted: VerdictOptions | None = None,
    probes: Probes | None = None,
    expected: Run | None = None,
) -> Verdict:
    """Judge, write the files of the verdict, and print its line. Raises RecordError, RecordWriteError, VerdictError."""
    from genie.report.page import write_report
    from genie.report.perfetto_trace import write_perfetto
    from genie.verdict import judge
    from genie.verdict.by_tier.imbalance import imbalances

    wanted = wanted or VerdictOptions()
    verdict = judge(live, twin, options_of(wanted.require_coverage, wanted.known), probes, expected)
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
    for text in imbalances(live, twin):
        print(f"note: {text}")
    if verdict.result == "pass" and probes is not None and (unnoticed := probes.unnoticed()):
        print(f"note: {unnoticed}")
    if verdict.result != "pass":
        print(f"next: {verdict.action}")
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
