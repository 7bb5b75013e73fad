"""A job: everything that a run needs, resolved once from options, for the layers below the command line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec

from genie.config.hosts import Calibration, Hosts, load_hosts, loopback_hosts
from genie.config.nccl import CONNECTING, DEVICE_SETTINGS, NcclVariables, Setting, changes_of_files, warnings_of
from genie.config.units import format_rate, parse_rate
from genie.errors import UsageError
from genie.job.options import LiveOptions, TrafficOptions
from genie.job.warnings import warn
from genie.live.launch.loopback import free_loopback_hosts
from genie.live.transport import VERBS
from genie.live.verbs.environment import given_settings
from genie.plan.lowering import Lowering, unequal_groups
from genie.workload.compute import fill_durations, parse_compute
from genie.workload.graph import Workload
from genie.workload.load import load
from simtwin.fabric.network import Network
from simtwin.fabric.placement import host_of_rank, ranks_per_server
from simtwin.fabric.reading import loopback_fabric, with_host_latency
from simtwin.fabric.schema import Fabric, Frame, Transport
from simtwin.fabric.topology import build_network
from simtwin.imports.fabric_files import read_fabric_file
from simtwin.levels.analytic import CostModel
from simtwin.levels.names import PACKET, Level
from simtwin.play.effects import idle_compute, idle_options
from simtwin.play.twin import Twin
from simtwin.play.wire import lowering_from, nccl_record, with_connections

IPV6_EXTRA_BYTES = 20  # the packet model counts IPv4's header
UNCERTAIN = 0.5  # share of a host latency: a spread above it makes the latency uncertain
UNCERTAIN_MIN_NS = 500  # a smaller spread does not: it is less than the links of a path take


@dataclass(frozen=True)
class Job:
    """A workload, its hosts, the fabric as its file or its lab has it, and the options of both worlds.

    `written`: None without a fabric file. `describes_loopback`: without a file, the ranks know the fabric of loopback
    as if a file described it, as in a validation.
    """

    traffic: TrafficOptions
    live: LiveOptions
    workload: Workload
    hosts: Hosts
    written: Fabric | None = None
    describes_loopback: bool = False
    variables: NcclVariables = field(default_factory=NcclVariables)

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return self.workload.world_size

    @cached_property
    def fabric(self) -> Fabric:
        """The fabric as the twin plays it: with the options' transport and the hosts' calibrated latency.

        Raises UsageError without a fabric file and without a rate.
        """
        if self.written is not None:
            fabric = self.written
        elif self.traffic.rate is not None:
            fabric = loopback_fabric(self.ranks, rate_from(self.traffic.rate))
        else:
            raise UsageError("give --fabric FILE, or --rate for the fabric of loopback")
        frame = frame_for(fabric, self.hosts)
        fabric = msgspec.structs.replace(fabric.with_transport(transport_from(self.traffic, fabric)), frame=frame)
        measured = self.hosts.calibration
        if measured is None:
            return fabric
        # Recorded times are divided by the dilation, and so is a host's latency, which does not stretch.
        scale = measured.dilation / self.traffic.dilation
        return with_host_latency(
            fabric, round(measured.packet_latency_ns * scale), round(measured.message_latency_ns * scale)
        )

    def _known_fabric(self) -> Fabric | None:
        """The fabric; None where neither a file nor a rate tells it."""
        return None if self.written is None and self.traffic.rate is None else self.fabric

    @property
    def described(self) -> Fabric | None:
        """The fabric as ranks know it; None where nothing describes it."""
        return self.fabric if self.written is not None or self.describes_loopback else None

    @cached_property
    def network(self) -> Network:
        """Nodes and links of the fabric."""
        return build_network(self.fabric)

    @cached_property
    def lowering(self) -> Lowering:
        """The rules by which collectives become messages. Raises WireError, and NcclVariableError."""
        lowering = lowering_from(self.traffic, self._ranks_per_node, self.variables, self._known_fabric)
        for text in warnings_of(self.variables) if lowering.nccl else ():
            warn(text)
        if lowering.nccl is not None and (text := unequal_groups(self.workload, lowering.node_ranks)):
            warn(text)
        return lowering

    @cached_property
    def transports(self) -> list[str]:
        """By rank: the transport of its host, or that of the option."""
        return transports_of(self.live, self.hosts)

    @cached_property
    def line_rates(self) -> dict[int, int]:
        """Rate (b/s) of the link of each host of the fabric that ranks sit on."""
        return line_rates(self, self.fabric)

    def placed(self, network: Network, fabric: Fabric) -> list[int]:
        """By rank: the number of its host in the network. Raises RoutingError and UsageError."""
        ports = [place.port for place in self.hosts.places]
        name = str(self.traffic.fabric or fabric.name)
        return [int(host) for host in host_of_rank(network, self.ranks, ports, fabric=name)]

    def twin(
        self,
        *,
        threads: int = 1,
        level: Level | str = PACKET,
        model: CostModel | None = None,
        fabric: Fabric | None = None,
    ) -> Twin:
        """Return the twin of the fabric, with the ranks on its hosts. `fabric`: in place of the job's fabric."""
        built = self.fabric if fabric is None else fabric
        network = build_network(built)
        return Twin(built, network, self.placed(network, built), self.traffic.seed, threads, level, model)

    def check_rate(self) -> None:
        """Raises UsageError when --rate is not the rate of the ranks' links."""
        check_rate(self.traffic, self.line_rates)

    def warn_of_calibration(self) -> None:
        """Warn when the hosts' latency was measured at another line rate than it is used at, or is uncertain."""
        measured = self.hosts.calibration
        if measured is None:
            return
        where = self.traffic.hosts or "these hosts"
        used = {format_rate(rate) for rate in self.line_rates.values()}
        if used != {measured.rate}:
            warn(
                f"{where}: the host latency was measured at {measured.rate} and is used at "
                f"{', '.join(sorted(used))}: genie calibrate measures it anew"
            )
        if text := uncertainty(measured):
            warn(f"{where}: {text}")

    def warn_of_idle_options(self, level: str = PACKET, transport: Transport | None = None) -> None:
        """Warn of options that have no effect on this workload."""
        connections = self.fabric.transport if transport is None else transport
        known = self._known_fabric()
        idle = idle_options(self.traffic, self.workload, self.lowering, known, connections, level, self.traffic.seed)
        for text in idle:
            warn(text)

    def nccl_variables(self, live: LiveOptions | None = None) -> list[dict[str, str]]:
        """Return NCCL's variables as run.json lists them, and warn of each file that changes something.

        `live`: the options of a live run; the twin has none, and no devices.
        """
        uses_verbs = live is not None and VERBS in self.transports
        overruled = self._overruled(live or LiveOptions())
        listed = nccl_record(self.traffic, self.lowering, self.workload, uses_verbs, overruled, self.variables)
        for text in changes_of_files(Setting(**each) for each in listed):
            warn(text)
        return listed

    def of(self, workload: Workload, path: str) -> Job:
        """Return the same job with another workload. `path`: of its traces."""
        return replace(self, workload=workload, traffic=replace(self.traffic, workload=path))

    def _overruled(self, live: LiveOptions) -> dict[str, str]:
        """Return NCCL's variables of connections and devices that options or files override, each with its override."""
        written = Transport() if self.written is None else self.written.transport
        given = {key: f"--verbs {key}" for key in given_settings(live.verbs)}
        for key, option, value in (
            ("queue_pairs", "--queue-pairs", self.traffic.queue_pairs),
            ("split", "--split", self.traffic.split),
            ("traffic_class", "--traffic-class", live.traffic_class),
        ):
            if value is not None:
                given[key] = option
            elif getattr(written, key) is not None:
                given[key] = f"[transport] {key} of {self.traffic.fabric}"
        kinds = zip(self.hosts.places, transports_of(live, self.hosts), strict=True)
        devices = [place.device for place, kind in kinds if kind == VERBS]
        if devices and all(devices):
            given["hca"] = f"device of {self.hosts.name}"
        return {name: given[key] for name, key in (CONNECTING | DEVICE_SETTINGS).items() if key in given}

    def _ranks_per_node(self) -> int:
        """Ranks of each host of the hosts file, where it has several; those of each server of the fabric; else 1."""
        if self.traffic.hosts is not None:
            counts = Counter(place.host for place in load_hosts(self.traffic.hosts).places)
            if len(counts) > 1 and len(set(counts.values())) == 1:
                return next(iter(counts.values()))
        return 1 if self.written is None else ranks_per_server(self.written, self.traffic.gpu)


def resolve(
    traffic: TrafficOptions,
    live: LiveOptions | None = None,
    *,
    hosts_on: Callable[[int], Hosts] | None = None,
    written: Fabric | None = None,
    default_rate: str | None = None,
    shape_only: bool = False,
    workload: Workload | None = None,
) -> Job:
    """Load the files that options name, and make a job of them.

    `hosts_on`: returns the hosts for a number of ranks, in place of those of the options. `written`: the fabric of a
    lab, in place of the fabric file. `default_rate`: of loopback, whose fabric ranks then know. `shape_only`: for a
    rank that loads its own trace. `workload`: in place of the traces that options name.
    Raises UsageError, and the errors of the files' readers.
    """
    workload = load_workload(traffic, shape_only=shape_only) if workload is None else workload
    placed = hosts_of(traffic, workload.world_size) if hosts_on is None else hosts_on(workload.world_size)
    written = fabric_file(traffic) if written is None else written
    if written is None and default_rate is not None:
        traffic = replace(traffic, rate=traffic.rate or default_rate)
    describes = written is None and default_rate is not None
    return Job(traffic, live or LiveOptions(), workload, placed, written, describes)


def fabric_file(traffic: TrafficOptions) -> Fabric | None:
    """The fabric as its file has it; None without one. Raises FabricError, AstraError."""
    return None if traffic.fabric is None else read_fabric_file(traffic.fabric)


def load_workload(traffic: TrafficOptions, *, shape_only: bool = False) -> Workload:
    """Load all ranks, with durations; or only the world's size and groups, for a rank that loads its own trace."""
    workload = load(traffic.workload, ranks=() if shape_only else None)
    if not shape_only:
        filled = fill_durations(workload, None if traffic.compute is None else parse_compute(traffic.compute))
        for text in idle_compute(traffic.compute, filled):
            warn(text)
    if traffic.ranks is not None and traffic.ranks != workload.world_size:
        raise UsageError(
            f"--ranks {traffic.ranks}: {traffic.workload} is a job of {workload.world_size} ranks; leave --ranks out "
            "or give a trace of that size"
        )
    return workload


def hosts_of(traffic: TrafficOptions, ranks: int, udp_port: int | None = None) -> Hosts:
    """The hosts file, or loopback addresses; with `udp_port`, addresses on which that port is free."""
    if traffic.hosts is None:
        return loopback_hosts(ranks) if udp_port is None else free_loopback_hosts(ranks, udp_port)
    hosts = load_hosts(traffic.hosts)
    if hosts.ranks < ranks:
        raise UsageError(f"{traffic.hosts}: places {hosts.ranks} ranks, the workload has {ranks}: add the others")
    return hosts.first(ranks)


def transports_of(live: LiveOptions, hosts: Hosts) -> list[str]:
    """By rank: the transport of its host, or that of the option."""
    return [place.transport or live.transport for place in hosts.places]


def frame_for(fabric: Fabric, hosts: Hosts) -> Frame:
    """The fabric's frame, longer by the difference of IPv6's header where hosts have IPv6 addresses."""
    longer = IPV6_EXTRA_BYTES if any(":" in place.address for place in hosts.places) else 0
    return msgspec.structs.replace(fabric.frame, overhead_bytes=fabric.frame.overhead_bytes + longer)


def transport_from(traffic: TrafficOptions, fabric: Fabric | None) -> Transport:
    """The fabric's transport, with the values that options give instead. Raises UsageError."""
    try:
        return with_connections(fabric.transport if fabric else Transport(), traffic)
    except ValueError as error:
        raise UsageError(str(error)) from error


def uncertainty(calibration: Calibration) -> str:
    """Return a warning if half the distance between the quartiles of the host latency is more than half of it.

    A dilation divides both, so that the spread may be too small to matter.
    """
    if calibration.packet_latency_spread_ns <= max(UNCERTAIN * calibration.packet_latency_ns, UNCERTAIN_MIN_NS):
        return ""
    return f"the host latency is uncertain: {latency_in_words(calibration)}: calibrate on hosts at rest"


def latency_in_words(calibration: Calibration) -> str:
    """`packet latency 84.8 us (spread 11.7 us, 108 samples)`."""
    return (
        f"packet latency {calibration.packet_latency_ns / 1000:.1f} us "
        f"(spread {calibration.packet_latency_spread_ns / 1000:.1f} us, {calibration.samples} samples)"
    )


def line_rates(job: Job, fabric: Fabric) -> dict[int, int]:
    """Rate (b/s) of the link of each host of a fabric that ranks sit on."""
    network = build_network(fabric)
    return {host: int(network.rate_bps[network.uplink(host)]) for host in job.placed(network, fabric)}


def check_rate(traffic: TrafficOptions, rates: dict[int, int]) -> None:
    """Raises UsageError when --rate is not that of the ranks' links."""
    if traffic.rate is not None and {rate_from(traffic.rate)} != set(rates.values()):
        have = ", ".join(format_rate(rate) for rate in sorted(set(rates.values())))
        raise UsageError(f"--rate {traffic.rate}: the links of {traffic.fabric} have {have}; leave --rate out")


def rate_from(text: str) -> int:
    """--rate in bits per second, 0 for unlimited. Raises UsageError."""
    try:
        return int(parse_rate(text))
    except ValueError as error:
        raise UsageError(f"--rate {text}: {error}; give for example 200Mb/s, 25Gb/s or unlimited") from error


def loopback_defaults(ranks: int) -> Fabric:
    """Return the transport and framing that hold without a fabric file."""
    return loopback_fabric(ranks, 0)
