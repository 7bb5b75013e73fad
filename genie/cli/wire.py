"""What --wire, NCCL's variables and their like say of the messages of collectives."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from genie.collectives import ALGORITHMS, LoweringError
from genie.collectives.msccl import PREFIX, load_msccl
from genie.collectives.msccl_file import MscclError
from genie.collectives.nccl import NCCL_ALGORITHMS, NcclShape
from genie.config.hosts import load_hosts
from genie.config.nccl import NcclVariables, Played, changes_of_files, remarks_of, settings_list, shape_of
from genie.config.units import parse_duration
from genie.live.rendezvous import speaks
from genie.plan.lowering import Lowering
from genie.workload.graph import Op, Workload
from simtwin.fabric import load_fabric
from simtwin.fabric_schema import RailOptimized

if TYPE_CHECKING:
    from genie.cli.resolve import Play

WIRES = ("nccl", "plain")


class WireError(ValueError):
    """An option of the messages that means nothing: one line."""


def lowering_of(play: Play, variables: NcclVariables | None = None) -> Lowering:
    """How collectives become messages. Raises WireError, and ValueError of NCCL's variables."""
    if play.wire not in WIRES:
        raise WireError(f"--wire {play.wire}: must be {' or '.join(WIRES)}")
    if play.slots not in (None, "streams", "astra"):
        raise WireError(f"--slots {play.slots}: must be streams or astra")
    chosen = _algorithms(play)
    if play.wire == "plain":
        for option, given in (("--ranks-per-node", play.ranks_per_node), ("--slice-delay", play.slice_delay)):
            if given is not None:
                raise WireError(f"{option}: is of NCCL's messages: give --wire nccl")
        return Lowering(play.channels or 1, play.credit, chosen)
    variables = NcclVariables() if variables is None else variables
    for text in remarks_of(variables):
        remark(text)
    per_node = _ranks_per_node(play)
    shape = {**shape_of(variables, per_node), "ranks_per_node": per_node, "slice_delay_ns": _slice_delay_ns(play)}
    if play.channels is not None:
        shape["channels"] = play.channels
    if "all_reduce" in chosen:
        shape["algorithm"] = chosen["all_reduce"]
    try:
        return Lowering(nccl=NcclShape(**shape))
    except LoweringError as error:
        raise WireError(str(error)) from error


def nccl_settings(
    play: Play,
    lowering: Lowering,
    workload: Workload,
    verbs: bool,
    overruled: Mapping[str, str],
    variables: NcclVariables | None = None,
) -> list[dict[str, str]]:
    """NCCL's variables as run.json lists them: name, value, source and effect of each.

    `overruled`: those of connections and devices for which something else was given, and what.
    """
    variables = NcclVariables() if variables is None else variables
    given = dict(overruled)
    if play.channels is not None:
        given |= dict.fromkeys(("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"), "--channels")
    if algorithm := _algorithms(play).get("all_reduce"):
        given["NCCL_ALGO"] = f"--algorithm all_reduce={algorithm}"
    shape = None if lowering.nccl is None else asdict(lowering.nccl)
    # A rank that a launcher has started knows its own part of the workload later, and the others' never.
    operations = operations_of(workload) if workload.ranks else None
    listed = settings_list(variables, Played(shape, operations, verbs, given))
    for text in changes_of_files(listed):
        remark(text)
    return [asdict(setting) for setting in listed]


def operations_of(workload: Workload) -> set[str]:
    """The names of its collectives, each once."""
    return {Op(op).name.lower() for graph in workload.ranks.values() for op in set(graph.op.tolist()) if op >= 0}


@cache
def remark(text: str) -> None:
    """Say it once, and of a launch's ranks one."""
    if speaks():
        print(f"genie: {text}", file=sys.stderr, flush=True)


def _algorithms(play: Play) -> dict[str, str]:
    known = NCCL_ALGORITHMS if play.wire == "nccl" else ALGORITHMS
    chosen = {}
    for item in play.algorithm:
        op, _, name = item.partition("=")
        if op not in ALGORITHMS:
            raise WireError(f"--algorithm {item}: operation '{op}' is none of {', '.join(sorted(ALGORITHMS))}")
        if name.startswith(PREFIX) or name.endswith(".xml"):
            chosen[op] = _msccl(item, op, name.removeprefix(PREFIX), play.wire)
            continue
        if name not in known.get(op, ()):
            if play.wire == "nccl" and name in ALGORITHMS[op]:
                raise WireError(f"--algorithm {item}: NCCL does not play it: give --wire plain too")
            raise WireError(f"--algorithm {item}: {op} has {', '.join(known.get(op, ALGORITHMS[op]))}")
        chosen[op] = name
    return chosen


def _msccl(item: str, op: str, path: str, wire: str) -> str:
    """The name of a file's algorithm, once that is known to do the operation."""
    if wire == "nccl":
        raise WireError(f"--algorithm {item}: is MSCCL's and has messages of its own: give --wire plain too")
    try:
        algorithm = load_msccl(str(Path(path).resolve()))
    except OSError as error:
        raise WireError(f"--algorithm {item}: {path}: {error.strerror}") from error
    except MscclError as error:
        raise WireError(f"--algorithm {item}: {error}") from error
    if algorithm.file.op != op:
        raise WireError(f"--algorithm {item}: is an algorithm for {algorithm.file.op}")
    for note in algorithm.notes:
        remark(f"{path}: {note}")
    return f"{PREFIX}{Path(path).resolve()}"


def _slice_delay_ns(play: Play) -> int:
    if play.slice_delay is None:
        return 0
    try:
        return int(parse_duration(play.slice_delay)) // 1000
    except ValueError as error:
        raise WireError(f"--slice-delay {play.slice_delay}: {error}") from error


def _ranks_per_node(play: Play) -> int:
    """Ranks of a node: the option's; those of each host of the hosts file, where it has several; those of each server
    of the fabric; otherwise 1, so that every message crosses the fabric.
    """
    if play.ranks_per_node is not None:
        return play.ranks_per_node
    if play.hosts is not None:
        counts = Counter(place.host for place in load_hosts(play.hosts).places)
        if len(counts) > 1 and len(set(counts.values())) == 1:
            return next(iter(counts.values()))
    if play.fabric is not None:
        topology = load_fabric(play.fabric).topology
        if isinstance(topology, RailOptimized) and topology.domain is not None:
            return topology.rails
    return 1
