"""report.html: one page that needs nothing else, the verdict first, every figure also as a table."""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from genie.verdict.page_data import page_data, title
from genie.verdict.words import collective_name, duration, percent, times

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from genie.record import Run
    from genie.verdict.model import Verdict

TABLE_ROWS_MAX = 2_000


def write_report(path: Path, verdict: Verdict, live: Run, twin: Run) -> None:
    """Write the page. Raises OSError."""
    path.write_text(report(verdict, live, twin), encoding="utf-8")


def report(verdict: Verdict, live: Run, twin: Run) -> str:
    """The page as text."""
    page = files("genie.verdict") / "page"
    data = page_data(verdict, live, twin)
    body = "\n".join(
        (
            _head(verdict),
            _facts(verdict),
            _suspects(verdict),
            _bandwidth(verdict),
            _parts(verdict, data),
            _lanes(data),
            _pairs(data),
            _remarks(verdict),
        )
    )
    # "<" as an escape, so that no name in the data can end the script element.
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(verdict.line())}</title>\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<style>\n{(page / 'report.css').read_text()}</style></head>\n"
        f'<body><main>\n{body}\n</main>\n<div id="tip" role="tooltip"></div>\n'
        f'<script type="application/json" id="data">{text}</script>\n'
        f"<script>\n{(page / 'report.js').read_text()}</script></body></html>\n"
    )


def _table(header: list[str], rows: Iterable[list[Any]], caption: str = "") -> str:
    """Cells that are numbers, or start like one, are aligned right."""
    shown = list(rows)
    lines = ["<table>"]
    if caption:
        lines.append(f"<caption>{escape(caption)}</caption>")
    lines.append("<tr>" + "".join(f'<th scope="col">{escape(name)}</th>' for name in header) + "</tr>")
    for row in shown[:TABLE_ROWS_MAX]:
        cells = (
            f"<td{' class=number' if isinstance(cell, int | float) else ''}>{escape(str(cell))}</td>" for cell in row
        )
        lines.append("<tr>" + "".join(cells) + "</tr>")
    lines.append("</table>")
    if len(shown) > TABLE_ROWS_MAX:
        lines.append(f"<p>{len(shown) - TABLE_ROWS_MAX} more rows are in verdict.json.</p>")
    return "".join(lines)


def _as_table(header: list[str], rows: Iterable[list[Any]]) -> str:
    return f'<details><summary>The same as a table</summary><div class="scroll">{_table(header, rows)}</div></details>'


def _head(verdict: Verdict) -> str:
    cost = ""
    if verdict.cost:
        total = verdict.cost.iteration_without_ns + verdict.cost.iteration_ns
        cost = (
            f"<p>An iteration takes <b>{duration(total)}</b>, {duration(verdict.cost.iteration_ns)} "
            f"({percent(verdict.cost.fraction)}) more than the <b>{duration(verdict.cost.iteration_without_ns)}</b> "
            "that a repair would leave.</p>"
        )
        if verdict.cost.carriers:
            rows = [[collective_name(it), duration(it.extra_ns), percent(it.share)] for it in verdict.cost.carriers]
            cost += _table(["Carried by", "More than in the twin", "Share"], rows)
    return (
        f'<header class="{verdict.result}" id="verdict"><span class="badge">{verdict.result.upper()}</span>'
        f"<h1>{escape(verdict.summary[:1].upper() + verdict.summary[1:])}</h1>"
        f'<p class="action"><b>What to do:</b> {escape(verdict.action)}</p>{cost}</header>'
    )


def _fact(label: str, value: str, more: str) -> str:
    return (
        f'<div class="fact"><span class="label">{label}</span><b>{escape(value)}</b><span>{escape(more)}</span></div>'
    )


def _facts(verdict: Verdict) -> str:
    seen, coverage, noise = verdict.smallest_detectable, verdict.coverage, verdict.noise
    unmatched = coverage["collectives_unmatched"] + coverage["transfers_unmatched"]
    bound = coverage["clock_bound_ns"]
    facts = (
        _fact(
            "Smallest slow-down it would see",
            percent(seen["whole"]),
            f"slower all the time; {percent(seen['second_half'])} in the second half only",
        ),
        _fact(
            "Coverage",
            f"{coverage['iterations']} iterations",
            f"{coverage['ranks']} ranks, {coverage['collectives']} collectives, {coverage['transfers']} transfers; "
            f"{unmatched or 'none'} without a partner",
        ),
        _fact(
            "Noise",
            f"{100 * noise.spread:.1f} %",
            "usual change of a rank beside its peers, from one repetition to the next",
        ),
        _fact(
            "Whole fleet",
            times(verdict.fleet.slow_down),
            f"the twin's time, median over ranks; the gate is {times(verdict.fleet.tolerance)}",
        ),
        _fact("Clocks", f"± {duration(bound)}" if bound else "shared", "error bound of arrivals between ranks"),
    )
    return f'<div class="facts">{"".join(facts)}</div>'


def _suspects(verdict: Verdict) -> str:
    if not verdict.suspects:
        return ""
    rows = [
        [suspect.name, suspect.kind, ", ".join(map(str, suspect.ranks)), suspect.evidence, "; ".join(suspect.also)]
        for suspect in verdict.suspects
    ]
    header = ["suspect", "kind", "ranks", "evidence", "what the data cannot tell from it"]
    return f'<section id="suspects"><h2>Suspects</h2>{_table(header, rows)}</section>'


def _bandwidth(verdict: Verdict) -> str:
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
    return (
        "<section><h2>Bus bandwidth of each iteration, measured over simulated</h2>"
        '<p class="why">1.0 is what the twin says. A fault that starts in mid-run shows as a step. '
        "Bus bandwidth as in nccl-tests.</p>"
        f'<figure id="bandwidth"></figure>{_as_table(header, rows)}</section>'
    )


CHOICES = {"median": "median of all", "before": "median before", "during": "median while slow"}


def _select(name: str, label: str, values: Iterable[str], chosen: str) -> str:
    options = "".join(
        f'<option value="{value}"{" selected" if value == chosen else ""}>{CHOICES.get(value, value)}</option>'
        for value in values
    )
    return f'<label>{label} <select id="{name}">{options}</select></label>'


def _key(**colours: str) -> str:
    items = "".join(
        f'<span><i style="background:{colour}"></i>{escape(name.replace("_", " "))}</span>'
        for name, colour in colours.items()
    )
    return items


def _parts(verdict: Verdict, data: dict[str, Any]) -> str:
    rows = [
        [
            item.iteration,
            title(item),
            duration(sum(item.wait_ns) / len(item.wait_ns)),
            duration(item.wire_ns),
            duration(item.excess_ns),
            f"rank {item.last_rank}",
        ]
        for item in verdict.collectives
    ]
    header = ["iteration", "collective", "wait (mean)", "wire (twin)", "excess", "last to arrive"]
    chosen = "during" if "during" in data["parts"] else "median"
    key = _key(wait="#b9c5d4", wire="#2f6db5", excess="#cf3f4f")
    return (
        "<section><h2>Where each collective's time went</h2>"
        '<p class="why">Wait: for the last rank to arrive, the mean over ranks. '
        "Wire: what the twin takes once all are there. "
        "Excess: what the network added to that (dashed: it was faster).</p>"
        f'<div class="key">{_select("parts-choice", "iteration", data["parts"], chosen)}{key}</div>'
        f'<figure id="parts"></figure>{_as_table(header, rows)}</section>'
    )


def _lanes(data: dict[str, Any]) -> str:
    key = _key(compute="#d9dfe6", waiting="#b9c5d4", live_collective="#2f6db5", twin_collective="#7aa7d9")
    return (
        "<section><h2>Both worlds on one origin</h2>"
        '<p class="why">Each rank: measured above, simulated below. '
        f"{escape(_kept(data))}timeline.pftrace has every node, for ui.perfetto.dev.</p>"
        f'<div class="key">{_select("lanes-choice", "iteration", data["lanes"], data["lane_first"])}{key}</div>'
        '<figure id="lanes"></figure></section>'
    )


def _kept(data: dict[str, Any]) -> str:
    """Says so when not all ranks or iterations are drawn."""
    shown, ranks = len(data["lane_ranks"]), data["ranks"]
    kept, iterations = len(data["lanes"]), max(len(data["iterations"]), 1)
    parts = [f"{shown} of {ranks} ranks"] if shown < ranks else []
    parts += [f"{kept} of {iterations} iterations"] if kept < iterations else []
    return f"{' and '.join(parts)} are kept here. " if parts else ""


def _pairs(data: dict[str, Any]) -> str:
    pairs = data["pairs"]
    rows = [
        [src, dst, f"{100 * value:+.1f} %", pairs["count"][i][j]]
        for i, src in enumerate(pairs["ranks"])
        for j, dst in enumerate(pairs["ranks"])
        if (value := pairs["excess"][i][j]) is not None
    ]
    when = f", {data['windowLabel']}" if data["windowLabel"] else ""
    return (
        "<section><h2>Excess from rank to rank</h2>"
        '<p class="why">How much longer than in the twin a message was under way, in percent, beside others of its size'
        f"{escape(when)}. "
        "A row is a slow sender, a column a slow receiver. A ring shows each rank's link to its neighbour.</p>"
        f'<figure id="pairs"></figure>{_as_table(["from", "to", "excess", "transfers"], rows)}</section>'
    )


def _remarks(verdict: Verdict) -> str:
    remarks = [verdict.fleet.words, *verdict.notes]
    noise = verdict.noise
    remarks.append(
        f"{noise.units} units of evidence ({noise.phases} a iteration); neighbouring units correlate by "
        f"{noise.lag_correlation:.2f}{', so only every other one counts' if noise.blocked else ''}"
    )
    for entry in verdict.late[:3]:
        if entry["late_ns_per_iteration"] > 0:
            remarks.append(
                f"rank {entry['rank']} came last to {entry['collectives']} collectives and computed "
                f"{duration(entry['late_ns_per_iteration'])} an iteration longer than the middle rank: not the network"
            )
    bounds = [[name, percent(bound)] for name, bound in verdict.upper_bound.items()]
    listed = "".join(f"<li>{escape(remark)}</li>" for remark in remarks)
    return (
        f"<section><h2>Remarks</h2><ul>{listed}</ul>"
        "<details><summary>What each of the others surely does not exceed (95 %)</summary>"
        f'<div class="scroll">{_table(["component", "slower than its peers by at most"], bounds)}</div>'
        "</details></section>"
    )
