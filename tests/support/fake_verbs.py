"""RDMA devices that are lists: as pyverbs would have them, for tests of what drives them."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from genie.live.verbs import opening
from genie.live.verbs.gids import ROCE_V2, GidEntry, gid_of
from genie.live.verbs.hca import Port
from genie.live.verbs.ports import PortInfo
from genie.live.verbs.queues import WorkRequest

RECEIVE, WRITE, RETRIES_EXCEEDED = 129, 1, 12


class Wire:
    """All queue pairs by number. Draws how many requests of a list complete together."""

    def __init__(self, seed: int) -> None:
        self.pairs: dict[int, FakeQueuePair] = {}
        self.draw = random.Random(seed)
        self.fail: Callable[[FakeQueuePair], bool] = lambda pair: False
        self.drop = False
        self.slow_completions = False  # a send's completion comes after what its peer answered
        self.flip = 0  # so many messages are to come with a wrong byte
        self.posted: list[tuple[int, int]] = []  # length of a list, signals in it
        self.lock = threading.Lock()


class FakeQueuePair:
    def __init__(self, device: FakeDevice, number: int, send_depth: int) -> None:
        self.device, self.qp_num, self.send_depth = device, number, send_depth
        self.peer = -1
        self.attributes: dict[str, int] = {}  # that it was connected with
        self.receives = 0
        self.source = self.remote = 0  # addresses that offsets count from
        self.under_way: deque[WorkRequest] = deque()
        self.unsignaled: list[int] = []


class FakeDevice:
    """Like Device, among others on one wire. A request completes when its receiver has a receive for it.

    What it writes is there as early as it may be: that of the first request also before there is a receive.
    """

    wire: Wire
    error_type = RuntimeError

    def __init__(self, library: object, port: PortInfo) -> None:
        self.port = port
        self.active_mtu_bytes, self.message_max_bytes = 1024, 1 << 23
        self.work_requests_max, self.completions_max, self.queue_pairs_max = 4096, 100_000, 1000
        self.rkey = 0x1234
        self.found: deque[Any] = deque()
        self.held: deque[Any] = deque()
        self.quiet = 0  # polls since one found something
        self.pairs: list[FakeQueuePair] = []

    def take_memory(self, size_bytes: int, *, huge_pages: bool) -> None:
        address = 0x10000 * (1 + len(self.wire.pairs))
        self.memory = SimpleNamespace(address=address, pages=bytearray(size_bytes), size_bytes=size_bytes)

    def make_completion_queue(self, entries: int, *, channel: bool) -> None:
        self.entries = entries

    def make_requests(self) -> None: ...

    def make_queue_pair(self, send_depth: int, receive_depth: int) -> FakeQueuePair:
        pair = FakeQueuePair(self, 100 + len(self.wire.pairs), send_depth)
        self.wire.pairs[pair.qp_num] = pair
        self.pairs.append(pair)
        return pair

    def path_to(self, gid: str, lid: int, own: object, service_level: int, traffic_class: int) -> str:
        return gid

    def connect(self, queue_pair: FakeQueuePair, path: str, **attributes: int) -> None:
        queue_pair.peer, queue_pair.attributes = attributes["dest_qp_num"], attributes

    def post(self, queue_pair: FakeQueuePair, requests: list[WorkRequest], source: int, remote: int, rkey: int) -> None:
        queue_pair.under_way.extend(requests)
        assert len(queue_pair.under_way) + len(queue_pair.unsignaled) <= queue_pair.send_depth, "the queue is full"
        peer = self.wire.pairs[queue_pair.peer]
        assert (rkey, remote) == (0x1234, peer.device.memory.address)
        assert queue_pair.attributes["sq_psn"] == peer.attributes["rq_psn"]
        queue_pair.source, queue_pair.remote = source, remote
        self.wire.posted.append((len(requests), sum(request.signaled for request in requests)))

    def post_receives(self, queue_pair: FakeQueuePair, count: int) -> None:
        with self.wire.lock:
            queue_pair.receives += count

    def poll(self) -> list[Any]:
        with self.wire.lock:
            for pair in self.pairs:
                self._carry(pair)
        taken = [self.found.popleft() for _ in range(min(len(self.found), 3))]
        self.quiet = 0 if taken else self.quiet + 1
        if taken or self.quiet > 100:
            self.found.extend(self.held)
            self.held.clear()
        assert len(self.found) <= self.entries
        return taken

    def wait(self, timeout_s: float) -> list[Any]:
        return []

    def close(self) -> None: ...

    def _carry(self, pair: FakeQueuePair) -> None:
        if self.wire.fail(pair) and pair.under_way:
            self._complete(pair, pair.under_way.popleft(), RETRIES_EXCEEDED)
            return
        peer = self.wire.pairs[pair.peer]
        for _ in range(self.wire.draw.randrange(4)):
            if not pair.under_way or self.wire.drop:
                return
            self._write(pair, peer)
            if not peer.receives:
                return
            request = pair.under_way.popleft()
            peer.receives -= 1
            tag = int.from_bytes(request.piece.message.tag.to_bytes(4, "big"), "little")
            peer.device.found.append(
                SimpleNamespace(
                    wr_id=0, status=0, opcode=RECEIVE, byte_len=request.piece.size_bytes, imm_data=tag,
                    qp_num=peer.qp_num, vendor_err=0,
                )
            )  # fmt: skip
            pair.unsignaled.append(request.sequence)
            if request.signaled:
                self._complete(pair, request, 0)

    def _write(self, pair: FakeQueuePair, peer: FakeQueuePair) -> None:
        piece, there = pair.under_way[0].piece, peer.device.memory
        source = pair.source - self.memory.address + piece.source_bytes
        target = pair.remote - there.address + piece.offset_bytes
        assert target + piece.size_bytes <= there.size_bytes
        there.pages[target : target + piece.size_bytes] = self.memory.pages[source : source + piece.size_bytes]
        if self.wire.flip and piece.size_bytes:
            self.wire.flip -= 1
            there.pages[target] ^= 1

    def _complete(self, pair: FakeQueuePair, request: WorkRequest, status: int) -> None:
        pair.unsignaled.clear()
        (self.held if self.wire.slow_completions else self.found).append(
            SimpleNamespace(
                wr_id=request.sequence, status=status, opcode=WRITE, byte_len=0, imm_data=0, qp_num=pair.qp_num,
                vendor_err=0x81 if status else 0,
            )
        )  # fmt: skip


def fake_wire(monkeypatch: pytest.MonkeyPatch, seed: int) -> Wire:
    """A wire for all devices that are opened, each with one RoCE port."""
    made = Wire(seed)
    gid = GidEntry(1, gid_of("10.0.0.1"), ROCE_V2)
    port = PortInfo(Port("fake0", 1), True, "Ethernet", 0, (gid,), -1)
    monkeypatch.setattr(FakeDevice, "wire", made, raising=False)
    monkeypatch.setattr(opening, "Device", FakeDevice)
    monkeypatch.setattr(opening, "Pyverbs", lambda: None)
    monkeypatch.setattr(opening, "find_port", lambda settings, rank, size: (port, gid))
    return made
