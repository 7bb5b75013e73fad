"""compare.html: what changed from one run to the next, the largest change first."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from genie.page import document, duration, facts, section, table
from genie.record import mark, replace_own

if TYPE_CHECKING:
    from pathlib import Path

    from genie.verdict.history.comparison import Comparison

PAGE_KIND = "comparison-page"
REST_IS_IN = "compare.json"
STATES = {"same": "pass", "faster": "pass", "slower": "fail", "inconclusive": "inconclusive"}


def write_comparison(path: Path, found: list[Comparison]) -> None:
    """Write the page, replacing another comparison's page only. Raises RecordError."""
    replace_own(path, page(found), PAGE_KIND)


def page(found: list[Comparison]) -> str:
    """The page as HTML text. Each comparison is with the same first run."""
    parts = [part for each in found for part in _parts(each)]
    title = f"Genie: {found[0].before} compared with {', '.join(each.after for each in found)}"
    return document(title, parts, {}, (("genie.report", "assets/report.css"),), mark(PAGE_KIND))


def _parts(each: Comparison) -> list[str]:
    text = each.line().partition(" ")[2]
    iteration = each.iteration
    return [
        f'<header class="{STATES[each.result]}"><span class="badge">{each.result.upper()}</span>'
        f"<h1>{escape(text)}</h1></header>",
        facts((
            ("Iteration before", duration(iteration.before_ns), f"median of {iteration.iterations[0]}"),
            ("Iteration after", duration(iteration.after_ns), f"median of {iteration.iterations[1]}"),
            ("Change", f"{100 * iteration.fraction:+.1f} %", f"standard error {100 * iteration.noise:.1f} %"),
            ("Compared", each.coverage, "parts that carried enough traffic"),
        )),
        _suspects(each),
        _collectives(each),
    ]  # fmt: skip


def _suspects(each: Comparison) -> str:
    if not each.suspects:
        return ""
    rows = [
        [it.name, it.kind, f"{1 + it.slow_down:.2f}x", ", ".join(map(str, it.ranks)), "; ".join(it.also)]
        for it in each.suspects
    ]
    head = ["component", "kind", "time after / before", "ranks", "would look the same"]
    return section("Components that became slower", "", table(head, rows))


def _collectives(each: Comparison) -> str:
    rows = [
        [
            it.name,
            duration(it.change.before_ns),
            duration(it.change.after_ns),
            f"{100 * it.change.fraction:+.1f} %",
            f"{100 * it.change.noise:.1f} %",
            "yes" if it.change.is_sure else "no",
        ]
        for it in each.collectives
    ]
    if not rows:
        return ""
    head = ["collective", "before", "after", "change", "standard error", "beyond noise"]
    lead = "Time from the last arrival to the last end, the largest change in time first."
    return section("Collectives", lead, table(head, rows, rest_is_in=REST_IS_IN))
