"""Two queue pairs on a network of a few knobs, in virtual time: what the tests of the reliable connection drive."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import genie_core

EVENTS_MAX = 200_000  # a test that needs more is going round in circles
Fate = tuple[int, ...]  # of a packet: the extra delay of each copy that arrives, in ps
ON_TIME: Fate = (0,)
LOST: Fate = ()
PSN_COUNT = 1 << 24


def psn_distance(later: int, earlier: int) -> int:
    """How far `later` is ahead of `earlier` on the circle, in [-2^23, 2^23)."""
    return (later - earlier + PSN_COUNT // 2) % PSN_COUNT - PSN_COUNT // 2


@dataclass
class Path:
    """One direction of the network."""

    latency_ps: int = 5_000
    gap_ps: int = 1_000  # between two packets that leave: the sender's line rate
    fates: list[Fate] = field(default_factory=list)  # of the next packets in the order they leave; later: on time


@dataclass(frozen=True)
class Message:
    """A message sent or received."""

    verb: str
    data: bytes
    immediate: int | None
    address: int | None  # where a WRITE went


class End:
    """A queue pair, its memory and what became of its messages."""

    def __init__(self, config: genie_core.QueuePairConfig, first_psn: int, peer_first_psn: int) -> None:
        self.pair = genie_core.QueuePair(config, first_psn, peer_first_psn)
        self.window = config.window_packets
        self.memory = bytearray()  # target of the peer's WRITEs, and source of this end's messages
        self.messages: list[Message] = []  # posted here
        self.arrived: list[Message] = []
        self.over: list[tuple[int, str]] = []  # (message number, status)
        self.sent: list[genie_core.Packet] = []  # in the order they left, lost ones too
        self.incoming = bytearray()  # the message that is arriving
        self.incoming_address: int | None = None
        self.free_ps = 0
        self.most_in_flight = 0

    def allot(self, data: bytes) -> int:
        self.memory += data
        return len(self.memory) - len(data)


class Network:
    """`ends[0]` and `ends[1]`; `paths[i]` carries what end i sends. `run()` plays until nothing is left to do."""

    def __init__(self, config: genie_core.QueuePairConfig, first_psns: tuple[int, int] = (0, 0)) -> None:
        config.peer_window_packets = config.window_packets  # so that no packet seems forged, however late it comes
        self.ends = (End(config, *first_psns), End(config, *reversed(first_psns)))
        self.paths = (Path(), Path())
        self.now_ps = 0
        self.events = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0

    def at(self, time_ps: int, what: Callable[[], None]) -> None:
        """Call `what` at a time; equal times in the order of asking."""
        self._order += 1
        heapq.heappush(self._queue, (time_ps, self._order, what))

    def post(self, source: int, verb: str, data: bytes, immediate: int = 0) -> None:
        """Send a message of end `source` now; a WRITE goes to memory of its own at the other end."""
        end, peer = self.ends[source], self.ends[1 - source]
        address = peer.allot(bytes(len(data))) if verb.startswith("write") else None
        end.messages.append(Message(verb, data, immediate if verb.endswith("imm") else None, address))
        end.pair.post(
            verb,
            len(data),
            handle=len(end.messages) - 1,
            immediate=immediate,
            local_address=end.allot(data),
            remote_address=address or 0,
        )
        self._look(source)

    def run(self) -> None:
        """Play until nothing is left to do."""
        while self._queue:
            self.now_ps, _, what = heapq.heappop(self._queue)
            what()
            self.events += 1
            assert self.events < EVENTS_MAX, "no end in sight"

    def deliver(self, target: int, packet: genie_core.Packet) -> None:
        """A packet arrives at end `target`, now."""
        self.ends[target].pair.receive(packet, self.now_ps)
        self._look(target, packet)

    def _fire(self, owner: int) -> None:
        self.ends[owner].pair.timer(self.now_ps)
        self._look(owner)

    def _look(self, owner: int, packet: genie_core.Packet | None = None) -> None:
        """Act on the effects of the last call to end `owner`, and let it send."""
        end = self.ends[owner]
        for kind, *what in end.pair.effects():
            if kind == "arm":
                self.at(what[0], lambda: self._fire(owner))
            elif kind == "sent":
                end.over.append((what[0], what[1]))
            elif kind == "place":
                assert packet is not None
                self._place(owner, packet, *what)
            elif kind == "delivered":
                self._delivered(end, *what)
        self._send(owner)

    def _place(self, owner: int, packet: genie_core.Packet, address: int, size_bytes: int, psn: int) -> None:
        end, source = self.ends[owner], self.ends[1 - owner].memory
        payload = source[packet.local_address : packet.local_address + size_bytes]
        assert (len(payload), psn) == (packet.payload_bytes, packet.psn)
        if packet.opcode <= 0x05:
            assert address == len(end.incoming), "a SEND's payload has a gap"
        else:
            if not end.incoming:
                end.incoming_address = address
            assert end.incoming_address is not None
            assert address == end.incoming_address + len(end.incoming), "a WRITE's payload has a gap"
            end.memory[address : address + size_bytes] = payload
        end.incoming += payload

    def _delivered(self, end: End, size_bytes: int, immediate: int | None, is_send: bool, first_ps: int) -> None:
        assert size_bytes == len(end.incoming)
        assert 0 <= first_ps <= self.now_ps
        verb = ("send" if is_send else "write") + ("" if immediate is None else "_imm")
        end.arrived.append(Message(verb, bytes(end.incoming), immediate, end.incoming_address))
        end.incoming = bytearray()
        end.incoming_address = None

    def _send(self, owner: int) -> None:
        """Send what the end has: one packet now if its line is free, and the next when it is."""
        end, path = self.ends[owner], self.paths[owner]
        if end.free_ps > self.now_ps:
            return
        packet = end.pair.take_control()
        if packet is None:
            packet = end.pair.take_data(self.now_ps)
        if packet is None:
            return
        number = len(end.sent)
        end.sent.append(packet)
        in_flight = psn_distance(end.pair.send_psn, end.pair.unacked_psn)
        end.most_in_flight = max(end.most_in_flight, in_flight)
        end.free_ps = self.now_ps + path.gap_ps
        self.at(end.free_ps, lambda: self._look(owner))
        for time_ps in self._arrivals(owner, number, packet):
            self.at(time_ps, lambda: self.deliver(1 - owner, packet))

    def _arrivals(self, owner: int, number: int, packet: genie_core.Packet) -> list[int]:
        """When the copies of an end's packet arrive, which has that number among all that it has sent."""
        path, free_ps = self.paths[owner], self.ends[owner].free_ps
        fate = path.fates[number] if number < len(path.fates) else ON_TIME
        return [free_ps + path.latency_ps + delay_ps for delay_ps in fate]


def config(**fields: Any) -> genie_core.QueuePairConfig:
    """A configuration for small tests: MTU 256 bytes, and a timeout that a few hundred packets fit into."""
    out = genie_core.QueuePairConfig()
    for name, value in {"mtu_bytes": 256, "ack_timeout_ps": 1_000_000, "rnr_unit_ps": 1_000, **fields}.items():
        setattr(out, name, value)
    return out
