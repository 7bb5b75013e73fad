"""Tables of a fabric file as strict structs. `simtwin.fabric.reading` reads and writes them."""

from __future__ import annotations

from math import prod
from typing import Annotated, Literal

from msgspec import Meta, Struct, structs

from genie.config.congestion import CONTROLS, Control, name_of
from genie.config.limits import QUEUE_PAIRS_MAX, SPRAY_MAX
from genie.config.units import Duration, Rate, Size

HOSTS_MAX = 65536
SERVER_MAX = 1024  # accelerators of a scale-up domain
PACKETS_MAX = 2**23 - 1  # half of the PSN space
FRAMING_BYTES = 18  # Ethernet's header and FCS
ETHERNET_OVERHEAD_BYTES = FRAMING_BYTES + 20  # preamble and gap

Name = Annotated[str, Meta(min_length=1, max_length=64, description="a name of 1 to 64 characters")]
Hosts = Annotated[int, Meta(ge=1, le=HOSTS_MAX)]
Switches = Annotated[int, Meta(ge=1, le=HOSTS_MAX)]
Retries = Annotated[int, Meta(ge=0, le=7)]
ControlName = Literal["none", "window", "dcqcn", "dcqcn-timer", "hpcc", "timely", "swift", "dctcp", "nscc"]


class _Strict(Struct, forbid_unknown_fields=True, frozen=True):
    """An immutable table that refuses unknown keys."""


LinkLoss = Annotated[float, Meta(ge=0, le=0.5, description="a number from 0 to 0.5")]
Retry = Literal["none", "go-back-n"]


class Link(_Strict, frozen=True):
    """A cable: its rate and its propagation delay."""

    rate: Rate
    delay: Duration = Duration(0)
    # Token bucket, as Linux's tbf has it: packets leave at once while it has tokens, and at the rate on average.
    burst: Size | None = None
    loss: LinkLoss | None = None  # in the twin: frames that the cable corrupts in each direction; absent: 0
    # In the twin, link-level retry: a port replays a corrupted frame, and all behind it, when it hears of it. Absent:
    # none, and the frame is lost.
    retry: Retry | None = None


class Downlink(_Strict, frozen=True):
    """Values of the link from the switch to the host that differ from [link]."""

    rate: Rate
    burst: Size | None = None


class SingleSwitch(_Strict, tag_field="kind", tag="single-switch", frozen=True):
    """Hosts `host0`, `host1`, ... on one switch, `switch`."""

    hosts: Hosts


class Photonic(_Strict, tag_field="kind", tag="photonic", frozen=True):
    """Hosts `host0`, ... on one optical circuit switch, `switch`; for level `flow`.

    Two hosts that exchange messages need a circuit, of [link]'s rate in each direction. A host has at most `ports`
    circuits at a time, and setting one up takes `setup`. An idle circuit stays until its port is needed.
    """

    hosts: Hosts
    ports: Annotated[int, Meta(ge=1, le=1024)] = 1  # circuits that a host has at a time
    setup: Duration = Duration(10_000_000)


class Domain(_Strict, frozen=True):
    """Links among the accelerators of a server besides the network: a switch of their own, or a cable for each pair."""

    rate: Rate
    delay: Duration = Duration(0)
    kind: Literal["switch", "mesh"] = "switch"
    # A message for another rail crosses the domain's switch to the port on that rail (NCCL's PXN).
    pxn: bool = False


class LeafSpine(_Strict, tag_field="kind", tag="leaf-spine", frozen=True):
    """Hosts in order on leaf switches `leaf0`, ...; every leaf has one link to every spine `spine0`, ..."""

    leaves: Switches
    spines: Switches
    hosts_per_leaf: Hosts
    spine_link: Link | None = None  # leaf to spine; as [link] when absent
    hosts_per_server: Annotated[int, Meta(ge=2, le=SERVER_MAX)] | None = None  # hosts in order, with a domain
    domain: Domain | None = None


class FatTree(_Strict, tag_field="kind", tag="fat-tree", frozen=True):
    """Three tiers of switches with `k` ports each (Al-Fares et al., SIGCOMM 2008).

    There are k pods of k/2 `edge` and k/2 `aggregation` switches, (k/2)^2 `core` switches, and k^3/4 hosts in order on
    the edges.
    """

    k: Annotated[int, Meta(ge=2, le=50, multiple_of=2)]  # 31,250 hosts


class RailOptimized(_Strict, tag_field="kind", tag="rail-optimized", kw_only=True, frozen=True):
    """Servers with a port for each accelerator; the k-th ports of all servers are attached to leaf switches of rail k.

    Host h is accelerator h % rails of server h // rails. Leaves `rail0leaf0`, ... serve `servers_per_leaf` servers each
    and have a link to every spine `spine0`, ...
    """

    servers: Hosts
    rails: Annotated[int, Meta(ge=1, le=SERVER_MAX)]
    servers_per_leaf: Hosts | None = None  # all of them when absent
    spines: Switches
    spine_link: Link | None = None  # as [link] when absent
    domain: Domain | None = None


class DualPlane(_Strict, tag_field="kind", tag="dual-plane", frozen=True):
    """Two planes, each with leaves and spines of its own; every host has a port in both."""

    leaves: Switches  # of each plane
    spines: Switches
    hosts_per_leaf: Hosts
    spine_link: Link | None = None


class Dragonfly(_Strict, tag_field="kind", tag="dragonfly", frozen=True):
    """Groups of routers, all joined with each other; each group has one link to every other (Kim et al., ISCA 2008).

    There are `routers` * `global_links` + 1 groups; hosts in order on their routers.
    """

    routers: Annotated[int, Meta(ge=1, le=256)]  # of each group
    hosts_per_router: Hosts
    global_links: Annotated[int, Meta(ge=1, le=256)]  # of each router
    global_link: Link | None = None  # as [link] when absent


class Torus(_Strict, tag_field="kind", tag="torus", frozen=True):
    """Routers in a grid, each joined with its neighbours in every dimension, and the last with the first."""

    size: Annotated[tuple[Switches, ...], Meta(min_length=1, max_length=6)]
    hosts_per_router: Hosts = 1
    wraps: bool = True  # false: a mesh


class NamedHost(_Strict, frozen=True):
    """A host of an explicit topology; latencies default to those of [host]."""

    name: Name
    packet_latency: Duration | None = None
    message_latency: Duration | None = None


class NamedSwitch(_Strict, frozen=True):
    """A switch of an explicit topology; the buffer defaults to that of [switch]."""

    name: Name
    buffer: Size | None = None
    bridge: bool = False  # a switch inside a server: never drops, marks or pauses


class NamedLink(_Strict, frozen=True):
    """A cable between `a` and `b`.

    Rate and delay default to those of [link], `rate_back` (b to a) to the rate. A cable that gives only one of its
    bursts has no token bucket in the other direction.
    """

    a: str
    b: str
    rate: Rate | None = None
    delay: Duration | None = None
    rate_back: Rate | None = None
    burst: Size | None = None  # in both directions; as in [link] when absent
    burst_back: Size | None = None  # b to a, where it differs
    length: Annotated[int, Meta(ge=1, le=64)] = 1  # in links; shortest paths add up these lengths
    loss: LinkLoss | None = None  # in the twin; as in [link] when absent
    retry: Retry | None = None  # in the twin; as in [link] when absent


class Explicit(_Strict, tag_field="kind", tag="explicit", kw_only=True, frozen=True):
    """Every host, switch and cable by name. Hosts are numbered in the order of the file."""

    # Servers in order: NCCL's messages stay inside one without crossing the network. Absent: each host is a server.
    hosts_per_server: Hosts | None = None
    host: Annotated[
        list[NamedHost],
        Meta(min_length=1, max_length=HOSTS_MAX, description=f"1 to {HOSTS_MAX} tables [[topology.host]]"),
    ]
    switch: Annotated[list[NamedSwitch], Meta(description="tables [[topology.switch]]")] = []
    link: Annotated[list[NamedLink], Meta(description="tables [[topology.link]]")]


class Transport(_Strict, frozen=True):
    """RoCE reliable connections. An absent value is the transport's own default, in both worlds."""

    mtu: Literal[256, 512, 1024, 2048, 4096] = 4096  # path MTU: payload bytes of a packet
    window_packets: Annotated[int, Meta(ge=1, le=PACKETS_MAX)] | None = None  # in flight at most
    ack_every_packets: Annotated[int, Meta(ge=1, le=PACKETS_MAX)] | None = None  # ACK requests inside long messages
    ack_timeout: Duration | None = None  # without any acknowledgement: send again
    retry_limit: Retries | None = None  # timeouts and NAKs in a row before the queue pair fails
    rnr_retry_limit: Retries | None = None  # receiver-not-ready NAKs in a row; 7 = no limit
    queue_pairs: Annotated[int, Meta(ge=1, le=QUEUE_PAIRS_MAX)] | None = None  # of each connection
    split: bool | None = None  # each message over all of them; otherwise whole messages, round-robin
    spray: Annotated[int, Meta(ge=1, le=SPRAY_MAX)] | None = None  # source ports that packets of a queue pair take
    recovery: Literal["go-back-n", "selective-repeat"] = "go-back-n"  # in the twin; packets sent again after a loss
    # In the twin, and with `spray` live too. Early packets are kept, and a packet is lost when this many have overtaken
    # it; 0: none is kept. It is below window_packets, as no more can overtake one. Absent: 0, or a quarter of the
    # window, at most 64, where [load_balancing] reorders or recovery is selective. Absent with `spray` and without a
    # [load_balancing] that reorders: 1, of the same source port.
    reordering_packets: Annotated[int, Meta(ge=0, le=65536)] | None = None
    congestion: ControlName | None = None  # at the senders; parameters: [congestion]
    traffic_class: Annotated[int, Meta(ge=0, le=255)] | None = None  # of IP: DSCP in the upper six bits


class Frame(_Strict, frozen=True):
    """Bytes that the link layer adds to each IP packet; all other keys are another simulator's frames (twin only)."""

    overhead_bytes: Annotated[int, Meta(ge=0, le=256)] = ETHERNET_OVERHEAD_BYTES
    payload: Size | None = None  # of a full packet, in place of [transport] mtu
    data_header: Size | None = None  # of every data frame, without its payload
    control: Size | None = None  # of every acknowledgement
    pause: Size | None = None  # of every pause frame
    time_unit: Duration = Duration(1)  # serialisation times, and gaps between paced packets, are rounded to it

    @property
    def is_foreign(self) -> bool:
        foreign = (self.payload, self.data_header, self.control, self.pause)
        return any(each is not None for each in foreign) or self.time_unit != 1


class Host(_Strict, frozen=True):
    """Latencies of a host; `genie calibrate` measures the first two."""

    packet_latency: Duration = Duration(0)  # from a packet's arrival until the transport has processed it
    message_latency: Duration = Duration(0)  # from a message's completion until its dependants are posted
    doorbell_latency: Duration = Duration(0)  # in the twin: from a message's posting until its port sees it
    # In the twin: from a congestion notification's arrival until the sender reacts.
    notification_latency: Duration = Duration(0)


class Nic(_Strict, frozen=True):
    """Costs of every host's NIC beside its port's rate; in the twin.

    They count at the ports towards the network, not at links inside a server. A message of `message_time` and of what
    `prefetch` reads is ready later; `packet_time` and `pcie_rate` keep the port busy longer than its rate does.
    """

    message_time: Duration = Duration(0)  # between the starts of two messages of a queue pair, at least
    packet_time: Duration = Duration(0)  # between the starts of two packets of a port, at least
    pcie_rate: Rate | None = None  # at which the NIC reads payload; absent: unlimited
    prefetch: Size | None = None  # of a message, read before its first packet leaves; absent: a full packet


class Server(_Strict, frozen=True):
    """The insides of all servers. A server is a scale-up domain, which may be a rack."""

    gpu: Name | None = None  # a GPU whose costs of NCCL's steps are known
    # Hosts in order that form a server; absent: as the topology says.
    gpus: Annotated[int, Meta(ge=1, le=SERVER_MAX)] | None = None


class Switch(_Strict, frozen=True):
    """An output-queued switch; a packet that finds the buffer full is dropped.

    With a shared buffer each ingress port and priority has its reserve. Beyond it, it may take alpha times the free
    space (dynamic thresholds, Choudhury and Hahne, 1998).
    """

    buffer: Size = Size(-1)  # of each output port's queues
    shared_buffer: Size | None = None  # of the whole switch; absent: each port has its own buffer
    reserve: Size = Size(4096)
    # Rounded to a multiple of 1/1024.
    alpha: Annotated[float, Meta(ge=1 / 1024, le=64, description="a number from 1/1024 to 64")] = 0.125
    latency: Duration = Duration(0)  # from a packet's arrival until it may leave
    # A packet is forwarded as soon as its header has arrived, where no port is faster than the incoming link.
    cut_through: bool = False
    reduces: bool = False  # all-reduces of NCCL may use CollNet; in the twin
    trimming: bool = False  # a data packet without room is cut to its header, which is sent with the control packets


class Ecn(_Strict, kw_only=True, frozen=True):
    """Random early detection by the length of the queue that a packet leaves.

    No packet is marked up to `minimum`, and every packet above `maximum`.
    """

    minimum: Size
    maximum: Size
    probability: Annotated[float, Meta(ge=0, le=1)] = 1.0  # at the maximum
    at: Rate | None = None  # link rate of the thresholds, in proportion for others; absent: for all


class Pfc(_Strict, kw_only=True, frozen=True):
    """Priority flow control (IEEE 802.1Qbb): a switch pauses the sender before it must drop."""

    # Absent: the priority of data.
    priorities: Annotated[tuple[Annotated[int, Meta(ge=0, le=6)], ...], Meta(min_length=1)] | None = None
    headroom: Size | None = None  # of each ingress port and priority; absent: what may arrive until a pause acts
    resume: Size = Size(3072)  # a pause ends this far below the threshold


Weight = Annotated[int, Meta(ge=1, le=1000)]


class Priority(_Strict, frozen=True):
    """Priorities of packets, 0 to 6.

    The higher is served first; with weights both share the link in proportion.
    """

    data: Annotated[int, Meta(ge=0, le=6)] = 3
    control: Annotated[int, Meta(ge=0, le=6)] = 3  # acknowledgements and notifications
    data_weight: Weight | None = None
    control_weight: Weight | None = None


class LoadBalancing(_Strict, frozen=True):
    """How a switch picks one of several equally short paths for data; control packets are always hashed.

    - ecmp: by a hash of addresses and UDP ports;
    - flowlet: drawn again after a gap;
    - spray: drawn for each packet;
    - round-robin: in turn;
    - adaptive: the shortest queue;
    - reps: as with ecmp, while senders choose each packet's source port by REPS.
    """

    mode: Literal["ecmp", "flowlet", "spray", "round-robin", "adaptive", "reps"] = "ecmp"
    flowlet_gap: Duration = Duration(50_000_000)
    # UDP source ports of queue pairs: nccl (from their numbers, as devices do), pair (one for each pair of ranks), a
    # port or FIRST-LAST; as --source-ports in the live world.
    source_ports: str = "nccl"

    @property
    def reorders(self) -> bool:
        return self.mode in ("spray", "round-robin", "adaptive", "reps")


class Path(_Strict, frozen=True):
    """A pinned path from one host to another, which neither load balancing nor faults change."""

    source: Name
    target: Name
    via: tuple[Name, ...]  # switches, in order


class Fault(_Strict, kw_only=True, frozen=True):
    """A link, a cable (both directions) or all cables of a switch fail or slow down; in the twin."""

    at: Duration
    until: Duration | None = None  # absent: permanent
    link: str | None = None  # "leaf0->spine1"
    cable: tuple[Name, Name] | None = None
    switch: Name | None = None
    rate: Rate | None = None  # the rate that is left; absent: none


class Routing(_Strict, frozen=True):
    """Shortest paths, by hops."""

    reroute_delay: Duration = Duration(1_000_000_000)  # from a link's failure or recovery until routes follow


Topology = SingleSwitch | LeafSpine | FatTree | RailOptimized | DualPlane | Dragonfly | Torus | Photonic | Explicit


def hosts_of_server(topology: Topology) -> int | None:
    """Return the hosts of a server, where the topology has servers."""
    if isinstance(topology, RailOptimized):
        return None if topology.domain is None else topology.rails
    return topology.hosts_per_server if isinstance(topology, Explicit | LeafSpine) else None


def lossy_tables(fabric: Fabric) -> list[str]:
    """Return the names of the tables whose cables lose frames."""
    topology = fabric.topology
    named = topology.link if isinstance(topology, Explicit) else []
    is_used = not named or any(link.loss is None for link in named)
    tables: dict[str, list[Link | NamedLink | None]] = {"[link]": [fabric.link] if is_used else []}
    for key in ("spine_link", "global_link"):
        tables[f"[topology.{key}]"] = [getattr(topology, key, None)]
    tables["[[topology.link]]"] = list(named)
    return [name for name, links in tables.items() if any(link is not None and link.loss for link in links)]


class Fabric(_Strict, kw_only=True, frozen=True):
    """A fabric file: its tables."""

    name: Name = "fabric"
    topology: Topology
    link: Link | None = None  # default of all links; required by generators
    downlink: Downlink | None = None  # switch to host; as [link] when absent
    transport: Transport = Transport()
    frame: Frame = Frame()
    host: Host = Host()
    nic: Nic | None = None
    server: Server | None = None
    switch: Switch = Switch()
    ecn: Ecn | None = None
    pfc: Pfc | None = None
    priority: Priority = Priority()
    load_balancing: LoadBalancing = LoadBalancing()
    routing: Routing = Routing()
    path: Annotated[list[Path], Meta(description="tables [[path]]")] = []
    fault: Annotated[list[Fault], Meta(description="tables [[fault]]")] = []
    # Node -> its IP addresses, by which the live world recognises the hops of a path.
    addresses: Annotated[dict[str, list[str]], Meta(description='a table: name = ["10.0.0.1", ...]')] = {}
    congestion: Control | None = None  # with parameters; without any, [transport] congestion is enough

    @property
    def control(self) -> Control:
        """The senders' congestion control: the one that [transport] names, with the parameters of [congestion]."""
        given, name = self.congestion, self.transport.congestion
        if given is not None and name in (None, name_of(given)):
            return given
        return CONTROLS[name or "none"]()

    def with_transport(self, transport: Transport) -> Fabric:
        """Return the fabric with another transport, and without parameters of a control that it does not name."""
        congestion = self.congestion
        if congestion is not None and transport.congestion not in (None, name_of(congestion)):
            congestion = None
        return structs.replace(self, transport=transport, congestion=congestion)

    @property
    def spray(self) -> int:
        """The UDP source ports of each queue pair; REPS chooses among as many as there may be."""
        return self.transport.spray or (SPRAY_MAX if self.load_balancing.mode == "reps" else 1)

    @property
    def lossless_priorities(self) -> tuple[int, ...]:
        """Priorities that PFC pauses instead of dropping their packets."""
        if self.pfc is None:
            return ()
        return (self.priority.data,) if self.pfc.priorities is None else self.pfc.priorities

    @property
    def hosts(self) -> int:
        """Number of hosts; host h plays rank h unless a hosts file says otherwise."""
        topology = self.topology
        if isinstance(topology, SingleSwitch | Photonic):
            return topology.hosts
        if isinstance(topology, LeafSpine):
            return topology.leaves * topology.hosts_per_leaf
        if isinstance(topology, FatTree):
            return topology.k**3 // 4
        if isinstance(topology, RailOptimized):
            return topology.servers * topology.rails
        if isinstance(topology, DualPlane):
            return topology.leaves * topology.hosts_per_leaf
        if isinstance(topology, Dragonfly):
            groups = topology.routers * topology.global_links + 1
            return groups * topology.routers * topology.hosts_per_router
        if isinstance(topology, Torus):
            return prod(topology.size) * topology.hosts_per_router
        return len(topology.host)
