"""Load: the links that the traffic fills in the twin, so that a slower link would have slowed the traffic.

A flow of 100 Mb/s over a link of 200 Mb/s is as fast over one of 140 Mb/s. Its time says nothing about the link.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from genie.verdict.links import FLOOR

if TYPE_CHECKING:
    from genie.record import Run
    from genie.verdict.align import Aligned
    from genie.verdict.components import Attachment

HEADERS_BYTES = 100  # of a packet on the wire, about, with the frame's own
MTU_BYTES = 4096
# Of a link's bytes: these cross it while it is full. The slow-down of a link is what as many of its bytes exceed.
FILLED_SHARE = 1 - FLOOR


def filled_links(live: Run, twin: Run, aligned: Aligned, practical: float) -> frozenset[str] | None:
    """Return the links that would have slowed most of their bytes if they were slower by `practical`.

    Rates and times are the twin's. Any traffic fills a link without a limit, which has no rate to fall short of. None
    where the twin's record has no rates, or the paths are not known.
    """
    return None if live.paths is None else _filled(_crossing(live.paths), live, twin, aligned, practical)


def filled_nics(
    live: Run, twin: Run, aligned: Aligned, attached: dict[int, Attachment], practical: float
) -> frozenset[tuple[str, int]] | None:
    """Return (direction, rank) of the NICs that would have slowed most of their bytes; see filled_links().

    Ranks of one host send each other nothing through a NIC.
    """
    links = {("egress", rank): own.link for rank, own in attached.items() if own.link}
    links |= {
        ("ingress", rank): "->".join(reversed(own.link.split("->"))) for rank, own in attached.items() if own.link
    }
    ends = {"egress": 0, "ingress": 1}
    rows = [
        (*pair, links[direction, pair[end]], 1.0)
        for pair in aligned.transfers.select("src", "dst").unique().rows()
        if not (attached[pair[0]].host and attached[pair[0]].host == attached[pair[1]].host)
        for direction, end in ends.items()
        if (direction, pair[end]) in links
    ]
    schema = {"src": pl.Int32, "dst": pl.Int32, "link": pl.String, "part": pl.Float64}
    filled = _filled(pl.DataFrame(rows, schema, orient="row"), live, twin, aligned, practical)
    return None if filled is None else frozenset(nic for nic, link in links.items() if link in filled)


def _filled(crossing: pl.DataFrame, live: Run, twin: Run, aligned: Aligned, practical: float) -> frozenset[str] | None:
    rates = {str(entry["link"]): int(entry.get("rate_bps") or 0) for entry in twin.counters.get("links") or []}
    if aligned.transfers.is_empty() or not any(rates.values()):
        return None
    mtu_bytes = int((live.info.get("settings") or {}).get("mtu") or MTU_BYTES)
    wire = 8e9 * (1 + HEADERS_BYTES / mtu_bytes)
    moments = _moments(crossing, aligned)
    table = pl.DataFrame({"link": list(rates), "rate_bps": list(rates.values())})
    is_full = pl.col("bytes_per_ns") * wire * (1 + practical) >= pl.col("rate_bps")
    shares = (
        moments.join(table, on="link", how="inner")
        .group_by("link")
        .agg(full=pl.col("bytes").filter(is_full).sum() / pl.col("bytes").sum())
    )
    return frozenset(shares.filter(pl.col("full") >= FILLED_SHARE)["link"].to_list())


def _crossing(paths: pl.DataFrame) -> pl.DataFrame:
    """A row per pair of ranks and link: `part`, the share of the pair's paths that cross the link."""
    counts = paths.group_by("src", "dst").agg(paths=pl.col("source_port").n_unique())
    crossed = paths.group_by("src", "dst", "link").agg(crossing=pl.col("source_port").n_unique())
    part = (pl.col("crossing") / pl.col("paths")).alias("part")
    return crossed.join(counts, on=["src", "dst"]).select("src", "dst", "link", part)


def _moments(crossing: pl.DataFrame, aligned: Aligned) -> pl.DataFrame:
    """A row per link and stretch of time with the same flows: `bytes_per_ns`, and `bytes` of the whole stretch.

    A transfer sends at one rate from its first post to its end.
    """
    transfers = aligned.transfers
    if not aligned.follow:  # all iterations have the twin's only one beside them
        transfers = transfers.filter(pl.col("iteration") == pl.col("iteration").min())
    flows = transfers.join(crossing, on=["src", "dst"], how="inner").select(
        "iteration", "link", "twin_post", "twin_busy", rate=pl.col("size_bytes") * pl.col("part") / pl.col("twin_busy")
    )
    changes = pl.concat(
        [
            flows.select("iteration", "link", at="twin_post", change="rate"),
            flows.select("iteration", "link", at=pl.col("twin_post") + pl.col("twin_busy"), change=-pl.col("rate")),
        ]
    ).sort("iteration", "link", "at")
    own = ["iteration", "link"]
    return (
        changes.with_columns(
            bytes_per_ns=pl.col("change").cum_sum().over(own),
            lasting_ns=(pl.col("at").shift(-1) - pl.col("at")).over(own).fill_null(0),
        )
        .with_columns(bytes=pl.col("bytes_per_ns") * pl.col("lasting_ns"))
        .select("link", "bytes_per_ns", "bytes")
    )
