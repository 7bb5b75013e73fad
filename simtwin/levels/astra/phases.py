"""Times of chunks on one dimension, for each of ASTRA-sim's algorithms, when no two messages meet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace

from simtwin.imports.astra.network import Network

AFTER_RECEIVE, AFTER_DELAY = 0, 1  # events of a message at one time, in this order
# Limits for lines whose members have different delays. Beyond MESSAGES_MAX messages a chunk, the slowest member stands
# for all. Beyond CHUNKS_MAX chunks, each takes as long as the last one.
MESSAGES_MAX, CHUNKS_MAX = 8192, 8


class PhaseError(Exception):
    """An algorithm that does not support an operation, or not with this number of members."""


@dataclass(frozen=True)
class Endpoint:
    """Processing of a message at an NPU: a delay before each send and after each receive, and reductions."""

    delay_ns: int
    memory_bytes_per_s: float | None = None  # None: reductions take no time

    def reduction_ns(self, size_bytes: int) -> int:
        """Return the time of two reads and a write, in ns."""
        return 0 if self.memory_bytes_per_s is None else 3 * int(size_bytes / self.memory_bytes_per_s * 1e9)


@dataclass(frozen=True, eq=False)
class Line:
    """Members that run a collective on one dimension, in order."""

    members: tuple[int, ...]
    network: Network
    endpoint: Endpoint
    is_group: bool = False  # a communicator smaller than the network
    is_regular: bool = False  # all members have the same delays and act at the same times
    _slowest: dict[tuple[int, bool], frozenset[tuple[int, int]]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.members)

    def delay_ns(self, source: int, target: int, size_bytes: int) -> int:
        """Return the time of a message from one place on the line to another, in ns."""
        route = self.network.route(self.members[source], self.members[target])
        return self.network.delay_ns(route, size_bytes)

    def partner(self, place: int, distance: int, is_pairwise: bool) -> int:
        """Return the member `distance` places on, or with `is_pairwise` the other member of a pair that far apart."""
        return place ^ distance if is_pairwise else (place + distance) % len(self)

    def slowest_ns(self, distance: int, is_pairwise: bool, size_bytes: int) -> int:
        """Return the longest time of the messages of all members to their partners, in ns."""
        if (routes := self._slowest.get((distance, is_pairwise))) is None:
            routes = self._slowest[distance, is_pairwise] = frozenset(
                self.network.route(member, self.members[self.partner(place, distance, is_pairwise)])
                for place, member in enumerate(self.members[:1] if self.is_regular else self.members)
            )
        return max(self.network.delay_ns(route, size_bytes) for route in routes)


def final_bytes(op: str, size_bytes: int, members: int) -> int:
    """Return the bytes that a member holds at the end of a phase, with which the next one starts."""
    return {"all_gather": size_bytes * members, "reduce_scatter": size_bytes // members}.get(op, size_bytes)


def ring_ns(op: str, size_bytes: int, line: Line, chunks: int = 1) -> int:
    """Return the time of a ring: each member sends to the next, one message at a time, chunk after chunk."""
    n = len(line)
    messages = {"all_reduce": 2 * (n - 1), "all_to_all": n * (n - 1) // 2}.get(op, n - 1)
    message_bytes = size_bytes if op == "all_gather" else size_bytes // n
    reductions = n - 1 if op in ("all_reduce", "reduce_scatter") else 0
    own_ns = (messages + 1) * line.endpoint.delay_ns + reductions * line.endpoint.reduction_ns(message_bytes)
    if line.is_regular:
        return chunks * (own_ns + messages * line.delay_ns(0, 1, message_bytes))
    # A late message is passed on late: the longest path of so many consecutive hops counts.
    hops = [line.delay_ns(i, (i + 1) % n, message_bytes) for i in range(n)]
    rounds, rest = divmod(chunks * messages, n)
    longest = max(sum((hops + hops)[i : i + rest]) for i in range(n))
    return chunks * own_ns + rounds * sum(hops) + longest


def direct_ns(op: str, size_bytes: int, line: Line, chunks: int = 1, window: int | None = None) -> int:
    """Return the time when each member sends to each other, `window` messages at once."""
    n = len(line)
    window = min(window or n - 1, n - 1)
    message_bytes = size_bytes if op == "all_gather" else size_bytes // n
    messages = (2 if op == "all_reduce" else 1) * (n - 1)
    reduced = _reduced(op, window, (n - 1) * window if line.is_group else window)
    reduction_ns = line.endpoint.reduction_ns(message_bytes)
    exchange = _Exchange(
        line,
        sends=[(1 + i % (n - 1), message_bytes) for i in range(messages)],
        turns_ns=[line.endpoint.delay_ns + reduced(i) * reduction_ns for i in range(messages + window)],
        window=window,
        halfway=n - 1 if op == "all_reduce" else 0,
    )
    return exchange.run(chunks)


def halving_doubling_ns(op: str, size_bytes: int, line: Line, chunks: int = 1) -> int:
    """Return the time of exchanges between pairs at 1, 2, 4, ... places with halves of halves, and back again."""
    n = len(line)
    steps = n.bit_length() - 1
    if n != 1 << steps or op == "all_to_all":
        raise PhaseError(f"does not do {op.replace('_', '-')} with {n} members")
    if op == "all_gather":
        sends = [(n >> (step + 1), size_bytes << step) for step in range(steps)]
    else:
        sends = [(1 << step, size_bytes >> (step + 1)) for step in range(steps)]
    if op == "all_reduce":
        last_bytes = size_bytes >> (steps + 1) << 1
        sends += [(n >> (step + 1), last_bytes << step) for step in range(steps)]
    reduced, endpoint = _reduced(op, 1, steps - 1), line.endpoint
    # A turn reduces as many bytes as it sends.
    turns_ns = [endpoint.delay_ns + reduced(i) * endpoint.reduction_ns(size) for i, (_, size) in enumerate(sends)]
    return _Exchange(line, sends, [*turns_ns, endpoint.delay_ns], is_pairwise=True).run(chunks)


def _reduced(op: str, first: int, others: int) -> Callable[[int], bool]:
    """Return a function that says whether a member's i-th turn starts with a reduction.

    Turns come in rounds of `first` and then `others`. The `first` turns never reduce. The `others` reduce in every
    round of a reduce-scatter, and in every second one of an all-reduce.
    """
    period = {"reduce_scatter": 1, "all_reduce": 2}.get(op)

    def is_reduced(turn: int) -> bool:
        number, place = divmod(turn, first + others)
        return period is not None and place >= first and number % period == 0

    return is_reduced


@dataclass(frozen=True, eq=False)
class _Exchange:
    """Exchanges of a line's members.

    A member has a turn at first and after each message that it receives; its next message leaves after each turn. A
    member's i-th message goes to the member from which its own i-th message comes. With `halfway`, messages from that
    number on wait until as many have arrived.
    """

    line: Line
    sends: list[tuple[int, int]]  # (messages,) distance and bytes
    turns_ns: list[int]  # (messages + window,)
    window: int = 1  # turns at first
    halfway: int = 0
    is_pairwise: bool = False

    def run(self, chunks: int) -> int:
        """Return when all members have ended `chunks`; a member starts a chunk when it has ended the one before."""
        if self.line.is_regular or len(self.line) * len(self.sends) > MESSAGES_MAX:
            return chunks * self._chunk_ns([0])[0]
        times_ns, before_ns = [0] * len(self.line), 0
        for _ in range(min(chunks, CHUNKS_MAX)):
            before_ns, times_ns = max(times_ns), self._chunk_ns(times_ns)
        return max(times_ns) + max(chunks - CHUNKS_MAX, 0) * (max(times_ns) - before_ns)

    def _chunk_ns(self, start_ns: list[int]) -> list[int]:
        """Return when each member ends, from when each starts; a single member stands for all."""
        members, messages = len(start_ns), len(self.sends)
        sent, come, free, turns, end_ns = ([0] * members for _ in range(5))
        half_known_ns: dict[tuple[int, int], int] = {}  # of messages, when the first of two events happened
        events: list[tuple[int, int, int]] = []

        def turn(member: int, now_ns: int) -> None:
            heappush(events, (now_ns + self.turns_ns[turns[member]], AFTER_DELAY, member))
            turns[member] += 1

        def meet(member: int, i: int, at_ns: int) -> None:
            """Deliver a message when it has arrived and its receiver has sent its own."""
            other_ns = half_known_ns.pop((member, i), None)
            if other_ns is None:
                half_known_ns[member, i] = at_ns
            else:
                heappush(events, (max(at_ns, other_ns), AFTER_RECEIVE, member))

        for member in range(members):
            for _ in range(self.window):
                turn(member, start_ns[member])
        while events:
            now_ns, what, member = heappop(events)
            if what == AFTER_RECEIVE:
                come[member] += 1
                turn(member, now_ns)
                continue
            free[member] += 1
            may_send = 1
            if self.halfway and sent[member] >= self.halfway:
                if come[member] < self.halfway:
                    continue
                may_send = self.window
            for _ in range(min(may_send, free[member], messages - sent[member])):
                i = sent[member]
                distance, size_bytes = self.sends[i]
                meet(member, i, now_ns)
                if members == 1:
                    meet(member, i, now_ns + self.line.slowest_ns(distance, self.is_pairwise, size_bytes))
                else:
                    partner = self.line.partner(member, distance, self.is_pairwise)
                    meet(partner, i, now_ns + self.line.delay_ns(member, partner, size_bytes))
                sent[member], free[member] = i + 1, free[member] - 1
            if sent[member] == messages and free[member] == self.window:
                end_ns[member] = now_ns
        return end_ns


def double_binary_tree_ns(op: str, size_bytes: int, line: Line, chunks: int = 1, active: int = 1) -> int:
    """Return the time of whole chunks up a tree and down again, `active` at a time.

    Every second chunk takes the other tree.
    """
    n = len(line)
    if n & (n - 1) or op != "all_reduce" or line.is_group:
        where = "a group smaller than the network" if line.is_group else f"{n} members"
        raise PhaseError(f"does not do {op.replace('_', '-')} with {where}")
    ends_ns = [[0] * min(active, chunks) for _ in range(n)]  # end times of each member's last chunks, as a heap
    for chunk in range(chunks):
        start_ns = [own_ns[0] for own_ns in ends_ns]
        for own_ns, end_ns in zip(ends_ns, _tree_ns(line, size_bytes, start_ns, chunk % 2 == 0), strict=True):
            heapreplace(own_ns, end_ns)
    return max(max(own_ns) for own_ns in ends_ns)


def _tree_ns(line: Line, size_bytes: int, start_ns: list[int], is_root_last: bool) -> list[int]:
    """Return when each place ends, from when each starts.

    The root is the last or the first place; under it is a full tree of all others in their order.
    """
    leaf_ns = line.endpoint.delay_ns
    inner_ns = leaf_ns + line.endpoint.reduction_ns(size_bytes)
    first = 0 if is_root_last else 1
    root, top = (len(line) - 1) * (1 - first), len(line) // 2 - 1 + first
    end_ns = list(start_ns)

    def children(place: int) -> tuple[int, ...]:
        number = place - first + 1
        half = (number & -number) >> 1  # an even number has two children
        return (place - half, place + half) if half else ()

    def sent_up_ns(place: int) -> int:
        below = [sent_up_ns(child) + line.delay_ns(child, place, size_bytes) for child in children(place)]
        return max(start_ns[place], *below) + inner_ns if below else start_ns[place] + leaf_ns

    def send_down(parent: int, place: int) -> None:
        below = children(place)
        end_ns[place] = end_ns[parent] + line.delay_ns(parent, place, size_bytes) + (inner_ns if below else leaf_ns)
        for child in below:
            send_down(place, child)

    end_ns[root] = max(start_ns[root], sent_up_ns(top) + line.delay_ns(top, root, size_bytes)) + inner_ns
    send_down(root, top)
    return end_ns
