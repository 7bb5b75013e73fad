"""report.html: a self-contained page with the verdict first and every figure also as a table."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from genie.page import (
    PAGE_BYTES_MAX,
    Linked,
    as_table,
    document,
    duration,
    facts,
    filters,
    key,
    percent,
    quantity,
    section,
    select,
    table,
    times,
    title_of,
)
from genie.page.lanes import SHORTEST_PART
from genie.page.parts import TABLE_ROWS_MAX
from genie.record import mark, replace_own
from genie.report.page_data import collective_title, lanes, links_to_choose, page_data, rank_times
from genie.verdict.words import collective_name

if TYPE_CHECKING:
    from pathlib import Path

    from genie.record import Run
    from genie.verdict.model import Verdict

ASSETS = (
    ("genie.page", "assets/zoom.js"),
    ("genie.page", "assets/lanes.js"),
    ("genie.report", "assets/report.css"),
    ("genie.report", "assets/report.js"),
)
REST_IS_IN = "verdict.json"
PAGE_KIND = "verdict-page"
MARGIN_BYTES = 20_000  # for the words around the timelines
RANK_BYTES = 400  # a row of the timelines' table
TIMELINES_BYTES_MIN = 300_000  # even on a page whose other parts leave less room


def write_report(path: Path, verdict: Verdict, live: Run, twin: Run) -> None:
    """Write the page, replacing another verdict's page only. Raises RecordError."""
    replace_own(path, report(verdict, live, twin), PAGE_KIND)


def report(verdict: Verdict, live: Run, twin: Run) -> str:
    """The page as HTML text."""
    data = page_data(verdict, live, twin)
    above = (
        _head(verdict),
        _facts(verdict),
        filters(data["view"]),
        _suspects(verdict),
        _warnings(verdict),
        _bandwidth(verdict),
        _parts(verdict, data),
    )
    below = (_pairs(data), _evidence(verdict))
    others = len(document(verdict.line(), (*above, *below), data, ASSETS, mark(PAGE_KIND)).encode())
    rest = MARGIN_BYTES + RANK_BYTES * min(len(data["ranks"]), TABLE_ROWS_MAX)
    data |= lanes(verdict, live, twin, max(PAGE_BYTES_MAX - rest - others, TIMELINES_BYTES_MIN))
    times_of_ranks = rank_times(live, twin, int(data["lane_first"]))
    return document(verdict.line(), (*above, _lanes(data, times_of_ranks), *below), data, ASSETS, mark(PAGE_KIND))


def _head(verdict: Verdict) -> str:
    cost = ""
    if verdict.cost:
        total = verdict.cost.iteration_without_ns + verdict.cost.iteration_ns
        cost = (
            f"<p>An iteration takes <b>{duration(total)}</b>, {duration(verdict.cost.iteration_ns)} "
            f"({percent(verdict.cost.fraction)}) more than the <b>{duration(verdict.cost.iteration_without_ns)}</b> "
            "expected after a repair.</p>"
        )
        if verdict.cost.carriers:
            rows = [
                [collective_name(it), quantity(duration, it.extra_ns), quantity(percent, it.share)]
                for it in verdict.cost.carriers
            ]
            left = verdict.cost.iteration_ns - sum(it.extra_ns for it in verdict.cost.carriers)
            share = left / max(1, verdict.cost.iteration_ns)
            rows.append(["all others", quantity(duration, left), quantity(percent, share)])
            cost += table(["Of this in", "Longer than expected", "Share"], rows)
    first, _, rest = verdict.summary.partition("; ")
    title = title_of(first)
    rest = rest if title == first else verdict.summary
    beside = f"<p>{escape(rest[:1].upper() + rest[1:])}.</p>" if rest else ""
    return (
        f'<header class="{verdict.result}" id="verdict"><span class="badge">{verdict.result.upper()}</span>'
        f"<h1>{escape(title[:1].upper() + title[1:])}</h1>{beside}"
        f'<p class="action"><b>Next step:</b> {escape(verdict.action)}</p>{cost}</header>'
    )


def _facts(verdict: Verdict) -> str:
    seen, coverage, noise = verdict.smallest_detectable, verdict.coverage, verdict.noise
    unmatched = coverage["collectives_unmatched"] + coverage["transfers_unmatched"]
    bound = coverage["clock_bound_ns"]
    return facts(
        (
            (
                "NICs judged",
                f"{verdict.judged.nics.judged} of {verdict.judged.nics.total}",
                f"{coverage['iterations']} iterations, {coverage['collectives']} collectives, {coverage['transfers']} "
                f"transfers; {unmatched or 'none'} without a partner",
            ),
            *_links_judged(verdict),
            (
                "Smallest slow-down it would see",
                percent(seen["whole"]),
                f"of a NIC that sends, all the time; {percent(seen['second_half'])} in the second half only",
            ),
            (
                "Noise",
                f"{100 * noise.spread:.1f} %",
                "usual change of a rank relative to its peers, from one repetition to the next",
            ),
            (
                "Whole fleet",
                times(verdict.fleet.slow_down),
                f"the twin's time, median over ranks; the gate is {times(verdict.fleet.tolerance)}",
            ),
            ("Clocks", f"± {duration(bound)}" if bound else "shared", "error bound of arrivals between ranks"),
        )
    )


def _links_judged(verdict: Verdict) -> list[tuple[str, str, str]]:
    links = verdict.judged.links
    if links is None:
        return []
    name = links.name[0].upper() + links.name[1:]
    return [
        (
            f"{name} judged",
            f"{links.judged} of {links.total or 'unknown'}",
            "one way each; the warnings name the others",
        )
    ]


def _suspects(verdict: Verdict) -> str:
    rows = [
        [
            Linked(suspect.name, links) if (links := links_to_choose(suspect)) else suspect.name,
            suspect.kind,
            f"{suspect.fault}, known{f': {suspect.note}' if suspect.note else ''}" if is_known else suspect.fault,
            ", ".join(map(str, suspect.ranks)),
            f"{suspect.evidence}; open: {suspect.doubt}" if suspect.doubt else suspect.evidence,
            "; ".join(suspect.also),
        ]
        for is_known, suspects in ((False, verdict.suspects), (True, verdict.known))
        for suspect in suspects
    ]
    header = ["suspect", "kind", "fault", "ranks", "evidence", "would look the same"]
    return (
        section("Suspects", "", table(header, rows, keys={"suspect": "row", "ranks": "rank"}), name="suspects")
        if rows
        else ""
    )


def _bandwidth(verdict: Verdict) -> str:
    if not verdict.iterations:
        return ""
    rows = [
        [
            item.iteration,
            round(item.ratio, 3),
            quantity("{:.4g}".format, item.measured_bytes_per_s / 1e9),
            quantity("{:.4g}".format, item.simulated_bytes_per_s / 1e9),
            quantity(duration, item.span_ns),
        ]
        for item in verdict.iterations
    ]
    header = ["iteration", "measured / simulated", "measured GB/s", "simulated GB/s", "iteration takes"]
    return section(
        "Bus bandwidth of each iteration, measured over simulated",
        "1.0 is what the twin says. A fault that starts in mid-run shows as a step. Bus bandwidth as in nccl-tests.",
        '<figure id="bandwidth"></figure>',
        as_table(header, rows, REST_IS_IN, keys={"iteration": "iteration"}),
    )


CHOICES = {"median": "median of all", "before": "median before", "during": "median while slow"}


def _parts(verdict: Verdict, data: dict[str, Any]) -> str:
    rows = [
        [
            item.iteration,
            collective_title(item),
            item.group,
            quantity(duration, sum(item.wait_ns) / len(item.wait_ns)),
            quantity(duration, item.wire_ns),
            quantity(duration, item.excess_ns),
            f"rank {item.last_rank}",
        ]
        for item in verdict.collectives
    ]
    header = ["iteration", "collective", "group", "wait (mean)", "wire (twin)", "excess", "last to arrive"]
    if not rows:
        return ""
    choices = data["parts"]["choices"]
    chosen = "during" if "during" in choices else "median"
    choice = select("parts-choice", "iteration", choices, chosen, CHOICES, follows="iteration")
    legend = key(wait="var(--wait)", wire="var(--wire)", excess="var(--excess)")
    return section(
        "Wait, wire and excess of each collective",
        "Wait: for the last rank to arrive, the mean over ranks. Wire: the twin's time once all have arrived. "
        "Excess: the time that the network added to that (dashed: it was faster). The largest comes first."
        f"{_parts_kept(verdict, data['parts'])}{_of_a_pass(verdict)}",
        f'<div class="key">{choice}{legend}</div><p id="parts-note" class="why"></p><figure id="parts"></figure>',
        as_table(header, rows, REST_IS_IN, {"iteration": "iteration", "group": "group", "last to arrive": "rank"}),
    )


def _parts_kept(verdict: Verdict, drawn: dict[str, Any]) -> str:
    """Sentences on the collectives and iterations that the figure leaves out."""
    collectives = len({(item.group, item.seq) for item in verdict.collectives})
    iterations = len({item.iteration for item in verdict.collectives})
    kept = len(set(drawn["choices"]) - set(CHOICES))
    words = ""
    if len(drawn["bars"]) < collectives:
        words += f" The {len(drawn['bars'])} of {collectives} collectives with most time are drawn."
    if kept < iterations:
        words += f" The first {kept} of {iterations} iterations can be chosen."
    return words


def _of_a_pass(verdict: Verdict) -> str:
    """A sentence on the excess of a run that passed; "" for other results."""
    if verdict.result != "pass":
        return ""
    return (
        f" In this run no judged component is slower than its peers by {percent(verdict.options.practical)} or more, "
        f"and all ranks together take {times(verdict.fleet.slow_down)} the twin's time."
    )


TIMES = ("computing", "in collectives", "ends after")


def _lanes(data: dict[str, Any], times_of_ranks: list[list[int]]) -> str:
    choice = select("lanes-choice", "iteration", data["lanes"], data["lane_first"], follows="iteration")
    legend = key(
        compute="var(--comp)",
        waiting="var(--wait)",
        live_collective="var(--wire)",
        twin_collective="var(--twin)",
    )
    rows = [[rank, *(quantity(duration, it) for it in spent)] for rank, *spent in times_of_ranks]
    header = ["rank", *(f"{world}: {words}" for world in ("live", "twin") for words in TIMES)]
    return section(
        "Timelines of the live run and its twin",
        f"Each rank: measured above, simulated below. {_kept(data)}"
        "timeline.pftrace has every node, for ui.perfetto.dev.",
        f'<div class="key">{choice}{legend}</div><p id="lanes-note" class="why"></p><figure id="lanes"></figure>',
        as_table(header, rows, "timeline.pftrace", keys={"rank": "rank"}),
    )


def _kept(data: dict[str, Any]) -> str:
    """Sentences on what is left out: ranks and iterations without room, and nodes too short to draw one by one."""
    shown, ranks = len(data["lane_ranks"]), len(data["ranks"])
    kept, iterations = len(data["lanes"]), max(len(data["iterations"]), 1)
    parts = [f"{shown} of {ranks} ranks"] if shown < ranks else []
    parts += [f"{kept} of {iterations} iterations"] if kept < iterations else []
    words = f"{' and '.join(parts)} are drawn here, as the page has a limit of bytes. " if parts else ""
    shortest = data["lanes"][data["lane_first"]]["end"] * data["lane_coarser"] // SHORTEST_PART
    return f"{words}Nodes below {duration(max(shortest, 1))} are drawn together with their neighbours. "


def _pairs(data: dict[str, Any]) -> str:
    pairs = data["pairs"]
    rows = [
        [src, dst, quantity(lambda excess: f"{100 * excess:+.1f} %", value), pairs["count"][i][j]]
        for i, src in enumerate(pairs["ranks"])
        for j, dst in enumerate(pairs["ranks"])
        if (value := pairs["excess"][i][j]) is not None
    ]
    if not rows:
        return ""
    when = f", {data['windowLabel']}" if data["windowLabel"] else ""
    drawn, ranks = len(pairs["ranks"]), len(data["ranks"])
    kept = f" {drawn} of {ranks} ranks are drawn." if drawn < ranks else ""
    return section(
        "Excess from rank to rank",
        f"How much longer than in the twin a message took, in percent, relative to others of its size{when}. "
        "A row is a slow sender, a column a slow receiver. A ring shows each rank's link to its neighbour."
        f"{kept}",
        '<figure id="pairs"></figure>',
        as_table(["from", "to", "excess", "transfers"], rows, REST_IS_IN, {"from": "rank", "to": "rank"}),
    )


def _warnings(verdict: Verdict) -> str:
    """The warnings: components that are not judged, then warnings of the runs and about their data."""
    judged = verdict.judged
    parts = [part for part in (judged.nics, judged.links) if part is not None and not part.is_whole]
    warnings = [f"{part.words()} judged; not judged: {part.reasons()}" for part in parts]
    if judged.by_tier:
        warnings.append(f"links between switches are judged by tier: {judged.by_tier}")
    warnings += [verdict.fleet.words, *verdict.warnings, *verdict.notes]
    return section("Warnings and remarks", "", _listed(warnings), name="warnings")


def _evidence(verdict: Verdict) -> str:
    noise = verdict.noise
    warnings = [
        f"{noise.units} units of evidence ({noise.phases} an iteration); neighbouring units correlate by "
        f"{noise.lag_correlation:.2f}{', so only every other one counts' if noise.blocked else ''}"
    ]
    for entry in verdict.late[:3]:
        if entry["late_ns_per_iteration"] > 0:
            warnings.append(
                f"rank {entry['rank']} came last to {entry['collectives']} collectives and computed "
                f"{duration(entry['late_ns_per_iteration'])} an iteration longer than the median rank: not the network"
            )
    bounds = [
        [name, name.split()[1] if name.startswith("rank ") else "", quantity(percent, bound, none="none")]
        for name, bound in verdict.upper_bound.items()
    ]
    header = ["component", "rank", "slower than its peers by at most"]
    others = table(header, bounds, rest_is_in=REST_IS_IN, keys={"component": "link", "rank": "rank"})
    return section(
        "Evidence",
        "",
        _listed(warnings),
        "<details><summary>Upper bounds of the slow-down of all that is not accused (95 %)</summary>"
        f'<div class="scroll" tabindex="0">{others}</div></details>',
    )


def _listed(warnings: list[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(warning)}</li>' for warning in warnings)}</ul>"
