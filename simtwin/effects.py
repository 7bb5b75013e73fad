"""Options and faults that change nothing for this workload, at this level: each is said, and none is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from genie.plan.lowering import Lowering
from genie.workload.graph import Workload
from simtwin.fabric_schema import Fabric, Transport
from simtwin.levels import ANALYTIC, PACKET
from simtwin.wire import Options, operations_of, within_servers

if TYPE_CHECKING:
    import polars as pl

DEFAULT_SEED = 1


def idle_options(
    options: Options, workload: Workload, lowering: Lowering, transport: Transport, level: str = PACKET, seed: int = 1
) -> Iterator[str]:
    """A line for each option that has no effect, as a command line writes it."""
    operations = operations_of(workload)
    for item in options.algorithm:
        operation = item.partition("=")[0]
        if operation not in operations:
            yield f"--algorithm {item}: has no effect: the workload has no {operation}"
    if not operations:
        for option, value in (
            ("--channels", options.channels), ("--ranks-per-node", options.ranks_per_node),
            ("--slice-delay", options.slice_delay), ("--credit", options.credit or None),
        ):  # fmt: skip
            if value is not None:
                yield f"{option}: has no effect: the workload has no collectives"
    elif options.credit and lowering.nccl is not None:
        yield "--credit: has no effect: NCCL's messages have clear-to-sends of their own"
    inside, collectives = within_servers(workload, lowering)
    if inside:
        yield (
            f"{inside} of {collectives} collectives stay within servers and take no time: --ranks-per-node 1 plays "
            "them on the fabric"
        )
    if options.split and (transport.queue_pairs or 1) == 1:
        yield "--split: has no effect: each connection has one queue pair; give --queue-pairs too"
    if level == ANALYTIC:
        for option, given in (("--queue-pairs", options.queue_pairs), ("--split", options.split)):
            if given is not None:
                yield f"{option}: has no effect: level {level} has no queue pairs"
        if seed != DEFAULT_SEED:
            yield f"--seed {seed}: has no effect: level {level} draws nothing"


def idle_compute(compute: str | None, filled: int) -> Iterator[str]:
    """A line for a compute model that gave no node a duration."""
    if compute is not None and not filled:
        yield f"--compute {compute}: has no effect: every compute node of the workload has a duration"


def missed_faults(fabric: Fabric, timeline: pl.DataFrame) -> Iterator[str]:
    """A line for each `[[fault]]` of a fabric that begins after the longest iteration has ended."""
    if not fabric.fault or not len(timeline):
        return
    end_ns = int(timeline["end_ns"].max() or 0)  # type: ignore[arg-type]
    for number, fault in enumerate(fabric.fault):
        name = fault.link or fault.switch or "-".join(fault.cable or ())
        if fault.at // 1000 >= end_ns:
            yield (
                f"fabric '{fabric.name}': [[fault]] number {number + 1} of {name} has no effect: it begins at "
                f"{fault.at / 1e9:g} ms, and the longest iteration ends at {end_ns / 1e6:.3f} ms"
            )
