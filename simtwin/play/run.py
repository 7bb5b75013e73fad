"""A simulation as a run folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genie.invocation import command
from genie.plan.build import Slots
from genie.plan.facts import facts_of_build
from genie.plan.lowering import Lowering, choices_of
from genie.record import RecordWriteError, Run, kept_warnings, open_run, warn
from genie.workload.graph import Workload
from simtwin.fabric.played_paths import PlayedPaths
from simtwin.fabric.tiers import crossings, tiers_of
from simtwin.fabric.topology import Network
from simtwin.levels.names import ANALYTIC, Level
from simtwin.play.band import band_of
from simtwin.play.effects import CrossedLinks, missed_faults
from simtwin.play.simulated import Simulated
from simtwin.play.skipping import first_difference
from simtwin.play.twin import FollowError, Simulation, SimulationError, Twin, arrivals_of
from simtwin.play.watching import Stopped, Watch

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Follow:
    """A live run whose paths a simulation takes, and whose starts unless it has its own."""

    run: Run
    starts: bool = True


def attachment(network: Network, rank: int, host: int) -> dict[str, Any]:
    """Return the names of a rank's host, NIC, link and switch."""
    uplink = network.uplink(host)
    name = network.node_names[host]
    return {
        "rank": rank,
        "host": name,
        "nic": f"{name}/nic0",
        "link": network.link_names[uplink],
        "switch": network.node_names[network.dst_node[uplink]],
    }


def simulate_to_folder(
    twin: Twin,
    workload: Workload,
    out: Path,
    *,
    workload_path: str,
    slots: Slots | None = None,
    lowering: Lowering | None = None,
    iterations: int = 1,
    follow: Follow | None = None,
    compute: str | None = None,
    watch: Watch | None = None,
    nccl_variables: Sequence[Mapping[str, str]] = (),
    band: bool = False,
) -> Run:
    """Simulate as `simulated` does, write the run folder with the fabric, and open it.

    A simulation that stopped early, or failed, is written as far as it got. Raises SimulationError and FollowError.
    """
    result = simulated(
        twin, workload, workload_path=workload_path, slots=slots, lowering=lowering, iterations=iterations,
        follow=follow, compute=compute, watch=watch, nccl_variables=nccl_variables, band=band,
    )  # fmt: skip
    try:
        result.fill(out)
    except RecordWriteError:
        if not result.failure:  # otherwise report the first problem
            raise
    if result.failure:
        raise SimulationError(f"{result.failure}; what was played until then is in {out}")
    return open_run(out)


def simulated(
    twin: Twin,
    workload: Workload,
    *,
    workload_path: str,
    slots: Slots | None = None,
    lowering: Lowering | None = None,
    iterations: int = 1,
    follow: Follow | None = None,
    compute: str | None = None,
    watch: Watch | None = None,
    nccl_variables: Sequence[Mapping[str, str]] = (),
    band: bool = False,
) -> Simulated:
    """Simulate, and return everything that a run folder records; after a failure, as far as it got.

    `nccl_variables`: the variables that are set and their effects, for the record. `band`: whether to play the
    workload at the compute times of `band.BAND` too, for the record. Raises FollowError.
    """
    from genie.record.schemas import TIMELINE_SCHEMA, TRANSFERS_SCHEMA

    arrivals = None
    numbers: list[int] = list(range(iterations))
    live, starts = (None, False) if follow is None else (follow.run, follow.starts)
    if live is not None and starts:
        if live.info.get("ranks") != workload.world_size:
            raise FollowError(
                f"{live.path} is a run of {live.info.get('ranks')} ranks and the workload has {workload.world_size}"
            )
        arrivals = arrivals_of(workload, _complete_iterations(live, workload))
        numbers = sorted(arrivals)
        if not numbers:
            raise FollowError(f"{live.path} holds no iteration that all ranks ended: nothing to follow")
        if not any((starts >= 0).any() for ranks in arrivals.values() for starts in ranks.values()):
            arrivals = None  # no communication: play compute as in any simulation
    followed = twin.follow_paths(live.paths) if live is not None and live.paths is not None else None
    watch, failure = watch or Watch(), ""
    try:
        result = twin.play(
            workload, slots=slots, lowering=lowering, iterations=numbers, arrivals_ns=arrivals, watch=watch
        )
    except SimulationError as error:
        if error.partial is None:
            raise
        result, failure = error.partial, str(error)
    facts = {} if result.skipped is None else {"skip": result.skipped.facts(result.counters["data_packets"])}
    if watch.verifies_skips and facts and result.stopped is None and not failure:
        again = replace(watch, series=None, played=None)
        played = twin.play(
            workload, slots=slots, lowering=lowering, iterations=numbers, arrivals_ns=arrivals, watch=again, skips=False
        )
        facts["skip"]["difference"] = first_difference(played, result)
    plays = None
    if band and result.stopped is None and not failure:
        try:
            plays = band_of(twin, workload, iterations=numbers, slots=slots, lowering=lowering, watch=watch)
        except SimulationError as error:
            failure = f"with other compute times: {error}"
    network = twin.network
    # A run that is followed had the same paths in all iterations.
    seeds = [twin.seed] if follow is not None else [twin.seed + number for number in numbers]
    paths = twin.paths_of(result.transfers, seeds, followed) if twin.level.name != ANALYTIC else PlayedPaths(None, {})
    if paths.facts.get("not_followed"):
        warn(
            f"fabric '{twin.fabric.name}': {paths.facts['not_followed']} pairs of ranks have the twin's own paths "
            f"instead of the run's: {paths.facts['why']}"
        )
    if twin.fabric.fault and result.stopped is None and not failure:
        crossed = CrossedLinks.of(twin, result.counters["links"], result.transfers, followed is not None)
        for text in missed_faults(twin.fabric, network, result.timeline, crossed):
            warn(text)
    recorded = _recorded(workload, twin.level, result)
    info = {
        "world": "twin",
        **twin.level.facts(),
        **_ending(result.stopped),
        **facts_of_build(),
        "command": command(),
        "workload": workload_path,
        "ranks": workload.world_size,
        "iterations": len(numbers),
        "warmup": 0,
        "seed": twin.seed,
        "threads": twin.threads,
        "follow": starts,
        "follows": str(live.path) if live else None,
        "error_bound": _error_bound(twin, facts),
        **facts,
        "slots": slots,
        "compute": compute,
        "lowering": lowering.facts() if lowering else None,
        **({"nccl_choices": choices} if lowering and (choices := choices_of(workload, lowering)) else {}),
        "nccl_variables": [dict(variable) for variable in nccl_variables],
        "fabric": twin.fabric.name,
        "load_balancing": twin.fabric.load_balancing.mode,
        "paths": paths.facts,
        "warnings": kept_warnings(),
        "hosts": [attachment(network, rank, int(host)) for rank, host in enumerate(twin.host_of_rank)],
        "packet_latency_ns": [int(value) // 1000 for value in network.packet_latency_ps],
        "message_latency_ns": [int(value) // 1000 for value in network.message_latency_ps],
        "recorded": recorded,
        "events": result.counters["events"],
        "data_packets": result.counters["data_packets"],
        "band": plays,
        "wall_s": round(result.counters["wall_s"], 6),
        "series_interval_ns": watch.series.interval_ps // 1000 if watch.series else None,
        "series_cut": dict(zip(("iteration", "time_ns"), watch.series.cut, strict=True))
        if watch.series and watch.series.cut
        else None,
    }
    links = [
        {
            "link": name,
            "tier": tier,
            "rate_bps": rate_bps,  # 0: unlimited
            **{key: values[number] for key, values in result.counters["links"].items()},
        }
        for number, (name, tier, rate_bps) in enumerate(
            zip(network.link_names, tiers_of(network), network.rate_bps.tolist(), strict=True)
        )
    ]
    counters = {"dropped": result.counters["dropped"], "links": links}
    if twin.fabric.load_balancing.mode != "ecmp":
        counters["crossed"] = crossings(network, twin.routes, twin.host_of_rank.tolist(), result.transfers)
    timeline = result.timeline.select(list(TIMELINE_SCHEMA)).cast(TIMELINE_SCHEMA)
    transfers = result.transfers.select(list(TRANSFERS_SCHEMA)).cast(TRANSFERS_SCHEMA)
    series = watch.series.table() if watch.series else None
    return Simulated(info, timeline, transfers, counters, paths.table, twin, series, failure)


def _error_bound(twin: Twin, facts: dict[str, Any]) -> float | None:
    """Return the bound of the error of a message's end, as a share; None where none is known."""
    if not twin.level.has_packets:
        return None
    estimates = facts.get("skip", {}).get("estimates")
    return float(estimates["apart"]) if estimates else 0.0


def _recorded(workload: Workload, level: Level, result: Simulation) -> dict[str, Any] | None:
    """Return the ranks that the tables hold, and the sizes of their groups; None where they hold all.

    `last_end_ns`: the last end of all ranks, over all iterations.
    """
    ranks = result.recorded
    if ranks is None:
        return None
    which = "first" if level.has_packets else "last to end"
    used = {int(group) for rank in ranks for group in workload.ranks[rank].group.tolist() if group >= 0}
    groups = [workload.groups[number] for number in sorted(used)]
    warn(
        f"{workload.name}: the timeline holds {len(ranks)} of {workload.world_size} ranks, of each class the {which}; "
        "there is no critical path"
    )
    return {
        "ranks": ranks,
        "which": which,
        "last_end_ns": result.counters["last_end_ps"] // 1000,
        "group_sizes": {group.name: len(group.ranks) for group in groups},
    }


def _ending(stopped: Stopped | None) -> dict[str, Any]:
    """Return how a simulation ended, for run.json."""
    if stopped is None:
        return {"complete": True}
    return {
        "complete": False,
        "problem": stopped.why,
        "stopped_at_ns": stopped.at_ps // 1000,
        "stopped_iteration": stopped.iteration,
    }


def _complete_iterations(live: Run, workload: Workload) -> pl.DataFrame:
    """Return the rows of the iterations in which every node of every rank with nodes ended.

    Raises FollowError when a node lacks its start.
    """
    import polars as pl

    ranks = sum(len(graph) > 0 for graph in workload.ranks.values())
    # A node that has ended must have a start; a comparison with null is neither true nor false.
    for name, lacking in (
        ("end_ns", pl.col("end_ns").is_null()),
        ("start_ns", (pl.col("end_ns") >= 0) & ~(pl.col("start_ns") >= 0).fill_null(value=False)),
    ):
        row = live.timeline.with_row_index("row").filter(lacking).head(1)
        if row.height:
            first = row.row(0, named=True)
            raise FollowError(
                f"{live.path / 'timeline.parquet'}: row {first['row']} (iteration {first['iteration']}, rank "
                f"{first['rank']}, node {first['node_id']}) has {name} {first[name]}: nothing to follow; make the run "
                "again"
            )
    ended = (
        live.timeline.group_by("iteration")
        .agg(unfinished=(pl.col("end_ns") < 0).sum(), ranks=pl.col("rank").n_unique())
        .filter((pl.col("unfinished") == 0) & (pl.col("ranks") == ranks))
    )
    return live.timeline.join(ended.select("iteration"), on="iteration", how="semi")
