"""report.html: a self-contained page with the verdict first and every figure also as a table."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from genie.page import as_table, document, duration, facts, key, percent, section, select, table, times, title_of
from genie.record import mark, replace_own
from genie.report.page_data import collective_title, page_data
from genie.verdict.words import collective_name

if TYPE_CHECKING:
    from pathlib import Path

    from genie.record import Run
    from genie.verdict.model import Verdict

ASSETS = (
    ("genie.page", "assets/lanes.js"),
    ("genie.report", "assets/report.css"),
    ("genie.report", "assets/report.js"),
)
REST_IS_IN = "verdict.json"
PAGE_KIND = "verdict-page"


def write_report(path: Path, verdict: Verdict, live: Run, twin: Run) -> None:
    """Write the page, replacing another verdict's page only. Raises RecordError."""
    replace_own(path, report(verdict, live, twin), PAGE_KIND)


def report(verdict: Verdict, live: Run, twin: Run) -> str:
    """The page as HTML text."""
    data = page_data(verdict, live, twin)
    body = (
        _head(verdict),
        _facts(verdict),
        _suspects(verdict),
        _warnings(verdict),
        _bandwidth(verdict),
        _parts(verdict, data),
        _lanes(data),
        _pairs(data),
        _evidence(verdict),
    )
    return document(verdict.line(), body, data, ASSETS, mark(PAGE_KIND))


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
            rows = [[collective_name(it), duration(it.extra_ns), percent(it.share)] for it in verdict.cost.carriers]
            left = verdict.cost.iteration_ns - sum(it.extra_ns for it in verdict.cost.carriers)
            rows.append(["all others", duration(left), percent(left / max(1, verdict.cost.iteration_ns))])
            cost += table(["Of this in", "Longer than expected", "Share"], rows)
    first, _, rest = verdict.summary.partition("; ")
    title = title_of(first)
    rest = rest if title == first else verdict.summary
    beside = f"<p>{escape(rest[:1].upper() + rest[1:])}.</p>" if rest else ""
    return (
        f'<header class="{verdict.result}" id="verdict"><span class="badge">{verdict.result.upper()}</span>'
        f"<h1>{escape(title[:1].upper() + title[1:])}</h1>{beside}"
        f'<p class="action"><b>What to do:</b> {escape(verdict.action)}</p>{cost}</header>'
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
            suspect.name,
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
    return section("Suspects", "", table(header, rows), name="suspects") if rows else ""


def _bandwidth(verdict: Verdict) -> str:
    if not verdict.iterations:
        return ""
    rows = [
        [
            item.iteration,
            round(item.ratio, 3),
            f"{item.measured_bytes_per_s / 1e9:.4g}",
            f"{item.simulated_bytes_per_s / 1e9:.4g}",
            duration(item.span_ns),
        ]
        for item in verdict.iterations
    ]
    header = ["iteration", "measured / simulated", "measured GB/s", "simulated GB/s", "iteration takes"]
    return section(
        "Bus bandwidth of each iteration, measured over simulated",
        "1.0 is what the twin says. A fault that starts in mid-run shows as a step. Bus bandwidth as in nccl-tests.",
        '<figure id="bandwidth"></figure>',
        as_table(header, rows, REST_IS_IN),
    )


CHOICES = {"median": "median of all", "before": "median before", "during": "median while slow"}


def _parts(verdict: Verdict, data: dict[str, Any]) -> str:
    rows = [
        [
            item.iteration,
            collective_title(item),
            duration(sum(item.wait_ns) / len(item.wait_ns)),
            duration(item.wire_ns),
            duration(item.excess_ns),
            f"rank {item.last_rank}",
        ]
        for item in verdict.collectives
    ]
    header = ["iteration", "collective", "wait (mean)", "wire (twin)", "excess", "last to arrive"]
    if not rows:
        return ""
    chosen = "during" if "during" in data["parts"] else "median"
    choice = select("parts-choice", "iteration", data["parts"], chosen, CHOICES)
    legend = key(wait="var(--wait)", wire="var(--wire)", excess="var(--excess)")
    return section(
        "Wait, wire and excess of each collective",
        "Wait: for the last rank to arrive, the mean over ranks. Wire: the twin's time once all have arrived. "
        "Excess: the time that the network added to that (dashed: it was faster). The largest comes first."
        f"{_of_a_pass(verdict)}",
        f'<div class="key">{choice}{legend}</div><figure id="parts"></figure>',
        as_table(header, rows, REST_IS_IN),
    )


def _of_a_pass(verdict: Verdict) -> str:
    """A sentence on the excess of a run that passed; "" for other results."""
    if verdict.result != "pass":
        return ""
    return (
        f" In this run no judged component is slower than its peers by {percent(verdict.options.practical)} or more, "
        f"and all ranks together take {times(verdict.fleet.slow_down)} the twin's time."
    )


def _lanes(data: dict[str, Any]) -> str:
    choice = select("lanes-choice", "iteration", data["lanes"], data["lane_first"])
    legend = key(
        compute="var(--comp)",
        waiting="var(--wait)",
        live_collective="var(--wire)",
        twin_collective="var(--twin)",
    )
    return section(
        "Timelines of the live run and its twin",
        f"Each rank: measured above, simulated below. {_kept(data)}"
        "timeline.pftrace has every node, for ui.perfetto.dev.",
        f'<div class="key">{choice}{legend}</div><figure id="lanes"></figure>',
    )


def _kept(data: dict[str, Any]) -> str:
    """A sentence on how many ranks and iterations are drawn, "" when all are."""
    shown, ranks = len(data["lane_ranks"]), data["ranks"]
    kept, iterations = len(data["lanes"]), max(len(data["iterations"]), 1)
    parts = [f"{shown} of {ranks} ranks"] if shown < ranks else []
    parts += [f"{kept} of {iterations} iterations"] if kept < iterations else []
    return f"{' and '.join(parts)} are drawn here. " if parts else ""


def _pairs(data: dict[str, Any]) -> str:
    pairs = data["pairs"]
    rows = [
        [src, dst, f"{100 * value:+.1f} %", pairs["count"][i][j]]
        for i, src in enumerate(pairs["ranks"])
        for j, dst in enumerate(pairs["ranks"])
        if (value := pairs["excess"][i][j]) is not None
    ]
    if not rows:
        return ""
    when = f", {data['windowLabel']}" if data["windowLabel"] else ""
    return section(
        "Excess from rank to rank",
        f"How much longer than in the twin a message took, in percent, relative to others of its size{when}. "
        "A row is a slow sender, a column a slow receiver. A ring shows each rank's link to its neighbour.",
        '<figure id="pairs"></figure>',
        as_table(["from", "to", "excess", "transfers"], rows, REST_IS_IN),
    )


def _warnings(verdict: Verdict) -> str:
    """The warnings: components that are not judged, then warnings of the runs and about their data."""
    judged = verdict.judged
    parts = [part for part in (judged.nics, judged.links) if part is not None and not part.is_whole]
    warnings = [f"{part.words()} judged; not judged: {part.reasons()}" for part in parts]
    if judged.by_tier:
        warnings.append(f"links between switches are judged by tier: {judged.by_tier}")
    warnings += [verdict.fleet.words, *verdict.warnings, *verdict.notes]
    return section("Warnings", "", _listed(warnings), name="warnings")


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
    bounds = [[name, percent(bound)] for name, bound in verdict.upper_bound.items()]
    others = table(["component", "slower than its peers by at most"], bounds, rest_is_in=REST_IS_IN)
    return section(
        "Evidence",
        "",
        _listed(warnings),
        "<details><summary>Upper bounds of the slow-down of all that is not accused (95 %)</summary>"
        f'<div class="scroll" tabindex="0">{others}</div></details>',
    )


def _listed(warnings: list[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(warning)}</li>' for warning in warnings)}</ul>"
