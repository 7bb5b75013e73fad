"""softroce as one end of a path, on `genie_core.Endpoint`."""

from __future__ import annotations

from collections.abc import Sequence

import genie_core
import numpy as np

from genie.bench.pair import Arrivals, PairEndpointInfo, PairSettings, pattern
from genie.config.source_ports import SourcePorts
from genie.errors import EXIT_ENVIRONMENT
from genie.live.softroce.transport import cannot_open, nic_config, queue_pair_of
from genie.live.transport import SOFTROCE, TransportError, draw_key, draw_psns

IDLE_S = 0.002


class SoftRocePair:
    """One of two ranks, on its own soft NIC."""

    name = SOFTROCE
    mtu_max_bytes = 4096
    over_ip = True

    def __init__(self, settings: PairSettings, rank: int, *, poll: bool) -> None:
        self._settings, self._rank, self._poll = settings, rank, poll
        self._rkey = draw_key()
        self._first_psns = draw_psns(settings.queue_pairs)
        self._peer_rkey = 0
        self._answered = 0  # messages since `forget`
        self._arrive_at = max(settings.sizes_bytes)  # messages are sent from memory below this address

    def open(self, mtu_bytes: int) -> None:
        """Take a UDP port and make the queue pairs. Raises TransportError."""
        settings = self._settings
        config = nic_config(settings, self._rank, 0, self._rkey)
        config.see_headers = settings.icrc == "strict"
        config.memory_bytes = config.writable_bytes = 2 * self._arrive_at
        self._nic = genie_core.Endpoint(config)
        try:
            self._nic.open()
        except RuntimeError as error:
            raise cannot_open(self._rank, error, config.see_headers) from error
        pair = queue_pair_of(settings, mtu_bytes, self._rank)
        self._queue_pairs = [
            self._nic.add_queue_pair(pair, receives_counted=False) for _ in range(settings.queue_pairs)
        ]

    def endpoint_info(self) -> PairEndpointInfo:
        """Data for the peer; memory starts at address 0."""
        return PairEndpointInfo(
            address=self._settings.addresses[self._rank],
            queue_pairs=[self._nic.qpn(number) for number in self._queue_pairs],
            first_psns=self._first_psns,
            rkey=self._rkey,
        )

    def connect(self, peer: PairEndpointInfo) -> None:
        """Connect each queue pair, from its own UDP source port. Raises TransportError."""
        settings, own, other = self._settings, self._rank, 1 - self._rank
        ports, count = SourcePorts(settings.source_ports), len(self._queue_pairs)
        self._peer_rkey = peer.rkey
        try:
            for at, (number, qpn) in enumerate(zip(self._queue_pairs, peer.queue_pairs, strict=True)):
                self._nic.connect(
                    number,
                    address=peer.address,
                    qpn=qpn,
                    first_psn=self._first_psns[at],
                    peer_first_psn=peer.first_psns[at],
                    source_port=ports.port(own, other, at, count, self._nic.qpn(number), qpn),
                    exact_port=ports.exact,
                )
        except (RuntimeError, ValueError) as error:
            raise TransportError(f"rank {own} {error}", EXIT_ENVIRONMENT) from error

    def ports(self) -> list[int]:
        """UDP source ports, by queue pair."""
        return [self._nic.open_path(number) for number in self._queue_pairs]

    def expect(self, ports: Sequence[int]) -> None:
        """Accept packets of the peer from these ports only."""
        for number, port in zip(self._queue_pairs, ports, strict=False):
            self._nic.expect_port(number, port)

    def fill(self, size_bytes: int, seed: int) -> None:
        """Write the pattern into both halves of the memory."""
        memory, at = self._nic.memory, self._arrive_at
        memory[:size_bytes] = memory[at : at + size_bytes] = pattern(size_bytes, seed)

    def differs(self, size_bytes: int, seed: int) -> int:
        """Bytes of the second half of the memory that are not the pattern's."""
        arrived = self._nic.memory[self._arrive_at : self._arrive_at + size_bytes]
        return int(np.count_nonzero(arrived != pattern(size_bytes, seed)))

    def forget(self) -> None:
        """Count arrivals from 0."""
        self._nic.forget_arrivals()
        self._answered = 0

    def pingpong(self, size_bytes: int, rounds: int, *, begins: bool, limit_s: float) -> tuple[bool, list[int]]:
        """Play all rounds in the native core: (whether they were done, round-trip times in ps)."""
        early = 0
        if not begins:
            # The other end may have started before this one was ready: answer the messages that have arrived.
            early = self.serve(0, 0.0).messages - self._answered
            for _ in range(early):
                self._nic.post_send(
                    self._queue_pairs[0],
                    "write_imm",
                    size_bytes,
                    remote_address=self._arrive_at,
                    rkey=self._peer_rkey,
                )
        times = self._nic.pingpong(
            self._queue_pairs[0],
            "write_imm",
            size_bytes,
            rounds=rounds - early,
            begins=begins,
            spin=self._poll,
            remote_address=self._arrive_at,
            rkey=self._peer_rkey,
            timeout_s=limit_s,
        )
        self._answered += rounds
        return len(times) == rounds if begins else self.serve(0, 0.0).messages >= self._answered, times

    def stream(self, size_bytes: int, messages: int, limit_s: float) -> int:
        """WRITEs on all queue pairs in turn: ps, or -1 when the last completion did not come."""
        return self._nic.stream(
            self._queue_pairs,
            "write",
            size_bytes,
            messages=messages,
            depth=self._settings.depth,
            remote_address=self._arrive_at,
            rkey=self._peer_rkey,
            timeout_s=limit_s,
        )

    def serve(self, messages: int, limit_s: float) -> Arrivals:
        """Acknowledge until this many messages have arrived since `forget`, or until the time limit."""
        return Arrivals(*self._nic.serve(limit_s, messages))

    def idle(self) -> None:
        """Acknowledge for a short time."""
        self._nic.poll(IDLE_S)

    def counters(self) -> dict[str, int]:
        """Counters of the soft NIC."""
        return dict(self._nic.counters())

    @property
    def error(self) -> str:
        """The soft NIC's first failure, "" if none."""
        return self._nic.error or self._nic.ended
