"""Genie's own closed forms: alpha and beta of each round of an algorithm on a given fabric.

A round is a set of messages that are sent at once. Its time is the longest latency of their routes, plus the time in
which the most loaded link sends its part of their bytes. Headers are included. Around a ring the latency is the mean of
the routes, as a member ahead waits for no other. Equally short routes carry even parts. Rounds follow one another;
pipelined parts of an algorithm share their latency. The network carries nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from math import ceil, log2

import genie_core
import numpy as np
from numpy.typing import NDArray

from genie.collectives.algorithms import chain_parts
from genie.collectives.lower import HIERARCHICAL, choose
from genie.collectives.msccl.algorithm import PREFIX
from genie.collectives.nccl.sizes import LONG_CHUNKS
from genie.collectives.pat import messages, whole_aggregation
from genie.plan.lowering import Lowering, members_per_node
from genie.workload.graph import WorkloadError
from simtwin.fabric.frames import frames_of
from simtwin.fabric.routing import Routes
from simtwin.fabric.schema import Fabric
from simtwin.fabric.topology import Network
from simtwin.levels.analytic import MESSAGE, CostKey
from simtwin.levels.form import Form, Load, Transfers
from simtwin.levels.nccl_form import NcclForm


class ClosedForms:
    """A cost model of collectives on a fabric, with the algorithms of `lowering`."""

    def __init__(
        self, fabric: Fabric, network: Network, routes: Routes, host_of_rank: Sequence[int], lowering: Lowering
    ) -> None:
        self._fabric, self._network = fabric, network
        self._host, self._lowering = host_of_rank, lowering
        self._frames = frames_of(fabric)
        self._shares = genie_core.EvenShares(
            network.nodes,
            network.src_node,
            network.dst_node,
            network.rate_bps,
            network.delay_ps,
            routes.native(),
            own_rate_bps=_own_rates_bps(network),
        )
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
        is_nccl = self._lowering.nccl is not None and key.op != "barrier"
        form: Form = NcclForm(self, key) if is_nccl else _Plain(self, key)
        time_ps = form.time_ps()
        return round(time_ps + form.last_acknowledgement_ps) if time_ps else 0

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


class _Plain(Form):
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
