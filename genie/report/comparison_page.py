"""compare.html: what changed from one run to the next, the largest change first."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from genie.page import document, duration, facts, percent, quantity, section, table, title_of
from genie.record import mark, replace_own

if TYPE_CHECKING:
    from pathlib import Path

    from genie.verdict.history.comparison import Change, Comparison

PAGE_KIND = "comparison-page"
REST_IS_IN = "compare.json"
ROWS_MAX = 15  # of a table that is not folded
STATES = {"same": "pass", "faster": "pass", "slower": "fail", "inconclusive": "inconclusive"}


def write_comparison(path: Path, found: list[Comparison]) -> None:
    """Write the page, replacing another comparison's page only. Raises RecordError."""
    replace_own(path, page(found), PAGE_KIND)


def page(found: list[Comparison]) -> str:
    """The page as HTML text. Each comparison is with the same first run."""
    parts = [_summary(found), *(part for each in found for part in _parts(each))]
    title = f"Genie: {found[0].before} compared with {', '.join(each.after for each in found)}"
    return document(title, parts, {}, (("genie.report", "assets/report.css"),), mark(PAGE_KIND))


def _summary(found: list[Comparison]) -> str:
    """A row for each of several runs; "" for one."""
    if len(found) < 2:
        return ""
    rows = [
        [
            each.after,
            each.result.upper(),
            quantity(duration, each.iteration.after_ns),
            quantity(_signed, each.iteration.fraction),
        ]
        for each in found
    ]
    title = f"{len(found)} runs compared with {found[0].before}"
    return section(title, "", table(["run", "result", "iteration", "change"], rows))


def _signed(fraction: float) -> str:
    return f"{100 * fraction:+.1f} %"


def _parts(each: Comparison) -> list[str]:
    first, *rest = each.parts()
    title, iteration = title_of(first), each.iteration
    beside = "; ".join([each.runs(), *([] if title == first else [first]), *rest])
    return [
        f'<header class="{STATES[each.result]}"><span class="badge">{each.result.upper()}</span>'
        f"<h1>{escape(title[:1].upper() + title[1:])}</h1><p>{escape(beside)}.</p></header>",
        facts((
            ("Iteration before", duration(iteration.before_ns), f"median of {iteration.iterations[0]}"),
            ("Iteration after", duration(iteration.after_ns), f"median of {iteration.iterations[1]}"),
            ("Change", f"{100 * iteration.fraction:+.1f} %", f"standard error {100 * iteration.noise:.1f} %"),
            ("Compared", each.coverage, "parts that carried enough traffic"),
        )),
        _suspects(each),
        _groups(each),
        _collectives(each),
        _bounds(each),
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


def _groups(each: Comparison) -> str:
    lead = "The times of the collectives of each group, added up."
    return _changes("Groups", lead, "group", [(it.name, it.change) for it in each.groups])


def _collectives(each: Comparison) -> str:
    lead = "Time from the last arrival to the last end, the largest change in time first."
    return _changes("Collectives", lead, "collective", [(it.name, it.change) for it in each.collectives])


def _changes(title: str, lead: str, what: str, changes: list[tuple[str, Change]]) -> str:
    rows = [
        [
            name,
            quantity(duration, change.before_ns),
            quantity(duration, change.after_ns),
            quantity(_signed, change.fraction),
            quantity(lambda noise: f"{100 * noise:.1f} %", change.noise),
            "yes" if change.is_sure else "no",
        ]
        for name, change in changes
    ]
    if not rows:
        return ""
    head = [what, "before", "after", "change", "standard error", "beyond noise"]
    more = (
        f"<details><summary>{len(rows) - ROWS_MAX} more</summary>{table(head, rows[ROWS_MAX:], rest_is_in=REST_IS_IN)}"
        "</details>"
        if len(rows) > ROWS_MAX
        else ""
    )
    return section(title, lead, table(head, rows[:ROWS_MAX]), more)


def _bounds(each: Comparison) -> str:
    """NICs and links, with the most by which each may have become slower than its peers."""
    rows = [[name, quantity(percent, bound)] for name, bound in each.verdict.upper_bound.items() if bound is not None]
    if not rows:
        return ""
    shown = table(["NIC or link", "became slower by at most"], rows, rest_is_in=REST_IS_IN)
    lead = "Relative to their peers, in the later run (95 %). Those above are left out."
    return section("NICs and links", lead, f"<details><summary>{len(rows)} upper bounds</summary>{shown}</details>")
