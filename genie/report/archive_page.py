"""The page of an archive: for each job, the time of an iteration from run to run, with its steps marked."""

from __future__ import annotations

from collections import defaultdict
from html import escape
from typing import TYPE_CHECKING

from genie.page import count_of, document, duration, quantity, section, table
from genie.record import mark, replace_own

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from genie.verdict.history.archive import Entry, Step

PAGE_KIND = "archive-page"
WIDTH, HEIGHT, EDGE = 900, 180, 30
COLOURS = {"pass": "var(--good, #1a7f37)", "fail": "var(--bad, #cf222e)", "inconclusive": "#9a6700"}


def write_archive(path: Path, folder: Path, found: Sequence[Entry], steps: Sequence[Step]) -> None:
    """Write the page, replacing another archive's page only. Raises RecordError."""
    replace_own(path, page(folder, found, steps), PAGE_KIND)


def page(folder: Path, found: Sequence[Entry], steps: Sequence[Step]) -> str:
    """The page as HTML text. `found`: the newest run first."""
    jobs: dict[str, list[Entry]] = defaultdict(list)
    for entry in reversed(found):
        jobs[entry.job].append(entry)
    by_folder = {step.entry.folder: step for step in steps}
    marked = count_of(len(steps), "change of an iteration's time", "changes of an iteration's time")
    body = [
        f"<header><h1>{count_of(len(found), 'run')} of {count_of(len(jobs), 'job')}: {marked}</h1>",
        f"<p>{escape(str(folder))}</p></header>",
        *(_job(runs, by_folder) for runs in sorted(jobs.values(), key=lambda runs: runs[-1].recorded_at, reverse=True)),
    ]
    assets = (("genie.report", "assets/report.css"),)
    return document(f"Genie: runs in {folder}", body, {}, assets, mark(PAGE_KIND))


def _job(runs: Sequence[Entry], steps: dict[Path, Step]) -> str:
    last = runs[-1]
    rows = [
        [
            entry.folder.name,
            entry.recorded_at[:19].replace("T", " "),
            entry.result or entry.command,
            quantity(duration, entry.iteration_ns or None),
            quantity(lambda step: f"{100 * step:+.0f} %", steps[entry.folder].fraction)
            if entry.folder in steps
            else "",
            entry.problem,
        ]
        for entry in reversed(runs)
    ]
    head = ["run", "time (UTC)", "result", "median iteration", "change", "problem"]
    name = f"{last.workload} on {last.fabric}" if last.fabric else last.workload
    return section(
        f"{name}, {last.ranks} ranks (job {last.job})" if last.job else "Runs that cannot be read",
        "Median time of an iteration, the oldest run first. Green runs passed, red ones failed, brown ones are "
        "inconclusive, grey ones have no verdict. A ring marks a run that is slower or faster than those before it.",
        _chart([entry for entry in runs if entry.iteration_ns], steps),
        table(head, rows),
    )


def _chart(runs: Sequence[Entry], steps: dict[Path, Step]) -> str:
    if len(runs) < 2:
        return ""
    longest = max(entry.iteration_ns for entry in runs)
    gap = (WIDTH - 2 * EDGE) / (len(runs) - 1)
    places = [
        (EDGE + at * gap, HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * entry.iteration_ns / longest)
        for at, entry in enumerate(runs)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = "".join(_dot(entry, x, y, entry.folder in steps) for entry, (x, y) in zip(runs, places, strict=True))
    label = f"Iteration time of {len(runs)} runs, from {duration(runs[0].iteration_ns)} to "
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}{duration(runs[-1].iteration_ns)}">'
        f'<line x1="{EDGE}" x2="{WIDTH - EDGE}" y1="{HEIGHT - EDGE}" y2="{HEIGHT - EDGE}" stroke="currentColor" '
        'stroke-width="0.5"/>'
        f'<text x="{EDGE}" y="{EDGE - 10}" font-size="12" fill="currentColor">{duration(longest)}</text>'
        f'<text x="{EDGE}" y="{HEIGHT - EDGE + 16}" font-size="12" fill="currentColor">0</text>'
        f'<polyline points="{line}" fill="none" stroke="currentColor" stroke-width="1" opacity="0.4"/>{dots}</svg>'
    )


def _dot(entry: Entry, x: float, y: float, is_step: bool) -> str:
    text = f"{entry.folder.name}: {duration(entry.iteration_ns)}, {entry.result or entry.command}"
    colour = COLOURS.get(entry.result, "#57606a")
    ring = (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="8" fill="none" stroke="{colour}" stroke-width="2"/>' if is_step else ""
    )
    return f'<g><title>{escape(text)}</title>{ring}<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/></g>'
