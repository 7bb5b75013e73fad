"""The same messages, the same losses: once between two engines on loopback, once in the twin.

A data packet's number counts what one rank sends to the other, retransmissions included, from 0, in both worlds.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import genie_core
import numpy as np

from genie.config.spraying import set_spray

SEND, RECV = 3, 4
ACKNOWLEDGE = 0x11
NAK_KIND = 0x60
PS_PER_S = 1_000_000_000_000
DEADLINE_S = 60
TWIN_EVENTS = 1_000_000


@dataclass(frozen=True)
class Pattern:
    """Messages that each of two ranks sends the other, one when the one before is acknowledged, and what is lost."""

    sizes: tuple[tuple[int, ...], tuple[int, ...]]  # bytes, of each rank
    lost: tuple[tuple[int, ...], tuple[int, ...]]  # numbers of data packets, of each rank
    mtu_bytes: int
    window_packets: int
    ack_every_packets: int
    ack_timeout_s: float
    lose_every: int = 0
    spray: int = 1
    reordering: int | None = None  # of sprayed packets

    def config(self) -> genie_core.QueuePairConfig:
        out = genie_core.QueuePairConfig()
        out.mtu_bytes = self.mtu_bytes
        out.window_packets = self.window_packets
        out.ack_every_packets = self.ack_every_packets
        out.ack_timeout_ps = round(self.ack_timeout_s * PS_PER_S)
        set_spray(out, self.spray, self.reordering)
        return out


@dataclass(frozen=True)
class Play:
    """The packets of one rank."""

    data: list[tuple[int, int, int, bool]]  # opcode, PSN, payload bytes, lost
    naks: list[tuple[int, int]]  # PSN, syndrome
    counters: dict[str, int]


def sorted_out(trace: list[tuple[int, int, int, int, bool]], counters: dict[str, int]) -> Play:
    """`trace`: opcode, PSN, payload bytes, syndrome, lost."""
    return Play(
        [(opcode, psn, size, lost) for opcode, psn, size, _, lost in trace if opcode != ACKNOWLEDGE],
        [(psn, syndrome) for opcode, psn, _, syndrome, _ in trace if opcode == ACKNOWLEDGE and syndrome & NAK_KIND],
        counters,
    )


def add_rank(plan: genie_core.Plan, pattern: Pattern, rank: int) -> None:
    """Sends in a chain, receives side by side; message n has tag n + 1."""
    own, others = pattern.sizes[rank], pattern.sizes[1 - rank]
    count = len(own) + len(others)
    chain = [max(number - 1, 0) for number in range(len(own))]  # dependencies before each send
    starts = [*chain, *[len(own) - 1] * (len(others) + 1)] if own else [0] * (count + 1)
    table = plan.add_table(
        kind=np.array([SEND] * len(own) + [RECV] * len(others), np.uint8),
        slot=np.full(count, -1, np.int32),
        duration_ps=np.zeros(count, np.int64),
        release_ps=np.zeros(count, np.int64),
        size_bytes=np.array([*own, *others], np.int64),
        tag=np.array([*range(1, len(own) + 1), *range(1, len(others) + 1)], np.uint32),
        binding=np.zeros(count, np.int32),
        dep_start=np.array(starts, np.int32),
        deps=np.arange(max(len(own) - 1, 0), dtype=np.int32),
    )
    bindings = min(count, 1)
    plan.add_rank(
        rank,
        table,
        template_id=np.full(bindings, -1, np.int32),
        sizes_start=np.zeros(bindings, np.int64),
        group=np.full(bindings, -1, np.int32),
        position=np.zeros(bindings, np.int32),
        peer=np.full(bindings, 1 - rank, np.int32),
        tag_bits=np.zeros(bindings, np.uint32),
    )


def plan_of(pattern: Pattern, ranks: Sequence[int]) -> genie_core.Plan:
    plan = genie_core.Plan()
    plan.set_pools(np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.int32))
    for rank in ranks:
        add_rank(plan, pattern, rank)
    return plan


def play_twin(pattern: Pattern) -> tuple[Play, Play]:
    """Two hosts on one cable: 100 Gb/s and a millisecond, so that a window leaves before its first answer comes."""
    none = np.zeros(0, np.int32)
    paths = genie_core.ShortestPaths(2, none, none, none)  # hosts on one cable send by their last hops alone
    paths.add(none)
    network = genie_core.Network(
        hosts=2,
        nodes=2,
        frame_overhead_bytes=38,
        source=np.array([0, 1], np.int32),
        target=np.array([1, 0], np.int32),
        rate_bps=np.full(2, 100_000_000_000),
        delay_ps=np.full(2, PS_PER_S // 1000),
        buffer_bytes=np.full(2, -1),
        packet_latency_ps=np.zeros(2, np.int64),
        message_latency_ps=np.zeros(2, np.int64),
        queues=genie_core.QueueSettings(
            ecn_minimum_bytes=np.full(2, -1),
            ecn_maximum_bytes=np.zeros(2, np.int64),
            ecn_probability=np.zeros(2),
            shared_bytes=np.zeros(2, np.int64),
            headroom_bytes=np.zeros(2, np.int64),
        ),
        devices=genie_core.DeviceSettings(burst_bytes=np.zeros(2, np.int64), loss=np.zeros(2), retry_ps=np.full(2, -1)),
        routes=[
            genie_core.Routes(
                group_of_host=np.zeros(2, np.int32),
                hops=paths.take(),
                last_hop_start=np.arange(3),
                last_hops=np.array([1, 0], np.int32),
            )
        ],
    )
    plan = plan_of(pattern, (0, 1))
    simulator = genie_core.Simulator(network, pattern.config(), plan, np.array([0, 1], np.int32), 1)
    for rank in (0, 1):
        simulator.lose(rank, 1 - rank, pattern.lose_every, list(pattern.lost[rank]))
    simulator.keep_trace(True)
    simulator.start()
    assert not simulator.run(TWIN_EVENTS)
    assert simulator.done, simulator.problems()
    plays = []
    for rank in (0, 1):
        trace = [tuple(entry[3:]) for entry in simulator.trace() if entry[1] == rank]
        plays.append(sorted_out(trace, simulator.counters(rank)))
    return plays[0], plays[1]


class LiveRank:
    """An engine on its own address and in its own thread, unpaced: a window leaves before anything is received."""

    def __init__(self, pattern: Pattern, rank: int, addresses: list[str], port: int) -> None:
        self.rank = rank
        config, nic = genie_core.EngineConfig(), genie_core.NicConfig()
        nic.address, nic.port, nic.rkey = addresses[rank], port, 7
        config.rank, config.nic, config.queue_pair = rank, nic, pattern.config()
        config.message_max_bytes = max(4096, *pattern.sizes[0], *pattern.sizes[1])
        self.engine = genie_core.Engine(config)
        self.engine.open()
        self.engine.connect(
            [
                genie_core.Peer(
                    address=address,
                    qpns=[1 << 16 | rank],
                    first_psns=[0],
                    our_first_psns=[0],
                    source_ports=[0xC000 + rank * pattern.spray + at for at in range(pattern.spray)],
                    rkey=7,
                )
                for address in addresses
            ]
        )
        self.plan = plan_of(pattern, (rank,))
        self.engine.set_plan(self.plan)
        self.engine.keep_trace(True)
        self.engine.lose(1 - rank, pattern.lose_every, list(pattern.lost[rank]))
        self.state = "failed"
        self.finished = threading.Event()

    def play(self, peer: LiveRank) -> None:
        """Play, then answer the peer until it has finished too."""
        try:
            deadline_ps = self.engine.now_ps + DEADLINE_S * PS_PER_S
            self.state = self.engine.begin(self.engine.now_ps)
            if self.state != "failed":
                self.state = self.engine.run(deadline_ps)
        finally:
            self.finished.set()
        while not peer.finished.is_set():
            self.engine.serve(self.engine.now_ps + PS_PER_S // 200)

    def result(self) -> Play:
        assert self.state == "done", self.engine.error or self.engine.waiting()
        trace = [tuple(entry[2:]) for entry in self.engine.trace()]
        return sorted_out(trace, self.engine.counters())


def free_port(address: str) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def play_live(pattern: Pattern, block: int) -> tuple[Play, Play]:
    """`block`: which addresses of loopback to use, 0 to 255."""
    addresses = [f"127.91.{block}.{rank + 1}" for rank in (0, 1)]
    port = free_port(addresses[0])
    ranks = [LiveRank(pattern, rank, addresses, port) for rank in (0, 1)]
    threads = [threading.Thread(target=ranks[rank].play, args=(ranks[1 - rank],)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ranks[0].result(), ranks[1].result()
