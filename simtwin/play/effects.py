"""Options and faults without an effect on this workload at this level: each gets a warning, and none is refused."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from genie.inputs.spelling import option
from genie.plan.lowering import Lowering
from genie.workload.graph import Workload
from simtwin.fabric.faults import links_of
from simtwin.fabric.network import Network
from simtwin.fabric.played_paths import PAIRS_MAX
from simtwin.fabric.schema import Fabric, Fault, Transport
from simtwin.levels.names import ANALYTIC, PACKET
from simtwin.play.wire import Options, gpu_named, operations_of, within_servers

if TYPE_CHECKING:
    import polars as pl

    from simtwin.play.twin import Twin

DEFAULT_SEED = 1


def idle_options(
    options: Options,
    workload: Workload,
    lowering: Lowering,
    fabric: Fabric | None,
    transport: Transport,
    level: str = PACKET,
    seed: int = 1,
) -> Iterator[str]:
    """Yield a warning for each option without an effect, with the option's name on the command line.

    `fabric`: None where nothing describes it. `transport`: its connections, with the options' values.
    """
    operations = operations_of(workload)
    for item in options.algorithm:
        operation = item.partition("=")[0]
        if operation not in operations:
            yield f"{option('algorithm')} {item}: has no effect: the workload has no {operation}"
    if not operations:
        for name, value in (
            (option("channels"), options.channels), (option("ranks_per_node"), options.ranks_per_node),
            (option("slice_delay"), options.slice_delay), (option("credit"), options.credit or None),
        ):  # fmt: skip
            if value is not None:
                yield f"{name}: has no effect: the workload has no collectives"
    elif options.credit and lowering.nccl is not None:
        yield f"{option('credit')}: has no effect: NCCL's messages have clear-to-sends of their own"
    yield from _of_servers(options, workload, lowering, fabric)
    if options.split and (transport.queue_pairs or 1) == 1:
        yield f"{option('split')}: has no effect: each connection has one queue pair; give {option('queue_pairs')} too"
    if level == ANALYTIC:
        for name, given in ((option("queue_pairs"), options.queue_pairs), (option("split"), options.split)):
            if given is not None:
                yield f"{name}: has no effect: level {level} has no queue pairs"
        if seed != DEFAULT_SEED:
            yield f"{option('seed')} {seed}: has no effect: level {level} draws nothing"


def _of_servers(options: Options, workload: Workload, lowering: Lowering, fabric: Fabric | None) -> Iterator[str]:
    """Yield a warning where the insides of servers take no time, or those of a GPU that nothing names."""
    inside, collectives = within_servers(workload, lowering)
    shape = lowering.nccl
    if inside and (shape is None or shape.server is None):
        yield (
            f"{inside} of {collectives} collectives stay within servers and take no time: name the GPU "
            f"({option('gpu')}), or {option('ranks_per_node')} 1 plays them on the fabric"
        )
    elif collectives and shape is not None and shape.server is not None and gpu_named(options, fabric) is None:
        yield (
            f"no GPU is named: the {shape.ranks_per_node} GPUs of a server are taken to be {shape.server.gpu}, with "
            f"{shape.server.scale_up_gb_per_s:g} GB/s to each other: give {option('gpu')}, or {option('gpu')} none"
        )


def idle_compute(compute: str | None, filled: int) -> Iterator[str]:
    """Yield a warning for a compute model that gave no node a duration."""
    if compute is not None and not filled:
        yield f"{option('compute')} {compute}: has no effect: every compute node of the workload has a duration"


def missed_faults(
    fabric: Fabric, network: Network, timeline: pl.DataFrame, crossed: CrossedLinks | None
) -> Iterator[str]:
    """Yield a warning for each `[[fault]]` of a fabric without an effect. `crossed`: None where it is not known."""
    if not fabric.fault or not len(timeline):
        return
    end_ns = int(timeline["end_ns"].max() or 0)  # type: ignore[arg-type]
    for number, fault in enumerate(fabric.fault):
        if why := _idle_fault(fault, links_of(number, fault, network), network, end_ns, crossed):
            name = fault.link or fault.switch or "-".join(fault.cable or ())
            yield f"fabric '{fabric.name}': [[fault]] number {number + 1} of {name} has no effect: {why}"


def _idle_fault(fault: Fault, links: list[int], network: Network, end_ns: int, crossed: CrossedLinks | None) -> str:
    """Return why a fault changes nothing, "" where it may change something."""
    if fault.at // 1000 >= end_ns:
        return f"it begins at {fault.at / 1e9:g} ms, and the longest iteration ends at {end_ns / 1e6:.3f} ms"
    one = len(links) == 1
    own_bps = network.rate_bps[links]
    if fault.rate is not None:
        links = [link for link, rate in zip(links, own_bps.tolist(), strict=True) if rate == 0 or rate > fault.rate]
    if not links:
        return f"the {'link has' if one else 'links have'} no higher rate without it"
    if crossed is None or crossed.links & set(links) or (fault.rate is None and crossed.has_detours):
        return ""
    return f"no packet of the workload crosses {'the link' if one else 'these links'}"


@dataclass(frozen=True)
class CrossedLinks:
    """Links that packets or pause frames crossed, in all iterations."""

    links: frozenset[int]
    has_detours: bool  # packets may have avoided links that were down

    @staticmethod
    def of(
        twin: Twin, counters: Mapping[str, Sequence[int]], transfers: pl.DataFrame, follows: bool
    ) -> CrossedLinks | None:
        """Return the crossed links by a simulation's counters; None at levels without packets.

        `follows`: pairs of ranks may have the paths of another run.
        """
        if not twin.level.has_packets:
            return None
        network = twin.network
        # A pause frame travels against the link that it pauses; it is lost on a link that is down.
        links = {link for link, packets in enumerate(counters["packets"]) if packets}
        links |= {link ^ 1 for link, pauses in enumerate(counters["pauses"]) if pauses}
        faults = [(number, fault) for number, fault in enumerate(twin.fabric.fault) if fault.rate is None]
        down = {link for number, fault in faults for link in links_of(number, fault, network)}
        pairs = transfers.select("src", "dst").unique().rows() if down else []
        has_detours = bool(down) and (
            follows or bool(twin.fabric.path) or len(pairs) > PAIRS_MAX or bool(down & _reachable(twin, pairs))
        )
        return CrossedLinks(frozenset(links), has_detours)


def _reachable(twin: Twin, pairs: Sequence[tuple[int, int]]) -> set[int]:
    """Return the links on any shortest path of these pairs of ranks, in either direction, while no link is down."""
    sources: dict[int, set[int]] = defaultdict(set)
    for pair in pairs:
        a, b = (int(twin.host_of_rank[rank]) for rank in pair)
        sources[b].add(a)
        sources[a].add(b)
    found: set[int] = set()
    for target, nodes in sources.items():
        front = set(nodes)
        while front:
            links = {int(link) for node in front for link in twin.routes.choices(node, target)}
            found |= links
            front = {int(twin.network.dst_node[link]) for link in links} - {target}
    return found
