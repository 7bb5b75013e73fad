"""Experiments of ns-3's RDMA model (HPCC's tree and those made from it) as a fabric and a workload.

Read are the configuration's keys, the topology file (nodes, switches, links; the switches; source, target, rate, delay
and error rate of each link) and the flow file (their number; source, target, priority, port, bytes and start in s).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from genie.config.congestion import Control, DcqcnTimer, Dctcp, Hpcc, NoControl, Timely
from genie.config.units import Duration, Rate, Size, parse_duration, parse_rate
from genie.workload.build import RankBuilder
from genie.workload.generate import GROUP_NAME
from genie.workload.graph import Group, Kind, Workload
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

DATA_HEADER_BYTES = 36  # PPP 2, IPv4 20, UDP 8, sequence 6
ACKNOWLEDGE_BYTES = 48
TELEMETRY_BYTES = 42  # in data and acknowledgements of HPCC
RESERVE_BYTES, RESUME_BYTES, ALPHA = 4096, 3072, 0.125
HEADROOM_FACTOR = 3  # of a link's rate times its delay
CONTROLS = {"1": "DCQCN", "3": "HPCC", "7": "TIMELY", "8": "DCTCP", "12": "none"}
PS_PER_NS, US = 1000, 10**6


class Ns3Error(Exception):
    """An experiment that the twin cannot play; one line that names file, key and what is allowed."""


@dataclass(frozen=True)
class Flow:
    source: int  # host, counted from 0 in the order of node numbers
    target: int
    size_bytes: int
    start_ns: int  # from the first flow's


@dataclass(frozen=True)
class Experiment:
    """What an experiment is in the twin."""

    fabric: Fabric
    workload: Workload
    flows: tuple[Flow, ...]
    notes: tuple[str, ...]  # where the twin's model differs


def read_experiment(config: Path) -> Experiment:
    """Read a configuration and the files that it names, beside it or in the folder above. Raises Ns3Error."""
    keys = _keys(config)
    topology = _topology(_beside(config, keys, "TOPOLOGY_FILE"))
    flows = _flows(_beside(config, keys, "FLOW_FILE"), topology)
    for key, harmless in (("ERROR_RATE_PER_LINK", 0.0), ("LINK_DOWN", 0.0)):
        if any(float(word) != harmless for word in keys.get(key, "0").split()):
            raise Ns3Error(f"{config}: {key} {keys[key]}: links that fail or lose packets are not read: give 0")
    notes: list[str] = []
    fabric = _fabric(config, keys, topology, flows, notes)
    return Experiment(fabric, _workload(flows, len(topology.hosts)), flows, tuple(notes))


# -- files ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Link:
    a: int
    b: int
    rate_bps: int
    delay_ps: int


@dataclass(frozen=True)
class _Topology:
    hosts: dict[int, int]  # node number -> host
    switches: list[int]
    links: list[_Link]

    def name(self, node: int) -> str:
        return f"host{self.hosts[node]}" if node in self.hosts else f"switch{node}"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as wrong:
        raise Ns3Error(f"{path}: cannot be read: {getattr(wrong, 'strerror', None) or 'it is not text'}") from wrong


def _keys(config: Path) -> dict[str, str]:
    pairs = (line.split(maxsplit=1) for line in _text(config).splitlines() if line.strip())
    return {pair[0]: pair[1].strip() if len(pair) > 1 else "" for pair in pairs}


def _beside(config: Path, keys: dict[str, str], key: str) -> Path:
    if key not in keys:
        raise Ns3Error(f"{config}: {key} is missing: is this a configuration of ns-3's RDMA model?")
    name = Path(keys[key]).name
    for folder in (config.parent, config.parent.parent):
        if (folder / name).is_file():
            return folder / name
    raise Ns3Error(f"{config}: {key} {name} is neither in {config.parent} nor in {config.parent.parent}")


def _topology(path: Path) -> _Topology:
    words = _text(path).split()
    try:
        nodes, switch_count, link_count = (int(word) for word in words[:3])
        switches = [int(word) for word in words[3 : 3 + switch_count]]
        rows = [words[3 + switch_count + 5 * row :][:5] for row in range(link_count)]
        links = [
            _Link(int(a), int(b), int(parse_rate(rate)), int(parse_duration(_in_units(delay))))
            for a, b, rate, delay, _ in rows
        ]
    except ValueError as wrong:
        raise Ns3Error(f"{path}: is no topology of ns-3's RDMA model: {wrong}") from wrong
    if lossy := [row for row in rows if float(row[4]) != 0]:
        raise Ns3Error(f"{path}: link {lossy[0][0]} {lossy[0][1]} loses packets: give an error rate of 0")
    hosts = [node for node in range(nodes) if node not in set(switches)]
    return _Topology({node: host for host, node in enumerate(hosts)}, switches, links)


def _in_units(delay: str) -> str:
    """ns-3 writes milliseconds as "0.001ms", which has more digits than a duration in ps may."""
    for unit, ps in (("ms", 10**9), ("us", 10**6), ("ns", 10**3), ("s", 10**12)):
        if delay.endswith(unit):
            return f"{round(float(delay.removesuffix(unit)) * ps)}ps"
    raise ValueError(f"{delay} is no delay")


def _flows(path: Path, topology: _Topology) -> tuple[Flow, ...]:
    words = _text(path).split()
    try:
        rows = [words[1 + 6 * row :][:6] for row in range(int(words[0]))]
        starts = [round(float(row[5]) * 1e9) for row in rows]
        return tuple(
            Flow(topology.hosts[int(row[0])], topology.hosts[int(row[1])], int(row[4]), start - min(starts))
            for row, start in zip(rows, starts, strict=True)
        )
    except (ValueError, IndexError, KeyError) as wrong:
        raise Ns3Error(f"{path}: is no flow file of ns-3's RDMA model, or names nodes that are no hosts") from wrong


# -- what they mean -----------------------------------------------------------------------------------------------


def _fabric(
    config: Path, keys: dict[str, str], topology: _Topology, flows: tuple[Flow, ...], notes: list[str]
) -> Fabric:
    try:
        mode = CONTROLS.get(keys.get("CC_MODE", "1"))
        if mode is None:
            raise Ns3Error(f"{config}: CC_MODE {keys['CC_MODE']}: must be one of {', '.join(CONTROLS)}")
        payload = int(keys.get("PACKET_PAYLOAD_SIZE", "1000"))
        telemetry = TELEMETRY_BYTES if mode == "HPCC" else 0
        headrooms = {HEADROOM_FACTOR * link.rate_bps * link.delay_ps // (8 * 10**12) for link in topology.links}
        if len(headrooms) > 1:
            notes.append(f"headroom is {max(headrooms)} B at every port: that model's follows each link's delay")
        return Fabric(
            name=config.stem[:64],
            topology=Explicit(
                host=[NamedHost(topology.name(node)) for node in topology.hosts],
                switch=[NamedSwitch(topology.name(node)) for node in topology.switches],
                link=[
                    NamedLink(
                        topology.name(link.a), topology.name(link.b), Rate(link.rate_bps), Duration(link.delay_ps)
                    )
                    for link in topology.links
                ],
            ),
            # Nothing is lost and nobody waits for ever: no retransmission timer of that model ever runs out.
            transport=Transport(window_packets=2**20, ack_every_packets=1, ack_timeout=Duration(10**12)),
            frame=Frame(
                payload=Size(payload),
                data_header=Size(DATA_HEADER_BYTES + telemetry),
                control=Size(ACKNOWLEDGE_BYTES + telemetry),
                time_unit=Duration(PS_PER_NS),
            ),
            switch=Switch(
                shared_buffer=Size(int(keys.get("BUFFER_SIZE", "32")) << 20), reserve=Size(RESERVE_BYTES), alpha=ALPHA
            ),
            pfc=Pfc(headroom=Size(max(headrooms)), resume=Size(RESUME_BYTES)),
            priority=Priority(3, 6 if keys.get("ACK_HIGH_PRIO", "0") == "1" else 3),
            ecn=_ecn(keys, topology, notes) if keys.get("ENABLE_QCN", "1") == "1" else None,
            congestion_control=_control(keys, mode, payload, topology, flows, notes),
        )
    except ValueError as wrong:
        raise Ns3Error(f"{config}: {wrong}") from wrong


def _by_rate(keys: dict[str, str], name: str) -> dict[int, float]:
    words = keys.get(name, "0").split()[1:]
    return {int(rate): float(value) for rate, value in zip(words[::2], words[1::2], strict=True)}


def _ecn(keys: dict[str, str], topology: _Topology, notes: list[str]) -> Ecn | None:
    rates = sorted({link.rate_bps for link in topology.links})
    minimum, maximum, chance = (_by_rate(keys, name) for name in ("KMIN_MAP", "KMAX_MAP", "PMAX_MAP"))
    if not all(rate in table for rate in rates for table in (minimum, maximum, chance)):
        raise ValueError(f"KMIN_MAP, KMAX_MAP or PMAX_MAP says nothing of links of {rates[0]} b/s")
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
    keys: dict[str, str], mode: str, payload: int, topology: _Topology, flows: tuple[Flow, ...], notes: list[str]
) -> Control:
    def rate(key: str, default: str) -> Rate:
        return parse_rate(keys.get(key, default))

    def micros(key: str, default: str) -> Duration:
        return Duration(round(float(keys.get(key, default)) * US))

    trip_ps, rate_bps = _round_trip_ps(topology, flows, payload, notes)
    window = Size(rate_bps * trip_ps // (8 * 10**12)) if keys.get("HAS_WIN", "1") == "1" else None
    varies = keys.get("VAR_WIN", "0") == "1"
    if mode == "DCQCN":
        return DcqcnTimer(
            minimum_rate=rate("MIN_RATE", "100Mb/s"),
            additive=rate("RATE_AI", "5Mb/s"),
            hyper=rate("RATE_HAI", "50Mb/s"),
            alpha_interval=micros("ALPHA_RESUME_INTERVAL", "1"),
            decrease_interval=micros("RATE_DECREASE_INTERVAL", "4"),
            increase_timer=micros("RP_TIMER", "1500"),
            fast_recovery=int(keys.get("FAST_RECOVERY_TIMES", "5")),
            gain=float(keys.get("EWMA_GAIN", "0.00390625")),
            clamp_target=keys.get("CLAMP_TARGET_RATE", "0") == "1",
            window=window,
            rate_window=varies,
            notify_in_acks=True,
        )
    if mode == "HPCC":
        if keys.get("MULTI_RATE", "0") == "1" or keys.get("FAST_REACT", "1") != "1":
            raise ValueError("MULTI_RATE must be 0 and FAST_REACT 1")
        return Hpcc(
            utilisation=float(keys.get("U_TARGET", "0.95")),
            stages=int(keys.get("MI_THRESH", "0")),
            additive=rate("RATE_AI", "50Mb/s"),
            minimum_rate=rate("MIN_RATE", "100Mb/s"),
            window=window is not None,
            base_round_trip=Duration(trip_ps),
        )
    if mode == "TIMELY":
        return Timely(minimum_rate=rate("MIN_RATE", "100Mb/s"), additive=rate("RATE_AI", "50Mb/s"))
    if mode == "DCTCP":
        return Dctcp(base_round_trip=Duration(trip_ps))
    return NoControl()


def _round_trip_ps(topology: _Topology, flows: tuple[Flow, ...], payload: int, notes: list[str]) -> tuple[int, int]:
    """That model's base round trip of the flows' pairs, the longest, and the sender's rate there."""
    beside: dict[int, list[tuple[int, _Link]]] = {}
    for link in topology.links:
        beside.setdefault(link.a, []).append((link.b, link))
        beside.setdefault(link.b, []).append((link.a, link))
    node_of = {host: node for node, host in topology.hosts.items()}
    trips: dict[tuple[int, int], tuple[int, int]] = {}
    for flow in flows:
        if (flow.source, flow.target) in trips:
            continue
        at, reached = [(node_of[flow.target], 0)], {node_of[flow.target]: 0}
        for node, trip in at:
            for other, link in beside.get(node, []):
                if other not in reached and (other in topology.switches or other == node_of[flow.source]):
                    sending = payload * 8 * 10**12 // link.rate_bps
                    reached[other] = trip + 2 * link.delay_ps + sending
                    at.append((other, reached[other]))
        source = node_of[flow.source]
        if source not in reached:
            raise ValueError(f"no path from node {source} to node {node_of[flow.target]}")
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
