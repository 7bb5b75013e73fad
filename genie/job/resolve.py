"""From options to what the rooms take: workloads, hosts, fabrics, settings. Wrong input ends here, in one line."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec

from genie.config.congestion import Control, Hpcc, NoControl, Window, from_plain, name_of, plain
from genie.config.hosts import Hosts, load_hosts, loopback_hosts
from genie.config.nccl import CONNECTING, DEVICE_SETTINGS, NcclVariables
from genie.config.source_ports import PAIR, PINNED, SourcePorts
from genie.config.units import format_rate, parse_rate
from genie.job.tracing import trace_plan, trace_problem
from genie.job.wire import lowering_of, nccl_settings, warn
from genie.live.fault_warnings import faults_without_effect
from genie.live.launch.loopback import free_loopback_hosts
from genie.live.rendezvous.meeting import launched_by
from genie.live.settings import ICRC_CHECKS, Faults, RunSettings, load_faults
from genie.live.transport import SOFTROCE, TRANSPORTS, VERBS
from genie.live.verbs.environment import given_settings, refuse_unsupported, verbs_settings
from genie.live.verbs.hca import parse_hca
from genie.plan.lowering import Lowering, check_groups
from genie.record import kept_warnings
from genie.workload.compute import fill_durations, parse_compute
from genie.workload.graph import Workload
from genie.workload.lint import sequences
from genie.workload.load import load
from simtwin.fabric.placement import host_of_rank
from simtwin.fabric.reading import loopback_fabric, with_host_latency
from simtwin.fabric.routing import shortest_path_routes
from simtwin.fabric.schema import Fabric, Frame, SingleSwitch, Transport
from simtwin.fabric.topology import build_network
from simtwin.fabric.transport import queue_pair_config
from simtwin.imports.fabric_files import read_fabric_file
from simtwin.levels.analytic import CostModel
from simtwin.levels.names import PACKET, Level
from simtwin.play.effects import idle_compute, idle_options
from simtwin.play.round_trip import NEED_NONE
from simtwin.play.round_trip import base_round_trip_ps as round_trip_of
from simtwin.play.twin import Twin
from simtwin.play.wire import WIRES, with_connections

DEFAULT_VALIDATE_RATE = "200Mb/s"
PATIENCE_MAX_S = 10**6
IPV6_EXTRA_BYTES = 20  # the packet model counts IPv4's header
SHARERS_MAX = 255  # ranks of one address: the local rank is a byte of the queue pair number


class UsageError(Exception):
    """A wrong option or input: one line, exit code 2."""


@dataclass(frozen=True)
class Play:
    """Options of both worlds."""

    workload: str
    ranks: int | None = None
    hosts: Path | None = None
    fabric: Path | None = None
    rate: str | None = None
    dilation: int = 1
    compute: str | None = None
    slots: str | None = None
    algorithm: tuple[str, ...] = ()
    channels: int | None = None
    credit: bool = False
    seed: int = 1
    queue_pairs: int | None = None
    split: bool | None = None
    congestion: str | None = None
    wire: str = "plain"
    ranks_per_node: int | None = None
    slice_delay: str | None = None
    as_built: Fabric | None = None  # of a lab: what it really is, in place of what its fabric file says

    @cached_property
    def fabric_file(self) -> Fabric:
        """The fabric as its file has it, read once a command. Raises FabricError, AstraError."""
        if self.fabric is None:
            raise UsageError("give --fabric FILE")
        return read_fabric_file(self.fabric)


def load_workload(play: Play, *, shape_only: bool = False) -> Workload:
    """Load all ranks, with durations; or only the world's size and groups, for a rank that loads its own trace."""
    workload = load(play.workload, ranks=() if shape_only else None)
    if not shape_only:
        filled = fill_durations(workload, None if play.compute is None else parse_compute(play.compute))
        for text in idle_compute(play.compute, filled):
            warn(text)
    if play.ranks is not None and play.ranks != workload.world_size:
        raise UsageError(
            f"--ranks {play.ranks}: {play.workload} is a job of {workload.world_size} ranks; leave --ranks out or give "
            "a trace of that size"
        )
    return workload


def hosts_of(play: Play, ranks: int, udp_port: int | None = None) -> Hosts:
    """The hosts file, or loopback addresses; with `udp_port`, on which that port is free."""
    if play.hosts is None:
        return loopback_hosts(ranks) if udp_port is None else free_loopback_hosts(ranks, udp_port)
    hosts = load_hosts(play.hosts)
    if hosts.ranks < ranks:
        raise UsageError(f"{play.hosts}: places {hosts.ranks} ranks, the workload has {ranks}: add the others")
    return hosts.first(ranks)


def fabric_of(play: Play, ranks: int, hosts: Hosts, default_rate: str | None = None) -> Fabric:
    """The fabric file or loopback's, with the hosts' calibrated latency in it."""
    if play.fabric is not None:
        fabric = play.as_built or play.fabric_file
    else:
        rate = default_rate if play.rate is None else play.rate
        if rate is None:
            raise UsageError("give --fabric FILE, or --rate for the fabric of loopback")
        fabric = loopback_fabric(ranks, rate_from(rate))
    fabric = msgspec.structs.replace(fabric, transport=transport_of(play, fabric), frame=frame_of(fabric, hosts))
    measured = hosts.calibration
    if measured is None:
        return fabric
    # Recorded times are divided by the dilation, and so is a host's latency, which does not stretch.
    scale = measured.dilation / play.dilation
    return with_host_latency(
        fabric, round(measured.packet_latency_ns * scale), round(measured.message_latency_ns * scale)
    )


def frame_of(fabric: Fabric, hosts: Hosts) -> Frame:
    """The fabric's frame, with what IPv6's header has more than IPv4's."""
    longer = IPV6_EXTRA_BYTES if any(":" in place.address for place in hosts.places) else 0
    return msgspec.structs.replace(fabric.frame, overhead_bytes=fabric.frame.overhead_bytes + longer)


def transport_of(play: Play, fabric: Fabric | None) -> Transport:
    """The fabric's transport, and what options say instead."""
    try:
        return with_connections(fabric.transport if fabric else Transport(), play)
    except ValueError as error:
        raise UsageError(str(error)) from error


def twin_of(
    fabric: Fabric,
    play: Play,
    ranks: int,
    hosts: Hosts,
    threads: int = 1,
    level: Level | str = PACKET,
    model: CostModel | None = None,
) -> Twin:
    """The twin of a fabric with the ranks on its hosts."""
    network = build_network(fabric)
    ports = [place.port for place in hosts.places]
    placed = host_of_rank(network, ranks, ports, fabric=str(play.fabric or fabric.name))
    return Twin(fabric, network, placed.tolist(), play.seed, threads, level, model)


def rate_of(play: Play, fabric: Fabric | None, hosts: Hosts, ranks: int) -> int:
    """Line rate of the soft NICs: --rate, or that of the links which the ranks sit on in the fabric."""
    given = None if play.rate is None else rate_from(play.rate)
    if fabric is None or play.fabric is None:
        return (0 if fabric is None or fabric.link is None else int(fabric.link.rate)) if given is None else given
    rates = line_rates(play, fabric, hosts, ranks)
    if len(rates) < ranks:
        raise UsageError(
            f"{play.fabric}: ranks share a host link, which softroce cannot shape: give each rank a port of its own"
        )
    if given is None and len(set(rates.values())) > 1:
        raise UsageError(f"{play.fabric}: the ranks' links differ in rate, and softroce has one line rate for all")
    check_rate(play, rates)
    return next(iter(rates.values()))


def line_rates(play: Play, fabric: Fabric, hosts: Hosts, ranks: int) -> dict[int, int]:
    """Rate in b/s of the link of each host of the fabric that ranks sit on."""
    network = build_network(fabric)
    ports = [place.port for place in hosts.places]
    placed = host_of_rank(network, ranks, ports, fabric=str(play.fabric or fabric.name)).tolist()
    return {host: int(network.rate_bps[network.uplink(host)]) for host in placed}


def check_rate(play: Play, rates: dict[int, int]) -> None:
    """Raises UsageError when --rate is not that of the ranks' links."""
    if play.rate is not None and {rate_from(play.rate)} != set(rates.values()):
        have = ", ".join(format_rate(rate) for rate in sorted(set(rates.values())))
        raise UsageError(f"--rate {play.rate}: the links of {play.fabric} have {have}; leave --rate out")


def warn_of_calibration(play: Play, hosts: Hosts, rates: dict[int, int]) -> None:
    """Say so when the hosts' latency was measured at another line rate than it is used at."""
    measured = hosts.calibration
    used = {format_rate(rate) for rate in rates.values()}
    if measured is not None and used != {measured.rate}:
        warn(
            f"{play.hosts}: the host latency was measured at {measured.rate} and is used at "
            f"{', '.join(sorted(used))}: genie calibrate measures it anew"
        )


def rate_from(text: str) -> int:
    """--rate in bits per second, 0 for unlimited."""
    try:
        return int(parse_rate(text))
    except ValueError as error:
        raise UsageError(f"--rate {text}: {error}; give for example 200Mb/s, 25Gb/s or unlimited") from error


def check_live(transport: str, wire: str, lab: Path | None) -> None:
    """Refuse what is not built yet, or not there, by name."""
    if transport not in TRANSPORTS:
        raise UsageError(f"--transport {transport}: must be softroce or verbs")
    if wire not in WIRES:
        raise UsageError(f"--wire {wire}: must be {' or '.join(WIRES)}")
    if lab is not None and transport == VERBS:
        raise UsageError("--lab: namespaces have no RDMA devices: leave --transport verbs out")
    if lab is not None and launched_by() is not None:
        raise UsageError("--lab: starts the ranks itself: start it by hand, not under a launcher")


@dataclass(frozen=True)
class Live:
    """Options of the live world only."""

    iterations: int = 1
    warmup: int = 0
    faults: Path | None = None
    offload: bool = True
    udp_port: int = 4791
    join_s: float = 60.0
    stall_s: float = 10.0
    transport: str = SOFTROCE  # of ranks whose host says none
    source_ports: str = PAIR
    traffic_class: int | None = None
    verify: bool = False
    icrc: str = "auto"
    verbs: tuple[str, ...] = ()  # KEY=VALUE
    trace_paths: str | None = None  # auto, on or off; None: a command that cannot learn paths
    events: bool = False  # sleep instead of polling

    def __post_init__(self) -> None:
        for option, value in (("--join", self.join_s), ("--stall", self.stall_s)):
            if not 0 < value <= PATIENCE_MAX_S:
                raise UsageError(f"{option} {value}: give seconds, at most {PATIENCE_MAX_S}")
        if self.source_ports == PINNED and self.trace_paths is None:
            raise UsageError("--source-ports pinned: is for genie run and validate, which learn paths")
        if problem := trace_problem(self.trace_paths or "auto", self.source_ports):
            raise UsageError(problem)
        if self.icrc not in ICRC_CHECKS:
            raise UsageError(f"--icrc {self.icrc}: must be {', '.join(ICRC_CHECKS[:-1])} or {ICRC_CHECKS[-1]}")
        try:
            if self.udp_port in SourcePorts(self.source_ports):
                raise UsageError(
                    f"--source-ports {self.source_ports}: {self.udp_port} is the port that softroce receives at "
                    "(--udp-port): leave it out"
                )
        except ValueError as error:
            raise UsageError(f"--source-ports: {error}") from error
        try:
            given_settings(self.verbs)
        except ValueError as error:
            raise UsageError(str(error)) from error


def transports_of(live: Live, hosts: Hosts) -> list[str]:
    """By rank: its host's transport, or that of the option."""
    return [place.transport or live.transport for place in hosts.places]


def control_of(play: Play, fabric: Fabric | None, transport: Transport) -> tuple[Control, int]:
    """The senders' congestion control in the live world, and the base round trip (ps) where it asks for one."""
    named = msgspec.structs.replace(fabric or loopback_defaults(1), transport=transport)
    control = named.control
    if isinstance(control, Hpcc):
        raise UsageError(
            "--congestion hpcc: needs what switches write into packets, and only the twin's do: simulate it"
        )
    if isinstance(control, NEED_NONE) or control.base_round_trip is not None:
        return control, int(control.base_round_trip or 0)
    if isinstance(control, Window) and control.window is not None:
        return control, 0
    if play.fabric is None:
        raise UsageError(
            f"--congestion {name_of(control)}: needs the base round trip: give a --fabric FILE, from whose delays it "
            "follows, or which says it in [congestion] base_round_trip"
        )
    network = build_network(named)
    return control, round_trip_of(named, network, shortest_path_routes(network))


def settings_of(
    play: Play, live: Live, out: Path, workload: Workload, hosts: Hosts, fabric: Fabric | None
) -> RunSettings:
    """Everything a rank needs to know."""
    transport = transport_of(play, fabric)
    pair = queue_pair_config(fabric) if fabric else queue_pair_config(loopback_defaults(workload.world_size))
    overhead = (fabric.frame if fabric else frame_of(loopback_defaults(1), hosts)).overhead_bytes
    lowering = lowering_of(play)
    check_groups(lowering, workload)
    ranks = workload.world_size
    faults, trace = Faults(), None
    try:
        if live.faults is not None:
            faults = load_faults(live.faults, ranks)
        if live.trace_paths is not None:
            trace = trace_plan(live.trace_paths, live.source_ports, fabric, hosts, ranks)
    except ValueError as error:
        raise UsageError(str(error)) from error
    control, base_round_trip_ps = control_of(play, fabric, transport)
    transports = transports_of(live, hosts)
    uses_verbs = VERBS in transports
    if live.verbs and not uses_verbs:
        raise UsageError(f"--verbs {live.verbs[0]}: no rank of this run is on verbs: give --transport verbs too")
    # A real NIC has the rate that it has: a fabric file describes it, and shapes nothing.
    rate_bps = 0 if uses_verbs and play.rate is None else rate_of(play, fabric, hosts, ranks)
    if faults.rate and rate_bps == 0:
        raise UsageError(f"{live.faults}: [[rate]] slows a line rate, and this run has none: give --rate")
    if 0 < rate_bps < play.dilation:
        raise UsageError(f"--dilation {play.dilation}: leaves nothing of a rate of {rate_bps} b/s")
    addresses = [place.address for place in hosts.places]
    crowded, sharers = Counter(addresses).most_common(1)[0]
    if sharers > SHARERS_MAX:
        raise UsageError(f"{crowded}: more than {SHARERS_MAX} ranks on one address; give the host another address")
    if fabric is not None and fabric.frame.is_foreign:
        raise UsageError(f"{play.fabric}: [frame] has another simulator's frames, which no network sends: simulate it")
    settings = RunSettings(
        workload=str(Path(play.workload).resolve()),
        out=str(out.resolve()),
        ranks=ranks,
        addresses=addresses,
        ports=[place.port for place in hosts.places],
        host_names=[place.host for place in hosts.places],
        rate_bps=rate_bps,
        dilation=play.dilation,
        iterations=live.iterations,
        warmup=live.warmup,
        seed=play.seed,
        slots=play.slots,
        compute=play.compute,
        channels=lowering.channels,
        credit=lowering.credit,
        algorithms=lowering.algorithms,
        nccl=lowering.nccl,
        nccl_variables=nccl_settings(play, lowering, workload, uses_verbs, overruled_of(play, live, hosts)),
        mtu=transport.mtu if fabric else 0,  # without a file that says it, it is found by trying
        window_packets=pair.window_packets,
        ack_every_packets=pair.ack_every_packets,
        ack_timeout_ns=pair.ack_timeout_ps // 1000,
        retry_limit=pair.retry_limit,
        rnr_retry_limit=pair.rnr_retry_limit,
        frame_overhead_bytes=overhead,
        offload=live.offload,
        spin=False if live.events else None,
        udp_port=live.udp_port,
        join_s=live.join_s,
        stall_s=live.stall_s,
        faults=faults,
        transport=transports[0] if len(set(transports)) == 1 else live.transport,
        transports=transports if len(set(transports)) > 1 else [],
        queue_pairs=transport.queue_pairs or 1,
        split=transport.split or False,
        source_ports=live.source_ports,
        trace=trace,
        traffic_class=transport.traffic_class or 0 if live.traffic_class is None else live.traffic_class,
        congestion=plain(control),
        base_round_trip_ps=base_round_trip_ps,
        verify=live.verify,
        icrc=live.icrc,
    )
    settings = with_verbs(settings, hosts, transport, live) if uses_verbs else settings
    for text in faults_without_effect(settings):
        warn(f"{live.faults}: {text}")
    for finding in sequences(workload) if workload.ranks else ():
        warn(f"{play.workload}: {finding.message}; a replay stops there or is meaningless (genie inspect)")
    # Of the ranks that a launcher has started, others than the first know the shape of the workload alone.
    for text in idle_options(play, workload, lowering, transport, seed=play.seed) if workload.ranks else ():
        warn(text)
    return msgspec.structs.replace(settings, warnings=kept_warnings())


def overruled_of(play: Play, live: Live, hosts: Hosts) -> dict[str, str]:
    """NCCL's variables of connections and devices above which something stands, and what."""
    written = Transport() if play.fabric is None else (play.as_built or play.fabric_file).transport
    given = {key: f"--verbs {key}" for key in given_settings(live.verbs)}
    for key, option, value in (
        ("queue_pairs", "--queue-pairs", play.queue_pairs),
        ("split", "--split", play.split),
        ("traffic_class", "--traffic-class", live.traffic_class),
    ):
        if value is not None:
            given[key] = option
        elif getattr(written, key) is not None:
            given[key] = f"[transport] {key} of {play.fabric}"
    devices = [
        place.device for place, kind in zip(hosts.places, transports_of(live, hosts), strict=True) if kind == VERBS
    ]
    if devices and all(devices):
        given["hca"] = f"device of {hosts.name}"
    return {name: given[key] for name, key in (CONNECTING | DEVICE_SETTINGS).items() if key in given}


def twin_variables(play: Play, lowering: Lowering, workload: Workload, hosts: Hosts) -> list[dict[str, str]]:
    """NCCL's variables as the twin's run.json lists them: it has no devices."""
    return nccl_settings(play, lowering, workload, False, overruled_of(play, Live(), hosts))


def with_verbs(settings: RunSettings, hosts: Hosts, transport: Transport, live: Live) -> RunSettings:
    """What NCCL's variables and the hosts file say of RDMA devices; what these cannot do is refused."""
    try:
        refuse_unsupported(settings)
        refuse_what_devices_decide(settings, live)
        devices = [place.device for place in hosts.places]
        for device in filter(None, devices):
            parse_hca(device, f"{hosts.name}: device")
        return msgspec.structs.replace(
            settings,
            verbs=verbs_settings(
                NcclVariables(),
                traffic_class=transport.traffic_class if live.traffic_class is None else live.traffic_class,
                **given_settings(live.verbs),
            ),
            devices=devices if any(devices) else [],
        )
    except ValueError as error:
        raise UsageError(str(error)) from error


def refuse_what_devices_decide(settings: RunSettings, live: Live) -> None:
    """Options of softroce alone, in a job without it. Raises UsageError."""
    if SOFTROCE in settings.kinds:
        return
    given = {
        "--congestion": not isinstance(from_plain(settings.congestion), NoControl),
        "--source-ports": live.source_ports != PAIR,
        "--icrc strict": live.icrc == "strict",
        "--no-offload": not live.offload,
    }
    for option in (option for option, is_given in given.items() if is_given):
        raise UsageError(f"{option} is softroce's, and all ranks are on verbs: the device decides; leave it out")


def loopback_defaults(ranks: int) -> Fabric:
    """Transport and framing where no fabric file says any."""
    fabric = loopback_fabric(ranks, 0)
    assert isinstance(fabric.topology, SingleSwitch)
    return fabric
