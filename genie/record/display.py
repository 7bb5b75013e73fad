"""Run folders as tables and figures for notebooks, for either world."""

from __future__ import annotations

from typing import TYPE_CHECKING

from genie.record.errors import RecordError
from genie.record.played import Played, has_packets, iteration_ends, workload_name

if TYPE_CHECKING:
    from genie.figures import Fact, Figure

LINKS_MAX = 200  # bars of a figure


def title_of(run: Played) -> str:
    """Return the kind of a run and its workload, such as `live run of transformer on 8 ranks`."""
    kind = "live run" if run.info.get("world") == "live" else f"simulation at level {run.info.get('level', 'packet')}"
    return f"{kind} of {workload_name(run)} on {run.info.get('ranks', 0)} ranks"


def facts_of(run: Played) -> list[Fact]:
    """Return the headline facts that both worlds record."""
    from genie.page import amount, count_of, duration

    warmup = int(run.info.get("warmup") or 0)
    ends = [end_ns for iteration, end_ns in iteration_ends(run).items() if iteration >= warmup]
    facts: list[Fact] = []
    if not run.info.get("complete", True):
        facts.append(
            ("Ended early", str(run.info.get("problem") or "stopped"), "the facts below are of the part played")
        )
    if ends:
        spread = f"from {duration(min(ends))} to {duration(max(ends))}" if len(ends) > 1 else ""
        facts.append(("Iteration", duration(sum(ends) / len(ends)), f"mean of {len(ends)}; {spread}" if spread else ""))
    else:
        facts.append(("Iteration", "not known", "no iteration after warm-up was recorded"))
    if warmup:
        facts.append(("Warm-up", count_of(warmup, "iteration"), "not counted above"))
    messages = int(run.transfers["messages"].sum())
    size_bytes = int(run.transfers["size_bytes"].sum())
    facts.append(("Messages", f"{messages:,}", f"{amount(size_bytes)} {_senders_of(run)}, in all iterations"))
    return facts


def _senders_of(run: Played) -> str:
    """Name the ranks whose messages are recorded: of a large job one rank of each class."""
    recorded = run.info.get("recorded")
    return f"sent by {len(recorded['ranks'])} of {run.info['ranks']} ranks" if recorded else "between ranks"


def headline_of(run: Played) -> str:
    """Return a run folder's headline facts as HTML."""
    from genie.figures import headline
    from genie.page import count_of

    facts = facts_of(run)
    if run.info.get("world") == "live":
        again = sum(int((rank or {}).get("retransmitted", 0)) for rank in run.counters.get("ranks") or [])
        facts.append(("Retransmitted", count_of(again, "packet"), f"transport {run.info.get('transport', 'unknown')}"))
    else:
        facts += network_facts(run)
    texts = run.info.get("warnings") or []
    warnings: Fact = ("Warnings", str(len(texts)), "in info['warnings']" if texts else "")
    judged: Fact = ("Faults", "not judged", "genie.diff judges a live run beside its twin")
    title = title_of(run)
    return headline(title[:1].upper() + title[1:], [*facts, warnings, judged])


def network_facts(run: Played) -> list[Fact]:
    """Return the facts about a simulation's network; those that its level does not play are named as such."""
    from genie.page import amount, count_of

    if not has_packets(run):
        return [("Queues, marks, drops", "not simulated", f"level {run.info['level']} plays no packets")]
    links = run.counters.get("links") or []
    facts: list[Fact] = [("Dropped", count_of(int(run.counters.get("dropped", 0)), "packet"))]
    if links:
        longest = max(links, key=lambda link: int(link.get("longest_queue_bytes", 0)))
        size_bytes = int(longest.get("longest_queue_bytes", 0))
        facts += [
            ("Longest queue", amount(size_bytes), f"of link {longest['link']}" if size_bytes else ""),
            ("ECN marks", count_of(sum(int(link.get("marked", 0)) for link in links), "packet")),
            ("Pauses", count_of(sum(int(link.get("pauses", 0)) for link in links), "frame")),
        ]
    return facts


def timeline_figure(run: Played, iteration: int | None) -> Figure:
    """Return the ranks over time in an iteration. Raises RecordError for an iteration that the run does not have."""
    import polars as pl

    from genie.figures import timeline

    numbers = sorted(run.timeline["iteration"].unique().to_list())
    warmup = int(run.info.get("warmup") or 0)
    wanted = next((number for number in numbers if number >= warmup), 0) if iteration is None else iteration
    if wanted not in numbers:
        has = f"has iterations {numbers[0]} to {numbers[-1]}" if numbers else "has no iterations"
        raise RecordError(f"iteration {wanted}: the run {has}; give one of them")
    rows = run.timeline.filter(pl.col("iteration") == wanted)
    return timeline(f"Ranks over time, iteration {wanted} of the {title_of(run)}", rows)


def links_figure(run: Played, count: int) -> Figure:
    """Return the busiest links of a simulation. Raises RecordError for a run without counts of links."""
    from genie.figures import Bar, bars
    from genie.page import count_of, share

    if not 1 <= count <= LINKS_MAX:
        raise RecordError(f"count {count}: give 1 to {LINKS_MAX} links")
    links = run.counters.get("links")
    if not links:
        raise RecordError("the run has no counts of links, as in the live world: give a run of the twin")
    moved = [link for link in links if int(link.get("size_bytes", 0))]
    if not moved:
        raise RecordError(f"no link has carried a byte at level {run.info.get('level')}: use level packet or flow")
    time_ns = sum(iteration_ends(run).values())
    loads = [
        (8e9 * int(link["size_bytes"]) / (int(link["rate_bps"]) * time_ns), str(link["link"]))
        for link in moved
        if int(link.get("rate_bps", 0)) and time_ns
    ]
    busiest = sorted(loads, key=lambda load: (-load[0], load[1]))[:count]
    left = len(moved) - len(busiest)
    unused = len(links) - len(moved)
    beside = f"{count_of(left, 'other link')} with traffic not shown, {count_of(unused, 'link')} without traffic"
    rows = [Bar(name, load, share(load)) for load, name in busiest]
    return bars("Utilisation of the busiest links, mean over the run", rows, full=1.0, beside=beside)
