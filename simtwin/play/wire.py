"""Options and NCCL's variables for connections and for messages of collectives.

The command line, the Python API and sweeps use them by the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

import msgspec

from genie.collectives import ALGORITHMS, LoweringError
from genie.collectives.lower import HIERARCHICAL
from genie.collectives.msccl.algorithm import PREFIX, load_msccl
from genie.collectives.msccl.file import MscclError
from genie.collectives.nccl.shape import NCCL_ALGORITHMS, NcclShape
from genie.collectives.nccl.tuner_file import read_tuner
from genie.collectives.nccl.tuning import NEWEST, Server, gpus
from genie.config.congestion import CONTROLS
from genie.config.nccl import TUNER_FILE, NcclVariables, Played, connections_of, protocols_of, settings_list, shape_of
from genie.config.spraying import spray_problem
from genie.config.units import parse_duration
from genie.errors import InputError
from genie.inputs.spelling import option
from genie.plan.lowering import Lowering, members_per_node
from genie.record import warn
from genie.workload.classes import templates_of
from genie.workload.graph import Kind, Op, Workload
from simtwin.fabric.placement import NO_GPU, scale_up_bps
from simtwin.fabric.schema import Fabric, Transport
from simtwin.fabric.topology import build_network

WIRES = ("nccl", "plain")
DEFAULT_GPU = "h100"  # of servers, where nothing names a GPU


class WireError(InputError, ValueError):
    """An invalid option for messages: one line, with the option's name on the command line."""


class Options(Protocol):
    """The options of `genie simulate`; None for an option that is not given."""

    @property
    def wire(self) -> str: ...
    @property
    def slots(self) -> str | None: ...
    @property
    def algorithm(self) -> tuple[str, ...]: ...  # OPERATION=ALGORITHM
    @property
    def channels(self) -> int | None: ...
    @property
    def credit(self) -> bool: ...
    @property
    def ranks_per_node(self) -> int | None: ...
    @property
    def slice_delay(self) -> str | None: ...
    @property
    def gpu(self) -> str | None: ...
    @property
    def nccl(self) -> str | None: ...
    @property
    def queue_pairs(self) -> int | None: ...
    @property
    def split(self) -> bool | None: ...
    @property
    def spray(self) -> int | None: ...
    @property
    def congestion(self) -> str | None: ...


def with_connections(transport: Transport, options: Options) -> Transport:
    """Return the fabric's transport with the options' values. Raises WireError, and ValueError for NCCL's variables."""
    if options.congestion is not None and options.congestion not in CONTROLS:
        raise WireError(f"{option('congestion')} {options.congestion}: must be one of {', '.join(CONTROLS)}")
    names = ("queue_pairs", "split", "spray", "congestion")
    given = {name: getattr(options, name) for name in names}
    given = {key: value for key, value in given.items() if value is not None}
    transport = msgspec.structs.replace(transport, **given)
    # Where neither gives a value, NCCL's variables do, in both worlds.
    queue_pairs, split = connections_of(NcclVariables(), transport.queue_pairs, transport.split)
    transport = msgspec.structs.replace(transport, queue_pairs=queue_pairs, split=split)
    if problem := spray_problem(transport.spray or 1, transport.queue_pairs or 1):
        raise WireError(f"{option('spray')} {problem}")
    return transport


def lowering_from(
    options: Options, ranks_per_node: Callable[[], int], variables: NcclVariables, fabric: Callable[[], Fabric | None]
) -> Lowering:
    """Return how collectives become messages.

    `ranks_per_node` is called for NCCL's messages where options do not give it, `fabric` for the costs of GPUs. Raises
    WireError, and ValueError for NCCL's variables.
    """
    if options.wire not in WIRES:
        raise WireError(f"{option('wire')} {options.wire}: must be {' or '.join(WIRES)}")
    if options.slots not in (None, "streams", "astra"):
        raise WireError(f"{option('slots')} {options.slots}: must be streams or astra")
    chosen = _algorithms(options)
    if options.wire == "plain":
        knows_nodes = HIERARCHICAL in chosen.values()
        for name, given in (
            (option("ranks_per_node"), None if knows_nodes else options.ranks_per_node),
            (option("slice_delay"), options.slice_delay),
            (option("gpu"), options.gpu),
            (option("nccl"), options.nccl),
        ):
            if given is not None:
                raise WireError(f"{name}: is for NCCL's messages: give {option('wire')} nccl")
        nodes = (options.ranks_per_node or ranks_per_node()) if knows_nodes else 1
        return Lowering(options.channels or 1, options.credit, chosen, ranks_per_node=nodes)
    per_node = options.ranks_per_node or ranks_per_node()
    shape = {**shape_of(variables, per_node), "ranks_per_node": per_node, "slice_delay_ns": _slice_delay_ns(options)}
    if shape["collnet"]:
        built = fabric()
        shape["collnet"] = built is not None and built.switch.reduces
    if options.channels is not None:
        shape["channels"] = options.channels
    if "all_reduce" in chosen:
        shape["algorithm"] = chosen["all_reduce"]
    shape["allowed"] = tuple({**dict(shape["allowed"]), **{op: (name,) for op, name in chosen.items()}}.items())
    try:
        if (server := _server_of(options, per_node, fabric())) is not None:
            tuner = variables.get(TUNER_FILE, "")
            rows = read_tuner(Path(tuner)) if tuner else ()
            shape |= {"server": server, "protocols": protocols_of(variables), "tuner": rows}
        return Lowering(nccl=NcclShape(**shape))
    except LoweringError as error:
        raise WireError(str(error)) from error


def gpu_named(options: Options, fabric: Fabric | None) -> str | None:
    """Return the GPU that the options name, or else the fabric; None where neither does."""
    own = fabric.server.gpu if fabric is not None and fabric.server is not None else None
    return options.gpu or own


def _server_of(options: Options, ranks_per_node: int, fabric: Fabric | None) -> Server | None:
    """Return the GPUs and NICs of the servers; None where GPUs take no time.

    Servers of several ranks have GPUs of the default kind, if nothing names another and the NICs are known. Raises
    LoweringError for an unknown GPU or version, and WireError.
    """
    gpu = gpu_named(options, fabric) or (DEFAULT_GPU if ranks_per_node > 1 and fabric is not None else NO_GPU)
    if gpu.lower() == NO_GPU:
        if options.nccl is not None:
            raise WireError(f"{option('nccl')}: has a meaning for GPUs only: give {option('gpu')} too")
        return None
    known = gpus().get(gpu.lower())
    own = 0.0 if known is None else known.scale_up_gb_per_s
    if fabric is None:
        raise WireError(f"{option('gpu')} {gpu}: NCCL's choice depends on the NICs: give {option('rate')} too")
    network = build_network(fabric)
    nic_bps = int(network.rate_bps[network.uplink(0)])
    scale_up = scale_up_bps(fabric, network, ranks_per_node) / 8e9 or own
    return Server(gpu.lower(), options.nccl or NEWEST, scale_up, nic_bps / 8e9 or own)


def within_servers(workload: Workload, lowering: Lowering) -> tuple[int, int]:
    """Return the number of collectives that stay inside a server with NCCL's messages, and of all collectives."""
    inside = total = 0
    per_node = lowering.nccl.ranks_per_node if lowering.nccl else 1
    for number, group in enumerate(workload.groups):
        graph = workload.ranks.get(group.ranks[0]) if group.ranks else None
        if graph is None or len(group.ranks) < 2:
            continue
        count = int(((graph.kind == Kind.COLL) & (graph.group == number)).sum())
        total += count
        if per_node > 1 and members_per_node(group.ranks, per_node) == len(group.ranks):
            inside += count
    return inside, total


def nccl_record(
    options: Options,
    lowering: Lowering,
    workload: Workload,
    verbs: bool,
    overruled: Mapping[str, str],
    variables: NcclVariables,
) -> list[dict[str, str]]:
    """Return NCCL's variables as in run.json: name, value, source and effect of each.

    `overruled`: variables of connections and devices that another option or key overrides -> its name.
    """
    given = dict(overruled)
    if options.channels is not None:
        given |= dict.fromkeys(("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"), option("channels"))
    if algorithm := _algorithms(options).get("all_reduce"):
        given["NCCL_ALGO"] = f"{option('algorithm')} all_reduce={algorithm}"
    shape = None if lowering.nccl is None else asdict(lowering.nccl)
    # A rank under a launcher learns its own part of the workload later, and never the others' parts.
    operations = operations_of(workload) if workload.ranks else None
    return [asdict(setting) for setting in settings_list(variables, Played(shape, operations, verbs, given))]


def operations_of(workload: Workload) -> set[str]:
    """Return the names of a workload's collectives, each once."""
    return {Op(op).name.lower() for graph in templates_of(workload) for op in set(graph.op.tolist()) if op >= 0}


def _algorithms(options: Options) -> dict[str, str]:
    known = NCCL_ALGORITHMS if options.wire == "nccl" else ALGORITHMS
    chosen = {}
    for item in options.algorithm:
        op, _, name = item.partition("=")
        if op not in ALGORITHMS:
            raise WireError(
                f"{option('algorithm')} {item}: operation '{op}' must be one of {', '.join(sorted(ALGORITHMS))}"
            )
        if name.startswith(PREFIX) or name.endswith(".xml"):
            chosen[op] = _msccl(item, op, name.removeprefix(PREFIX), options.wire)
            continue
        if name not in known.get(op, ()):
            if options.wire == "nccl" and name in ALGORITHMS[op]:
                raise WireError(f"{option('algorithm')} {item}: NCCL does not play it: give {option('wire')} plain too")
            raise WireError(f"{option('algorithm')} {item}: {op} has {', '.join(known.get(op, ALGORITHMS[op]))}")
        chosen[op] = name
    return chosen


def _msccl(item: str, op: str, path: str, wire: str) -> str:
    """Return the name of a file's algorithm after checking that it implements the operation."""
    if wire == "nccl":
        raise WireError(
            f"{option('algorithm')} {item}: is MSCCL's and has messages of its own: give {option('wire')} plain too"
        )
    try:
        algorithm = load_msccl(str(Path(path).resolve()))
    except OSError as error:
        raise WireError(f"{option('algorithm')} {item}: {path}: {error.strerror}") from error
    except MscclError as error:
        raise WireError(f"{option('algorithm')} {item}: {error}") from error
    if algorithm.file.op != op:
        raise WireError(f"{option('algorithm')} {item}: is an algorithm for {algorithm.file.op}")
    for note in algorithm.notes:
        warn(f"{path}: {note}")
    return f"{PREFIX}{Path(path).resolve()}"


def _slice_delay_ns(options: Options) -> int:
    if options.slice_delay is None:
        return 0
    try:
        return int(parse_duration(options.slice_delay)) // 1000
    except ValueError as error:
        raise WireError(f"{option('slice_delay')} {options.slice_delay}: {error}") from error
