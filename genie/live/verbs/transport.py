"""Ranks on RDMA devices: the native walker driven from Python, with one or more queue pairs to each peer.

A message is an RDMA WRITE with immediate data, its tag. Receives without memory are posted ahead.
"""

from __future__ import annotations

import heapq
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import genie_core
import numpy as np

from genie.errors import EXIT_ENVIRONMENT, EXIT_USAGE
from genie.live.paths.mtu import GIVE_MTU
from genie.live.transport import STALLED, VERBS, EndpointInfo, PlayState, TransportContext, TransportError, draw_psns
from genie.live.verbs.device import LIST_MAX, DeviceError
from genie.live.verbs.opening import connect, gid_on, open_device
from genie.live.verbs.pattern import PATTERN_BYTES, pattern, phase
from genie.live.verbs.places import Checker, lay_out, places_for, too_much
from genie.live.verbs.ports import ETHERNET
from genie.live.verbs.queues import Arrival, Inbound, Message, Piece, SendQueue, pieces_of
from genie.live.verbs.status import FLUSHED, RECEIVED, gave_up

PS_PER_NS, PS_PER_US, PS_PER_S = 1000, 10**6, 10**12
TIMER_QUANTUM_PS = 40 * PS_PER_US  # minimum interval between two wake-ups for sleeps, as in softroce
WAITING_MAX = 4  # nodes that are named when a run ends early


@dataclass
class Peer:
    """The connection to one rank."""

    rank: int
    queue_pairs: list[Any]
    numbers: list[int]
    sends: list[SendQueue]
    inbound: Inbound
    posted: list[int]  # number of pieces, by queue pair
    messages: int = 0  # number sent to it so far
    rkey: int = 0
    memory_address: int = 0
    places: list[int] = field(default_factory=list)  # by queue pair: address of its first slot at the peer
    slots: int = 0  # per queue pair
    slot_bytes: int = 0
    consumed: list[int] = field(default_factory=list)  # receives to be posted again, by queue pair


class VerbsTransport:
    """One rank on one port of an RDMA device."""

    name = VERBS
    icrc = "in full: by the device"
    turn = 0

    def __init__(self, context: TransportContext) -> None:
        self._context, self._settings = context, context.settings.verbs
        others, pairs = context.settings.ranks - 1, context.settings.queue_pairs
        self._layout = lay_out(
            context.memory_bytes, others, pairs, context.settings.split, self._settings.receive_depth
        )
        self._verify = context.settings.verify
        # Peers write to the front of the memory; messages are sent from behind it.
        self._front_bytes = self._layout.size_bytes if self._verify else context.memory_bytes
        self._needs_bytes = self._front_bytes + context.memory_bytes + PATTERN_BYTES
        self._device, self._gid = open_device(context.settings, context.rank, self._needs_bytes)
        self._port = self._device.port
        self.over_ip = self._port.link_layer == ETHERNET
        self.rdma_port = f"{self._port.port.device}:{self._port.port.number}"
        self.mtu_max_bytes = self._device.active_mtu_bytes
        self.error, self.failure = "", ""
        self.epoch_ns = time.monotonic_ns()
        self._origin_ps = 0
        self._peers: dict[int, Peer] = {}
        self._first_psns = [draw_psns(pairs) for _ in range(context.settings.ranks)]
        self._of_queue_pair: dict[int, tuple[Peer, int]] = {}  # by its number: peer, and index of the queue pair
        self._completions: list[tuple[Any, ...]] = []  # for the walker; times from the origin
        self._timers: list[tuple[int, int]] = []  # due time (transport's clock), handle
        self._last_timer_ps = 0
        self._last_progress_ps = 0
        self._to_post: dict[tuple[int, int], None] = {}  # (peer, queue pair) with waiting pieces, in order
        self._counts = dict.fromkeys(
            ("messages_sent", "messages_received", "bytes_sent", "bytes_received", "posts", "signals", "sleeps"), 0
        )

    def _environment(self, text: str) -> TransportError:
        return TransportError(f"rank {self._context.rank}: {text}", EXIT_ENVIRONMENT)

    # -- setup ------------------------------------------------------------------------------------------------

    def open(self, mtu_bytes: int) -> None:
        context, device, settings = self._context, self._device, self._settings
        self._mtu_bytes = mtu_bytes
        if mtu_bytes > device.active_mtu_bytes:
            raise TransportError(
                f"rank {context.rank}: {self._port.name} carries a path MTU of {device.active_mtu_bytes} and the run "
                f"has mtu = {mtu_bytes}: {GIVE_MTU.format(device.active_mtu_bytes)}, or raise the interface's MTU",
                EXIT_USAGE,
            )
        if context.memory_bytes > device.message_max_bytes:
            raise TransportError(
                f"rank {context.rank}: {self._port.name} takes messages of {device.message_max_bytes} bytes and the "
                f"run has some of {context.memory_bytes}: give more --channels",
                EXIT_USAGE,
            )
        if self._verify and (problem := too_much(self._layout)):
            raise self._environment(problem)
        others = [rank for rank in range(context.settings.ranks) if rank != context.rank]
        self._count = context.settings.queue_pairs
        send_depth, receive_depth = self._depths(len(others) * self._count)
        self._sleeps = settings.sleeps(context.spin)
        try:
            device.take_memory(self._needs_bytes, huge_pages=settings.huge_pages)
            entries = max(1, len(others)) * self._count * (send_depth + receive_depth)
            device.make_completion_queue(min(entries, device.completions_max), channel=self._sleeps)
            device.make_requests()
            for rank in others:
                self._add_peer(rank, send_depth, receive_depth)
        except DeviceError as error:
            raise self._environment(str(error)) from error
        self._source_address = device.memory.address + self._front_bytes
        memory = np.frombuffer(device.memory.pages, np.uint8)
        source = memory[self._front_bytes : self._needs_bytes]
        source[:] = pattern(len(source))
        self._checker = Checker(self._layout, context.rank, memory, source)

    def _depths(self, queue_pairs: int) -> tuple[int, int]:
        """Return the numbers of sends and receives that a queue pair can hold, within the device's limits."""
        device, settings = self._device, self._settings
        if queue_pairs > device.queue_pairs_max:
            raise self._environment(
                f"{self._port.name} has {device.queue_pairs_max} queue pairs and the run needs {queue_pairs}"
            )
        share = device.completions_max // (2 * max(1, queue_pairs))
        most = min(device.work_requests_max, share)
        if most < 1:
            raise self._environment(
                f"{self._port.name}: a completion queue of {device.completions_max} entries is too small for "
                f"{queue_pairs} queue pairs"
            )
        receives = self._layout.slots - 1 if self._verify else most
        return min(settings.send_depth, most), min(settings.receive_depth, most, receives)

    def _add_peer(self, rank: int, send_depth: int, receive_depth: int) -> None:
        made = [self._device.make_queue_pair(send_depth, receive_depth) for _ in range(self._count)]
        for queue_pair in made:
            self._device.post_receives(queue_pair, receive_depth)
        peer = Peer(
            rank,
            made,
            [int(queue_pair.qp_num) for queue_pair in made],
            [SendQueue(send_depth, self._settings.signal_every) for _ in made],
            Inbound(self._count, self._context.settings.split),
            posted=[0] * self._count,
            consumed=[0] * self._count,
        )
        self._peers[rank] = peer
        for which, number in enumerate(peer.numbers):
            self._of_queue_pair[number] = (peer, which)

    def endpoint_info(self) -> EndpointInfo:
        context, device = self._context, self._device
        peers = range(context.settings.ranks)
        base = device.memory.address
        return EndpointInfo(
            transport=VERBS,
            rank=context.rank,
            address=context.settings.addresses[context.rank] if self.over_ip else "",
            local_rank=context.site.local_rank,
            mtu_bytes=self._mtu_bytes,
            rkey=device.rkey,
            memory_address=base,
            memory_bytes=context.memory_bytes,
            queue_pairs=[self._peers[peer].numbers if peer in self._peers else [] for peer in peers],
            first_psns=self._first_psns,
            gid="" if self._gid is None else self._gid.gid,
            lid=self._port.lid,
            places=places_for(self._layout, context.rank, peers, base) if self._verify else [],
            slots=self._layout.slots if self._verify else 0,
            slot_bytes=self._layout.slot_bytes if self._verify else 0,
        )

    def connect(self, endpoints: Sequence[EndpointInfo]) -> None:
        own = self._context.rank
        for rank, peer in self._peers.items():
            endpoint = endpoints[rank]
            peer.rkey, peer.memory_address = endpoint.rkey, endpoint.memory_address
            if endpoint.slots:
                peer.places, peer.slots, peer.slot_bytes = endpoint.places[own], endpoint.slots, endpoint.slot_bytes
            try:
                numbers = endpoint.queue_pairs_for(own, self._count)
            except ValueError as error:
                raise TransportError(str(error), EXIT_USAGE) from error
            try:
                for which, queue_pair in enumerate(peer.queue_pairs):
                    connect(
                        self._device,
                        self._gid,
                        self._settings,
                        queue_pair,
                        endpoint,
                        number=numbers[which],
                        psns=(self._first_psns[rank][which], endpoint.first_psns[own][which]),
                        mtu_bytes=min(self._mtu_bytes, endpoint.mtu_bytes),
                    )
            except DeviceError as error:
                raise self._environment(f"{error} (to rank {rank} at {gid_on(endpoint) or endpoint.lid})") from error

    def ports(self) -> list[list[int]]:
        """Return no ports: devices choose their UDP source ports."""
        return [[] for _ in range(self._context.settings.ranks)]

    def expect(self, ports: Sequence[Sequence[Sequence[int]]]) -> None:
        """Do nothing: the device identifies its peers by their addresses."""

    def set_plan(self, plan: genie_core.Plan) -> None:
        self._plan = plan
        self._walker = genie_core.Walker(plan, 0)

    def set_faults(self, iteration: int, origin_ps: int) -> None:
        """Do nothing: fault plans are refused on verbs."""

    # -- playing ----------------------------------------------------------------------------------------------

    @property
    def now_ps(self) -> int:
        return (time.monotonic_ns() - self.epoch_ns) * PS_PER_NS

    def begin(self, origin_ps: int) -> PlayState:
        self._walker = genie_core.Walker(self._plan, 0)
        self._timers.clear()  # those of an abandoned iteration are void
        shift = self._origin_ps - origin_ps
        # Times of completions since the last iteration are relative to its origin.
        self._completions = [_moved(completion, shift) for completion in self._completions]
        self._origin_ps = origin_ps
        if self.now_ps < origin_ps and self.serve(origin_ps) == "failed":
            return "failed"
        start = self._last_progress_ps = self.now_ps
        self._perform(self._walker.begin(start - origin_ps))
        return "done" if self._walker.done else "timeout"

    def run(self, deadline_ps: int) -> PlayState:
        return self._loop(deadline_ps, playing=True)

    def serve(self, deadline_ps: int) -> PlayState:
        return self._loop(deadline_ps, playing=False)

    def _loop(self, deadline_ps: int, *, playing: bool) -> PlayState:
        found: list[Any] = []
        while True:
            try:
                self._take(found)
                while found := self._device.poll():
                    self._take(found)
                if playing:
                    self._walk()
                self._post()
                if self.error:
                    return "failed"
                if playing and self._walker.done:
                    return "done"
                now = self.now_ps
                if now >= deadline_ps:
                    return "timeout"
                if playing and self._stalled(now):
                    self.error, self.failure = self.waiting(), STALLED
                    return "failed"
                found = self._sleep(now, min(deadline_ps, self._next_due(now, playing=playing)))
            except (DeviceError, self._device.error_type) as error:
                self.error = f"rank {self._context.rank} cannot send: {error}"
                return "failed"

    def _walk(self) -> None:
        """Fire due timers and pass completions to the walker, until nothing more is due."""
        while True:
            now = self.now_ps
            while self._timers and self._timers[0][0] <= now:
                due, handle = heapq.heappop(self._timers)
                self._last_timer_ps = self._last_progress_ps = now
                self._completions.append(("timer", handle, due - self._origin_ps))
            if not self._completions:
                return
            completions, self._completions = self._completions, []
            self._perform(self._walker.advance(now - self._origin_ps, completions))
            if self._walker.error:
                self.error = self._walker.error

    def _perform(self, operations: list[Any]) -> None:
        for operation in operations:
            if operation[0] == "timer":
                heapq.heappush(self._timers, (operation[2] + self._origin_ps, operation[1]))
                continue
            _, handle, rank, tag, size_bytes = operation
            peer = self._peers[rank]
            pieces = 1 if not self._context.settings.split else self._count
            message = Message(handle, rank, tag, size_bytes, pieces)
            for which, piece in pieces_of(message, peer.messages, self._count, self._context.settings.split):
                if self._verify:
                    piece = self._checkable(piece, peer, which)
                peer.posted[which] += 1
                peer.sends[which].add(piece)
                self._to_post[rank, which] = None
            peer.messages += 1

    def _checkable(self, piece: Piece, peer: Peer, which: int) -> Piece:
        """Return the piece with contents of its own, and with the slot that the receiver checks.

        In slots a piece is checked like a message.
        """
        number = peer.posted[which]
        start = phase(self._context.rank, peer.rank, which, number)
        if not peer.slots:
            return piece._replace(source_bytes=piece.offset_bytes + start)
        place = peer.places[which] + number % peer.slots * peer.slot_bytes
        return piece._replace(source_bytes=start, offset_bytes=place - peer.memory_address)

    def _post(self) -> None:
        """Post waiting pieces, in lists, as far as the queue pairs accept them."""
        for rank, which in list(self._to_post):
            peer = self._peers[rank]
            while requests := peer.sends[which].take(LIST_MAX):
                self._device.post(
                    peer.queue_pairs[which], requests, self._source_address, peer.memory_address, peer.rkey
                )
                self._counts["posts"] += 1
                self._counts["signals"] += sum(request.signaled for request in requests)
            del self._to_post[rank, which]  # the rest waits for a completion of this queue pair

    def _take(self, found: list[Any]) -> None:
        if not found:
            return
        now = self._last_progress_ps = self.now_ps
        for completion in found:
            peer, which = self._of_queue_pair[completion.qp_num]
            if completion.status:
                self._fail(peer, completion)
            elif completion.opcode & RECEIVED:
                peer.consumed[which] += 1
                self._receive(peer, which, completion, now)
            else:
                self._complete(peer, which, completion.wr_id, now)
        for number in {completion.qp_num for completion in found}:
            peer, which = self._of_queue_pair[number]
            if peer.consumed[which] and not self.error:
                self._device.post_receives(peer.queue_pairs[which], peer.consumed[which])
                peer.consumed[which] = 0

    def _receive(self, peer: Peer, which: int, completion: Any, now: int) -> None:
        at = now - self._origin_ps
        if self._verify:
            self._checker.check(peer.rank, which, completion.byte_len)
        tag = int.from_bytes(completion.imm_data.to_bytes(4, _BYTE_ORDER), "big")
        try:
            arrivals = peer.inbound.arrived(which, Arrival(tag, completion.byte_len, at, at))
        except ValueError as error:
            self.error = f"rank {self._context.rank} and rank {peer.rank} disagree: {error}"
            return
        for arrival in arrivals:
            self._counts["messages_received"] += 1
            self._counts["bytes_received"] += arrival.size_bytes
            self._completions.append(("arrived", peer.rank, *arrival))

    def _complete(self, peer: Peer, which: int, sequence: int, now: int) -> None:
        for message in peer.sends[which].completed(sequence):
            self._counts["messages_sent"] += 1
            self._counts["bytes_sent"] += message.size_bytes
            self._completions.append(("sent", message.handle, now - self._origin_ps))
        self._to_post[peer.rank, which] = None

    def _fail(self, peer: Peer, completion: Any) -> None:
        if self.error or completion.status == FLUSHED:
            return
        self.error = f"rank {self._context.rank} {gave_up(completion, peer.rank, self._port.name)}"

    def _stalled(self, now: int) -> bool:
        return not self._timers and now - self._last_progress_ps > self._context.stall_s * PS_PER_S

    def _next_due(self, now: int, *, playing: bool) -> int:
        stall_ps = int(self._context.stall_s * PS_PER_S)
        due = self._last_progress_ps + stall_ps + PS_PER_US
        if due <= now:
            due = now + stall_ps
        if self._timers and playing:
            due = min(due, max(self._timers[0][0], self._last_timer_ps + TIMER_QUANTUM_PS))
        return due

    def _sleep(self, now: int, until: int) -> list[Any]:
        if until <= now or not self._sleeps:
            return []
        self._counts["sleeps"] += 1
        return self._device.wait((until - now) / PS_PER_S)

    # -- reporting --------------------------------------------------------------------------------------------

    def waiting(self) -> str:
        lines = self._walker.waiting(WAITING_MAX)
        return "; ".join(lines) or f"rank {self._context.rank} waits for dependencies that never end"

    def records(self) -> dict[str, dict[str, Any]]:
        return self._walker.records()

    def counters(self) -> Mapping[str, int]:
        """Return counts of messages; device counters are read separately, once for all ranks (genie/live/counters)."""
        checker = self._checker
        checked = {"verified_bytes": checker.verified_bytes, "wrong_bytes": checker.wrong_bytes}
        return {**self._counts, **(checked if self._verify else {})}

    def refused_senders(self) -> list[tuple[str, str, int, int]]:
        """Return []: a device counts refused packets but does not report their senders."""
        return []

    def paths(self) -> list[str]:
        """Return, by peer, the queue pair numbers, from which devices derive their UDP source ports."""
        return [
            ",".join(f"0x{number:06x}" for number in self._peers[rank].numbers) if rank in self._peers else ""
            for rank in range(self._context.settings.ranks)
        ]

    def trace(self) -> list[Any]:
        """Return []: the device does not show its packets."""
        return []

    def close(self) -> None:
        self._device.close()


_BYTE_ORDER = sys.byteorder


def _moved(completion: tuple[Any, ...], shift_ps: int) -> tuple[Any, ...]:
    """Return a completion with its times moved."""
    if completion[0] == "arrived":
        return (*completion[:4], completion[4] + shift_ps, completion[5] + shift_ps)
    return (*completion[:2], completion[2] + shift_ps, *completion[3:])
