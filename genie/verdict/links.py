"""Links between switches: the transfers that pass each link, links that look alike, and the slow-down of each tier.

Links that the same pairs of ranks pass are one column, because end-to-end data cannot tell them apart. A column is the
unit here.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from genie.verdict.series import PHASES_MAX, TRAFFIC_SHARE_MIN, Series

if TYPE_CHECKING:
    from collections.abc import Sequence

    from genie.record import Run
    from genie.verdict.align import Aligned

CLOCK_SHARE_MAX = 0.02  # of a message's time in the twin: largest clock error to correct for
FLOOR = 0.25  # of a column's bytes: these may be faster than its value says
STRETCH_MIN = 0.08  # of a probe train: least stretch of a link slower than the links before it
TIER_MIN = 3  # columns that a tier needs, so that each has peers
PATHS_MIN = 3  # pairs that a link needs, to be told from the ends of its paths
Pair = tuple[int, int]
Links = tuple[str, ...]


@dataclass(frozen=True)
class Column:
    """Links that the same pairs of ranks pass, in the order of the paths."""

    number: int
    links: Links
    pairs: frozenset[Pair]
    tier: str


@dataclass(frozen=True)
class KnownPaths:
    """The paths that both worlds played.

    Empty when links cannot be judged; `problem` says why, or is "" where the live run has no paths.
    """

    columns: tuple[Column, ...] = ()
    few: tuple[Column, ...] = ()  # of fewer than PATHS_MIN pairs: cannot be told from the ends of their paths
    problem: str = ""
    edges: frozenset[str] = frozenset()  # switches next to a host
    # Link -> share by which it stretched probe trains that the links before it had let through; median over paths.
    stretch: dict[str, float] = field(default_factory=dict)
    # (direction, rank) -> links that carry all traffic of that NIC and no other; they form one column with the NIC.
    of_nic: dict[tuple[str, int], Links] = field(default_factory=dict)

    @property
    def tiers(self) -> list[str]:
        return sorted({column.tier for column in self.columns})


def known_paths_of(live: Run, twin: Run, aligned: Aligned) -> KnownPaths:
    """Columns of the pairs that moved payload, where both worlds played the same paths and recorded them."""
    if live.paths is None or twin.paths is None:
        return KnownPaths(problem="" if live.paths is None else "the twin does not say which paths it played")
    if any((run.info.get("paths") or {}).get("changed") for run in (live, twin)):
        return KnownPaths(problem="paths changed during the run")
    measured, played = _by_pair(live.paths), _by_pair(twin.paths)
    moved = set(aligned.transfers.select("src", "dst").unique().rows())
    known = {pair: measured[pair] for pair in moved if pair in measured}
    if other := sum(played.get(pair) != way for pair, way in known.items()):
        return KnownPaths(problem=f"the twin played other paths than the run in {other} of {len(known)} pairs of ranks")
    if not known:
        return KnownPaths(problem="no path between ranks that move payload is known")
    return _columns(known, moved, live.paths)


def _by_pair(paths: pl.DataFrame) -> dict[Pair, frozenset[Links]]:
    """The distinct paths of each pair of ranks."""
    table = paths.sort("src", "dst", "source_port", "hop").group_by("src", "dst", "source_port", maintain_order=True)
    result: dict[Pair, set[Links]] = defaultdict(set)
    for src, dst, _, links in table.agg("link").iter_rows():
        result[src, dst].add(tuple(links))
    return {pair: frozenset(paths) for pair, paths in result.items()}


def _columns(known: dict[Pair, frozenset[Links]], moved: set[Pair], paths: pl.DataFrame) -> KnownPaths:
    ends = [(way[0].partition("->")[0], way[-1].partition("->")[2]) for every in known.values() for way in every]
    hosts = frozenset(name for pair in ends for name in pair)
    level = _levels(known)
    passing: dict[str, set[Pair]] = defaultdict(set)
    for pair, taken in sorted(known.items()):
        for way in taken:
            for link in way:
                passing[link].add(pair)
    of_rank: dict[tuple[str, int], set[Pair]] = defaultdict(set)
    for src, dst in moved:
        of_rank["egress", src].add((src, dst))
        of_rank["ingress", dst].add((src, dst))
    grouped: dict[tuple[str, frozenset[Pair]], list[str]] = defaultdict(list)
    of_nic: dict[tuple[str, int], Links] = defaultdict(tuple)
    for link, pairs in passing.items():
        a, _, b = link.partition("->")
        if owner := next((key for key, whole in of_rank.items() if whole == pairs), None):
            of_nic[owner] += (link,)
        elif a not in hosts and b not in hosts:
            low, high = sorted((level[a], level[b]))
            grouped[f"links {low}-{high}", frozenset(pairs)].append(link)
    every = [Column(number, tuple(links), key[1], key[0]) for number, (key, links) in enumerate(grouped.items())]
    columns = tuple(column for column in every if len(column.pairs) >= PATHS_MIN)
    few = tuple(column for column in every if len(column.pairs) < PATHS_MIN)
    edges = frozenset(node for link in passing for node in link.split("->") if hosts & set(link.split("->"))) - hosts
    return KnownPaths(columns, few, "", edges, _stretches(paths), dict(of_nic))


def cable_of(link: str) -> str:
    """`spine1->leaf0` and `leaf0->spine1` → `leaf0-spine1`; a cable's name is returned as it is."""
    return "-".join(sorted(link.split("->"))) if "->" in link else link


def _levels(known: dict[Pair, frozenset[Links]]) -> dict[str, int]:
    """Number of links from each node to the nearest end of a path; links of one tier join the same two levels."""
    level: dict[str, int] = {}
    for taken in known.values():
        for way in taken:
            nodes = [way[0].partition("->")[0], *(link.partition("->")[2] for link in way)]
            for at, node in enumerate(nodes):
                level[node] = min(level.get(node, len(nodes)), at, len(nodes) - 1 - at)
    return level


def _stretches(paths: pl.DataFrame) -> dict[str, float]:
    """Link -> time of a train's probe to its far end, over the time to the end of the link before, less 1."""
    measured = paths.sort("src", "dst", "source_port", "hop").with_columns(
        (pl.col("probe_ns") / pl.col("probe_ns").shift(1).over("src", "dst", "source_port") - 1).alias("more")
    )
    table = measured.filter(pl.col("more").is_not_null()).group_by("link").agg(pl.col("more").median())
    return {str(link): float(more) for link, more in table.iter_rows()}


def likeliest(names: Sequence[str], numbers: Sequence[int], known_paths: KnownPaths) -> tuple[str, bool]:
    """(name, unique): the link, cable ("leaf0-spine1") or switch with these columns that probe trains point at.

    `unique` is whether they point at it alone. The first name is returned where they point at none. Of slow links in a
    row only the first stretches a train.
    """
    columns = [column for column in (*known_paths.columns, *known_paths.few) if column.number in numbers]
    every = {link for column in columns for link in column.links}
    if len(names) < 2 or not every <= set(known_paths.stretch):
        return names[0], len(names) < 2
    least = max(STRETCH_MIN, max(known_paths.stretch[link] for link in every) / 2)
    seen = {link for link in every if known_paths.stretch[link] >= least}
    found = []
    for name in names:
        own = [[link for link in column.links if stands_for(name, link)] for column in columns]
        if {links[0] for links in own if links} == seen:
            found.append(name)
    return (found or list(names))[0], len(found) == 1


def stands_for(name: str, link: str) -> bool:
    """Whether the link, its cable or a switch at one of its ends has this name."""
    return name in (link, cable_of(link), *link.split("->"))


def on_columns(transfers: pl.DataFrame, columns: tuple[Column, ...]) -> pl.DataFrame:
    """The transfers, once for each column that they pass, with the column's number as `column`."""
    rows = [(src, dst, column.number) for column in columns for src, dst in sorted(column.pairs)]
    table = pl.DataFrame(rows, schema={"src": pl.Int32, "dst": pl.Int32, "column": pl.Int32}, orient="row")
    return transfers.join(table, on=["src", "dst"], how="inner")


def one_way(transfers: pl.DataFrame, clock_bound_ns: int) -> pl.DataFrame:
    """Aligned transfers with busy times that exclude the acknowledgement's way back, which other links answer for.

    Transfers of several messages stay as they are. All stay where clocks are too uncertain; then a slow link can hardly
    be told from its other direction.
    """
    known = (pl.col("messages") == 1) & (pl.col("live_answer") > 0) & (pl.col("twin_answer") > 0)
    sure = clock_bound_ns <= CLOCK_SHARE_MAX * pl.col("twin_busy")
    shorter = (pl.col("live_busy") > pl.col("live_answer")) & (pl.col("twin_busy") > pl.col("twin_answer"))

    def forward(world: str) -> tuple[pl.Expr, pl.Expr]:
        busy, answer = f"{world}_busy", f"{world}_answer"
        of_way = pl.when(known & sure & shorter)
        # No time of an answer is left, so that a second call changes nothing.
        return (
            of_way.then(pl.col(busy) - pl.col(answer)).otherwise(busy).alias(busy),
            of_way.then(0).otherwise(answer).alias(answer),
        )

    return transfers.with_columns(*forward("live"), *forward("twin"))


def without_answers(transfers: pl.DataFrame, clock_bound_ns: int, practical: float) -> pl.DataFrame:
    """Aligned transfers that tell about the way of their data: `one_way`, less pairs of ranks that answers may delay.

    The data of several messages overlaps with their acknowledgements, so that no time can be subtracted. A transfer may
    be delayed if it is slower than the twin by `practical` or more, and its answers took as long as the delay. The
    clocks' uncertainty counts for its path. A pair is left out where most of its transfers may be delayed.
    """
    forward = one_way(transfers, clock_bound_ns)
    late = pl.col("live_busy") - pl.col("twin_busy")
    answers = pl.col("messages") * (pl.col("live_answer") - pl.col("twin_answer") - clock_bound_ns)
    is_known = (pl.col("live_answer") > 0) & (pl.col("twin_answer") > 0)
    is_delayed = is_known & (late >= practical * pl.col("twin_busy")) & (answers >= late)
    weight = pl.col("twin_busy")
    delayed = (
        forward.group_by("src", "dst")
        .agg(((weight * is_delayed).sum() / weight.sum()).alias("share"))
        .filter(pl.col("share") > 0.5)
    )
    return forward.join(delayed, on=["src", "dst"], how="anti", maintain_order="left")


def tier_series(transfers: pl.DataFrame, known_paths: KnownPaths) -> dict[str, Series]:
    """Tier -> series of its columns: in each unit the excess that all but FLOOR of a column's bytes exceed.

    A slow link slows all of its paths; transfers that contend with them are slow only now and then.

    `transfers` are standardised. Units are stretches of an iteration in which every column carries something. A column
    that carries little compared with the others is left out, because only its noise would be compared.
    """
    result = {}
    for tier in known_paths.tiers:
        columns = tuple(column for column in known_paths.columns if column.tier == tier)
        part = _tier(on_columns(transfers, columns), tier)
        if part is not None:
            result[tier] = part
    return result


def _tier(passing: pl.DataFrame, tier: str) -> Series | None:
    weight = passing.group_by("column").agg(pl.col("size_bytes").sum()).sort("column")
    if weight.is_empty():
        return None
    enough = weight.filter(pl.col("size_bytes") >= TRAFFIC_SHARE_MIN * pl.col("size_bytes").median())
    numbers = enough["column"].to_list()
    passing = passing.filter(pl.col("column").is_in(numbers))
    # Collectives that leave a column empty (a ring's) say nothing about it relative to the others.
    full = pl.col("column").n_unique().over("iteration", "group", "item") == len(numbers)
    whole = passing.filter(full)
    units = _units(whole if whole.height else passing)
    table = (
        units.sort("excess")
        .with_columns(
            (pl.col("size_bytes").cum_sum() / pl.col("size_bytes").sum())
            .over("iteration", "unit", "column")
            .alias("share")
        )
        .filter(pl.col("share") >= FLOOR)
        .group_by("iteration", "unit", "column")
        .agg(pl.col("excess").min())
    )
    wide = table.pivot("column", index=["iteration", "unit"], values="excess").sort("iteration", "unit").drop_nulls()
    if wide.is_empty() or set(map(str, numbers)) - set(wide.columns):
        return None
    values = wide.select(map(str, numbers)).to_numpy().astype(np.float64)
    return Series(tier, numbers, wide["iteration"].to_numpy().astype(np.int64), values)


def _units(passing: pl.DataFrame) -> pl.DataFrame:
    """Add column `unit`: the collectives of an iteration in up to PHASES_MAX runs of about equal number."""
    items = passing.group_by("group", "item").agg(pl.col("twin_post").min()).sort("twin_post", "group", "item")
    count = min(PHASES_MAX, items.height)
    items = items.with_columns((pl.int_range(pl.len()) * count // pl.len()).alias("unit")).drop("twin_post")
    return passing.join(items, on=["group", "item"], how="left", nulls_equal=True)
