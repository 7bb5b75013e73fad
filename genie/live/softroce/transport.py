"""The native engine as a transport: walker and queue pairs of one rank on UDP sockets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from genie import _core
from genie.live.endings import EXIT_ENVIRONMENT, EXIT_USAGE
from genie.live.faults import set_path_faults, set_rate_faults
from genie.live.settings import RunSettings
from genie.live.transport import SOFTROCE, Card, PlayState, Seat, TransportError, first_psn, memory_key

PS_PER_NS, PS_PER_S = 1000, 10**12


class SoftRoceTransport:
    """One rank on `_core.Engine`."""

    name = SOFTROCE
    mtu_max_bytes = 4096
    over_ip = True

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        address = seat.settings.addresses[seat.rank]
        if ":" in address:
            raise TransportError(f"rank {seat.rank} at {address}: softroce over IPv6 is not built yet", EXIT_USAGE)
        self._rkey = memory_key(seat.settings.seed, seat.rank)
        # Ranks that share an address join its port one after another: the filter counts them in this order.
        self.turn = seat.site.local_rank

    def open(self, mtu_bytes: int) -> None:
        self._mtu_bytes = mtu_bytes
        self._engine = _core.Engine(engine_config(self._seat, self._rkey, mtu_bytes))
        try:
            self._engine.open()
        except RuntimeError as error:
            text = f"rank {self._seat.rank} {error}; is another run using it? (see ss -ulpn), or choose --udp-port"
            raise TransportError(text, EXIT_ENVIRONMENT) from error

    def card(self) -> Card:
        seat = self._seat
        return Card(
            transport=SOFTROCE,
            rank=seat.rank,
            address=seat.settings.addresses[seat.rank],
            local_rank=seat.site.local_rank,
            mtu_bytes=self._mtu_bytes,
            seed=seat.settings.seed,
            rkey=self._rkey,
            memory_address=0,
            memory_bytes=seat.memory_bytes,
        )

    def connect(self, cards: Sequence[Card]) -> None:
        foreign = next((card for card in cards if card.transport != SOFTROCE), None)
        if foreign:
            both = f"rank {foreign.rank} on {foreign.transport} and rank {self._seat.rank} on {SOFTROCE}"
            raise TransportError(f"{both}: a job of both is not built yet", EXIT_USAGE)
        own, seed, peers = self._seat.rank, cards[0].seed, range(len(cards))
        try:
            self._engine.connect(
                np.array([ipv4_number(card.address) for card in cards], np.uint32),
                np.array([card.local_rank for card in cards], np.int32),
                np.array([card.rkey for card in cards], np.uint32),
                np.array([first_psn(seed, peer, own) for peer in peers], np.uint32),
                np.array([first_psn(seed, own, peer) for peer in peers], np.uint32),
            )
        except RuntimeError as error:
            raise TransportError(f"rank {own} {error}", EXIT_ENVIRONMENT) from error
        set_path_faults(self._engine, self._seat.settings, own)
        self._engine.keep_trace(self._seat.settings.keep_trace)

    def set_plan(self, plan: _core.Plan) -> None:
        self._engine.set_plan(plan)

    def set_faults(self, iteration: int, origin_ps: int) -> None:
        set_rate_faults(self._engine, self._seat.settings, self._seat.rank, iteration, origin_ps)

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

    def paths(self) -> list[str]:
        own = self._seat.rank
        return ["" if peer == own else str(self._engine.source_port(peer)) for peer in range(self._seat.settings.ranks)]

    def trace(self) -> list[Any]:
        return self._engine.trace()

    def close(self) -> None:
        """Sockets close with the engine, which nobody else holds."""

    @property
    def error(self) -> str:
        return self._engine.error

    @property
    def now_ps(self) -> int:
        return self._engine.now_ps

    @property
    def epoch_ns(self) -> int:
        return self._engine.epoch_ns


def engine_config(seat: Seat, rkey: int, mtu_bytes: int) -> _core.EngineConfig:
    """The engine of a rank; dilation divides its rate and stretches its times."""
    settings, k = seat.settings, seat.settings.dilation
    config = _core.EngineConfig()
    config.rank, config.local_rank = seat.rank, seat.site.local_rank
    config.ipv4 = ipv4_number(settings.addresses[seat.rank])
    config.port = settings.udp_port
    config.shared_port = seat.site.sharers > 1
    config.offload = settings.offload
    config.spin = seat.spin
    config.rate_bps = settings.rate_bps // k
    config.frame_overhead_bytes = settings.frame_overhead_bytes
    config.rkey = rkey
    config.memory_bytes = seat.memory_bytes
    config.stall_limit_ps = int(seat.stall_s * PS_PER_S) * k
    config.queue_pair = queue_pair_of(settings, mtu_bytes)
    return config


def queue_pair_of(settings: RunSettings, mtu_bytes: int) -> _core.QueuePairConfig:
    """The settings' transport; dilation stretches its timers."""
    config = _core.QueuePairConfig()
    config.mtu_bytes = mtu_bytes
    config.window_packets = settings.window_packets
    config.ack_every_packets = settings.ack_every_packets
    config.ack_timeout_ps = settings.ack_timeout_ns * PS_PER_NS * settings.dilation
    config.retry_limit = settings.retry_limit
    config.rnr_retry_limit = settings.rnr_retry_limit
    config.rnr_unit_ps = config.rnr_unit_ps * settings.dilation
    return config


def ipv4_number(address: str) -> int:
    """An IPv4 address as an integer."""
    value = 0
    for part in address.split("."):
        value = value << 8 | int(part)
    return value
