"""The twin for scripts and notebooks: `simtwin.simulate` and its helpers. Import these names from `simtwin`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from genie.config.nccl import NcclVariables, Setting, changes_of_files, warnings_of
from genie.config.strict_toml import SettingsError, Tables
from genie.inputs.spelling import as_keywords, option
from genie.plan.lowering import Lowering
from genie.record import TWIN, begin_record, prepare_folder, refuse_inputs_in, unlock_folders, warn, warn_of_old_name
from genie.workload.classes import RankViews
from genie.workload.compute import fill_durations, parse_compute
from genie.workload.graph import RankGraph, Workload, WorkloadError
from genie.workload.load import load
from simtwin.fabric.placement import host_of_rank, ranks_per_server
from simtwin.fabric.schema import Fabric
from simtwin.fabric.topology import build_network
from simtwin.imports.fabric_files import read_fabric_file
from simtwin.levels.names import FLOW, LEVELS, Level
from simtwin.play.effects import idle_compute, idle_options
from simtwin.play.options import SimulateOptions
from simtwin.play.run import simulated
from simtwin.play.series import SAMPLED_LEVELS, Series, simulated_time
from simtwin.play.simulated import Simulated
from simtwin.play.traffic import Collective, Incast, Permutation, Poisson, SizesGiven, Traffic, workload_on
from simtwin.play.twin import SimulationError, Twin
from simtwin.play.watching import Watch
from simtwin.play.wire import lowering_from, nccl_record, with_connections

load_workload = load
Progress = Callable[[int, int, float], None]  # iteration, events, simulated seconds
AnyFabric = Fabric | str | Path


class OptionError(SettingsError):
    """An invalid option of a simulation or of traffic: one line that names it and the allowed values."""


class Options(TypedDict, total=False):
    """The options of `simulate`, as its keyword arguments; defaults are those of `genie simulate`.

    level: "packet+skip" (the default), "packet", "flow" or "analytic".
    sharing: division of a link's rate among flows at level flow, "max-min" or "equal".
    seed: number of the drawn decisions of the first iteration, 0 to 2^62; each iteration has its own.
    iterations: number of times that the workload is played, at least 1.
    threads: number of cores; the results are the same for every number.
    congestion: name of a congestion control, with its default parameters; None: that of the fabric.
    wire: messages of collectives, "nccl" as NCCL sends them, or "plain" as the algorithm does.
    channels: number of parallel parts of a collective, 1 to 64; None: as NCCL chooses.
    credit: whether receivers allow each message.
    queue_pairs: number of queue pairs of a connection; None: that of the fabric.
    split: whether each message uses all queue pairs of its connection; None: as in the fabric.
    spray: number of UDP source ports that the packets of a queue pair take; None: that of the fabric.
    ranks_per_node: number of ranks of a server; None: that of the fabric.
    slice_delay: time between two slices of NCCL's messages, with a unit, such as "5us".
    gpu: name of a GPU, the costs of which are played; None: that of the fabric.
    nccl: version of NCCL, such as "2.27"; its choices of algorithms are played.
    slots: the operations of a rank that run at once: "streams" as on a GPU, or "astra" as in ASTRA-sim.
    compute: times of compute nodes, as for `--compute`.
    congestion_control: old name of `congestion`, read for one release.
    """

    level: str
    sharing: Literal["max-min", "equal"]
    seed: int
    iterations: int
    threads: int
    congestion: str | None
    wire: Literal["nccl", "plain"]
    channels: int | None
    credit: bool
    queue_pairs: int | None
    split: bool | None
    spray: int | None
    ranks_per_node: int | None
    slice_delay: str | None
    gpu: str | None
    nccl: str | None
    slots: Literal["streams", "astra"] | None
    compute: str | None
    congestion_control: str | None


def simulate(
    fabric: AnyFabric,
    workload: Workload | str | Path,
    *,
    algorithms: Mapping[str, str] | None = None,
    hosts: Sequence[str] = (),
    out: str | Path | None = None,
    series_interval: str | None = None,
    progress: Progress | None = None,
    **options: Unpack[Options],
) -> Simulated:
    """Play a workload in the twin, as `genie simulate` does: the same input gives the same bits.

    fabric: a fabric, or the path of its file.
    workload: generated, or a folder or prefix of `.et` files.
    algorithms: operation -> algorithm, such as {"all_reduce": "ring"}; None: as NCCL chooses.
    hosts: names of the fabric's hosts on which ranks 0, 1, ... are, in place of a hosts file.
    out: run folder to write; nothing is written without.
    series_interval: simulated time between samples, with a unit, such as "10us"; None: no samples.
    progress: called now and then with (iteration, events, simulated seconds).
    options: as on the command line, see `Options`; NCCL's variables hold here too.
    Returns the simulation: times in ns, sizes in bytes.
    Raises SettingsError (OptionError, FabricError), ForeignFileError (of other tools' files), WorkloadError,
    SimulationError, RecordError, and ValueError of NCCL's variables: one line each.
    """
    given: dict[str, Any] = dict(options)
    given["algorithms"] = dict(algorithms or {})
    if "congestion_control" in given:
        warn_of_old_name("simulate", "congestion_control", "congestion")
        given.setdefault("congestion", given.pop("congestion_control"))
    checked = Tables(given, "simulate", OptionError).convert(SimulateOptions)
    series_ps = None if series_interval is None else _series_ps(series_interval, checked.level)
    _check_kind("simulate: workload", workload, Workload, "a workload, or a folder or prefix of traces")
    if out is not None:
        refuse_inputs_in(Path(out), _files(fabric, workload, checked.algorithms))
    built = _built(fabric, "simulate")
    played = workload if isinstance(workload, Workload) else load(workload)
    return play(
        built,
        played,
        checked,
        workload_path=played.name if isinstance(workload, Workload) else str(Path(workload).resolve()),
        hosts=hosts,
        out=None if out is None else Path(out),
        series_ps=series_ps,
        progress=progress,
    )


@as_keywords()
def play(
    fabric: Fabric,
    workload: Workload,
    options: SimulateOptions,
    *,
    workload_path: str,
    hosts: Sequence[str] = (),
    out: Path | None = None,
    series_ps: int | None = None,
    progress: Progress | None = None,
) -> Simulated:
    """Simulate with checked options; arguments as in `simulate`."""
    begin_record()
    lowering, built = settled(options, fabric)
    variables = NcclVariables()
    # Durations are filled in below: the caller's graphs keep their own.
    workload = replace(workload, ranks=_with_own_durations(workload.ranks))
    filled = fill_durations(workload, None if options.compute is None else parse_compute(options.compute))
    idle = idle_options(options, workload, lowering, built, built.transport, options.level, options.seed)
    for text in (*idle_compute(options.compute, filled), *idle):
        warn(text)
    above = {
        variable: option(key) if getattr(options, key) is not None else f"[transport] {key} of the fabric"
        for variable, key in (("NCCL_IB_QPS_PER_CONNECTION", "queue_pairs"), ("NCCL_IB_SPLIT_DATA_ON_QPS", "split"))
        if getattr(options, key) is not None or getattr(fabric.transport, key) is not None
    }
    listed = nccl_record(options, lowering, workload, False, above, variables)
    for text in [*warnings_of(variables), *changes_of_files(Setting(**each) for each in listed)] if listed else ():
        warn(text)
    network = build_network(built)
    placed = host_of_rank(network, workload.world_size, hosts, fabric=fabric.name)
    level = Level(options.level, options.sharing)
    twin = Twin(built, network, placed.tolist(), options.seed, options.threads, level)
    watch = Watch(series=None if series_ps is None else Series(series_ps, network.link_names))
    if progress is not None:
        watch.progress = lambda simulator, place, _: progress(place, simulator.events, simulator.now_ps / 1e12)
    if out is not None:
        prepare_folder(out, TWIN)
    result = simulated(
        twin, workload, workload_path=workload_path, slots=options.slots, lowering=lowering,
        iterations=options.iterations, compute=options.compute, watch=watch, nccl_variables=listed,
    )  # fmt: skip
    if out is not None:
        result.fill(out)
        unlock_folders()
    if result.failure:
        raise SimulationError(result.failure)
    return result


def _with_own_durations(ranks: Mapping[int, RankGraph]) -> Mapping[int, RankGraph]:
    """Return graphs whose durations may be changed; ranks of a class share theirs."""
    if isinstance(ranks, RankViews):
        own = tuple(replace(graph, duration_ns=graph.duration_ns.copy()) for graph in ranks.classes.templates)
        return replace(ranks.classes, templates=own).view()
    return {rank: replace(graph, duration_ns=graph.duration_ns.copy()) for rank, graph in ranks.items()}


def _files(fabric: object, workload: object, algorithms: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Yield the paths that a simulation reads, each with the name of its argument."""
    if isinstance(fabric, str | PathLike):
        yield "fabric", Path(fabric)
    if isinstance(workload, str | PathLike):
        yield "workload", Path(workload) if Path(workload).exists() else Path(workload).parent
    yield from (("algorithms", Path(name)) for name in algorithms.values() if name.endswith(".xml"))


def _check_kind(name: str, given: object, kind: type, allowed: str) -> None:
    """Raise OptionError for a value that is neither of a type nor the path of such a file."""
    if not isinstance(given, kind | str | PathLike):
        what = "None" if given is None else f"of type {type(given).__name__}"
        raise OptionError(f"{name} is {what}: give {allowed}")


def _built(fabric: AnyFabric, caller: str) -> Fabric:
    """Return the fabric, read where a path is given. Raises OptionError, FabricError and ForeignFileError."""
    _check_kind(f"{caller}: fabric", fabric, Fabric, "a fabric, or the path of its file")
    return fabric if isinstance(fabric, Fabric) else read_fabric_file(Path(fabric))


def _series_ps(interval: str, level: str) -> int:
    """Return the interval of a series in ps. Raises OptionError."""
    if level not in SAMPLED_LEVELS:
        raise OptionError(f"series_interval: level {level} has no queues to sample: use level packet")
    try:
        return simulated_time(interval, "10us")
    except ValueError as error:
        raise OptionError(f"series_interval {interval}: {error}") from error


@as_keywords()
def settled(options: SimulateOptions, fabric: Fabric) -> tuple[Lowering, Fabric]:
    """Return how collectives become messages, and the fabric with the options' connections. Raises OptionError."""
    if options.level not in LEVELS:
        raise OptionError(f"level {options.level}: is not a level; give {', '.join(LEVELS)}")
    if options.sharing != "max-min" and options.level != FLOW:
        raise OptionError(f"sharing {options.sharing}: is for level {FLOW}")
    try:
        if options.compute is not None:
            parse_compute(options.compute)
        lowering = lowering_from(
            options, lambda: ranks_per_server(fabric, options.gpu), NcclVariables(), lambda: fabric
        )
        transport = with_connections(fabric.transport, options)
    except (ValueError, WorkloadError) as error:
        raise OptionError(str(error)) from error
    return lowering, fabric.with_transport(transport)


def poisson(
    fabric: AnyFabric,
    *,
    load: float,
    duration: str,
    sizes: SizesGiven,
    seed: int = 1,
    ranks: int | None = None,
) -> Workload:
    """Return flows that start at each host as a Poisson process during `duration`, each to a random other host.

    fabric: a fabric, or the path of its file.
    load: payload from each host, as a share of its port's rate, above 0.
    duration: simulated time in which flows start, with a unit, such as "1ms".
    sizes: one size ("64KiB"), "web-search", the path of a file, or points [(size, share), ...]. A file has a size in
    bytes and a percentage in each line.
    seed: number of the drawn starts, sizes and receivers, at least 0.
    ranks: number of hosts that take part, the first ones; None: all.
    Returns a workload of one send and one receive for each flow.
    Raises SettingsError (OptionError, FabricError) and ForeignFileError.
    """
    given = {"load": load, "duration": duration, "sizes": sizes, "seed": seed, "ranks": ranks}
    return _traffic(fabric, Poisson, given)


def incast(
    fabric: AnyFabric, size: str | int, senders: int | None = None, target: int = 0, ranks: int | None = None
) -> Workload:
    """Return a message from each of many hosts to one host, all at once.

    fabric: a fabric, or the path of its file.
    size: of a message, in bytes, or with a unit such as "1MiB".
    senders: number of sending hosts, the first ones beside the target; None: all others.
    target: rank of the receiver, from 0.
    ranks: number of hosts that take part, the first ones; None: all.
    Returns a workload of one send and one receive for each sender.
    Raises SettingsError (OptionError, FabricError) and ForeignFileError.
    """
    return _traffic(fabric, Incast, {"size": size, "senders": senders, "target": target, "ranks": ranks})


def permutation(fabric: AnyFabric, size: str | int, seed: int = 1, ranks: int | None = None) -> Workload:
    """Return a message from each host to one other; each host receives one.

    fabric: a fabric, or the path of its file.
    size: of a message, in bytes, or with a unit such as "1MiB".
    seed: number of the drawn permutation, at least 0.
    ranks: number of hosts that take part, the first ones; None: all.
    Returns a workload of one send and one receive for each host.
    Raises SettingsError (OptionError, FabricError) and ForeignFileError.
    """
    return _traffic(fabric, Permutation, {"size": size, "seed": seed, "ranks": ranks})


def collective(
    fabric: AnyFabric, operation: str, size: str | int, count: int = 1, ranks: int | None = None
) -> Workload:
    """Return collectives of one group, one after another.

    fabric: a fabric, or the path of its file.
    operation: all_reduce, reduce, all_gather, broadcast, all_to_all or reduce_scatter.
    size: of a rank's buffer, in bytes or with a unit such as "1MiB"; the timeline's `size_bytes`.
    count: number of collectives, at least 1.
    ranks: number of hosts in the group, the first ones; None: all.
    Returns a workload of `count` nodes for each rank.
    Raises SettingsError (OptionError, FabricError) and ForeignFileError.
    """
    return _traffic(fabric, Collective, {"operation": operation, "size": size, "count": count, "ranks": ranks})


def _traffic(fabric: AnyFabric, kind: type[Traffic], given: dict[str, Any]) -> Workload:
    tag = str(kind.__struct_config__.tag)
    built = _built(fabric, tag)
    tables = {"kind": tag, **{key: value for key, value in given.items() if value is not None}}
    traffic: Traffic = Tables(tables, tag, OptionError).convert(kind)
    return workload_on(built, traffic)
