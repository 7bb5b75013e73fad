"""Genie's own closed forms: alpha and beta of each round of an algorithm on a given fabric.

A round is a set of messages that are sent at once. Its time is the longest latency of their routes, plus the time in
which the most loaded link sends its part of their bytes. Headers are included. Around a ring the latency is the mean of
the routes, as a member ahead waits for no other. Equally short routes carry even parts. Rounds follow one another;
pipelined parts of an algorithm share their latency. The network carries nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from math import ceil, log2
from typing import NamedTuple

import genie_core
import numpy as np
from numpy.typing import NDArray

from genie.collectives.algorithms import chain_parts
from genie.collectives.lower import HIERARCHICAL, choose
from genie.collectives.msccl.algorithm import PREFIX
from genie.collectives.nccl.collnet import collnet_cut
from genie.collectives.nccl.messages import MESSAGES_AT_ONCE, P2P
from genie.collectives.nccl.shape import choose_nccl
from genie.collectives.nccl.sizes import LONG_CHUNKS, PROTOCOLS, STEPS, cut_of, message_chunk_bytes, pat_cut
from genie.collectives.nccl.steps import NOBODY, double_binary_tree
from genie.collectives.nccl.tuning import COLLNET, PAT, RING, Choice
from genie.collectives.pat import aggregation, messages, whole_aggregation
from genie.plan.lowering import Lowering, members_per_node
from genie.workload.graph import WorkloadError
from simtwin.fabric.frames import frames_of
from simtwin.fabric.routing import Routes
from simtwin.fabric.schema import Fabric
from simtwin.fabric.topology import Network
from simtwin.levels.analytic import MESSAGE, CostKey

PS_PER_S = 10**12
CREDIT_BYTES = 64  # of a clear-to-send
Transfers = Iterable[tuple[int, int, float]]  # from rank, to rank, part of the counted bytes


class Load(NamedTuple):
    """Latency and load of messages that are sent at once.

    `delay_ps`: of the longest route, and `hop_byte_ps` for each byte of a packet on all its links but the slowest;
    `mean_...`: mean of all routes. `byte_ps`: time of the most loaded link for each counted byte.
    """

    delay_ps: float
    hop_byte_ps: float
    mean_delay_ps: float
    mean_hop_byte_ps: float
    byte_ps: float


class ClosedForms:
    """A cost model of collectives on a fabric, with the algorithms of `lowering`."""

    def __init__(
        self, fabric: Fabric, network: Network, routes: Routes, host_of_rank: Sequence[int], lowering: Lowering
    ) -> None:
        self._fabric, self._network = fabric, network
        self._host, self._lowering = host_of_rank, lowering
        self._frames = frames_of(fabric)
        self._shares = genie_core.EvenShares(
            network.nodes, network.src_node, network.dst_node, network.rate_bps, network.delay_ps,
            own_rate_bps=_own_rates_bps(network), **routes.arrays(),
        )  # fmt: skip
        self._loads: dict[tuple[object, ...], Load] = {}

    def prepare(self, keys: Sequence[CostKey]) -> None:
        """Compute and keep the routes and loads that these keys need; their costs are not kept."""
        for key in keys:
            self.cost_ps(key)

    def cost_ps(self, key: CostKey) -> int:
        """Return the time from the arrival of the last member until all have ended, in ps."""
        if key.op == MESSAGE:
            source, target = key.ranks
            load = self.load(("message", key.ranks), lambda: [(source, target, 1.0)])
            return round(self.alpha_ps(load, key.size_bytes) + self.wire(key.size_bytes) * load.byte_ps)
        if len(key.ranks) < 2:
            return 0
        form = _Nccl(self, key) if self._lowering.nccl is not None and key.op != "barrier" else _Plain(self, key)
        time_ps = form.time_ps()
        # A node ends when its last message has been acknowledged.
        return round(time_ps + form.nearest.mean_delay_ps) if time_ps else 0

    def acknowledgement_ps(self, key: CostKey) -> int:
        """Return the latency of a message's acknowledgement, in ps."""
        if key.op != MESSAGE:
            return 0
        target, source = key.ranks
        load = self.load(("message", (source, target)), lambda: [(source, target, 1.0)])
        return round(load.delay_ps + self._frames.acknowledgement_bytes * (load.hop_byte_ps + load.byte_ps))

    # -- parts of the forms ----------------------------------------------------------------------------------

    @property
    def lowering(self) -> Lowering:
        return self._lowering

    def wire(self, size_bytes: float, message_bytes: float | None = None) -> float:
        """Return the bytes on the wire of `size_bytes` in messages of `message_bytes`."""
        if message_bytes is not None and 0 < message_bytes < size_bytes:
            return size_bytes / message_bytes * self.wire(message_bytes)
        frames = self._frames
        packets = max(ceil(size_bytes / frames.payload_bytes), 1)
        return size_bytes + packets * frames.header_bytes + frames.opening_bytes + frames.closing_bytes

    def alpha_ps(self, load: Load, size_bytes: float, *, mean: bool = False) -> float:
        """Return the latency of a message's last packet in ps, without its serialisation on the slowest link."""
        packet_bytes = min(size_bytes, self._frames.payload_bytes) + self._frames.header_bytes
        if mean:
            return load.mean_delay_ps + packet_bytes * load.mean_hop_byte_ps
        return load.delay_ps + packet_bytes * load.hop_byte_ps

    def load(self, name: tuple[object, ...], transfers: Callable[[], Transfers]) -> Load:
        """Return the load of the messages that `transfers` lists, kept under `name`."""
        if name not in self._loads:
            self._loads[name] = self._measured(transfers())
        return self._loads[name]

    def _measured(self, transfers: Transfers) -> Load:
        pairs: Counter[tuple[int, int]] = Counter()
        for source, target, part in transfers:
            pairs[self._host[source], self._host[target]] += part  # type: ignore[assignment]
        if not pairs:
            return Load(0.0, 0.0, 0.0, 0.0, 0.0)
        hosts = np.array(list(pairs), np.int32)
        between_ps, hops, link_byte_ps, route_byte_ps = self._shares.load(
            np.ascontiguousarray(hosts[:, 0]),
            np.ascontiguousarray(hosts[:, 1]),
            np.array(list(pairs.values()), np.float64),
        )
        network = self._network
        delays = network.packet_latency_ps[hosts[:, 1]] + network.message_latency_ps[hosts[:, 1]]
        delays = between_ps + delays + int(self._fabric.host.doorbell_latency)
        byte_ps = link_byte_ps
        if not self._fabric.load_balancing.reorders:  # a connection takes one of its routes
            byte_ps = max(byte_ps, route_byte_ps)
        return Load(
            float(delays.max()), float(hops.max()), _mean(delays.tolist()), _mean(hops.tolist()), float(byte_ps)
        )


def _own_rates_bps(network: Network) -> NDArray[np.int64]:
    """Return the rate of each host's own port, through which its ranks exchange data: (hosts,)."""
    outer = np.flatnonzero((network.src_node < network.hosts) & ~network.is_bridge[network.dst_node])
    inner = np.flatnonzero(network.src_node < network.hosts)
    rates_bps = np.zeros(network.hosts, np.int64)
    for links in (inner, outer):  # the first link into the network, else the first of all
        hosts, first = np.unique(network.src_node[links], return_index=True)
        rates_bps[hosts] = network.rate_bps[links[first]]
    return rates_bps


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


class _Form(ABC):
    """A collective's time with the algorithm for its size."""

    def __init__(self, forms: ClosedForms, key: CostKey) -> None:
        self._forms, self._key = forms, key
        self._members = len(key.ranks)
        whole = key.op in ("all_gather", "gather")
        self._share_bytes = key.size_bytes if whole else key.size_bytes / self._members  # the block of one member
        self._nearest: Load | None = None

    @abstractmethod
    def time_ps(self) -> float:
        """Return the time until the last message has arrived, in ps."""

    @property
    def nearest(self) -> Load:
        """Load of messages to the next member."""
        if self._nearest is None:
            self._nearest = self._round(1)
        return self._nearest

    def _round(self, away: int) -> Load:
        """Return the load of messages from every member to the one `away` places further."""
        ranks, count = self._key.ranks, self._members
        return self._forms.load(
            ("away", ranks, away), lambda: [(ranks[at], ranks[(at + away) % count], 1.0) for at in range(count)]
        )

    def _round_of_nodes(self, local: int, *, inside: bool) -> Load:
        """Return the load of messages to the next member of the node, or to the same place in the next node."""
        ranks, count = self._key.ranks, self._members

        def after(at: int) -> int:
            return at // local * local + (at + 1) % local if inside else (at + local) % count

        return self._forms.load(
            ("nodes", ranks, local, inside),
            lambda: [(ranks[at], ranks[after(at)], 1.0) for at in range(count) if after(at) != at],
        )

    def _towards(self, op: str, distance: int) -> Load:
        """Return the load of PAT's messages of a distance: an all-gather sends backwards."""
        return self._round(self._members - distance if op == "all_gather" else distance)

    def _all(self) -> Load:
        """Return the load of messages from every member to every other."""
        ranks = self._key.ranks
        return self._forms.load(("all", ranks), lambda: [(a, b, 1.0) for a in ranks for b in ranks if a != b])

    def _star(self, *, inward: bool) -> Load:
        """Return the load of messages from all others to the root, or from it."""
        ranks, root = self._key.ranks, self._key.ranks[self._key.root]
        others = [rank for rank in ranks if rank != root]
        return self._forms.load(
            ("star", ranks, root, inward),
            lambda: [(rank, root, 1.0) if inward else (root, rank, 1.0) for rank in others],
        )


class _Plain(_Form):
    """The algorithms of genie.collectives.lower, with one message a step."""

    def time_ps(self) -> float:
        key, forms, count = self._key, self._forms, self._members
        requested = forms.lowering.algorithms.get(key.op)
        if requested is not None and requested.startswith(PREFIX):
            raise WorkloadError(f"{key.op}: MSCCL's algorithms have no closed form: use level packet or flow")
        algorithm = choose(key.op, count, key.size_bytes, requested)
        if algorithm == "ring" and key.op in LONG_CHUNKS:
            phases = 2 if key.op == "all_reduce" else 1
            return phases * (count - 1) * self._takes(self.nearest, self._share_bytes, mean=True)
        doublings = [1 << at for at in range(ceil(log2(count)))]
        if key.op == "barrier":
            return sum(self._takes(self._round(away), 0) for away in doublings)
        if algorithm == "ring":  # a chain, in parts
            load, parts = self._round(1), chain_parts(count)
            part = key.size_bytes / parts
            return (count - 1) * self._takes(load, part, mean=True) + (parts - 1) * forms.wire(part) * load.byte_ps
        if algorithm == "binomial" and key.op == "reduce":  # children send one after another
            return sum(self._takes(self._round(away), key.size_bytes) for away in doublings)
        if algorithm == "binomial":
            # A parent sends to all of its children at once.
            deepest, sent = _binomial_rounds(count)
            takes = [self._takes(self._round(away), key.size_bytes) for away in doublings]
            share = sum(takes) / len(takes)
            return deepest * share + (sent - deepest) * forms.wire(key.size_bytes) * self._round(1).byte_ps
        if algorithm == HIERARCHICAL:
            local = members_per_node(key.ranks, forms.lowering.ranks_per_node)
            inside, between = self._round_of_nodes(local, inside=True), self._round_of_nodes(local, inside=False)
            inside_ps = self._takes(inside, key.size_bytes / local, mean=True)
            between_ps = self._takes(between, self._share_bytes, mean=True)
            return 2 * (local - 1) * inside_ps + 2 * (count // local - 1) * between_ps
        if algorithm == "pat":
            return sum(
                self._takes(self._towards(key.op, each.distance), each.blocks * self._share_bytes)
                for each in messages(key.op, count, whole_aggregation(count))
            )
        if algorithm == "recursive_doubling":
            # Each member beyond a power of two is first folded into another, and receives the result at the end.
            beyond = 2 if count & (count - 1) else 0
            used = doublings[: -1 if beyond else None]
            whole = sum(self._takes(self._round(away), key.size_bytes) for away in used)
            return whole + beyond * self._takes(self._round(1), key.size_bytes)
        if algorithm == "pairwise":  # each round waits for the acknowledgement of the one before
            rounds = [self._round(away) for away in range(1, count)]
            share = self._share_bytes
            return sum(self._takes(load, share, mean=True) + load.mean_delay_ps for load in rounds)
        load = self._star(inward=key.op == "gather") if key.op in ("gather", "scatter") else self._all()
        return self._takes(load, self._share_bytes)

    def _takes(self, load: Load, size_bytes: float, *, mean: bool = False) -> float:
        forms = self._forms
        return forms.alpha_ps(load, size_bytes, mean=mean) + forms.wire(size_bytes) * load.byte_ps


@cache
def _binomial_rounds(members: int) -> tuple[int, int]:
    """Return the hops of the slowest path through a binomial tree, and the messages that are sent along it."""

    def longest(place: int) -> tuple[int, int]:  # messages, hops
        reach = place & -place if place else 1 << (members - 1).bit_length()
        children = [place + (1 << bit) for bit in range(reach.bit_length() - 1) if place + (1 << bit) < members]
        if not children:
            return 0, 0
        messages, hops = max(longest(child) for child in children)
        return messages + len(children), hops + 1

    messages, hops = longest(0)
    return hops, messages


class _Nccl(_Form):
    """NCCL's messages, in slices: bandwidth hides latency, except where a chunk's next hop waits for a first slice."""

    def __init__(self, forms: ClosedForms, key: CostKey) -> None:
        super().__init__(forms, key)
        assert forms.lowering.nccl is not None
        self._shape = forms.lowering.nccl
        self._local = members_per_node(key.ranks, self._shape.ranks_per_node)
        self._nodes = self._members // self._local
        # Channels whose leaders share a host's port each have this part of its load.
        self._one = min(self._local, self._shape.channels)

    def time_ps(self) -> float:
        key, shape = self._key, self._shape
        choice = choose_nccl(key.op, self._members, key.size_bytes, shape, self._local)
        algorithm, costs = choice.algorithm, choice.costs
        if algorithm == P2P:
            outside_ps = costs.send_ps + self._messages() if self._nodes > 1 else 0.0
            return float(costs.start_ps + max(outside_ps, costs.finish_ps))
        if self._nodes < 2:
            return float(costs.finish_ps)
        if algorithm == PAT:
            return self._pat(choice)
        if algorithm in COLLNET:
            return self._collnet(choice)
        protocol = PROTOCOLS[choice.protocol]
        cut = cut_of(key.op, algorithm, protocol, shape.buffer_bytes)
        grows = protocol.wire_bytes / protocol.data_bytes
        ringed = algorithm == RING and key.op in LONG_CHUNKS
        rows = self._members if ringed else 1
        bytes_of_row = self._share_bytes if ringed else key.size_bytes
        per_channel = bytes_of_row / shape.channels
        chunk = min(float(cut.chunk_bytes), per_channel)
        slice_bytes = max(chunk / cut.slices, 1.0) * grows
        loops = max(ceil(per_channel / cut.chunk_bytes), 1)
        load = self._edges(algorithm if not ringed else RING, chain=not ringed and algorithm == RING)
        alpha_ps = self._forms.alpha_ps(load, slice_bytes, mean=True)
        # A channel's slice has the link alone; slices of the other channels wait behind it.
        hop_ps = alpha_ps + self._forms.wire(slice_bytes) * load.byte_ps * self._one + shape.slice_delay_ns * 1000
        per_kib = slice_bytes / 1024
        hop_ps += costs.send_ps + costs.receive_ps + costs.work_ps_per_kib * per_kib
        inside_ps = costs.hops * (costs.hop_ps + costs.hop_ps_per_kib * per_kib)
        volume = self._forms.wire(bytes_of_row * grows, slice_bytes) * load.byte_ps
        if ringed:
            phases = 2 if key.op == "all_reduce" else 1
            hops = phases * (rows - 1)
            crossed = hops * self._nodes / self._members
            hop_ps += inside_ps
            return costs.start_ps + max(hops * volume + hop_ps, loops * crossed * hop_ps) + alpha_ps + costs.finish_ps
        depth = self._nodes - 1 if algorithm == RING else 2 * ceil(log2(self._nodes + 1)) - 2
        ends_ps = costs.start_ps + inside_ps + costs.finish_ps
        return ends_ps + max(volume, (loops - 1) * hop_ps) + depth * hop_ps + alpha_ps

    def _pat(self, choice: Choice) -> float:
        """Return the time of PAT, in ps.

        A clear-to-send and a message of each distance follow one another. All other bytes of a member hide these
        latencies, unless each distance has one message only.
        """
        key, count, channels, costs = self._key, self._members, choice.channels, choice.costs
        channel_bytes = self._share_bytes / channels
        cut = pat_cut(key.op, ceil(self._share_bytes * count), channels, self._shape.buffer_bytes)
        sent = messages(key.op, count, aggregation(count, cut.chunk_bytes // max(ceil(channel_bytes), 1), STEPS))
        part = min(channel_bytes, cut.chunk_bytes)
        loads = {each.distance: self._towards(key.op, each.distance) for each in sent}
        latency_ps = sum(self._forms.alpha_ps(load, part) for load in loads.values())
        latency_ps += self._forms.alpha_ps(loads[sent[0].distance], CREDIT_BYTES)
        latency_ps += len(loads) * (costs.send_ps + costs.receive_ps + self._shape.slice_delay_ns * 1000)
        volume_ps = sum(
            self._forms.wire(each.blocks * self._share_bytes, max(each.blocks * part, 1.0))
            * loads[each.distance].byte_ps
            for each in sent
        )
        work_ps = (count - 1) * channel_bytes / 1024 * costs.work_ps_per_kib
        in_rounds = len(sent) == len(loads)
        return costs.start_ps + latency_ps + (volume_ps + work_ps if in_rounds else max(volume_ps, work_ps))

    def _collnet(self, choice: Choice) -> float:
        """Return the time of CollNet, in ps: all chunks one after another, and the words of its end."""
        key, costs, local = self._key, choice.costs, self._local
        cut = collnet_cut(choice.algorithm, key.size_bytes, choice.channels, local, self._shape.buffer_bytes)
        chunk = max(min(float(cut.chunk_bytes), key.size_bytes / choice.channels), 1.0)
        load = self._edges(RING, chain=False)
        per_kib = chunk / 1024
        hop_ps = self._forms.alpha_ps(load, chunk) + costs.send_ps + costs.receive_ps + costs.work_ps_per_kib * per_kib
        inside_ps = costs.hops * (costs.hop_ps + costs.hop_ps_per_kib * per_kib)
        words_ps = ceil(log2(self._nodes)) * self._forms.alpha_ps(load, 1)
        volume_ps = self._forms.wire(key.size_bytes, chunk) * load.byte_ps
        in_turn_ps = ceil(key.size_bytes / choice.channels / chunk / cut.window) * hop_ps
        return costs.start_ps + inside_ps + max(volume_ps + hop_ps, in_turn_ps) + words_ps + costs.finish_ps

    def _edges(self, algorithm: str, *, chain: bool) -> Load:
        """Return the load of one byte of the buffer on each link, of all channels together."""
        ranks, local, nodes, channels = self._key.ranks, self._local, self._nodes, self._shape.channels
        first = self._key.root // local

        def transfers() -> Transfers:
            for channel in range(channels):
                leader = channel % local
                for node in range(nodes):
                    at = ranks[node * local + leader]
                    after = (node + 1) % nodes
                    if algorithm == RING:
                        if not chain or after != first:
                            yield at, ranks[after * local + leader], 1 / channels
                        continue
                    up, _ = double_binary_tree(nodes, node, int(channel * 2 >= channels))
                    if up != NOBODY:
                        yield at, ranks[up * local + leader], 1 / channels
                        yield ranks[up * local + leader], at, 1 / channels

        name = ("nccl", algorithm, chain, ranks, local, channels, first if chain else 0)
        return self._forms.load(name, transfers)

    def _between_nodes(self) -> Transfers:
        """Yield the messages of grouped sends and receives that leave a node, each of one byte."""
        ranks, local, root = self._key.ranks, self._local, self._key.root
        for at, rank in enumerate(ranks):
            for to in range(len(ranks)) if self._key.op == "all_to_all" else (root,):
                if at // local != to // local:
                    yield (ranks[to], rank, 1.0) if self._key.op == "scatter" else (rank, ranks[to], 1.0)

    def _messages(self) -> float:
        """Return the time of grouped sends and receives, in ps."""
        key, local = self._key, self._local
        load = self._forms.load(("between nodes", key.op, key.root, key.ranks, local), self._between_nodes)
        relays = key.op == "all_to_all" and local > 1 and self._shape.pxn
        peers = self._nodes - 1 if relays else self._members - local
        chunk = float(message_chunk_bytes(int(self._share_bytes), self._shape.p2p_chunk_bytes))
        groups = ceil(peers / MESSAGES_AT_ONCE)  # each begins with its receivers' clear-to-sends
        latency_ps = 2 * groups * self._forms.alpha_ps(load, min(chunk, self._share_bytes))
        return latency_ps + self._forms.wire(self._share_bytes, max(chunk, 1.0)) * load.byte_ps
