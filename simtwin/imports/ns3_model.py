"""The configuration of ns-3's RDMA model, and of SimAI's derivative of it, as a fabric of the twin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from genie.config.congestion import Control, DcqcnTimer, Dctcp, Hpcc, NoControl, Timely
from genie.config.units import SIZE_MAX_BYTES, Duration, Rate, Size
from simtwin.fabric.queues import QueueError, queues_of
from simtwin.fabric.reading import FabricError, parse_fabric, to_toml
from simtwin.fabric.routing import RoutingError, check_joined
from simtwin.fabric.schema import Ecn, Fabric, Frame, Pfc, Priority, Switch, Transport
from simtwin.fabric.size import size_problem
from simtwin.fabric.topology import build_network
from simtwin.imports.ns3_files import TopologyFile, TopologyLink
from simtwin.imports.words import Configuration, ForeignFileError

DATA_HEADER_BYTES = 36  # PPP 2, IPv4 20, UDP 8, sequence 6
PAUSE_BYTES = 31  # PPP 2, IPv4 20, its own 9
# PPP and IPv4, then the larger of 26 bytes and an acknowledgement's own 12 plus the telemetry or time stamp of data.
ACKNOWLEDGE_OUTER_BYTES, ACKNOWLEDGE_LEAST_BYTES, ACKNOWLEDGE_OWN_BYTES = 22, 26, 12
TOLD_BYTES = {"HPCC": 42, "TIMELY": 8}  # telemetry and a time stamp, in data and in acknowledgements
RESERVE_BYTES, RESUME_BYTES, ALPHA = 4096, 3072, 0.125
HEADROOM_FACTOR = 3  # of a link's rate times its delay
CONTROLS = {"1": "DCQCN", "3": "HPCC", "7": "TIMELY", "8": "DCTCP", "12": "none"}
PS_PER_NS = 1000
PAYLOAD_MAX_BYTES = 65_000  # of an IPv4 packet, approximately
THRESHOLD_MAX_KB = SIZE_MAX_BYTES // 1000
COUNT_MAX = 1_000_000
BUFFER_MIB = "32"

READ = """
    TOPOLOGY_FILE FLOW_FILE ENABLE_QCN PACKET_PAYLOAD_SIZE CC_MODE ALPHA_RESUME_INTERVAL RATE_DECREASE_INTERVAL
    CLAMP_TARGET_RATE RP_TIMER EWMA_GAIN FAST_RECOVERY_TIMES RATE_AI RATE_HAI MIN_RATE ERROR_RATE_PER_LINK HAS_WIN
    GLOBAL_T VAR_WIN FAST_REACT U_TARGET MI_THRESH MULTI_RATE ACK_HIGH_PRIO LINK_DOWN KMAX_MAP KMIN_MAP PMAX_MAP
    BUFFER_SIZE
"""
# Keys of that simulator's output files and stop time, of a refused mode, or without any use there.
WITHOUT_MEANING = """
    TRACE_FILE TRACE_OUTPUT_FILE FCT_OUTPUT_FILE PFC_OUTPUT_FILE ENABLE_TRACE SIMULATOR_STOP_TIME QLEN_MON_FILE
    QLEN_MON_START QLEN_MON_END BW_MON_FILE RATE_MON_FILE CNP_MON_FILE MON_START MON_END QP_MON_INTERVAL
    BW_MON_INTERVAL QLEN_MON_INTERVAL PINT_LOG_BASE PINT_PROB PAUSE_TIME DATA_RATE LINK_DELAY L2_CHUNK_SIZE
"""
# Keys for which the twin has one value only.
PLAYED_AT = {
    "USE_DYNAMIC_PFC_THRESHOLD": "1",
    "L2_ACK_INTERVAL": "1",
    "L2_BACK_TO_ZERO": "0",
    "INT_MULTI": "1",
    "RATE_BOUND": "1",
    "SAMPLE_FEEDBACK": "0",
    "NIC_TOTAL_PAUSE_TIME": "0",
}
OF_DCTCP = "DCTCP_RATE_AI"
KNOWN = frozenset(f"{READ} {WITHOUT_MEANING} {OF_DCTCP}".split()) | PLAYED_AT.keys()


def model_fabric(
    keys: Configuration, topology: TopologyFile, pairs: Sequence[tuple[int, int]] | None, notes: list[str], name: str
) -> Fabric:
    """Return a topology with the settings of a configuration; differences of the twin's model are added to `notes`.

    `pairs`: source and target host of each flow, whose longest round trip is that model's base round trip; None: all
    pairs. Raises ForeignFileError.
    """
    keys.check_kind(KNOWN)
    error_rate, link_down = keys.value("ERROR_RATE_PER_LINK", "0"), keys.value("LINK_DOWN", "0 0 0")
    if error_rate.number(0, 1) != 0:
        raise error_rate.error("links that lose packets are not read: give 0")
    if set(link_down.text.split()) != {"0"}:
        raise link_down.error("links that fail are not read: give 0 0 0")
    cc_mode = keys.value("CC_MODE", "1")
    mode = CONTROLS.get(cc_mode.text)
    if mode is None:
        raise cc_mode.error(f"must be one of {', '.join(CONTROLS)}")
    _note_keys(keys, mode, notes)
    payload_bytes = keys.value("PACKET_PAYLOAD_SIZE", "1000").whole(1, PAYLOAD_MAX_BYTES)
    buffer_bytes = keys.value("BUFFER_SIZE", BUFFER_MIB).whole(1, SIZE_MAX_BYTES >> 20) << 20
    told_bytes = TOLD_BYTES.get(mode, 0)
    control_bytes = ACKNOWLEDGE_OUTER_BYTES + max(ACKNOWLEDGE_LEAST_BYTES, ACKNOWLEDGE_OWN_BYTES + told_bytes)
    # A fabric file has no headroom of 0.
    headrooms = {
        max(HEADROOM_FACTOR * link.rate_bps * link.delay_ps // (8 * 10**12), 1) for link in topology.switch_links
    }
    if len(headrooms) > 1:
        notes.append(f"headroom is {max(headrooms)} B at every port: in that model it follows each link's delay")
    return Fabric(
        name=name[:64],
        topology=topology.explicit(),
        # Nothing is lost and no queue pair waits for ever: that model's retransmission timer never expires.
        transport=Transport(window_packets=2**20, ack_every_packets=1, ack_timeout=Duration(10**12)),
        frame=Frame(
            payload=Size(payload_bytes),
            data_header=Size(DATA_HEADER_BYTES + told_bytes),
            control=Size(control_bytes),
            pause=Size(PAUSE_BYTES),
            time_unit=Duration(PS_PER_NS),
        ),
        switch=Switch(shared_buffer=Size(buffer_bytes), reserve=Size(RESERVE_BYTES), alpha=ALPHA),
        pfc=Pfc(headroom=Size(max(headrooms, default=1)), resume=Size(RESUME_BYTES)),
        priority=Priority(3, 6 if keys.value("ACK_HIGH_PRIO", "0").flag() else 3),
        ecn=_ecn(keys, topology, notes) if keys.value("ENABLE_QCN", "1").flag() else None,
        congestion=_control(keys, mode, payload_bytes, topology, pairs, notes),
    )


def check_fabric(keys: Configuration | None, topology: TopologyFile, fabric: Fabric) -> None:
    """Refuse a fabric that `genie simulate` would refuse, with an error that names the imported file to correct."""
    try:
        parse_fabric(to_toml(fabric), "its fabric file")
    except FabricError as wrong:
        raise _explained(keys, topology, fabric, wrong) from wrong


def _explained(
    keys: Configuration | None, topology: TopologyFile, fabric: Fabric, wrong: FabricError
) -> ForeignFileError:
    """Return the error with the file and the key that cause it."""
    if problem := size_problem(fabric):
        return ForeignFileError(f"{topology.path}:{problem}")
    network = build_network(fabric)
    try:
        check_joined(network)
    except RoutingError as apart:
        return ForeignFileError(f"{topology.path}: {apart}")
    if keys is None:
        return ForeignFileError(f"{topology.path}: makes what the twin cannot play: {wrong}")
    try:
        queues_of(fabric, network)
    except QueueError as full:
        if full.key != ("switch", "shared_buffer"):
            return ForeignFileError(f"{keys.path}: {full.key[1]}{full}")
        return keys.value("BUFFER_SIZE", BUFFER_MIB).error(f"{str(full).removeprefix(': ')}; the key is in MiB")
    return ForeignFileError(f"{keys.path}: makes what the twin cannot play: {wrong}")


def _note_keys(keys: Configuration, mode: str, notes: list[str]) -> None:
    for key, played in PLAYED_AT.items():
        if (value := keys.value(key, played)).text != played:
            notes.append(value.note(f"{key} {value.text} is not played: the twin has {played}"))
    if mode == "DCTCP" and (value := keys.value(OF_DCTCP, "")).text:
        notes.append(value.note(f"{OF_DCTCP} is not played: the twin's DCTCP adds a packet in a round trip"))
    for value in keys.others(KNOWN):
        notes.append(value.note(f"{value.key} is not understood, and not used"))


def _ecn(keys: Configuration, topology: TopologyFile, notes: list[str]) -> Ecn | None:
    rates = sorted({link.rate_bps for link in topology.switch_links})
    if not rates:  # no link where packets are marked
        return None
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
        notes.append(
            f"marks follow the thresholds of {rates[-1]} b/s in proportion: that model has its own for each rate"
        )
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
    pairs: Sequence[tuple[int, int]] | None,
    notes: list[str],
) -> Control:
    longest = _longest_round_trip(topology, pairs, payload_bytes)
    trip_ps, rate_bps = longest.trip_ps, longest.rate_bps
    if longest.differs and not keys.value("GLOBAL_T", "1").flag():
        notes.append("all windows follow the longest base round trip: that model has one for each pair of hosts")
    has_window = keys.value("HAS_WIN", "1").flag() and trip_ps > 0
    window = Size(rate_bps * trip_ps // (8 * 10**12)) if has_window else None
    base = Duration(trip_ps) if trip_ps > 0 else None  # a single host has none
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
                raise value.error(f"the other mode is not implemented: give {built}")
        return Hpcc(
            utilisation=keys.value("U_TARGET", "0.95").share(),
            stages=keys.value("MI_THRESH", "0").whole(0, COUNT_MAX),
            additive=keys.value("RATE_AI", "50Mb/s").rate(),
            minimum_rate=keys.value("MIN_RATE", "100Mb/s").rate(),
            window=has_window,
            base_round_trip=base,
        )
    if mode == "TIMELY":
        return Timely(
            minimum_rate=keys.value("MIN_RATE", "100Mb/s").rate(), additive=keys.value("RATE_AI", "50Mb/s").rate()
        )
    if mode == "DCTCP":
        return Dctcp(base_round_trip=base)
    return NoControl()


@dataclass(frozen=True)
class RoundTrip:
    """The longest base round trip of a pair of hosts in that model."""

    trip_ps: int
    rate_bps: int  # of the sender's link
    differs: bool  # from other pairs


def _longest_round_trip(
    topology: TopologyFile, pairs: Sequence[tuple[int, int]] | None, payload_bytes: int
) -> RoundTrip:
    """Return the longest base round trip among these pairs of source and target, or all pairs.

    That model searches paths from the target, hop by hop.
    """
    beside: dict[int, list[tuple[int, TopologyLink]]] = {node: [] for node in topology.hosts}
    for link in topology.links:
        beside.setdefault(link.a, []).append((link.b, link))
        beside.setdefault(link.b, []).append((link.a, link))
    node_of = list(topology.hosts)
    sources_of: dict[int, set[int] | None] = {}
    if pairs is None:
        # Hosts on the same switches of the network have equal round trips to other servers.
        alike = {_attachment(topology, beside[node], node): node for node in reversed(node_of)}
        sources_of = dict.fromkeys(alike.values())
    else:
        for source, target in pairs:
            sources_of.setdefault(node_of[target], set()).add(node_of[source])  # type: ignore[union-attr]
    trips: set[tuple[int, int]] = set()
    for target, some in sources_of.items():
        reached = _round_trips(beside, topology.hosts, target, payload_bytes)
        sources = topology.hosts.keys() - {target} if some is None else some
        if missing := sources - reached.keys():
            where = f"no path from node {min(missing)} to node {target}"
            raise ForeignFileError(f"{topology.path}: {where}: join their switches by links")
        trips |= {reached[source] for source in sources}
    trip_ps, rate_bps = max(trips, default=(0, 0))
    return RoundTrip(trip_ps, rate_bps, len(trips) > 1)


def _attachment(
    topology: TopologyFile, links: list[tuple[int, TopologyLink]], node: int
) -> tuple[tuple[int, int, int], ...]:
    """Return a host's switches of the network, with rate and delay of each link; for a host without any, itself."""
    outside = [(other, link.rate_bps, link.delay_ps) for other, link in links if not topology.is_nvswitch(other)]
    return tuple(sorted(outside)) or ((node, 0, 0),)


def _round_trips(
    beside: dict[int, list[tuple[int, TopologyLink]]], hosts: dict[int, int], target: int, payload_bytes: int
) -> dict[int, tuple[int, int]]:
    """Return by node: round trip to the target in ps, and rate of the node's first link. Hosts do not forward."""
    at, reached = [target], {target: (0, 0)}
    for node in at:
        for other, link in beside[node]:
            if other not in reached:
                sending = payload_bytes * 8 * 10**12 // link.rate_bps
                reached[other] = reached[node][0] + 2 * link.delay_ps + sending, link.rate_bps
                if other not in hosts:
                    at.append(other)
    return reached
