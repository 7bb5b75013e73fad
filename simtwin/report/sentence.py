"""The simulation in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from genie.page import count_of, duration, percent, share
from genie.record.played import has_packets
from simtwin.levels.names import ANALYTIC
from simtwin.report.band import band_in_words, mean
from simtwin.report.loads import FULL
from simtwin.report.rank_time import NETWORK, recorded_ranks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from genie.record import Run


def sentence(run: Run, ends_ns: dict[int, int], shares: Sequence[float], loads: pl.DataFrame) -> str:
    """`GPT-13B on rail16: 41.2 ms an iteration; 63 % of it waiting for the network; ...`

    `ends_ns`: when iterations ended; `shares`: of ranks' time by state; `loads`: the links, the hottest one first.
    """
    waiting = f"{share(shares[NETWORK])} of it waiting for the network{_of_ranks(run)}"
    said = [f"{_name(run)}: {_time(run, ends_ns)}; {waiting}"]
    if len(loads):
        said.append(f"hottest link {busy(loads.row(0, named=True), sum(ends_ns.values()))}")
    else:
        said.append(no_links(run))
    said.append(events(run))
    return "; ".join(said)


LEFT_OUT = {
    "flow": "packets: queues, drops, marks, pauses and congestion control",
    "analytic": "packets, and contention between collectives",
}


def left_out(run: Run) -> str:
    """Return the effects that the level of a simulation leaves out; "" at level packet."""
    level = str(run.info.get("level", "packet"))
    what = LEFT_OUT.get(level, "")
    return f"level {level} leaves out {what}" if what else ""


def no_links(run: Run) -> str:
    """Return why there is no hottest link."""
    if not run.transfers["size_bytes"].sum():
        return "no link carried anything"
    if run.info.get("level") == ANALYTIC:
        return "level analytic has no loads of links, and level flow has them"
    return "no link with a limited rate carried anything"


def busy(load: Mapping[str, Any], total_ns: int) -> str:
    """Return `rail0leaf0->spine1, 63 % busy over 41.2 ms, above 90 % for 12 ms`; the last part with a series only."""
    said = f"{load['link']}, {share(load['mean'] or 0.0)} busy over {duration(total_ns)}"
    if load["peak"] is None:
        return said
    if load["full_ns"]:
        return f"{said}, above {percent(FULL)} for {duration(min(load['full_ns'], total_ns))}"
    return f"{said}, never above {percent(load['peak'])}"


def events(run: Run) -> str:
    """Return marks, pauses and drops of all links; at levels without packets, a note that there are none."""
    if not has_packets(run):
        return f"level {run.info['level']} has no packets to mark, pause or drop"
    links = run.counters["links"]
    marked, pauses = (sum(link.get(name, 0) for link in links) for name in ("marked", "pauses"))
    counted = (count_of(marked, "mark"), count_of(pauses, "pause"), count_of(int(run.counters["dropped"]), "drop"))
    return ", ".join(counted) if any(not it.startswith("no ") for it in counted) else "no marks, pauses or drops"


def _of_ranks(run: Run) -> str:
    ranks, recorded = int(run.info["ranks"]), recorded_ranks(run)
    return "" if ranks == recorded else f" on {recorded} of {ranks} ranks"


def _name(run: Run) -> str:
    return f"{Path(str(run.info.get('workload', 'workload'))).name} on {run.info.get('fabric', 'a fabric')}"


def _time(run: Run, ends_ns: dict[int, int]) -> str:
    if not run.info.get("complete", True):
        return f"stopped after {duration(sum(ends_ns.values()))}"
    band = band_in_words(run.info, duration, mean)
    return f"{duration(sum(ends_ns.values()) / max(len(ends_ns), 1))} an iteration{f' ({band})' if band else ''}"
