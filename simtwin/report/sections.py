"""The page's sections in words and tables; scripts draw its figures."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Any

from genie.page import (
    amount,
    as_table,
    count_of,
    duration,
    facts,
    key,
    percent,
    quantity,
    rate,
    section,
    select,
    share,
    table,
)
from genie.page.lanes import SHORTEST_PART
from genie.page.words import TITLE_MAX, upper_bound
from genie.record.played import has_packets
from simtwin.report.band import band_in_words, mean
from simtwin.report.collectives import LIMITED_MAX, PAGE_ROWS_MAX, groups_together, kinds_first, table_of
from simtwin.report.limits import no_limits
from simtwin.report.loads import FULL
from simtwin.report.rank_time import COMPUTING, IDLE, NETWORK, OTHERS, STATES, recorded_ranks
from simtwin.report.sentence import left_out, no_links

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from genie.record import Run
    from simtwin.fabric.network import Network
    from simtwin.fabric.schema import Fabric
    from simtwin.report.collectives import CollectiveRow
    from simtwin.report.rank_time import RankTime

STATE_COLOURS = ("var(--comp)", "var(--wire)", "var(--wait)", "var(--ground)")
METRICS = {
    "mean": "mean utilisation",
    "peak": "highest utilisation of any interval",
    "longest_queue_bytes": "longest queue",
    "marked": "marks",
    "pauses": "pauses",
    "dropped": "drops",
    "trimmed": "trimmed packets",
}
OVER_TIME = {
    "now_busy": "utilisation at the slider's time",
    "now_queue": "longest queue at the slider's time",
}
HOW_TO_GET_A_SERIES = "genie simulate ... --series 10us"


def head(summary: str) -> str:
    """Return the page's heading: the simulation in one sentence."""
    said = summary.split("; ")
    count = next((at for at in range(len(said), 1, -1) if len("; ".join(said[:at])) <= TITLE_MAX), 1)
    first, rest = (
        re.sub(r"[^\s,]+-&gt;[^\s,]+", r'<span class="name">\g<0></span>', escape("; ".join(part)))
        for part in (said[:count], said[count:])
    )
    beside = f"<p>{rest[:1].upper() + rest[1:]}.</p>" if rest else ""
    return f'<header id="verdict"><h1>{first}</h1>{beside}</header>'


def facts_of(run: Run, ends_ns: dict[int, int], shares: Sequence[float], loads: pl.DataFrame) -> str:
    """Return the tiles with key figures."""
    info = run.info
    moved, messages = int(run.transfers["size_bytes"].sum()), int(run.transfers["messages"].sum())
    sent_again = int(run.transfers["retransmits"].sum())
    used = int((loads["size_bytes"] > 0).sum())
    wall = float(info.get("wall_s", 0.0))
    packets = f"{info.get('data_packets', 0):,} data packets " if has_packets(run) else ""
    skipped = (info.get("skip") or {}).get("share", 0.0)
    played = f"{packets}{f'({skipped:.1%} skipped) ' if skipped >= 0.0005 else ''}in {duration(wall * 1e9)}"
    ranks, recorded = int(info["ranks"]), recorded_ranks(run)
    of_ranks = "ranks" if recorded == ranks else f"{recorded} recorded ranks"
    return facts(
        (
            _extent(info, ends_ns),
            (
                "Waiting for the network",
                share(shares[NETWORK]),
                f"of a rank's time, the mean over {of_ranks}; {share(shares[OTHERS])} more for other ranks",
            ),
            ("Computing", share(shares[COMPUTING]), f"{share(shares[IDLE])} with nothing to do"),
            (
                "Moved" if recorded == ranks else f"Sent by {recorded} of {ranks} ranks",
                amount(moved),
                count_of(messages, "message")
                + (f" over {used} of {len(loads)} links" if used else "")
                + (f"; {count_of(sent_again, 'packet')} sent again" if has_packets(run) else ""),
            ),
            ("Simulated", f"level {info.get('level', 'packet')}", f"{played}; seed {info.get('seed')}"),
        )
    )


def _extent(info: dict[str, Any], ends_ns: dict[int, int]) -> tuple[str, str, str]:
    """Return the tile with the time of an iteration; after an early stop, the time until then."""
    ranks = f"{info['ranks']} ranks"
    ends = list(ends_ns.values()) or [0]
    if not info.get("complete", True):
        stopped = info.get("stopped_iteration")
        whole = [end for number, end in ends_ns.items() if number != stopped]
        where = f"in iteration {stopped}" if stopped is not None else "before its end"
        if whole:
            where += f", after {count_of(len(whole), 'whole iteration')} of {duration(sum(whole) / len(whole))}"
        return "Stopped after", duration(sum(ends)), f"{where}; {ranks}"
    several = f"{len(ends)} iterations, {duration(min(ends))} to {duration(max(ends))}; " if len(ends) > 1 else ""
    band = band_in_words(info, duration, mean)
    return "An iteration", duration(sum(ends) / len(ends)), f"{f'{band}; ' if band else ''}{several}{ranks}"


def collectives(run: Run, rows: list[CollectiveRow], path: str) -> str:
    """Return the section with collectives by operation, group and size, and the critical path in words."""
    words = [f"{path}."] if path else []
    is_whole = bool(run.info.get("complete", True))
    if not is_whole and not path:
        words.append("The iteration that was cut off has no critical path.")
    if not rows:
        none = "The workload has no collectives." if is_whole else "No collective had ended at the stop."
        return section("Collectives", " ".join([*words, none]), name="collectives")
    if not is_whole:
        words.append("Collectives that were in progress at the stop are left out.")
    words.append(
        "Times go from the last member's start to the last end (median). Exposed is the part of a member's time in "
        "which its rank computes nothing."
    )
    if left := left_out(run):
        words.append(f"{left[:1].upper()}{left[1:]}.")
    if any(row.limit for row in rows):
        words.append(
            "The limit is the largest part of the mean time from the first member's start to the last end, with its "
            "share of it."
        )
    elif why := no_limits(run):
        words.append(f"{why[:1].upper()}{why[1:]}.")
    if any(row.link for row in rows):
        words.append("The limiting link needs most time for the bytes of one collective.")
    if len(rows) > LIMITED_MAX and any(row.limit or row.link for row in rows):
        words.append(
            f"Limits and links are looked for in {LIMITED_MAX} rows: first one for each operation, number of ranks and "
            "size, then those of most time."
        )
    kinds = groups_together(rows)
    shown = kinds_first(kinds)[:PAGE_ROWS_MAX]
    if 1 < len(kinds) < len(shown):
        words.append(f"The first {len(kinds)} rows differ in more than their group. The others are like one of them.")
    if len(rows) > len(shown):
        words.append(f"{len(rows) - len(shown)} more are not shown.")
    return section("Collectives", " ".join(words), table_of(shown), name="collectives")


def topology(run: Run, data: dict[str, Any], hot: pl.DataFrame, network: Network) -> str:
    """Return the section with links on the drawn network, over time where known, and the hottest links as a table."""
    drawn = data["topology"]
    if drawn is None:
        why = no_links(run)
        return section("Links on the network", f"{why[:1].upper()}{why[1:]}.", name="topology")
    columns = drawn["links"]
    shown = [name for name in METRICS if name in ("mean",) or any(columns[name])]
    cells = "with many hosts, each host's cable is a cell under its switch: the left half is up, the right half down"
    if not drawn["one_by_one"]:
        cells = "all cables of a switch's hosts are one cell under it, coloured as the busiest: left up, right down"
    switches = network.nodes - network.hosts - int(network.is_bridge.sum())
    nodes = f"{count_of(network.hosts, 'host')}, {count_of(switches, 'switch', 'switches')}"
    words = [
        f"{nodes}, {count_of(network.links, 'directed link')}. "
        f"Switches are ordered by their distance to hosts; {cells}. A cable is two lines, one in each direction."
    ]
    if drawn["left_out"]:
        words.append(f"Of the links between switches the busiest are drawn; {drawn['left_out']} are not.")
    if run.info.get("series_interval_ns"):
        words.append(f"Intervals are {duration(run.info['series_interval_ns'])} long.")
    over_time = data.get("over_time")
    if over_time:
        frames = next(iter(over_time.values()))
        shown += [name for name in OVER_TIME if name == "now_busy" or frames["queue"]]
        words.append(f"The slider shows the links in steps of {duration(frames['step_ns'])}.")
        if len(over_time) < _iterations(run):
            words.append(f"It has {len(over_time)} of {_iterations(run)} iterations.")
    elif has_packets(run):
        words.append(f"To see links over time: {HOW_TO_GET_A_SERIES}")
    choice = select("topology-metric", "colour by", shown, "mean", METRICS | OVER_TIME)
    return section(
        "Links on the network",
        " ".join(words),
        f'<div class="key">{choice}<span id="topology-key" class="key"></span></div>',
        SLIDER if over_time else "",
        '<figure id="topology-figure"></figure>',
        BUSIEST if over_time else "",
        _hottest(run, hot, network.links),
        name="topology",
    )


SLIDER = (
    '<div class="play" role="group" aria-label="Time of the drawing" hidden>'
    '<button type="button" id="topology-play">Play</button>'
    '<label>time <input type="range" id="topology-time" min="0" value="0"></label>'
    '<output id="topology-now" for="topology-time"></output></div>'
)
BUSIEST = '<div id="busiest" hidden><h3>The busiest links at the slider\'s time</h3><div class="wide"></div></div>'


def _hottest(run: Run, hot: pl.DataFrame, links: int) -> str:
    if not len(hot):
        return "<p>No link with a rate carried anything.</p>"
    series, packets = hot["peak"].is_not_null().any(), has_packets(run)
    pairs = _pairs_by_link(run)
    header = ["link", "rate", "mean"]
    header += ["highest", f"above {percent(FULL)} for"] if series else []
    header += ["bytes"] + (["longest queue", "marks", "pauses", "paused", "drops"] if packets else [])
    header += ["pairs of ranks"] if pairs else []
    rows = []
    for it in hot.iter_rows(named=True):
        row = [it["link"], quantity(rate, it["rate_bps"]), quantity(_percent, it["mean"])]
        row += [quantity(_percent, it["peak"]), quantity(duration, it["full_ns"])] if series else []
        row += [quantity(amount, it["size_bytes"])]
        if packets:
            row += [quantity(amount, it["longest_queue_bytes"]), it["marked"], it["pauses"]]
            row += [quantity(duration, it["paused_ns"])]
            row += [it["dropped"]]
        row += [pairs.get(it["link"], 0)] if pairs else []
        rows.append(row)
    cut = ""
    if len(hot) < links:
        cut = f"The table has the {len(hot)} busiest of {links:,} links; a filter finds no others here."
        cut = f'<p class="why">{cut}</p>'
    return (
        f"<h3>The hottest links, by mean utilisation</h3>{cut}"
        f'<div class="scroll" id="hottest" tabindex="0">{table(header, rows, keys={"link": "link"})}</div>'
    )


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"


def _pairs_by_link(run: Run) -> dict[str, int]:
    """Return link -> number of pairs of ranks whose known paths have it."""
    import polars as pl

    if run.paths is None:
        return {}
    counted = run.paths.select("link", "src", "dst").unique().group_by("link").agg(pl.len())
    return {str(link): int(count) for link, count in counted.iter_rows()}


def queues(run: Run, drawn: dict[str, Any] | None, hot: pl.DataFrame) -> str:
    """Return the section with queues, marks and pauses over time; without a series, how to record one."""
    packets = has_packets(run)
    title = "Queues over time" if packets else "Links over time"
    none = "" if packets else f"Level {run.info['level']} has no packets, so no queues, marks or pauses. "
    if drawn is None:
        longest = hot.sort("longest_queue_bytes", descending=True).row(0, named=True) if len(hot) else None
        known = (
            f" Of the hottest links {longest['link']} had the longest queue, {amount(longest['longest_queue_bytes'])}."
            if longest and longest["longest_queue_bytes"]
            else ""
        )
        how = f"This run recorded no series.{known} To see queues, marks and pauses over time: {HOW_TO_GET_A_SERIES}"
        return section(title, how if packets else none, name="queues")
    if not drawn["links"]:
        return section(title, f"{none}No data was sent, and no packet waited.", name="queues")
    which = f"Iteration {drawn['iteration']}, which has the longest queue. " if _iterations(run) > 1 else ""
    cut = run.info.get("series_cut")
    ended = f"The series ends after {duration(cut['time_ns'])} of iteration {cut['iteration']}. " if cut else ""
    point = duration(drawn["step_ns"])
    if packets:
        words = (
            f"{which}The links with the longest queues; select the links to draw. Each point is the longest queue in "
            f"{point}; below it, the packets marked in that time, and the share of it that a link was paused. {ended}"
        )
    else:
        words = f"{none}{which}The busiest links; select the links to draw. Each point is {point}. {ended}"
    boxes = "".join(
        f'<label><input type="checkbox" value="{at}"{" checked" * (at < 4)}><i></i>{escape(link["name"])}</label>'
        for at, link in enumerate(drawn["links"])
    )
    rows = [
        [
            link["name"],
            quantity(amount, max(link["longest_queue_bytes"])),
            sum(link["marked"]),
            sum(link["pauses"]),
            quantity(duration, sum(link["paused_ns"])),
            sum(link["dropped"]),
        ]
        for link in drawn["links"]
    ]
    header = ["link", "longest queue", "marks", "pauses", "paused", "drops"]
    return section(
        title,
        words,
        f'<fieldset id="queue-links"><legend>Links</legend>{boxes}</fieldset><figure id="queue-figure"></figure>',
        as_table(header, rows, keys={"link": "link"}),
        name="queues",
    )


def flows(drawn: dict[str, dict[str, Any]], why: str = "") -> str:
    """Return the section with slowdown by size, and its distribution. `why`: the reason for none; "" where known."""
    title = "Flow completion times, over those of an idle network"
    if why:
        return section(title, f"{why[:1].upper()}{why[1:]}.", name="flows")
    if not drawn:
        return section(title, "The record has no transfers between hosts.", name="flows")
    words = (
        "Slowdown is the time of a flow (with a message posted and not acknowledged), divided by the time of the same "
        "bytes on an idle network: base round trip plus wire bytes over the rate of the slowest link of its path. "
    )
    if "send" in drawn:
        words += "A flow of sends is one message, so that this is its flow completion time over the ideal one. "
    if set(drawn) - {"send"}:
        words += (
            "A flow of a collective is all of its messages from one rank to another, in the order of its algorithm; "
            "the time before a message is posted does not count. "
        )
        turns = [row[-1] for it in drawn.values() for row in it["sizes"]]
        if any(it is not None and it > 1 for it in turns):
            words += (
                "In plain rings each message is posted when the one before has arrived. The dashed mark is an idle "
                "network's slowdown then. Slowdown above it is contention; below it, messages left together that "
                "had piled up before a late rank. "
            )
        if None in turns:
            words += (
                "With NCCL's channels and slices several messages are in flight at once: an idle network's slowdown "
                "is then not known and not marked. "
            )
    names = {op: f"{op}: {_flows_in_words(it)}" for op, it in drawn.items()}
    choice = select("flows-choice", "flows of", drawn, next(iter(drawn)), names)
    rows = [[op, *("" if cell is None else cell for cell in row)] for op, it in drawn.items() for row in it["sizes"]]
    header = ["flows of", "size", "flows", "median", "95th percentile", "99th percentile", "idle, one after the other"]
    legend = key(median="var(--one)", **{"95th_percentile": "var(--two)", "99th_percentile": "var(--five)"})
    return section(
        title,
        words,
        f'<div class="key">{choice}{legend}</div>'
        '<div class="beside"><figure id="flow-sizes"></figure><figure id="flow-cdf"></figure></div>',
        as_table(header, rows),
        name="flows",
    )


def _flows_in_words(drawn: dict[str, Any]) -> str:
    each = "" if drawn["messages"] == 1 else f" of {drawn['messages']:g} messages"
    return f"{count_of(drawn['count'], 'flow')}{each}"


def lanes(run: Run, drawn: dict[str, Any], ends_ns: dict[int, int], spent: RankTime) -> str:
    """Return the section with the ranks' time."""
    own = spent.of_ranks(drawn["first"], ends_ns.get(drawn["first"], 0))
    rows = [[rank, *(quantity(duration, it) for it in took)] for rank, *took in own]
    kept = len(drawn["iterations"])
    which = (
        f"Iteration {drawn['first']} is the longest of {len(ends_ns)}; {kept} are here. " if len(ends_ns) > 1 else ""
    )
    ranks = int(run.info["ranks"])
    recorded = recorded_ranks(run)
    held, last = "", " The last row is the critical path." if drawn["has_path"] else ""
    if recorded < ranks:
        of_class = run.info["recorded"].get("which", "last to end")
        held = f"The timeline holds {recorded} of {ranks} ranks, of each class the {of_class}. "
        if of_class == "first":
            held += "Waiting for ranks that it does not hold counts as network. "
    shortest = drawn["iterations"][str(drawn["first"])]["end"] * drawn["coarser"] // SHORTEST_PART
    merged = f"Nodes below {duration(max(shortest, 1))} are drawn together with their neighbours. "
    overview, few = "", ""
    if drawn["strip_ranks"]:
        of = drawn["strip_ranks"][0]
        each = "rank" if of[0] == of[1] else f"{of[1] - of[0] + 1} ranks"
        overview = (
            f"<p>All {ranks} ranks, a line for each {each}.</p>"
            f'<div class="key">{key(**_colours())}</div><figure id="strips"></figure>'
        )
    if len(drawn["few"]) < len(drawn["ranks"]):
        few = f"<p>{len(drawn['few'])} of them, node by node; the filter shows any of the {len(drawn['ranks'])}.</p>"
    elif len(drawn["ranks"]) < recorded:
        few = f"<p>{len(drawn['ranks'])} of them, node by node: the page has a limit of bytes.</p>"
    legend = key(
        compute="var(--comp)",
        waiting_for_other_ranks="var(--wait)",
        collective="var(--wire)",
        send="var(--send)",
        receive="var(--recv)",
    )
    return section(
        "Ranks over time",
        f"{which}{held}{merged}Each rank has two lanes: computation above, communication below.{last}",
        overview,
        few,
        f'<div class="key">{legend}</div><p id="lanes-note" class="why"></p><figure id="lanes-figure"></figure>',
        as_table(["rank", *STATES], rows, "timeline.parquet", keys={"rank": "rank"}),
        name="lanes",
    )


def _colours() -> dict[str, str]:
    return {name.replace(" ", "_"): colour for name, colour in zip(STATES, STATE_COLOURS, strict=True)}


def warnings(run: Run, fabric: Fabric) -> str:
    """Return the section with warnings and facts beside the figures."""
    info = run.info
    said = [f"workload {info.get('workload')}, fabric {info.get('fabric')}"]
    if not info.get("complete", True):
        said.insert(0, f"not complete: {info.get('problem', 'it ended early')}")
    if info.get("follow"):
        said.append(f"follows {info.get('follows')}: collectives start as in that run, compute is left out")
    if estimates := (info.get("skip") or {}).get("estimates"):
        bound, confidence = (
            info.get("error_bound"),
            f"{estimates['confidence']:.0%} confidence, if rates only fluctuate",
        )
        ends = "not all have a bound, as other messages began or ended later"
        if bound is not None:
            ends = f"within {upper_bound(bound)} of level packet ({confidence})"
        said.append(
            f"{estimates['packets']} packets were skipped by estimates. Ends of messages that these moved: {ends}"
        )
    if fabric.fault:
        said.append(
            f"{count_of(len(fabric.fault), 'fault')} in the fabric file; utilisation is of the links' full rates"
        )
    said += info.get("warnings", [])
    if commit := info.get("commit"):
        said.append(f"commit {commit}")
    return section("Warnings", "", f"<ul>{''.join(f'<li>{escape(it)}</li>' for it in said)}</ul>", name="warnings")


def _iterations(run: Run) -> int:
    return int(run.info.get("iterations", 1))
