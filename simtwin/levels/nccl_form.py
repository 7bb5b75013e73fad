"""Closed forms of NCCL's messages."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from math import ceil, log2

from genie.collectives.nccl.collnet import collnet_cut
from genie.collectives.nccl.messages import MESSAGES_AT_ONCE, P2P
from genie.collectives.nccl.shape import choose_nccl, played_cut
from genie.collectives.nccl.sizes import LONG_CHUNKS, PROTOCOLS, STEPS, cut_of, message_chunk_bytes, pat_cut
from genie.collectives.nccl.steps import NOBODY, double_binary_tree
from genie.collectives.nccl.tuning import COLLNET, PAT, RING, Choice, Costs
from genie.collectives.pat import aggregation, messages
from genie.plan.lowering import members_per_node
from simtwin.levels.analytic import CostKey
from simtwin.levels.form import Form, Load, Rounds, Transfers

CREDIT_BYTES = 64  # of a clear-to-send


class NcclForm(Form):
    """NCCL's messages, in slices: bandwidth hides latency, except where a chunk's next hop waits for a first slice."""

    def __init__(self, forms: Rounds, key: CostKey) -> None:
        super().__init__(forms, key)
        assert forms.lowering.nccl is not None
        self._shape = forms.lowering.nccl
        self._local = members_per_node(key.ranks, self._shape.ranks_per_node)
        self._choice = choose_nccl(key.op, self._members, key.size_bytes, self._shape, self._local)
        self._nodes = self._members // self._local
        self._as_played = False
        # Channels whose leaders share a host's port each have this part of its load.
        self._one = min(self._local, self._shape.channels)

    def time_ps(self) -> float:
        key, shape, choice = self._key, self._shape, self._choice
        algorithm, costs = choice.algorithm, choice.costs
        if algorithm == P2P:
            # One group of messages after another. Only a root that sends has several.
            turns = self._groups if self._as_played and key.op != "gather" else 1
            outside_ps = turns * costs.send_ps + self._messages() if self._nodes > 1 else 0.0
            return float(costs.start_ps + max(outside_ps, costs.finish_ps))
        if self._nodes < 2:
            return float(costs.finish_ps)
        if algorithm == PAT:
            return self._pat(choice)
        if algorithm in COLLNET:
            return self._collnet(choice)
        protocol = PROTOCOLS[choice.protocol]
        cut = cut_of(key.op, algorithm, protocol, shape.buffer_bytes)
        if self._as_played:
            cut = played_cut(key.op, choice, shape, self._nodes, self._local, key.size_bytes)
        grows = protocol.wire_bytes / protocol.data_bytes
        ringed = algorithm == RING and key.op in LONG_CHUNKS
        rows = self._members if ringed else 1
        bytes_of_row = self._share_bytes if ringed else key.size_bytes
        per_channel = bytes_of_row / (choice.channels if self._as_played else shape.channels)
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
        turn_ps = hop_ps
        if self._as_played:
            beyond = per_channel * grows - (0 if ringed else slice_bytes)  # a hop has the work on the first slice
            volume = max(volume, beyond / 1024 * costs.work_ps_per_kib)
            turn_ps = hop_ps / cut.window
        if ringed:
            phases = 2 if key.op == "all_reduce" else 1
            hops = phases * (rows - 1)
            crossed = hops * self._nodes / self._members
            hop_ps += inside_ps
            return costs.start_ps + max(hops * volume + hop_ps, loops * crossed * hop_ps) + alpha_ps + costs.finish_ps
        depth = self._nodes - 1 if algorithm == RING else 2 * ceil(log2(self._nodes + 1)) - 2
        ends_ps = costs.start_ps + inside_ps + costs.finish_ps
        return ends_ps + max(volume, (loops - 1) * turn_ps) + depth * hop_ps + alpha_ps

    def with_costs(self, costs: Costs, slice_delay_ns: int, *, as_played: bool) -> NcclForm:
        """Return the form of the same messages with other costs of GPUs.

        `as_played`: as at the levels packet and flow. A channel works on all of its bytes, a window of chunks hides
        the latency of a tree, and groups of messages take turns. Level analytic leaves these out.
        """
        form = copy(self)
        form._choice = replace(self._choice, costs=costs)
        form._shape = replace(self._shape, slice_delay_ns=slice_delay_ns)
        form._as_played = as_played
        return form

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

    @property
    def _groups(self) -> int:
        """Number of groups of messages that a member sends at once."""
        relays = self._key.op == "all_to_all" and self._local > 1 and self._shape.pxn
        return ceil((self._nodes - 1 if relays else self._members - self._local) / MESSAGES_AT_ONCE)

    def _messages(self) -> float:
        """Return the time of grouped sends and receives, in ps."""
        key, local = self._key, self._local
        load = self._forms.load(("between nodes", key.op, key.root, key.ranks, local), self._between_nodes)
        chunk = float(message_chunk_bytes(int(self._share_bytes), self._shape.p2p_chunk_bytes))
        # Each group begins with its receivers' clear-to-sends.
        latency_ps = 2 * self._groups * self._forms.alpha_ps(load, min(chunk, self._share_bytes))
        return latency_ps + self._forms.wire(self._share_bytes, max(chunk, 1.0)) * load.byte_ps
