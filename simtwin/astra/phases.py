"""What one chunk takes on one dimension, by each of ASTRA-sim's algorithms, when no two messages meet.

All members are taken to do the same at the same time, but for rings and trees, whose members are told apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush

from simtwin.astra.network import Network

AFTER_RECEIVE, AFTER_DELAY = 0, 1  # what happens to a message at one time, in this order


class PhaseError(Exception):
    """An algorithm that does not do this operation, or not with so many members."""


@dataclass(frozen=True)
class Endpoint:
    """What an NPU does with a message before it sends one and after one has come."""

    delay_ns: int
    memory_bytes_per_s: float | None = None  # None: reductions take no time

    def reduction_ns(self, size_bytes: int) -> int:
        """Two reads and a write."""
        return 0 if self.memory_bytes_per_s is None else 3 * int(size_bytes / self.memory_bytes_per_s * 1e9)


@dataclass(frozen=True, eq=False)
class Line:
    """Members that run a collective on one dimension, in order."""

    members: tuple[int, ...]
    network: Network
    endpoint: Endpoint
    is_group: bool = False  # a communicator smaller than the network
    is_regular: bool = False  # routes depend only on how far apart two members are

    def __len__(self) -> int:
        return len(self.members)

    def delay_ns(self, source: int, target: int, size_bytes: int) -> int:
        """Of a message from one place on the line to another."""
        route = self.network.route(self.members[source], self.members[target])
        return self.network.delay_ns(route, size_bytes)

    def distance_delay_ns(self, distance: int, size_bytes: int) -> int:
        """Of the slowest of the messages that all members send to the one so many places on."""
        return max(self.network.delay_ns(route, size_bytes) for route in self._routes[distance % len(self)])

    @cached_property
    def _routes(self) -> tuple[frozenset[tuple[int, int]], ...]:
        n, members, route = len(self), self.members, self.network.route
        starts = range(1 if self.is_regular else n)
        return tuple(
            frozenset(route(members[i], members[(i + distance) % n]) for i in starts) if distance else frozenset()
            for distance in range(n)
        )


def final_bytes(op: str, size_bytes: int, members: int) -> int:
    """What a member holds when a phase is done, which the next one starts from."""
    return {"all_gather": size_bytes * members, "reduce_scatter": size_bytes // members}.get(op, size_bytes)


def ring_ns(op: str, size_bytes: int, line: Line, chunks: int = 1) -> int:
    """Each member to the next, one message at a time, chunk after chunk."""
    n = len(line)
    messages = {"all_reduce": 2 * (n - 1), "all_to_all": n * (n - 1) // 2}.get(op, n - 1)
    message_bytes = size_bytes if op == "all_gather" else size_bytes // n
    reductions = n - 1 if op in ("all_reduce", "reduce_scatter") else 0
    own_ns = (messages + 1) * line.endpoint.delay_ns + reductions * line.endpoint.reduction_ns(message_bytes)
    if line.is_regular:
        return chunks * (own_ns + messages * line.distance_delay_ns(1, message_bytes))
    # What comes late is passed on late: the longest way of so many hops in a row counts.
    hops = [line.delay_ns(i, (i + 1) % n, message_bytes) for i in range(n)]
    rounds, rest = divmod(chunks * messages, n)
    longest = max(sum((hops + hops)[i : i + rest]) for i in range(n))
    return chunks * own_ns + rounds * sum(hops) + longest


def direct_ns(op: str, size_bytes: int, line: Line, window: int | None = None) -> int:
    """Each member to each other, `window` messages at once."""
    n = len(line)
    window = min(window or n - 1, n - 1)
    message_bytes = size_bytes if op == "all_gather" else size_bytes // n
    delays = [line.distance_delay_ns(distance, message_bytes) for distance in range(1, n)]
    messages = (2 if op == "all_reduce" else 1) * (n - 1)
    reduced = _reduced(op, window, (n - 1) * window if line.is_group else window)
    reduction_ns = line.endpoint.reduction_ns(message_bytes)
    return _windowed_ns(
        [delays[i % (n - 1)] for i in range(messages)],
        [line.endpoint.delay_ns + reduced(i) * reduction_ns for i in range(messages + window)],
        window,
        halfway=n - 1 if op == "all_reduce" else 0,
    )


def halving_doubling_ns(op: str, size_bytes: int, line: Line) -> int:
    """Pairs at 1, 2, 4, ... places with halves of halves, and back again."""
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
    total_ns = endpoint.delay_ns
    for i, (distance, message_bytes) in enumerate(sends, 1):
        next_bytes = sends[i][1] if i < len(sends) else 0  # what is reduced is as long as what is sent then
        delay_ns = line.distance_delay_ns(distance, message_bytes)
        total_ns += delay_ns + endpoint.delay_ns + reduced(i) * endpoint.reduction_ns(next_bytes)
    return total_ns


def _reduced(op: str, first: int, others: int) -> Callable[[int], bool]:
    """Whether a member's i-th turn starts with a reduction.

    Turns come in rounds of `first`, which never do, and `others`, which do in every round of a reduce-scatter and in
    every second one of an all-reduce.
    """
    period = {"reduce_scatter": 1, "all_reduce": 2}.get(op)

    def is_reduced(turn: int) -> bool:
        number, place = divmod(turn, first + others)
        return period is not None and place >= first and number % period == 0

    return is_reduced


def _windowed_ns(delays_ns: list[int], turns_ns: list[int], window: int, halfway: int) -> int:
    """One member's time: at first and after each message that comes a turn, after each turn the next message leaves.

    With `halfway`, messages from there on wait until so many have come. The i-th message comes delays_ns[i] after it
    left, as all members do the same.
    """
    events: list[tuple[int, int]] = [(turns_ns[i], AFTER_DELAY) for i in range(window)]
    turns, sent, come, free = window, 0, 0, 0
    while True:
        now_ns, what = heappop(events)
        if what == AFTER_RECEIVE:
            come += 1
            heappush(events, (now_ns + turns_ns[turns], AFTER_DELAY))
            turns += 1
            continue
        free += 1
        may_send = 1
        if halfway and sent >= halfway:
            if come < halfway:
                continue
            may_send = window
        for _ in range(min(may_send, free, len(delays_ns) - sent)):
            heappush(events, (now_ns + delays_ns[sent], AFTER_RECEIVE))
            sent, free = sent + 1, free - 1
        if sent == len(delays_ns) and free == window:
            return now_ns


def double_binary_tree_ns(op: str, size_bytes: int, line: Line, chunks: int = 1) -> int:
    """Up a tree and down again with whole chunks; every second chunk takes the other tree."""
    n = len(line)
    if n & (n - 1) or op != "all_reduce" or line.is_group:
        where = "a group smaller than the network" if line.is_group else f"{n} members"
        raise PhaseError(f"does not do {op.replace('_', '-')} with {where}")
    times_ns = [0] * n
    for chunk in range(chunks):
        times_ns = _tree_ns(line, size_bytes, times_ns, is_root_last=chunk % 2 == 0)
    return max(times_ns)


def _tree_ns(line: Line, size_bytes: int, start_ns: list[int], is_root_last: bool) -> list[int]:
    """When each place is done, from when each starts.

    The root is the last or the first place; under it hangs a full tree of all others in their order.
    """
    leaf_ns = line.endpoint.delay_ns
    inner_ns = leaf_ns + line.endpoint.reduction_ns(size_bytes)
    first = 0 if is_root_last else 1
    root, top = (len(line) - 1) * (1 - first), len(line) // 2 - 1 + first
    end_ns = list(start_ns)

    def children(place: int) -> tuple[int, ...]:
        number = place - first + 1
        half = (number & -number) >> 1  # below an even number are two
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
