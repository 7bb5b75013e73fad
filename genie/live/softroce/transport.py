"""The native engine as a transport: walker and queue pairs of one rank on UDP sockets."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Any, cast

import genie_core

from genie.config.congestion import NoControl, from_plain, set_control
from genie.config.source_ports import SourcePorts
from genie.config.spraying import set_spray
from genie.errors import EXIT_ENVIRONMENT, EXIT_USAGE
from genie.live.settings import RunSettings
from genie.live.softroce.faults import set_path_faults, set_rate_faults
from genie.live.softroce.shared_port import SharedPort, obtain, share
from genie.live.transport import (
    SOFTROCE,
    EndpointInfo,
    PlayState,
    TransportContext,
    TransportError,
    draw_key,
    draw_psns,
)

PS_PER_NS, PS_PER_S = 1000, 10**12


def cannot_open(rank: int, error: RuntimeError, sees_headers: bool) -> TransportError:
    """Return the error for a soft NIC that cannot open its sockets, with what to do."""
    if sees_headers and not may_see_headers():
        text = f"--icrc strict: rank {rank} {error}; run as root, or give --icrc plain"
    else:
        text = f"rank {rank} {error}; is another run using it? (see ss -ulpn), or choose --udp-port"
    return TransportError(text, EXIT_ENVIRONMENT)


class SoftRoceTransport:
    """One rank on `genie_core.Engine`."""

    name = SOFTROCE
    mtu_max_bytes = 4096
    over_ip = True
    rdma_port = ""

    def __init__(self, context: TransportContext) -> None:
        self._context = context
        try:
            self._source_ports = SourcePorts(context.settings.source_ports, context.ports)
        except ValueError as error:
            raise TransportError(str(error), EXIT_USAGE) from error
        self._rkey = draw_key()
        self._first_psns = [draw_psns(context.settings.queue_pairs) for _ in range(context.settings.ranks)]
        self._shared: SharedPort | None = None
        self.turn = 0 if context.site.local_rank == 0 else 1  # the first rank of an address makes its sockets

    def open(self, mtu_bytes: int) -> None:
        settings = self._context.settings
        self._mtu_bytes = mtu_bytes
        config = engine_config(self._context, self._rkey, mtu_bytes)
        mixed = len(settings.kinds) > 1
        self.sees_headers = settings.icrc == "strict" or (settings.icrc == "auto" and mixed and may_see_headers())
        config.nic.see_headers = self.sees_headers
        self._engine = genie_core.Engine(config)
        try:
            self._open_port()
        except RuntimeError as error:
            raise cannot_open(self._context.rank, error, self.sees_headers) from error
        except OSError as error:
            text = f"rank {self._context.rank} gets no socket from the first rank of its address: {error}"
            raise TransportError(text, EXIT_ENVIRONMENT) from error

    def _open_port(self) -> None:
        settings, site = self._context.settings, self._context.site
        if site.sharers == 1:
            self._engine.open()
            return
        address, port = settings.addresses[self._context.rank], settings.udp_port
        name = f"{address} {port} {settings.out}"  # only this run uses the port
        if site.local_rank == 0:
            self._shared = share(address, port, site.sharers, name, limit_s=settings.join_s)
        else:
            self._shared = obtain(name, site.sharers, limit_s=settings.join_s)
        self._engine.open_with(self._shared.take(site.local_rank))

    def endpoint_info(self) -> EndpointInfo:
        context, count = self._context, self._context.settings.queue_pairs
        ranks = context.settings.ranks
        return EndpointInfo(
            transport=SOFTROCE,
            rank=context.rank,
            address=context.settings.addresses[context.rank],
            local_rank=context.site.local_rank,
            mtu_bytes=self._mtu_bytes,
            rkey=self._rkey,
            memory_address=0,
            memory_bytes=context.memory_bytes,
            queue_pairs=[[self._engine.qpn(number * ranks + peer) for number in range(count)] for peer in range(ranks)],
            first_psns=self._first_psns,
            window_packets=context.settings.window_packets,
        )

    def connect(self, endpoints: Sequence[EndpointInfo]) -> None:
        own = self._context.rank
        try:
            self._engine.connect([self._peer(endpoints, peer) for peer in range(len(endpoints))])
        except (RuntimeError, ValueError) as error:
            raise TransportError(f"rank {own} {error}", EXIT_ENVIRONMENT) from error
        set_path_faults(self._engine, self._context.settings, own)
        self._engine.keep_trace(self._context.settings.keep_trace)

    def _peer(self, endpoints: Sequence[EndpointInfo], peer: int) -> genie_core.Peer:
        own, endpoint = self._context.rank, endpoints[peer]
        count = self._context.settings.queue_pairs
        numbers, ours = endpoint.queue_pairs_for(own, count), endpoints[own].queue_pairs_for(peer, count)
        return genie_core.Peer(
            address=endpoint.address,
            qpns=numbers,
            first_psns=endpoint.first_psns[own],
            our_first_psns=self._first_psns[peer],
            source_ports=self._ports(peer, ours, numbers),
            exact_ports=self._source_ports.exact,
            rkey=endpoint.rkey,
            memory_address=endpoint.memory_address,
            foreign=endpoint.transport != SOFTROCE,
            places=endpoint.places[own] if endpoint.slots else [],
            slot_bytes=endpoint.slot_bytes,
            slots=endpoint.slots,
            window_packets=endpoint.window_packets,
        )

    def _ports(self, peer: int, ours: Sequence[int], theirs: Sequence[int]) -> list[int]:
        own, count, spray = self._context.rank, len(ours), self._context.settings.spray
        if spray > 1:
            return self._source_ports.sprayed(own, peer, spray, ours[0], theirs[0])
        return [self._source_ports.port(own, peer, at, count, ours[at], theirs[at]) for at in range(count)]

    def ports(self) -> list[list[int]]:
        own = self._context.rank
        return [[] if peer == own else self._engine.certain_ports(peer) for peer in range(self._context.settings.ranks)]

    def expect(self, ports: Sequence[Sequence[Sequence[int]]]) -> None:
        own = self._context.rank
        for peer, theirs in enumerate(ports):
            if peer != own:
                self._engine.expect_ports(peer, list(theirs[own]))

    def set_plan(self, plan: genie_core.Plan) -> None:
        self._engine.set_plan(plan)

    def set_faults(self, iteration: int, origin_ps: int) -> None:
        set_rate_faults(self._engine, self._context.settings, self._context.rank, iteration, origin_ps)

    def begin(self, origin_ps: int) -> PlayState:
        return cast(PlayState, self._engine.begin(origin_ps))

    def run(self, deadline_ps: int) -> PlayState:
        return cast(PlayState, self._engine.run(deadline_ps))

    def serve(self, deadline_ps: int) -> PlayState:
        return cast(PlayState, self._engine.serve(deadline_ps))

    def waiting(self) -> str:
        return self._engine.waiting()

    def records(self) -> dict[str, dict[str, Any]]:
        return self._engine.records()

    def counters(self) -> Mapping[str, int]:
        return dict(self._engine.counters())

    def refused_senders(self) -> list[tuple[str, str, int, int]]:
        return self._engine.refused_senders()

    def paths(self) -> list[str]:
        own = self._context.rank
        return [
            "" if peer == own else ",".join(map(str, self._engine.source_ports(peer)))
            for peer in range(self._context.settings.ranks)
        ]

    def trace(self) -> list[Any]:
        return self._engine.trace()

    def close(self) -> None:
        """Release the port, with all its sockets."""
        del self._engine
        if self._shared is not None:
            self._shared.close()

    @property
    def icrc(self) -> str:
        settings = self._context.settings
        if ":" in settings.addresses[self._context.rank]:
            return "in full: IPv6 has no identification"
        if self.sees_headers:
            return "in full: IPv4 identifications are seen"
        if len(settings.kinds) > 1:
            return "of other stacks 16 of 32 bits: IPv4 identifications are not seen"
        return "in full but for six bits: softroce's IPv4 identifications are below 60"

    @property
    def error(self) -> str:
        return self._engine.error

    @property
    def failure(self) -> str:
        return self._engine.failure

    @property
    def now_ps(self) -> int:
        return self._engine.now_ps

    @property
    def epoch_ns(self) -> int:
        return self._engine.epoch_ns


def may_see_headers() -> bool:
    """Return whether this process may open packet sockets."""
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
    except OSError:
        return False
    return True


def engine_config(context: TransportContext, rkey: int, mtu_bytes: int) -> genie_core.EngineConfig:
    """Return the engine settings of a rank; dilation stretches its times."""
    settings = context.settings
    config = genie_core.EngineConfig()
    config.nic = nic_config(settings, context.rank, context.site.local_rank, rkey)
    config.queue_pair = queue_pair_of(settings, mtu_bytes, context.rank)
    config.rank = context.rank
    config.message_max_bytes = context.memory_bytes
    config.spin = context.spin
    config.verify = settings.verify
    config.queue_pairs, config.split = settings.queue_pairs, settings.split
    config.stall_limit_ps = int(context.stall_s * PS_PER_S) * settings.dilation
    return config


def nic_config(settings: RunSettings, rank: int, local_rank: int, rkey: int) -> genie_core.NicConfig:
    """Return the soft NIC settings of a rank, the `local_rank`-th of its address; dilation divides its rate."""
    config = genie_core.NicConfig()
    config.address = settings.addresses[rank]
    config.port = settings.udp_port
    config.local_rank = local_rank
    config.offload = settings.offload
    config.rate_bps = settings.rate_bps // settings.dilation
    config.frame_overhead_bytes = settings.frame_overhead_bytes
    config.traffic_class = settings.traffic_class
    config.rkey = rkey
    config.draw_numbers = True
    return config


def queue_pair_of(settings: RunSettings, mtu_bytes: int, rank: int) -> genie_core.QueuePairConfig:
    """Return the transport settings of a rank's queue pairs; dilation stretches their timers."""
    config = genie_core.QueuePairConfig()
    config.mtu_bytes = mtu_bytes
    config.window_packets = config.peer_window_packets = settings.window_packets
    config.ack_every_packets = settings.ack_every_packets
    config.ack_timeout_ps = settings.ack_timeout_ns * PS_PER_NS * settings.dilation
    config.retry_limit = settings.retry_limit
    config.rnr_retry_limit = settings.rnr_retry_limit
    config.rnr_unit_ps = config.rnr_unit_ps * settings.dilation
    set_spray(config, settings.spray, settings.reordering_packets)
    control = from_plain(settings.congestion)
    is_off = any(fault.rank == rank for fault in settings.faults.congestion)
    if not isinstance(control, NoControl) and not is_off:
        set_control(config, control, settings.rate_bps, settings.base_round_trip_ps, settings.dilation)
    return config
