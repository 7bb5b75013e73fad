"""The page of a simulation, made from its run folder alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from genie.page import PAGE_BYTES_MAX, document, filter_data, filters, members_of
from genie.page.parts import TABLE_ROWS_MAX
from genie.record import RecordError, mark, open_run, replace_own
from genie.record.played import has_packets, iteration_ends
from simtwin.fabric.queues import queues_of
from simtwin.fabric.reading import load_fabric
from simtwin.fabric.topology import build_network
from simtwin.levels.idle_network import IdleNetwork
from simtwin.levels.names import ANALYTIC
from simtwin.report import sections
from simtwin.report.critical_path import in_words
from simtwin.report.digest import Digest, digest_of
from simtwin.report.flows import NO_SLOWDOWN, figures, slowdowns
from simtwin.report.loads import hottest, link_loads
from simtwin.report.over_time import over_time
from simtwin.report.queue_depths import queue_depths
from simtwin.report.rank_time import rank_time, recorded_ranks
from simtwin.report.sentence import sentence
from simtwin.report.tiers import drawing
from simtwin.report.timelines import timelines

if TYPE_CHECKING:
    from genie.record import Run
    from simtwin.fabric.network import Network
    from simtwin.fabric.schema import Fabric

PAGE, PAGE_KIND = "report.html", "simulation-page"
HOTTEST_MAX = 15
MARGIN_BYTES = 20_000  # for the words around the timelines
RANK_BYTES = 400  # a row of the timelines' table
TIMELINES_BYTES_MIN = 300_000  # even on a page whose other parts leave less room
ASSETS = (
    ("genie.page", "assets/zoom.js"),
    ("genie.page", "assets/lanes.js"),
    ("simtwin.report", "assets/report.css"),
    ("simtwin.report", "assets/over_time.js"),
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
    no_slowdown = NO_SLOWDOWN if run.info.get("level") == ANALYTIC else ""
    drawn_flows: dict[str, dict[str, Any]] = {}
    if not no_slowdown:
        idle = IdleNetwork(fabric, network, host_of_rank, run.paths if same_paths else None)
        drawn_flows = figures(slowdowns(run, idle))
    digest = digest or digest_of(run, network)
    if not run.info.get("complete", True):
        _end_what_was_cut_short(run, ends_ns)
    spent = rank_time(run)
    shares = spent.shares(ends_ns, recorded_ranks(run))
    hot = hottest(loads, HOTTEST_MAX)
    drawn = drawing(network, loads) if loads["size_bytes"].sum() else None
    members = drawn.pop("members") if drawn else []
    data: dict[str, Any] = {
        "view": filter_data(
            sorted(run.timeline["rank"].unique().to_list()), members_of(run.timeline), list(ends_ns), drawn is not None
        ),
        "packets": has_packets(run),
        "hosts": [network.node_names[host] for host in host_of_rank],
        "topology": drawn,
        "flows": drawn_flows,
    }
    if run.series is not None:
        interval_ns = int(run.info.get("series_interval_ns") or 0)
        data["queues"] = queue_depths(run.series, ends_ns, interval_ns, _ecn(fabric, network))
        data["over_time"] = over_time(run.series, ends_ns, interval_ns, members, digest.longest)
    summary = sentence(run, ends_ns, shares, hot)
    above = (
        sections.head(summary),
        sections.facts_of(run, ends_ns, shares, loads),
        filters(data["view"]),
        sections.collectives(run, digest.collectives, in_words(digest.path, digest.longest)),
        sections.topology(run, data, hot, network),
        sections.queues(run, data.get("queues"), hot),
        sections.flows(drawn_flows, no_slowdown),
    )
    below = (sections.warnings(run, fabric),)
    others = len(document(summary, (*above, *below), data, ASSETS, mark(PAGE_KIND)).encode())
    rest = MARGIN_BYTES + RANK_BYTES * min(recorded_ranks(run), TABLE_ROWS_MAX)
    room = max(PAGE_BYTES_MAX - rest - others, TIMELINES_BYTES_MIN)
    data["lanes"] = timelines(run, spent, ends_ns, digest, room)
    body = (*above, sections.lanes(run, data["lanes"], ends_ns, spent), *below)
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
