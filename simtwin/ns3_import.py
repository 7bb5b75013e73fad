"""Experiments of ns-3's RDMA model (HPCC's tree and those made from it) as a fabric and a workload.

Read are the configuration's keys, the topology file (nodes, switches, links; the switches; source, target, rate, delay
and error rate of each link) and the flow file (their number; source, target, priority, port, bytes and start in s).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from genie.config.congestion import Control, DcqcnTimer, Dctcp, Hpcc, NoControl, Timely
from genie.config.units import SIZE_MAX_BYTES, Duration, Rate, Size
from genie.plan.build import build_plan
from genie.workload.build import RankBuilder
from genie.workload.generate import GROUP_NAME
from genie.workload.graph import Group, Kind, Workload, WorkloadError
from simtwin.fabric import FabricError, parse_fabric, to_toml
from simtwin.fabric_schema import (
    Ecn,
    Explicit,
    Fabric,
    Frame,
    NamedHost,
    NamedLink,
    NamedSwitch,
    Pfc,
    Priority,
    Switch,
    Transport,
)
from simtwin.ns3_files import Configuration, Flow, Ns3Error, TopologyFile, TopologyLink, read_flows, read_topology
from simtwin.queues import QueueError, queues_of
from simtwin.routing import RoutingError, shortest_path_routes
from simtwin.topology import build_network

__all__ = ["Experiment", "Flow", "Ns3Error", "read_experiment"]

DATA_HEADER_BYTES = 36  # PPP 2, IPv4 20, UDP 8, sequence 6
ACKNOWLEDGE_BYTES = 48
TELEMETRY_BYTES = 42  # in data and acknowledgements of HPCC
RESERVE_BYTES, RESUME_BYTES, ALPHA = 4096, 3072, 0.125
HEADROOM_FACTOR = 3  # of a link's rate times its delay
CONTROLS = {"1": "DCQCN", "3": "HPCC", "7": "TIMELY", "8": "DCTCP", "12": "none"}
PS_PER_NS = 1000
PAYLOAD_MAX_BYTES = 65_000  # of an IPv4 packet, about
THRESHOLD_MAX_KB = SIZE_MAX_BYTES // 1000
COUNT_MAX = 1_000_000
BUFFER_MIB = "32"


@dataclass(frozen=True)
class Experiment:
    """What an experiment is in the twin."""

    fabric: Fabric
    workload: Workload
    flows: tuple[Flow, ...]
    notes: tuple[str, ...]  # where the twin's model differs


def read_experiment(config: Path) -> Experiment:
    """Read a configuration and the files that it names, beside it or in the folder above. Raises Ns3Error."""
    keys = Configuration(config)
    topology = read_topology(keys.file("TOPOLOGY_FILE"))
    flows = read_flows(keys.file("FLOW_FILE"), topology)
    error_rate, link_down = keys.value("ERROR_RATE_PER_LINK", "0"), keys.value("LINK_DOWN", "0 0 0")
    if error_rate.number(0, 1) != 0:
        raise error_rate.error("links that lose packets are not read: give 0")
    if set(link_down.text.split()) != {"0"}:
        raise link_down.error("links that fail are not read: give 0 0 0")
    notes: list[str] = []
    fabric = _fabric(keys, topology, flows, notes)
    workload = _workload(flows, len(topology.hosts))
    _check(keys, topology, fabric, workload)
    return Experiment(fabric, workload, flows, tuple(notes))


def _check(keys: Configuration, topology: TopologyFile, fabric: Fabric, workload: Workload) -> None:
    """All that `genie simulate` refuses is refused here, where the files are known by which it can be mended."""
    network = build_network(fabric)
    try:
        shortest_path_routes(network)
    except RoutingError as wrong:
        raise Ns3Error(f"{topology.path}: {wrong}") from wrong
    try:
        queues_of(fabric, network)
    except QueueError as wrong:
        if wrong.key != ("switch", "shared_buffer"):
            raise Ns3Error(f"{keys.path}: {wrong.key[1]}{wrong}") from wrong
        words = str(wrong).removeprefix(": ")
        raise keys.value("BUFFER_SIZE", BUFFER_MIB).error(f"{words}; the key is in MiB") from wrong
    try:
        parse_fabric(to_toml(fabric), "its fabric.toml")
        build_plan(workload)
    except (FabricError, WorkloadError) as wrong:
        raise Ns3Error(f"{keys.path}: makes what the twin cannot play: {wrong}") from wrong


def _fabric(keys: Configuration, topology: TopologyFile, flows: tuple[Flow, ...], notes: list[str]) -> Fabric:
    cc_mode = keys.value("CC_MODE", "1")
    mode = CONTROLS.get(cc_mode.text)
    if mode is None:
        raise cc_mode.error(f"must be one of {', '.join(CONTROLS)}")
    payload_bytes = keys.value("PACKET_PAYLOAD_SIZE", "1000").whole(1, PAYLOAD_MAX_BYTES)
    buffer_bytes = keys.value("BUFFER_SIZE", BUFFER_MIB).whole(1, SIZE_MAX_BYTES >> 20) << 20
    telemetry = TELEMETRY_BYTES if mode == "HPCC" else 0
    # A fabric file has no headroom of nothing.
    headrooms = {max(HEADROOM_FACTOR * link.rate_bps * link.delay_ps // (8 * 10**12), 1) for link in topology.links}
    if len(headrooms) > 1:
        notes.append(f"headroom is {max(headrooms)} B at every port: that model's follows each link's delay")
    return Fabric(
        name=keys.path.stem[:64],
        topology=Explicit(
            host=[NamedHost(topology.name(node)) for node in topology.hosts],
            switch=[NamedSwitch(topology.name(node)) for node in topology.switches],
            link=[
                NamedLink(topology.name(link.a), topology.name(link.b), Rate(link.rate_bps), Duration(link.delay_ps))
                for link in topology.links
            ],
        ),
        # Nothing is lost and nobody waits for ever: no retransmission timer of that model ever runs out.
        transport=Transport(window_packets=2**20, ack_every_packets=1, ack_timeout=Duration(10**12)),
        frame=Frame(
            payload=Size(payload_bytes),
            data_header=Size(DATA_HEADER_BYTES + telemetry),
            control=Size(ACKNOWLEDGE_BYTES + telemetry),
            time_unit=Duration(PS_PER_NS),
        ),
        switch=Switch(shared_buffer=Size(buffer_bytes), reserve=Size(RESERVE_BYTES), alpha=ALPHA),
        pfc=Pfc(headroom=Size(max(headrooms)), resume=Size(RESUME_BYTES)),
        priority=Priority(3, 6 if keys.value("ACK_HIGH_PRIO", "0").flag() else 3),
        ecn=_ecn(keys, topology, notes) if keys.value("ENABLE_QCN", "1").flag() else None,
        congestion_control=_control(keys, mode, payload_bytes, topology, flows, notes),
    )


def _ecn(keys: Configuration, topology: TopologyFile, notes: list[str]) -> Ecn:
    rates = sorted({link.rate_bps for link in topology.links})
    limits = {"KMIN_MAP": (0.001, THRESHOLD_MAX_KB), "KMAX_MAP": (0.001, THRESHOLD_MAX_KB), "PMAX_MAP": (0.0, 1.0)}
    tables = {key: keys.value(key, "0").by_rate(*limit) for key, limit in limits.items()}
    for key, table in tables.items():
        if missing := [rate for rate in rates if rate not in table]:
            raise keys.value(key, "0").error(f"says nothing of links of {missing[0]} b/s: add that rate and its number")
    minimum, maximum, chance = tables.values()
    for rate in rates:
        if maximum[rate] < minimum[rate]:
            least = f"{minimum[rate]:g}, which KMIN_MAP has for it"
            raise keys.value("KMAX_MAP", "0").error(f"{maximum[rate]:g} at {rate} b/s: give no less than {least}")
    if len({(minimum[rate] / rate, maximum[rate] / rate, chance[rate]) for rate in rates}) > 1:
        notes.append(f"marks follow the thresholds of {rates[-1]} b/s in proportion: that model's are by rate")
    at = rates[-1]
    return Ecn(
        minimum=Size(round(minimum[at] * 1000)),
        maximum=Size(round(maximum[at] * 1000)),
        probability=chance[at],
        at=Rate(at) if len(rates) > 1 else None,
    )


def _control(
    keys: Configuration,
    mode: str,
    payload_bytes: int,
    topology: TopologyFile,
    flows: tuple[Flow, ...],
    notes: list[str],
) -> Control:
    trip_ps, rate_bps = _round_trip_ps(topology, flows, payload_bytes, notes)
    window = Size(rate_bps * trip_ps // (8 * 10**12)) if keys.value("HAS_WIN", "1").flag() else None
    varies = keys.value("VAR_WIN", "0").flag()
    if mode == "DCQCN":
        return DcqcnTimer(
            minimum_rate=keys.value("MIN_RATE", "100Mb/s").rate(),
            additive=keys.value("RATE_AI", "5Mb/s").rate(),
            hyper=keys.value("RATE_HAI", "50Mb/s").rate(),
            alpha_interval=keys.value("ALPHA_RESUME_INTERVAL", "1").micros(),
            decrease_interval=keys.value("RATE_DECREASE_INTERVAL", "4").micros(),
            increase_timer=keys.value("RP_TIMER", "1500").micros(),
            fast_recovery=keys.value("FAST_RECOVERY_TIMES", "5").whole(0, COUNT_MAX),
            gain=keys.value("EWMA_GAIN", "0.00390625").share(),
            clamp_target=keys.value("CLAMP_TARGET_RATE", "0").flag(),
            window=window,
            rate_window=varies,
            notify_in_acks=True,
        )
    if mode == "HPCC":
        for key, built in (("MULTI_RATE", "0"), ("FAST_REACT", "1")):
            if (value := keys.value(key, built)).text != built:
                raise value.error(f"the other way is not built: give {built}")
        return Hpcc(
            utilisation=keys.value("U_TARGET", "0.95").share(),
            stages=keys.value("MI_THRESH", "0").whole(0, COUNT_MAX),
            additive=keys.value("RATE_AI", "50Mb/s").rate(),
            minimum_rate=keys.value("MIN_RATE", "100Mb/s").rate(),
            window=window is not None,
            base_round_trip=Duration(trip_ps),
        )
    if mode == "TIMELY":
        return Timely(
            minimum_rate=keys.value("MIN_RATE", "100Mb/s").rate(), additive=keys.value("RATE_AI", "50Mb/s").rate()
        )
    if mode == "DCTCP":
        return Dctcp(base_round_trip=Duration(trip_ps))
    return NoControl()


def _round_trip_ps(
    topology: TopologyFile, flows: tuple[Flow, ...], payload_bytes: int, notes: list[str]
) -> tuple[int, int]:
    """That model's base round trip of the flows' pairs, the longest, and the sender's rate there."""
    beside: dict[int, list[tuple[int, TopologyLink]]] = {}
    for link in topology.links:
        beside.setdefault(link.a, []).append((link.b, link))
        beside.setdefault(link.b, []).append((link.a, link))
    node_of = {host: node for node, host in topology.hosts.items()}
    trips: dict[tuple[int, int], tuple[int, int]] = {}
    for flow in flows:
        if (flow.source, flow.target) in trips:
            continue
        at, reached = [(node_of[flow.target], 0)], {node_of[flow.target]: 0}
        source = node_of[flow.source]
        for node, trip in at:
            for other, link in beside.get(node, []):
                if other not in reached and (other not in topology.hosts or other == source):
                    sending = payload_bytes * 8 * 10**12 // link.rate_bps
                    reached[other] = trip + 2 * link.delay_ps + sending
                    at.append((other, reached[other]))
        if source not in reached:
            where = f"no path from node {source} to node {node_of[flow.target]}"
            raise Ns3Error(f"{topology.path}: {where}: join their switches by links")
        trips[flow.source, flow.target] = (reached[source], beside[source][0][1].rate_bps)
    if len(set(trips.values())) > 1:
        notes.append("all windows follow the longest base round trip: that model has one for each pair of hosts")
    return max(trips.values())


def _workload(flows: tuple[Flow, ...], hosts: int) -> Workload:
    """Each flow a message, sent at its time."""
    workload = Workload("flows", hosts, [Group(GROUP_NAME, tuple(range(hosts)))], {})
    builders = [RankBuilder(rank) for rank in range(hosts)]
    for number, flow in enumerate(flows):
        wait: tuple[int, ...] = ()
        builder = builders[flow.source]
        if flow.start_ns > 0:
            wait = (
                builder.add(3 * number, f"before flow {number}", Kind.COMP, duration_ns=flow.start_ns, stream=number),
            )
        # A stream of its own: flows do not wait for each other.
        for end, kind, other, after in (
            (flow.source, Kind.SEND, flow.target, wait),
            (flow.target, Kind.RECV, flow.source, ()),
        ):
            builders[end].add(
                3 * number + (1 if kind == Kind.SEND else 2),
                f"flow {number}",
                kind,
                after,
                size_bytes=flow.size_bytes,
                peer=other,
                tag=number,
                stream=number,
            )
    for rank, builder in enumerate(builders):
        workload.ranks[rank], _ = builder.finish()
    return workload
