"""A simulation as a run folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
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
from simtwin.play.twin import Arrivals, FollowError, Simulation, SimulationError, Twin, arrivals_of
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

    watch = watch or Watch()
    numbers, arrivals_ns = _starts(workload, iterations, follow)
    given = _Request(
        workload, numbers, workload_path=workload_path, slots=slots, lowering=lowering, follow=follow, compute=compute,
        watch=watch, nccl_variables=nccl_variables, band=band,
    )  # fmt: skip
    live_paths = None if follow is None else follow.run.paths
    followed = None if live_paths is None else twin.follow_paths(live_paths)
    played = _play(twin, given, arrivals_ns)
    result = played.result
    # A run that is followed had the same paths in all iterations.
    seeds = [twin.seed] if follow is not None else [twin.seed + number for number in numbers]
    paths = twin.paths_of(result.transfers, seeds, followed) if twin.level.name != ANALYTIC else PlayedPaths(None, {})
    _warn(twin, workload, played, paths, follows_paths=followed is not None)
    info = _info(twin, given, played, paths)
    timeline = result.timeline.select(list(TIMELINE_SCHEMA)).cast(TIMELINE_SCHEMA)
    transfers = result.transfers.select(list(TRANSFERS_SCHEMA)).cast(TRANSFERS_SCHEMA)
    series = watch.series.table() if watch.series else None
    return Simulated(info, timeline, transfers, _counters(twin, result), paths.table, twin, series, played.failure)


@dataclass(frozen=True)
class _Request:
    """The workload, the numbers of its iterations, and other arguments of `simulated`."""

    workload: Workload
    numbers: list[int]
    workload_path: str
    slots: Slots | None
    lowering: Lowering | None
    follow: Follow | None
    compute: str | None
    watch: Watch
    nccl_variables: Sequence[Mapping[str, str]]
    band: bool


@dataclass(frozen=True)
class _Played:
    """All plays of a simulation.

    `skip`: the facts of its skips for run.json; None where nothing was to be skipped. `band`: the plays with other
    compute times. `failure`: the reason of an early end; "" for none.
    """

    result: Simulation
    skip: dict[str, Any] | None
    band: list[dict[str, Any]] | None
    failure: str
    unfinished: list[str]

    @property
    def is_whole(self) -> bool:
        """Whether it neither stopped nor failed."""
        return self.result.stopped is None and not self.failure


def _starts(workload: Workload, iterations: int, follow: Follow | None) -> tuple[list[int], Arrivals | None]:
    """Return the numbers of the iterations to play, and the measured starts; None to play the twin's own starts.

    Raises FollowError.
    """
    if follow is None or not follow.starts:
        return list(range(iterations)), None
    live = follow.run
    if live.info.get("ranks") != workload.world_size:
        raise FollowError(
            f"{live.path} is a run of {live.info.get('ranks')} ranks and the workload has {workload.world_size}"
        )
    arrivals_ns = arrivals_of(workload, _complete_iterations(live, workload))
    if not arrivals_ns:
        raise FollowError(f"{live.path} holds no iteration that all ranks ended: nothing to follow")
    has_communication = any((starts >= 0).any() for ranks in arrivals_ns.values() for starts in ranks.values())
    # Without communication, compute is played as in any simulation.
    return sorted(arrivals_ns), arrivals_ns if has_communication else None


def _play(twin: Twin, given: _Request, arrivals_ns: Arrivals | None) -> _Played:
    """Play the workload, then all packets again for --verify-skip, and then the band.

    Raises SimulationError where nothing was played.
    """
    workload, slots, lowering, watch = given.workload, given.slots, given.lowering, given.watch
    play = partial(
        twin.play, workload, slots=slots, lowering=lowering, iterations=given.numbers, arrivals_ns=arrivals_ns
    )
    failure, unfinished = "", []
    try:
        result = play(watch=watch)
    except SimulationError as error:
        if error.partial is None:
            raise
        result, failure = error.partial, str(error)
    is_whole = result.stopped is None and not failure
    skip = None if result.skipped is None else result.skipped.facts(result.counters["data_packets"])
    if watch.verifies_skips and skip is not None and is_whole:
        if watch.begins is not None:
            watch.begins("all packets: ")
        again = play(watch=replace(watch, series=None, played=None), skips=False)
        if again.stopped is None:
            skip["difference"] = first_difference(again, result)
        else:
            unfinished.append("--verify-skip")
    band = None
    if given.band and unfinished:
        unfinished.append("--band")
    elif given.band and is_whole:
        try:
            band = band_of(twin, workload, iterations=given.numbers, slots=slots, lowering=lowering, watch=watch)
        except SimulationError as error:
            failure = f"with other compute times: {error}"
        if band is None and not failure:
            unfinished.append("--band")
    return _Played(result, skip, band, failure, unfinished)


def _warn(twin: Twin, workload: Workload, played: _Played, paths: PlayedPaths, *, follows_paths: bool) -> None:
    """Warn of paths that were not followed, of faults without effect, and of ranks that are not recorded."""
    result = played.result
    if paths.facts.get("not_followed"):
        warn(
            f"fabric '{twin.fabric.name}': {paths.facts['not_followed']} pairs of ranks have the twin's own paths "
            f"instead of the run's: {paths.facts['why']}"
        )
    if twin.fabric.fault and played.is_whole:
        crossed = CrossedLinks.of(twin, result.counters["links"], result.transfers, follows_paths)
        for text in missed_faults(twin.fabric, twin.network, result.timeline, crossed):
            warn(text)
    if result.recorded is not None:
        warn(
            f"{workload.name}: the timeline holds {len(result.recorded)} of {workload.world_size} ranks, of each class "
            f"the {_recorded_of_class(twin.level)}; there is no critical path"
        )


def _info(twin: Twin, given: _Request, played: _Played, paths: PlayedPaths) -> dict[str, Any]:
    """Return the object of run.json, with the warnings so far."""
    workload, lowering, follow, series = given.workload, given.lowering, given.follow, given.watch.series
    network, result = twin.network, played.result
    return {
        "world": "twin",
        **twin.level.facts(),
        **_ending(result.stopped),
        **facts_of_build(),
        "command": command(),
        "workload": given.workload_path,
        "ranks": workload.world_size,
        "iterations": len(given.numbers),
        "warmup": 0,
        "seed": twin.seed,
        "threads": twin.threads,
        "follow": follow is not None and follow.starts,
        "follows": None if follow is None else str(follow.run.path),
        "error_bound": _error_bound(twin, played.skip or {}),
        **({} if played.skip is None else {"skip": played.skip}),
        "slots": given.slots,
        "compute": given.compute,
        "lowering": lowering.facts() if lowering else None,
        **({"nccl_choices": choices} if lowering and (choices := choices_of(workload, lowering)) else {}),
        "nccl_variables": [dict(variable) for variable in given.nccl_variables],
        "fabric": twin.fabric.name,
        "load_balancing": twin.fabric.load_balancing.mode,
        "paths": paths.facts,
        "warnings": kept_warnings(),
        "hosts": [attachment(network, rank, int(host)) for rank, host in enumerate(twin.host_of_rank)],
        "packet_latency_ns": [int(value) // 1000 for value in network.packet_latency_ps],
        "message_latency_ns": [int(value) // 1000 for value in network.message_latency_ps],
        "recorded": _recorded(workload, twin.level, result),
        "events": result.counters["events"],
        "data_packets": result.counters["data_packets"],
        "band": played.band,
        **({"unfinished_plays": played.unfinished} if played.unfinished else {}),
        "wall_s": round(result.counters["wall_s"], 6),
        "series_interval_ns": series.interval_ps // 1000 if series else None,
        "series_cut": dict(zip(("iteration", "time_ns"), series.cut, strict=True)) if series and series.cut else None,
    }


def _counters(twin: Twin, result: Simulation) -> dict[str, Any]:
    """Return the object of counters.json, with a row for each link of the network."""
    network = twin.network
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
    return counters


def _error_bound(twin: Twin, skip: dict[str, Any]) -> float | None:
    """Return the bound of the error of a message's end, as a share of its time; None where none is known."""
    if not twin.level.has_packets:
        return None
    bound: float | None = skip["estimates"]["apart"] if "estimates" in skip else 0.0
    return bound


def _recorded(workload: Workload, level: Level, result: Simulation) -> dict[str, Any] | None:
    """Return the ranks that the tables hold, and the sizes of their groups; None where they hold all.

    `last_end_ns`: the last end of all ranks, over all iterations.
    """
    ranks = result.recorded
    if ranks is None:
        return None
    used = {int(group) for rank in ranks for group in workload.ranks[rank].group.tolist() if group >= 0}
    groups = [workload.groups[number] for number in sorted(used)]
    return {
        "ranks": ranks,
        "which": _recorded_of_class(level),
        "last_end_ns": result.counters["last_end_ps"] // 1000,
        "group_sizes": {group.name: len(group.ranks) for group in groups},
    }


def _recorded_of_class(level: Level) -> str:
    """Return the rank of a class that a large job's tables hold, in words."""
    return "first" if level.has_packets else "last to end"


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
