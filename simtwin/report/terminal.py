"""The table of collectives and the exposed communication of a simulation, as lines of a terminal."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from genie.page import duration, percent, share
from simtwin.report.collectives import PAGE_ROWS_MAX, groups_together, header_of, words_of
from simtwin.report.rank_time import COMPUTING, IDLE, NETWORK, OTHERS, mean_iteration, recorded_ranks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from genie.record import Run
    from simtwin.report.collectives import CollectiveRow

ROWS_MAX = 8
SHOWN_SHARE = 0.005  # a smaller share of idle time is left out


def table_lines(rows: Sequence[CollectiveRow]) -> list[str]:
    """Return the collectives of most time as a table; rows that are alike but for their group are one."""
    if not rows:
        return []
    header, found = header_of(rows), groups_together(rows)
    cells = [header, *(_cells(each, header) for each in found[:ROWS_MAX])]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    if left := sum(map(len, found[ROWS_MAX:])):
        shown = (
            "them"
            if len(rows) <= PAGE_ROWS_MAX
            else f"{PAGE_ROWS_MAX} rows, with those that differ in their group alone last"
        )
        lines.append(f"{left} more collectives, by operation, group and size: --report shows {shown}")
    return lines


def _cells(own: Sequence[CollectiveRow], header: Sequence[str]) -> list[str]:
    """Return the cells of rows that are one; the limiting link is that of the first row that has one."""
    first = own[0]
    if len(own) == 1:
        return words_of(first, len(header))
    linked = next((row for row in own if row.link), first)
    shown = replace(first, group=f"{len(own)} groups", link=linked.link, link_share=linked.link_share)
    cells = dict(zip(header, words_of(shown, len(header)), strict=True))
    cells["exposed"] = _span(duration, [row.exposed_ns for row in own])
    limits = [row.limit for row in own if row.limit is not None]
    if len(names := {limit.name for limit in limits}) > 1:
        cells["limit"] = "differs"
    elif name := "".join(names):
        cells["limit"] = f"{name} {_span(percent, [limit.share for limit in limits])}"
    else:
        cells["limit"] = "–"
    if any(row.link not in ("", linked.link) for row in own):
        cells["limiting link"] += ", others"
    return list(cells.values())


def _span(in_words: Callable[[float], str], values: Sequence[float]) -> str:
    """`318 µs to 346 µs`; one value where both are the same in words."""
    least, most = in_words(min(values)), in_words(max(values))
    return least if least == most else f"{least} to {most}"


def exposed_line(run: Run) -> str:
    """`Exposed communication: 6.08 s of 19.1 s (32 %), mean of 8 ranks; computing 26 %, ...`; "" without compute."""
    found = mean_iteration(run)
    shares, ranks, recorded = found.shares, int(run.info["ranks"]), recorded_ranks(run)
    if not shares[COMPUTING]:
        return ""
    of_ranks = f"{ranks:,}" if ranks == recorded else f"{recorded:,} of {ranks:,}"
    said = [f"computing {percent(shares[COMPUTING])}", f"waiting for other ranks {percent(shares[OTHERS])}"]
    said += [f"idle {percent(shares[IDLE])}"] if shares[IDLE] >= SHOWN_SHARE else []
    counted = "; waiting for ranks that are not recorded counts as communication"
    of_class = (run.info.get("recorded") or {}).get("which")
    return (
        f"Exposed communication: {duration(found.exposed_ns)} of {duration(found.took_ns)} ({share(shares[NETWORK])}), "
        f"mean of {of_ranks} ranks; {', '.join(said)}{counted if of_class == 'first' else ''}"
    )
