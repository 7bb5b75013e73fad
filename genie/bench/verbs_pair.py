"""An RDMA device as one end of a path, through pyverbs.

Messages of a stream are WRITEs with immediate data, because a device does not report other WRITEs to its receiver.
Python posts and polls, which costs some microseconds a message. For small messages perftest measures what a device can
do.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from genie.bench.pair import Arrivals, PairEndpointInfo, PairSettings, pattern
from genie.errors import EXIT_ENVIRONMENT, EXIT_USAGE
from genie.live.transport import VERBS, TransportError, draw_psns
from genie.live.verbs.device import LIST_MAX, DeviceError
from genie.live.verbs.opening import connect, open_device
from genie.live.verbs.ports import ETHERNET, counted_since, hardware_counters
from genie.live.verbs.queues import Message, Piece, SendQueue
from genie.live.verbs.status import FLUSHED, RECEIVED, gave_up

IDLE_S = 0.002
RECEIVES_MIN = 512  # posted in advance on each queue pair; twice the sender's depth if that is more
PS_PER_NS = 1000


class VerbsPair:
    """One of two ranks, on a port of a device."""

    name = VERBS

    def __init__(self, settings: PairSettings, rank: int, *, poll: bool) -> None:
        """Raises TransportError."""
        self._settings, self._rank = settings, rank
        self._size_bytes = max(settings.sizes_bytes)
        self._first_psns = draw_psns(settings.queue_pairs)
        self._sleeps = settings.verbs.sleeps(poll)
        self._device, self._gid = open_device(settings, rank, self._size_bytes)
        self._port = self._device.port
        self.over_ip = self._port.link_layer == ETHERNET
        self.mtu_max_bytes = self._device.active_mtu_bytes
        self._before = hardware_counters(self._port.port)
        self._counts = dict.fromkeys(("messages_sent", "messages_received", "bytes_received", "posts", "signals"), 0)
        self.error = ""
        self._sent = self._expected = 0
        self.forget()

    def _environment(self, error: DeviceError) -> TransportError:
        return TransportError(f"rank {self._rank}: {error}", EXIT_ENVIRONMENT)

    # -- setting up ------------------------------------------------------------------------------------------

    def open(self, mtu_bytes: int) -> None:
        """Register memory and make the queue pairs, within the device's limits. Raises TransportError."""
        settings, device = self._settings, self._device
        for what, has, needs in (
            ("carries a path MTU of", device.active_mtu_bytes, mtu_bytes),
            ("takes messages of", device.message_max_bytes, self._size_bytes),
        ):
            if needs > has:
                text = f"rank {self._rank}: {self._port.name} {what} {has} bytes and the bench has {needs}"
                raise TransportError(text, EXIT_USAGE)
        self._mtu_bytes, count = mtu_bytes, settings.queue_pairs
        most = min(device.work_requests_max, device.completions_max // (2 * count))
        self._depth = min(settings.depth, most)
        receives = min(max(2 * settings.depth, RECEIVES_MIN), most)
        try:
            device.take_memory(2 * self._size_bytes, huge_pages=settings.verbs.huge_pages)
            device.make_completion_queue(count * (self._depth + receives), channel=self._sleeps)
            device.make_requests()
            self._queue_pairs = [device.make_queue_pair(self._depth, receives) for _ in range(count)]
            for queue_pair in self._queue_pairs:
                device.post_receives(queue_pair, receives)
        except DeviceError as error:
            raise self._environment(error) from error
        self._numbers = {int(queue_pair.qp_num): at for at, queue_pair in enumerate(self._queue_pairs)}
        self._sends = [SendQueue(self._depth, settings.verbs.signal_every) for _ in range(count)]
        self._memory = np.frombuffer(device.memory.pages, np.uint8)

    def endpoint_info(self) -> PairEndpointInfo:
        """Data for the peer, with the address of the memory as the device maps it."""
        return PairEndpointInfo(
            address=self._settings.addresses[self._rank] if self.over_ip else "",
            queue_pairs=list(self._numbers),
            first_psns=self._first_psns,
            rkey=self._device.rkey,
            memory_address=self._device.memory.address,
            gid="" if self._gid is None else self._gid.gid,
            lid=self._port.lid,
        )

    def connect(self, peer: PairEndpointInfo) -> None:
        """Connect each queue pair with the peer's of the same index. Raises TransportError."""
        self._rkey, self._remote = peer.rkey, peer.memory_address
        try:
            for at, (queue_pair, number) in enumerate(zip(self._queue_pairs, peer.queue_pairs, strict=True)):
                connect(
                    self._device,
                    self._gid,
                    self._settings.verbs,
                    queue_pair,
                    peer,
                    number=number,
                    psns=(self._first_psns[at], peer.first_psns[at]),
                    mtu_bytes=self._mtu_bytes,
                )
        except DeviceError as error:
            raise self._environment(error) from error

    def ports(self) -> list[int]:
        """Empty: the device chooses the ports."""
        return []

    def expect(self, ports: Sequence[int]) -> None:
        """Do nothing: the device knows its peer by its address."""

    # -- measuring -------------------------------------------------------------------------------------------

    def fill(self, size_bytes: int, seed: int) -> None:
        """Write the pattern into both halves of the memory."""
        memory, at = self._memory, self._size_bytes
        memory[:size_bytes] = memory[at : at + size_bytes] = pattern(size_bytes, seed)

    def differs(self, size_bytes: int, seed: int) -> int:
        """Bytes of the second half of the memory that are not the pattern's."""
        arrived = self._memory[self._size_bytes : self._size_bytes + size_bytes]
        return int(np.count_nonzero(arrived != pattern(size_bytes, seed)))

    def forget(self) -> None:
        """Count arrivals from 0."""
        self._came = self._expected = self._counted_bytes = self._first_ns = self._last_ns = 0

    def pingpong(self, size_bytes: int, rounds: int, *, begins: bool, limit_s: float) -> tuple[bool, list[int]]:
        """Post, and poll until the answer arrives: (whether all rounds were done, round-trip times in ps)."""
        times: list[int] = []
        limit_ns = time.monotonic_ns() + round(limit_s * 1e9)
        for _ in range(rounds):
            began_ns = time.perf_counter_ns()
            if begins:
                self._send(0, size_bytes, 1)
            self._expected += 1
            while self._came < self._expected:
                self._look(limit_ns)
                if self.error or time.monotonic_ns() > limit_ns:
                    return False, times
            if begins:
                times.append((time.perf_counter_ns() - began_ns) * PS_PER_NS)
            else:
                self._send(0, size_bytes, 1)
        # The peer's last answer may arrive before the completion of the message that it answers.
        while self._sends[0].outstanding:
            self._look(limit_ns)
            if self.error or time.monotonic_ns() > limit_ns:
                return False, times
        return not self.error, times

    def stream(self, size_bytes: int, messages: int, limit_s: float) -> int:
        """WRITEs on all queue pairs in turn: ps, or -1 when the last completion did not come."""
        count = len(self._queue_pairs)
        left = [len(range(at, messages, count)) for at in range(count)]  # whole messages, dealt out in turn
        began_ns, limit_ns, until = time.perf_counter_ns(), time.monotonic_ns() + round(limit_s * 1e9), self._sent
        until += messages
        while self._sent < until:
            for at, queue in enumerate(self._sends):
                if room := min(left[at], self._depth - queue.outstanding):
                    left[at] -= self._send(at, size_bytes, room)
            self._look(limit_ns)
            if self.error or time.monotonic_ns() > limit_ns:
                return -1
        return (time.perf_counter_ns() - began_ns) * PS_PER_NS

    def serve(self, messages: int, limit_s: float) -> Arrivals:
        """Arrivals; the span starts at the first message's completion, so that its bytes are not counted."""
        limit_ns = time.monotonic_ns() + round(limit_s * 1e9)
        while True:
            self._look(limit_ns)
            if self.error or self._came >= messages or time.monotonic_ns() >= limit_ns:
                return Arrivals(self._came, self._counted_bytes, (self._last_ns - self._first_ns) * PS_PER_NS)

    def idle(self) -> None:
        """Do nothing but take completions: the device answers by itself."""
        self._look(0)
        time.sleep(IDLE_S)

    def counters(self) -> dict[str, int]:
        """Counters of this end, and of the port since it was opened."""
        return {**self._counts, **counted_since(self._before, self._port.port)}

    def _send(self, at: int, size_bytes: int, messages: int) -> int:
        """Post up to this many messages on a queue pair, as far as it takes them; return their number."""
        queue = self._sends[at]
        for _ in range(messages):
            # Messages are sent from the first half of the memory and arrive in the peer's second half.
            queue.add(Piece(Message(0, 1 - self._rank, 0, size_bytes, 1), self._size_bytes, size_bytes))
        try:
            while requests := queue.take(LIST_MAX):
                address = self._device.memory.address
                self._device.post(self._queue_pairs[at], requests, address, self._remote, self._rkey)
                self._counts["posts"] += 1
                self._counts["signals"] += sum(request.signaled for request in requests)
        except DeviceError as error:
            self._fail(str(error))
        return messages

    def _look(self, until_ns: int) -> None:
        """Take completions; without any, wait for one if sleeping is allowed."""
        try:
            found = self._device.poll()
            rest_ns = until_ns - time.monotonic_ns()
            if not found and self._sleeps and rest_ns > 0:
                found = self._device.wait(rest_ns / 1e9)
            self._take(found)
        except (DeviceError, self._device.error_type) as error:
            self._fail(str(error))

    def _take(self, found: list[Any]) -> None:
        received = [0] * len(self._queue_pairs)
        for completion in found:
            at = self._numbers[completion.qp_num]
            if completion.status:
                self._fail_on(completion)
            elif completion.opcode & RECEIVED:
                received[at] += 1
                self._count(completion.byte_len)
            else:
                done = len(self._sends[at].completed(completion.wr_id))
                self._sent += done
                self._counts["messages_sent"] += done
        for at, count in enumerate(received):
            if count and not self.error:
                self._device.post_receives(self._queue_pairs[at], count)

    def _count(self, size_bytes: int) -> None:
        self._last_ns = time.perf_counter_ns()
        if self._came == 0:
            self._first_ns = self._last_ns
        else:
            self._counted_bytes += size_bytes
        self._came += 1
        self._counts["messages_received"] += 1
        self._counts["bytes_received"] += size_bytes

    def _fail_on(self, completion: Any) -> None:
        if completion.status != FLUSHED:
            self._fail(gave_up(completion, 1 - self._rank, self._port.name))

    def _fail(self, text: str) -> None:
        self.error = self.error or f"rank {self._rank} {text}"
