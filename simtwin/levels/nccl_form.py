"""Closed forms of NCCL's messages.

A form follows one channel. Its first message passes all hops, and each further message follows after the longest of
three times. They are the work of the GPU on it, and the time of the most loaded link for the messages of all channels.
The third is a part of the round trip in which a window of messages is in flight.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from math import ceil, log2
from typing import NamedTuple

from genie.collectives.nccl.collnet import collnet_cut
from genie.collectives.nccl.messages import MESSAGES_AT_ONCE, P2P
from genie.collectives.nccl.shape import choose_nccl, played_channels, played_cut
from genie.collectives.nccl.sizes import (
    CHUNK_ALIGNMENT_BYTES,
    LONG_CHUNKS,
    PROTOCOLS,
    SLICES_MAX,
    STEPS,
    Cut,
    message_chunk_bytes,
    pat_cut,
)
from genie.collectives.nccl.steps import NOBODY, double_binary_tree
from genie.collectives.nccl.tuning import COLLNET, PAT, RING, Choice, Costs
from genie.collectives.pat import aggregation, messages
from genie.collectives.sizes import ELEMENT_BYTES, split
from genie.plan.lowering import members_per_node
from simtwin.levels.analytic import CostKey
from simtwin.levels.form import Form, Load, Rounds, Transfers

CREDIT_BYTES = 64  # of a clear-to-send
WORD_BYTES = 1
LEAST_SLICE = 1 / SLICES_MAX
TREE_LINK = 1.5  # messages on a link in a hop, mean: one goes up at a time, and a sum goes down to two children at once


class _Hop(NamedTuple):
    """Times of one message of a channel, in ps.

    `work`: of the GPU, one message after another. `link`: of the most loaded link for the message alone, and `links`
    for the messages of all channels. `latency`: all other time until the message has arrived. `round_trip`: after this
    time the next one of `window` messages in flight follows. `clear`: the time by which the first message of a
    collective waits longer for its clear-to-send than for its GPU.
    """

    work: float
    link: float
    links: float
    latency: float
    round_trip: float
    window: int
    clear: float

    @property
    def whole(self) -> float:
        """Time of the message from its GPU to the next one."""
        return self.work + self.link + self.latency

    @property
    def slot(self) -> float:
        """Time after which the next message of a channel can follow."""
        return max(self.work, self.links, self.round_trip / self.window)

    def others(self, messages: float, ahead: float = 0.0) -> float:
        """Return the time after the first message until the last of `messages` of each channel, in ps.

        `ahead`: the messages whose time on links is over by then.
        """
        trips_ps = ceil(messages - 1) // self.window * self.round_trip
        return max((messages - 1) * self.work, trips_ps, (messages - ahead) * self.links - self.link)


class NcclForm(Form):
    """The time of one collective with NCCL's choice of algorithm, protocol and channels."""

    def __init__(self, forms: Rounds, key: CostKey) -> None:
        super().__init__(forms, key)
        assert forms.lowering.nccl is not None
        self._shape = forms.lowering.nccl
        self._local = members_per_node(key.ranks, self._shape.ranks_per_node)
        self._choice = choose_nccl(key.op, self._members, key.size_bytes, self._shape, self._local)
        self._nodes = self._members // self._local

    def time_ps(self) -> float:
        choice, costs = self._choice, self._choice.costs
        if choice.algorithm == P2P:
            outside_ps = self._messages() if self._nodes > 1 else 0.0
            return float(costs.start_ps + max(outside_ps, costs.finish_ps))
        if self._nodes < 2:
            return float(costs.finish_ps)
        if choice.algorithm == PAT:
            return self._pat(choice)
        if choice.algorithm in COLLNET:
            return self._collnet(choice)
        if choice.algorithm == RING and self._key.op in LONG_CHUNKS:
            return self._ring(choice)
        return self._pipeline(choice)

    @property
    def last_acknowledgement_ps(self) -> float:
        if self._nodes < 2 or self._choice.algorithm in COLLNET:
            return super().last_acknowledgement_ps
        if self._choice.algorithm == P2P and self._groups:
            return self._load_of_messages.delay_ps
        costs = self._choice.costs
        if self._local == 1:
            return max(self.nearest.mean_delay_ps - costs.receive_ps, 0.0)
        between_ps = self._edges(RING, 1, chain=False).mean_delay_ps
        ends_ps = costs.receive_ps + costs.finish_ps + self._words_ps / 2
        return max(between_ps - ends_ps, self._among_members.mean_delay_ps)

    def with_costs(self, costs: Costs, slice_delay_ns: int) -> NcclForm:
        """Return the form of the same messages with other costs of GPUs."""
        form = copy(self)
        form._choice = replace(self._choice, costs=costs)
        form._shape = replace(self._shape, slice_delay_ns=slice_delay_ns)
        return form

    def _ring(self, choice: Choice) -> float:
        """Return the time of a ring, in ps: loops of rounds of slices, one loop after another.

        A block that a server has from another one leaves it as many rounds later as the server has members.
        """
        key, costs, shape, local = self._key, choice.costs, self._shape, self._local
        cut = played_cut(key.op, choice, shape, self._nodes, local, key.size_bytes)
        reduces = key.op == "all_reduce"
        shares = played_channels(key.op, choice, self._members, key.size_bytes if reduces else self._block_bytes)
        row_bytes = int(shares[0])
        if reduces:  # the blocks of a loop begin at whole lines
            row_bytes = ceil(row_bytes / self._members / CHUNK_ALIGNMENT_BYTES) * CHUNK_ALIGNMENT_BYTES
        loops = max(ceil(row_bytes / cut.chunk_bytes), 1)
        rounds = (2 if reduces else 1) * (self._members - 1)
        load = self._edges(RING, len(shares), chain=False)
        last_bytes = row_bytes - (loops - 1) * cut.chunk_bytes
        (full, full_slices), (last, slices) = (
            self._slices(chunk_bytes, load, len(shares), cut) for chunk_bytes in (cut.chunk_bytes, last_bytes)
        )
        # The next loop starts with the blocks that the last rounds but `local` bring.
        chain_ps = rounds // local * full.whole + (full_slices - 1) * full.slot
        loop_ps = max(rounds * full_slices * full.slot, chain_ps)
        chain_ps = ceil(rounds / local) * last.whole + (slices - 1) * last.slot
        # The first rounds bring a server's own blocks, which have no way through it. Blocks without bytes are not sent.
        whole_bytes = int(shares[0]) if reduces else self._share_bytes * self._members
        filled = whole_bytes / max(self._members * (row_bytes if reduces else self._block_bytes), 1)
        others_ps = last.others(max(rounds * filled, 1) * slices)
        last_ps = max(last.whole - self._inside_ps(last_bytes / slices) + others_ps, chain_ps)
        return costs.start_ps + self._words_ps + last.clear + (loops - 1) * loop_ps + last_ps + costs.finish_ps

    def _slices(self, chunk_bytes: int, load: Load, channels: int, cut: Cut) -> tuple[_Hop, int]:
        """Return the times of a slice of a ring's chunk, with its way through a server, and the number of slices."""
        slices = 1 if chunk_bytes <= cut.chunk_bytes / cut.slices * LEAST_SLICE else cut.slices
        window = cut.window * slices // cut.slices  # slices without bytes take their places
        hop = self._hop(chunk_bytes / slices, load, channels, window)
        return hop._replace(latency=hop.latency + self._inside_ps(chunk_bytes / slices)), slices

    def _pipeline(self, choice: Choice) -> float:
        """Return the time of a tree or a chain, in ps: the first chunk goes all the way, and the others follow."""
        key, costs, shape = self._key, choice.costs, self._shape
        cut = played_cut(key.op, choice, shape, self._nodes, self._local, key.size_bytes)
        shares = played_channels(key.op, choice, self._members, key.size_bytes)
        channel_bytes = max(int(shares[0]), 1)
        chained = choice.algorithm == RING
        load = self._edges(choice.algorithm, len(shares), chain=chained)
        chunk_bytes = min(cut.chunk_bytes, channel_bytes)
        hop = self._hop(chunk_bytes, load, len(shares), cut.window)
        chunks, ahead = channel_bytes / chunk_bytes, 0.0
        if chained:
            way_ps = (self._nodes - 1) * hop.whole
        else:  # the sum at the root is the last work on a chunk
            ring = self._edges(RING, len(shares), chain=False)
            hop = hop._replace(link=TREE_LINK * self._hop(chunk_bytes, ring, len(shares), cut.window).link)
            depth = (self._nodes - 1).bit_length()
            way_ps = 2 * depth * hop.whole - (depth - 1) * hop.work
            # Sums, half of a link's bytes, go up while the first chunk is on its way.
            ahead = min(chunks - 1, cut.window - 1, way_ps / max(hop.links, 1.0)) / 2
        ends_ps = costs.start_ps + self._words_ps + self._inside_ps(chunk_bytes) + hop.clear + costs.finish_ps
        return ends_ps + way_ps + hop.others(chunks, ahead)

    def _hop(self, data_bytes: float, load: Load, channels: int, window: int) -> _Hop:
        """Return the times of a message with so much data. `window`: messages of a channel in flight."""
        costs, protocol = self._choice.costs, PROTOCOLS[self._choice.protocol]
        size_bytes = ceil(data_bytes / protocol.data_bytes) * protocol.wire_bytes
        alpha_ps = self._forms.alpha_ps(load, size_bytes, mean=True)
        links_ps = self._forms.wire(size_bytes) * load.byte_ps * channels
        link_ps = links_ps / ceil(channels / self._local)  # channels of one leader share its port
        work_ps = size_bytes / 1024 * costs.work_ps_per_kib
        send_ps = costs.send_ps + self._shape.slice_delay_ns * 1000
        credit_ps = self._forms.alpha_ps(load, CREDIT_BYTES, mean=True)
        return _Hop(
            work=work_ps,
            link=link_ps,
            links=links_ps,
            latency=send_ps + alpha_ps + costs.receive_ps,
            round_trip=alpha_ps + link_ps + costs.receive_ps + credit_ps,
            window=window,
            clear=max(credit_ps - send_ps - work_ps, 0.0),
        )

    def _inside_ps(self, data_bytes: float) -> float:
        """Return the time of a message's data through a server, in ps."""
        costs, protocol = self._choice.costs, PROTOCOLS[self._choice.protocol]
        size_kib = data_bytes / protocol.data_bytes * protocol.wire_bytes / 1024
        return costs.hops * (costs.hop_ps + costs.hop_ps_per_kib * size_kib)

    @property
    def _words_ps(self) -> float:
        """Time of the words among the members of a server, at the start and at the end."""
        if self._local == 1:
            return 0.0
        return 2 * self._forms.alpha_ps(self._among_members, WORD_BYTES)

    @property
    def _among_members(self) -> Load:
        """Load of messages to the next member of a server; the first server stands for all."""
        members = self._key.ranks[: self._local]
        return self._forms.load(
            ("inside", members), lambda: [(rank, members[at - 1], 1.0) for at, rank in enumerate(members)]
        )

    @property
    def _block_bytes(self) -> int:
        """Bytes of the largest block of a member."""
        if self._key.op in ("all_gather", "gather"):
            return self._key.size_bytes
        return int(split(self._key.size_bytes, self._members)[0])

    def _pat(self, choice: Choice) -> float:
        """Return the time of PAT, in ps.

        All members send alike, so that a member gets a message when it would get its own. The messages of the first
        chunk of each block follow one another as in steps_of_pat(), and those of the other chunks follow them.
        """
        key, count, costs = self._key, self._members, choice.costs
        shares = played_channels(key.op, choice, count, self._block_bytes)
        channel_bytes = int(shares[0]) * self._share_bytes / self._block_bytes
        cut = pat_cut(key.op, self._block_bytes * count, len(shares), self._shape.buffer_bytes)
        sent = messages(key.op, count, aggregation(count, cut.chunk_bytes // max(int(shares[0]), 1), STEPS))
        chunk_bytes = min(channel_bytes, cut.chunk_bytes)
        hops: dict[tuple[int, int], _Hop] = {}
        came: dict[int, float] = {}  # by offset
        ready = working = linked = arrived = links_ps = busy_ps = 0.0
        for far, stride, blocks, distance in sent:
            if (distance, blocks) not in hops:
                load = self._towards(key.op, distance)
                hops[distance, blocks] = self._hop(blocks * chunk_bytes, load, len(shares), cut.window)
            hop = hops[distance, blocks]
            near = far - distance
            source, target = (near, far) if key.op == "all_gather" else (far, near)
            ready = max([ready, *(came.get(source + at * stride, 0.0) for at in range(blocks))])
            working = max(working, ready) + hop.work
            linked = max(linked, working) + hop.link
            arrived = linked + hop.latency
            links_ps, busy_ps = links_ps + hop.links, busy_ps + hop.slot
            for at in range(blocks):
                came[target + at * stride] = max(came.get(target + at * stride, 0.0), arrived)
        first = hops[sent[0].distance, sent[0].blocks]
        arrived = max(arrived + hop.links - hop.link, first.work + links_ps + hop.latency)
        return costs.start_ps + first.clear + arrived + (channel_bytes / max(chunk_bytes, 1) - 1) * busy_ps

    def _collnet(self, choice: Choice) -> float:
        """Return the time of CollNet, in ps: all chunks one after another, and the words of its end."""
        key, costs = self._key, choice.costs
        shares = played_channels(key.op, choice, self._members, key.size_bytes)
        cut = collnet_cut(choice.algorithm, key.size_bytes, len(shares), self._local, self._shape.buffer_bytes)
        channel_bytes = max(int(shares[0]), 1)
        chunk_bytes = min(cut.chunk_bytes, channel_bytes)
        load = self._edges(RING, len(shares), chain=False)
        hop = self._hop(chunk_bytes, load, len(shares), cut.window)
        hop = hop._replace(round_trip=hop.whole)  # a chunk leaves once an earlier sum is back
        words_ps = ceil(log2(self._nodes)) * self._forms.alpha_ps(load, WORD_BYTES)
        chunks_ps = self._inside_ps(chunk_bytes) + hop.whole + hop.others(channel_bytes / chunk_bytes)
        return costs.start_ps + self._words_ps + chunks_ps + words_ps + costs.finish_ps

    def _edges(self, algorithm: str, channels: int, *, chain: bool) -> Load:
        """Return the load of one byte of the buffer on each link, of all channels together."""
        ranks, local, nodes = self._key.ranks, self._local, self._nodes
        first = self._key.root // local
        last = first if self._key.op == "reduce" else (first - 1) % nodes  # it has no edge of a chain

        def transfers() -> Transfers:
            for channel in range(channels):
                leader = channel % local
                for node in range(nodes):
                    at = ranks[node * local + leader]
                    after = (node + 1) % nodes
                    if algorithm == RING:
                        if not chain or node != last:
                            yield at, ranks[after * local + leader], 1 / channels
                        continue
                    up, _ = double_binary_tree(nodes, node, int(channel * 2 >= channels))
                    if up != NOBODY:
                        yield at, ranks[up * local + leader], 1 / channels
                        yield ranks[up * local + leader], at, 1 / channels

        name = ("nccl", algorithm, chain, ranks, local, channels, last if chain else 0)
        return self._forms.load(name, transfers)

    # -- grouped sends and receives --------------------------------------------------------------------------

    def _messages(self) -> float:
        """Return the time of grouped sends and receives, in ps.

        One group of messages starts when the one before is over. The receivers of a group clear it to send.
        """
        key, costs, relays = self._key, self._choice.costs, self._relays
        load = self._load_of_messages
        chunk = min(int(message_chunk_bytes(self._block_bytes, self._shape.p2p_chunk_bytes)), self._block_bytes)
        arrives_ps, credit_ps = self._forms.alpha_ps(load, chunk), self._forms.alpha_ps(load, CREDIT_BYTES)
        begins_ps, groups = max(credit_ps, costs.send_ps), self._groups
        if not groups:
            return 0.0
        # A group of receives alone waits for the receiver's clear-to-send, as its senders have begun with the first
        # group. A scatter's messages have all been cleared at the start.
        received_ps = credit_ps + arrives_ps
        sent_ps = (costs.send_ps if key.op == "scatter" else begins_ps) + arrives_ps + load.delay_ps
        sends = self._groups_with_sends - 1
        turns_ps = sends * sent_ps + (groups - 1 - sends) * received_ps
        volume_ps = self._forms.wire(self._block_bytes, max(chunk, 1)) * load.byte_ps
        words_ps = self._words_ps if relays else 0.0
        return words_ps + begins_ps + arrives_ps + turns_ps + volume_ps

    @property
    def _load_of_messages(self) -> Load:
        key = self._key
        name = ("between nodes", key.op, key.root, key.ranks, self._local, self._relays)
        return self._forms.load(name, self._between)

    @property
    def _relays(self) -> bool:
        """Whether messages leave a server by the NIC on the receiver's rail."""
        return self._key.op == "all_to_all" and self._local > 1 and self._shape.pxn

    def _between(self) -> Transfers:
        """Yield the messages that leave a node, each of one byte."""
        ranks, local, root = self._key.ranks, self._local, self._key.root
        for at, rank in enumerate(ranks):
            for to in range(len(ranks)) if self._key.op == "all_to_all" else (root,):
                if at // local != to // local:
                    source = ranks[at // local * local + to % local] if self._relays else rank
                    yield (ranks[to], rank, 1.0) if self._key.op == "scatter" else (source, ranks[to], 1.0)

    @property
    def _filled(self) -> int:
        """Number of blocks with bytes, which are the first ones."""
        return min(ceil(self._key.size_bytes / ELEMENT_BYTES), self._members)

    @property
    def _groups(self) -> int:
        """Number of groups of messages that a member sends or gets, one after another."""
        outside = self._nodes - 1 if self._relays else self._members - self._local
        if self._key.op == "scatter":  # only blocks with bytes are sent
            inside = self._filled - self._key.root // self._local * self._local
            outside = self._filled - min(max(inside, 0), self._local)
        return ceil(outside / MESSAGES_AT_ONCE)

    @property
    def _groups_with_sends(self) -> int:
        """Number of those groups in which a member that gets messages sends some."""
        if self._key.op == "all_to_all":
            filled = ceil(self._filled / self._local) if self._relays else self._filled
            return min(ceil((filled - 1) / MESSAGES_AT_ONCE) + 1, self._groups)
        return 1 if self._key.op == "gather" else self._groups
