"""The page of a simulation, made from its run folder alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from genie.page import document
from genie.page.lanes import SHORTEST_PART, lane_slices
from genie.record import RecordError, mark, open_run, replace_own
from simtwin.fabric.queues import queues_of
from simtwin.fabric.reading import load_fabric
from simtwin.fabric.topology import build_network
from simtwin.levels.idle_network import IdleNetwork
from simtwin.report import sections
from simtwin.report.critical_path import in_words, slices_of
from simtwin.report.digest import Digest, digest_of
from simtwin.report.flows import figures, slowdowns
from simtwin.report.loads import hottest, iteration_ends, link_loads
from simtwin.report.queue_depths import queue_depths
from simtwin.report.rank_time import NETWORK_KINDS, rank_time, recorded_ranks, rows_of_ranks, strips
from simtwin.report.sentence import has_packets, sentence
from simtwin.report.tiers import drawing

if TYPE_CHECKING:
    from genie.record import Run
    from simtwin.fabric.network import Network
    from simtwin.fabric.schema import Fabric
    from simtwin.report.rank_time import RankTime

PAGE, PAGE_KIND = "report.html", "simulation-page"
HOTTEST_MAX = 15
LANE_RANKS_MAX = 32  # with swim lanes
SLICES_MAX = 24_000
STRIPS_MAX = 128  # rows of the overview of all ranks
STRIP_BINS = 400
ASSETS = (
    ("genie.page", "assets/lanes.js"),
    ("simtwin.report", "assets/report.css"),
    ("simtwin.report", "assets/topology.js"),
    ("simtwin.report", "assets/queues.js"),
    ("simtwin.report", "assets/flows.js"),
    ("simtwin.report", "assets/report.js"),
)


def write_simulation_report(folder: Path, digest: Digest | None = None) -> Path:
    """Write report.html into the run folder of a simulation. `digest`: of the run, where it is made already.

    Raises RecordError, FabricError, RecordWriteError.
    """
    path = folder / PAGE
    replace_own(path, simulation_report(folder, digest), PAGE_KIND)
    return path


def simulation_report(folder: Path, digest: Digest | None = None) -> str:
    """Return the page as text. Raises RecordError and FabricError."""
    run = open_run(folder)
    if run.info.get("world") != "twin" or not (folder / "fabric.toml").is_file():
        raise RecordError(f"{folder}: is not a run of genie simulate; for a page of two runs use genie diff")
    fabric = load_fabric(folder / "fabric.toml")
    network = build_network(fabric)
    loads = link_loads(run, network)
    ends_ns = iteration_ends(run)
    host_of_rank = _host_of_rank(run, network)
    same_paths = not run.info.get("paths", {}).get("changed")
    drawn_flows = figures(slowdowns(run, IdleNetwork(fabric, network, host_of_rank, run.paths if same_paths else None)))
    if not run.info.get("complete", True):
        _end_what_was_cut_short(run, ends_ns)
    spent = rank_time(run)
    shares = spent.shares(ends_ns, recorded_ranks(run))
    hot = hottest(loads, HOTTEST_MAX)
    digest = digest or digest_of(run, network)
    data: dict[str, Any] = {
        "packets": has_packets(run),
        "topology": drawing(network, loads) if loads["size_bytes"].sum() else None,
        "flows": drawn_flows,
        "lanes": _lanes(run, spent, ends_ns, digest),
    }
    if run.series is not None:
        interval_ns = int(run.info.get("series_interval_ns") or 0)
        data["queues"] = queue_depths(run.series, ends_ns, interval_ns, _ecn(fabric, network))
    summary = sentence(run, ends_ns, shares, hot)
    body = (
        sections.head(summary),
        sections.facts_of(run, ends_ns, shares, loads),
        sections.collectives(run, digest.collectives, in_words(digest.path, digest.longest)),
        sections.topology(run, data["topology"], hot, network),
        sections.queues(run, data.get("queues"), hot),
        sections.flows(data["flows"]),
        sections.lanes(run, data["lanes"], ends_ns),
        sections.warnings(run, fabric),
    )
    return document(summary, body, data, ASSETS, mark(PAGE_KIND))


def _host_of_rank(run: Run, network: Network) -> list[int]:
    number = {name: host for host, name in enumerate(network.node_names[: network.hosts])}
    return [number[it["host"]] for it in sorted(run.info["hosts"], key=lambda it: int(it["rank"]))]


def _end_what_was_cut_short(run: Run, ends_ns: dict[int, int]) -> None:
    """End the nodes and transfers in progress at the time when the simulation was stopped."""
    import polars as pl

    stopped = pl.col("iteration").replace_strict(ends_ns, return_dtype=pl.Int64, default=0)

    def ended(column: str) -> pl.Expr:
        return pl.when(pl.col(column) < 0).then(stopped).otherwise(pl.col(column)).alias(column)

    run.timeline = run.timeline.with_columns(ended("end_ns"))
    begun = run.transfers.filter(pl.col("post_ns") >= 0)
    run.transfers = begun.with_columns(ended("last_ns"), ended("acked_ns"))


def _ecn(fabric: Fabric, network: Network) -> dict[str, list[int]]:
    """Return link → queue length in bytes above which some packets are marked, and above which all are."""
    queues = queues_of(fabric, network)
    marking = np.flatnonzero(queues.ecn_minimum_bytes >= 0)
    return {
        network.link_names[link]: [int(queues.ecn_minimum_bytes[link]), int(queues.ecn_maximum_bytes[link])]
        for link in marking
    }


def _lanes(run: Run, spent: RankTime, ends_ns: dict[int, int], digest: Digest) -> dict[str, Any]:
    """Return swim lanes of the longest iteration: of all ranks, or one strip a few ranks and the lanes of a few.

    The last row is the critical path.
    """
    import polars as pl

    iteration = digest.longest
    end_ns = ends_ns.get(iteration, 0)
    played = run.timeline.filter(pl.col("iteration") == iteration)
    ranks = sorted(played["rank"].unique().to_list())
    shown = ranks
    if len(ranks) > LANE_RANKS_MAX:
        # Evenly spaced ranks, and the one that ends last.
        last = played.sort("end_ns", descending=True)["rank"][0]
        shown = sorted({last, *(ranks[at] for at in np.linspace(0, len(ranks) - 1, LANE_RANKS_MAX // 2).astype(int))})
    slices = lane_slices(played, {rank: at for at, rank in enumerate(shown)}, 0, dict.fromkeys(NETWORK_KINDS, 1))
    slices = slices[:SLICES_MAX] + slices_of(digest.path, len(shown), end_ns // SHORTEST_PART)[:SLICES_MAX]
    result = {"iteration": iteration, "end": end_ns, "ranks": shown, "slices": slices}
    if len(ranks) > LANE_RANKS_MAX and recorded_ranks(run) == int(run.info["ranks"]):
        rows = rows_of_ranks(len(ranks), STRIPS_MAX)
        result["strips"] = strips(spent, iteration, end_ns, rows, STRIP_BINS)
        result["strip_ranks"] = [[row[0], row[-1]] for row in rows]
    return result
