"""Collectives of a simulation, by operation, group and size: times, bandwidths, exposed time, limit, limiting link."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from genie.page import Quantity, amount, duration, percent, table
from genie.record.bus_bandwidth import algorithm_bytes, bus_bytes
from simtwin.report.limits import Busy, Limit, Limits, Row
from simtwin.report.rank_time import COMPUTE_KINDS, with_members
from simtwin.report.servers import inside_servers, port_links

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from genie.record import Run
    from simtwin.fabric.network import Network
    from simtwin.levels.part_times import PartTimes

PAGE_ROWS_MAX = 50
SAME_TIME = 0.01  # as a share of the longer one
LIMITED_MAX = 24  # rows whose limit and limiting link are looked for
BITS = 8


@dataclass(frozen=True)
class CollectiveRow:
    """Collectives of one operation, group and size.

    `time_ns`: from the last member's start to the last end, median. `exposed_ns`: the part of a member's time in it,
    waiting included, in which its rank computes nothing; mean over members, median over collectives. `link`: the link
    that needs most time for the bytes of one collective, `link_share` of `time_ns`; "" where paths are not known.
    `limit`: None where it is not known.
    """

    op: str
    group: str
    members: int
    size_bytes: int
    count: int
    time_ns: float
    total_ns: float
    algorithm_bytes_per_s: float
    bus_bytes_per_s: float
    exposed_ns: float
    link: str = ""
    link_share: float = 0.0
    limit: Limit | None = None
    chosen: str = ""  # NCCL's algorithm, protocol and channels; "" where GPUs are not known


HEADER = (
    "collective", "group", "ranks", "size", "count", "time", "algbw", "busbw", "exposed", "limit",
    "limiting link", "busy",
)  # fmt: skip


def header_of(rows: Sequence[CollectiveRow]) -> list[str]:
    """Return the names of the columns; NCCL's choice is one where some row has it."""
    return [*HEADER, *(["NCCL"] if any(row.chosen for row in rows) else [])]


def groups_together(rows: Sequence[CollectiveRow]) -> list[list[CollectiveRow]]:
    """Return the rows in their order, those together that differ in their group alone; their times are within 1 %."""
    found: list[list[CollectiveRow]] = []
    alike: dict[tuple[object, ...], list[list[CollectiveRow]]] = {}
    for row in rows:
        places = alike.setdefault((row.op, row.members, row.size_bytes, row.count, row.chosen), [])
        own = next((it for it in places if _same_time(it[0].time_ns, row.time_ns)), None)
        if own is None:
            places.append(own := [])
            found.append(own)
        own.append(row)
    return found


def _same_time(one_ns: float, other_ns: float) -> bool:
    return abs(one_ns - other_ns) <= SAME_TIME * max(one_ns, other_ns) or duration(one_ns) == duration(other_ns)


def kinds_first(kinds: Sequence[Sequence[CollectiveRow]]) -> list[CollectiveRow]:
    """Return the rows of groups_together(), first one of each kind: one whose limit or link is known, if any is."""
    leads = [next((at for at, row in enumerate(own) if row.limit or row.link), 0) for own in kinds]
    rest = [row for own, lead in zip(kinds, leads, strict=True) for at, row in enumerate(own) if at != lead]
    return [own[lead] for own, lead in zip(kinds, leads, strict=True)] + rest


def _limited(table: pl.DataFrame) -> set[int]:
    """Return the rows whose limits are looked for: one of each operation and size, then others of most time."""
    first: dict[tuple[object, ...], int] = {}
    for at, own in enumerate(table.select("op", "members", "size_bytes").iter_rows()):
        first.setdefault(own, at)
    return set(list(dict.fromkeys([*first.values(), *range(table.height)]))[:LIMITED_MAX])


def _chosen(run: Run) -> dict[tuple[object, ...], str]:
    """Return (operation, members, bytes) -> NCCL's choice in words."""
    found: dict[tuple[object, ...], set[str]] = {}
    for each in run.info.get("nccl_choices") or []:
        words = f"{each['algorithm']}, {each['protocol']}, {each['channels']} channel{'s' * (each['channels'] != 1)}"
        found.setdefault((each["op"], each["members"], each["size_bytes"]), set()).add(words)
    return {key: words.pop() if len(words) == 1 else "differs by group" for key, words in found.items()}


def collective_rows(run: Run, network: Network, parts: PartTimes | None = None) -> list[CollectiveRow]:
    """Return the rows, those of most time first. `parts`: of the job's collectives, for limits.

    A collective that was in progress when the simulation stopped is in no row. With uneven splits the size is the
    most bytes that a member sends.
    """
    import polars as pl

    played = _ended(run)
    if played.is_empty():
        return []
    each = (
        with_members(run, played.with_columns(exposed=pl.Series(_exposed_ns(run, played))))
        .group_by("iteration", "group", "seq", "op")
        .agg(
            size_bytes=pl.col("size_bytes").max(),
            members=pl.col("members").first(),
            took=pl.col("end_ns").max() - pl.col("there_ns").first(),
            waited=pl.col("there_ns").first() - pl.col("start_ns").min(),
            exposed=pl.col("exposed").mean(),
        )
    )
    table = (
        each.group_by("op", "group", "size_bytes", "members")
        .agg(
            count=pl.len(),
            time=pl.col("took").median(),
            total=pl.col("took").sum(),
            waited=pl.col("waited").mean(),
            exposed=pl.col("exposed").median(),
            iteration=pl.col("iteration").sort_by("took", "iteration", "seq").get(pl.len() // 2),
            seq=pl.col("seq").sort_by("took", "iteration", "seq").get(pl.len() // 2),
        )
        .sort("total", "op", "group", "size_bytes", descending=[True, False, False, False])
    )
    rows, chosen, pairs = [], _chosen(run), _links_of_pairs(run, network)
    limited = _limited(table)
    limits = Limits(run, network, parts) if parts is not None and Limits.told(run) else None
    for at, it in enumerate(table.iter_rows(named=True)):
        op, size, members, time_ns = it["op"] or "", it["size_bytes"], it["members"], float(it["time"]) or math.inf
        link, busy_ns, limit = "", 0.0, None
        if at in limited:
            loads = _loads(run, pairs, it["iteration"], it["group"], it["seq"])
            link, busy_ns = _busiest(loads)
            if limits is not None:
                means = Row(op, it["group"] or "", size, it["total"] / it["count"], it["waited"])
                limit = limits.of(means, None if loads is None else _busy(loads))
        rows.append(
            CollectiveRow(
                op, it["group"] or "", members, size, it["count"], float(it["time"]), float(it["total"]),
                algorithm_bytes(op, size, members) / time_ns * 1e9, bus_bytes(op, size, members) / time_ns * 1e9,
                float(it["exposed"]), link, busy_ns / time_ns, limit, chosen.get((op, members, size), ""),
            )
        )  # fmt: skip
    return rows


def _ended(run: Run) -> pl.DataFrame:
    """Return the nodes of collectives that ended; after an early stop, of those that all their members ended.

    The messages of a collective that was cut off have all of their bytes, and no end.
    """
    import polars as pl

    nodes, ended = run.timeline.filter(pl.col("kind") == "coll"), pl.col("end_ns") >= pl.col("start_ns")
    if run.info.get("complete", True):
        return nodes.filter(ended)
    keys = ["iteration", "group", "seq"]
    counted = nodes.with_columns(begun=pl.len().over(keys), whole=ended.all().over(keys))
    return counted.filter(pl.col("whole") & (pl.col("begun") == pl.col("begun").max().over("group"))).drop(
        "begun", "whole"
    )


def _exposed_ns(run: Run, played: pl.DataFrame) -> NDArray[np.float64]:
    """Return for each row the part of its time in which its rank computes nothing."""
    computed = _computed(run)
    iteration, rank, start_ns, end_ns = (
        played[name].to_numpy() for name in ("iteration", "rank", "start_ns", "end_ns")
    )
    exposed: NDArray[np.float64] = (end_ns - start_ns).astype(np.float64)
    order = np.lexsort((rank, iteration))
    changes = (np.diff(rank[order]) != 0) | (np.diff(iteration[order]) != 0)
    for rows in np.split(order, np.flatnonzero(changes) + 1):
        until = computed.get((int(iteration[rows[0]]), int(rank[rows[0]])))
        if until is not None:
            exposed[rows] -= np.interp(end_ns[rows], *until) - np.interp(start_ns[rows], *until)
    return exposed


def _computed(run: Run) -> dict[tuple[object, ...], tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return (iteration, rank) -> moments in ns, and the time that the rank has computed until each of them."""
    import polars as pl

    found = {}
    table = run.timeline.filter(pl.col("kind").is_in(COMPUTE_KINDS) & (pl.col("end_ns") > pl.col("start_ns")))
    for key, part in table.group_by("iteration", "rank"):
        starts, ends = part.sort("start_ns").select("start_ns", "end_ns").to_numpy().T
        # Spans of several streams may overlap: each counts from where those before it have ended.
        reached = np.maximum.accumulate(np.concatenate(([starts[0]], ends[:-1])))
        begin = np.maximum(starts, reached)
        took = np.maximum(ends - begin, 0)
        corners = np.column_stack((begin, begin + took)).ravel()
        found[key] = (corners, np.column_stack((np.cumsum(took) - took, np.cumsum(took))).ravel())
    return found


def _links_of_pairs(run: Run, network: Network) -> pl.DataFrame | None:
    """Return the links of each pair of ranks; None where paths are not known.

    Columns: `src`, `dst`, `link`, `inside` (a server), `to_port` (of a host), and `byte_ns`. The last one is the
    link's time for a byte of the pair, null for an unlimited rate.
    """
    import polars as pl

    if run.paths is None:
        return None
    ports = run.paths.group_by("src", "dst").agg(ports=pl.col("source_port").n_unique())
    names = list(network.link_names)
    links = pl.DataFrame(
        {
            "link": names,
            "rate_bps": network.rate_bps,
            "inside": inside_servers(network),
            "to_port": port_links(network),
        }
    )
    rate_bps = pl.when(pl.col("rate_bps") > 0).then(pl.col("rate_bps"))
    return (
        run.paths.join(ports, on=["src", "dst"])
        .join(links, on="link")
        .select("src", "dst", "link", "inside", "to_port", byte_ns=BITS * 1e9 / rate_bps / pl.col("ports"))
    )


def _loads(run: Run, pairs: pl.DataFrame | None, iteration: int, group: str, seq: int) -> pl.DataFrame | None:
    """Return the links of a collective, the one that needs most time first: `link`, `inside`, `to_port`, `busy` in ns.

    Of equal times a cable comes before the link to the port that it leaves by: they are one NIC.
    """
    import polars as pl

    if pairs is None:
        return None
    moved = (
        run.transfers.filter(
            (pl.col("iteration") == iteration) & pl.col("group").eq_missing(pl.lit(group)) & (pl.col("seq") == seq)
        )
        .group_by("src", "dst")
        .agg(pl.col("size_bytes").sum())
    )
    limited = pl.col("byte_ns").is_not_null().any()
    busy = (pl.col("size_bytes") * pl.col("byte_ns")).sum()
    return (
        pairs.join(moved, on=["src", "dst"])
        .group_by("link")
        .agg(pl.col("inside", "to_port").first(), busy=pl.when(limited).then(busy))
        .sort(pl.col("busy").round(3), "to_port", "link", descending=[True, False, False], nulls_last=True)
    )


def _busiest(loads: pl.DataFrame | None) -> tuple[str, float]:
    """Return the link that needs most time for the bytes of a collective, and this time in ns; ("", 0) if unknown."""
    if loads is None or loads.is_empty() or loads["busy"][0] is None:
        return "", 0.0
    return str(loads["link"][0]), float(loads["busy"][0])


def _busy(loads: pl.DataFrame) -> Busy:
    outer, inner = (loads.filter(inside) for inside in (~loads["inside"], loads["inside"]))
    return Busy(_busiest(outer)[1], _busiest(inner)[1], leaves=not outer.is_empty())


def words_of(row: CollectiveRow, columns: int = len(HEADER)) -> list[str]:
    """Return the first cells of a row, in the order of header_of()."""
    rates = row.algorithm_bytes_per_s, row.bus_bytes_per_s
    return [
        row.op, row.group, str(row.members), amount(row.size_bytes), str(row.count), duration(row.time_ns),
        *(f"{amount(round(rate))}/s" if row.time_ns else "–" for rate in rates),
        duration(row.exposed_ns), str(row.limit or "–"), row.link or "–", percent(row.link_share) if row.link else "–",
        row.chosen or "–",
    ][:columns]  # fmt: skip


def values_of(row: CollectiveRow, columns: int) -> list[float | None]:
    """Return the value of each cell that is a quantity, by which its column is sorted; None for words."""
    return [
        None, None, row.members, row.size_bytes, row.count, row.time_ns, row.algorithm_bytes_per_s,
        row.bus_bytes_per_s, row.exposed_ns, None, None, row.link_share if row.link else None, None,
    ][:columns]  # fmt: skip


def table_of(rows: list[CollectiveRow]) -> str:
    """Return the rows as a table of a page."""
    header = header_of(rows)
    cells = [
        [
            words if value is None else Quantity(words, value)
            for words, value in zip(words_of(row, len(header)), values_of(row, len(header)), strict=True)
        ]
        for row in rows
    ]
    return table(header, cells, keys={"group": "group", "limiting link": "link"})
