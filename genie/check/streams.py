"""A soft NIC with queue pairs to all other hosts, one per path, for measuring rates and incasts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import genie_core
import msgspec

from genie.check.settings import CheckSettings, Flow, Rated, Sound, pair_of
from genie.errors import RankError
from genie.live.rendezvous.meeting import Rendezvous
from genie.live.softroce.transport import nic_config, queue_pair_of
from genie.live.transport import draw_key, draw_psns

MESSAGE_BYTES = 16 << 10
UNDER_WAY_BYTES = 128 << 10  # in flight per measured flow: no more than one buffer holds
UNLIMITED_BYTES = 16 << 20  # per flow without a given line rate
IDLE_S, SLICE_S, LATE_S = 0.002, 0.25, 1.0
PS_PER_S = 10**12
SLOWER_MAX = 8  # time limit of a flow, as a multiple of its duration at the line rate


class Streams:
    """One rank's NIC; `nic` is None on a rank that does not take part. All ranks call all methods together."""

    def __init__(self, meet: Rendezvous, settings: CheckSettings, stations: Sequence[int], sound: Sound) -> None:
        """Open the NIC and connect. Raise RankError on all ranks when one cannot."""
        self.meet, self.settings, self.rank = meet, settings, meet.rank
        self.nic: genie_core.Endpoint | None = None
        self._peers = [
            peer for peer in stations if self.rank in stations and sound.get(pair_of(self.rank, peer), 0) > 0
        ]
        self._rkey = draw_key()
        self._rkeys: dict[int, int] = {}  # by peer
        self._at: dict[tuple[int, int], int] = {}  # peer, path -> queue pair
        problem = self._open(sound) if self._peers else ""
        self._psns = dict(zip(self._at, draw_psns(len(self._at)), strict=True))
        endpoint: dict[str, list[int]] = {}  # "peer path" -> queue pair number, first PSN, rkey
        if self.nic is not None:
            endpoint = {
                f"{peer} {path}": [self.nic.qpn(number), self._psns[peer, path], self._rkey]
                for (peer, path), number in self._at.items()
            }
        endpoints: list[Any] = meet.agree([problem, endpoint])
        if any(text for text, _ in endpoints):
            raise RankError(next(text for text, _ in endpoints if text), agreed=True)
        problem = self._connect([endpoint for _, endpoint in endpoints])
        if problems := [text for text in meet.agree(problem) if text]:
            raise RankError(problems[0], agreed=True)

    def _open(self, sound: Sound) -> str:
        settings = self.settings
        config = nic_config(settings, self.rank, 0, self._rkey)
        config.memory_bytes = config.writable_bytes = MESSAGE_BYTES
        self.nic = genie_core.Endpoint(config)
        try:
            self.nic.open()
        except RuntimeError as error:
            return f"rank {self.rank} {error}"
        for peer in self._peers:
            pair = queue_pair_of(settings, sound[pair_of(self.rank, peer)], self.rank)
            for path in range(settings.stream_paths):
                self._at[peer, path] = self.nic.add_queue_pair(pair, receives_counted=False)
        return ""

    def _connect(self, endpoints: Sequence[Mapping[str, list[int]]]) -> str:
        own, settings = self.rank, self.settings
        try:
            for (peer, path), number in self._at.items():
                assert self.nic is not None
                qpn, peer_first_psn, self._rkeys[peer] = endpoints[peer][f"{own} {path}"]
                self.nic.connect(
                    number,
                    address=settings.addresses[peer],
                    qpn=qpn,
                    first_psn=self._psns[peer, path],
                    peer_first_psn=peer_first_psn,
                    source_port=settings.probe_ports[path],
                    exact_port=True,
                )
                self.nic.expect_port(number, settings.probe_ports[path])
        except (RuntimeError, ValueError) as error:
            return f"rank {own} {error}"
        return ""

    def close(self) -> None:
        """Release the port."""
        self.nic = None

    def idle(self) -> None:
        """Answer peers for IDLE_S."""
        if self.nic is None:
            time.sleep(IDLE_S)
        else:
            self.nic.poll(IDLE_S)

    def together(self, value: Any = None) -> Any:
        """Agree, and answer peers meanwhile."""
        return self.meet.agree(value, idle=self.idle)

    def size_bytes(self, seconds: float) -> int:
        """Return the bytes that a flow sends in `seconds` at the line rate."""
        rate_bps = self.settings.rate_bps
        return max(round(rate_bps * seconds / 8), 4 * MESSAGE_BYTES) if rate_bps else UNLIMITED_BYTES

    def send(self, flow: Flow, size_bytes: int, under_way_bytes: int, limit_s: float) -> float:
        """Send a flow of this rank; return its rate in b/s, 0 when it did not end in time.

        `under_way_bytes`: bytes in flight, at most.
        """
        assert self.nic is not None
        paths = range(self.settings.stream_paths) if flow.path < 0 else [flow.path]
        messages = max(size_bytes // MESSAGE_BYTES, 1)
        took_ps = self.nic.stream(
            [self._at[flow.target, path] for path in paths],
            "write",
            MESSAGE_BYTES,
            messages=messages,
            depth=max(under_way_bytes // (MESSAGE_BYTES * len(paths)), 1),
            remote_address=0,
            rkey=self._rkeys[flow.target],
            timeout_s=limit_s,
        )
        return messages * MESSAGE_BYTES * 8 * PS_PER_S / took_ps if took_ps > 0 else 0.0

    def measure(self, flows: Sequence[Flow], seconds: float, beside: Callable[[], None] | None = None) -> list[Rated]:
        """Run flows at once, at most one from each rank and one to each; return their rates, on all ranks.

        A flow has the time limit that SLOWER_MAX sets. One that does not end counts with what came until then.
        `beside`: called meanwhile, on a rank that has none of them.
        """
        size_bytes = self.size_bytes(seconds)
        messages = max(size_bytes // MESSAGE_BYTES, 1)
        limit_s = SLOWER_MAX * seconds + LATE_S
        mine = next((flow for flow in flows if flow.source == self.rank), None)
        coming = next((flow for flow in flows if flow.target == self.rank), None)
        if self.nic is not None:
            self.nic.forget_arrivals()
        self.together()
        deadline = time.monotonic() + limit_s
        if beside is not None and mine is None and coming is None:
            beside()
        if mine is not None:
            self.send(mine, size_bytes, UNDER_WAY_BYTES, limit_s)
        rate_bps = 0.0
        if coming is not None:
            assert self.nic is not None
            count, came_bytes, span_ps = self.nic.serve(0.0, 0)
            while count < messages and time.monotonic() < deadline and not self.nic.error:
                count, came_bytes, span_ps = self.nic.serve(SLICE_S, messages)
                self.meet.alive()
            if count >= messages and span_ps > 0:
                rate_bps = came_bytes * 8 * PS_PER_S / span_ps
            elif count < messages:
                rate_bps = came_bytes * 8 / limit_s
        rated = [Rated(coming, rate_bps)] if coming is not None else []
        everyone = self.together(msgspec.to_builtins(rated))
        return [msgspec.convert(each, Rated) for part in everyone for each in part]

    def counters(self) -> dict[str, int]:
        """Return the NIC's counters."""
        return dict(self.nic.counters()) if self.nic is not None else {}
