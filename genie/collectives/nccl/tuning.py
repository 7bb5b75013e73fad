"""NCCL's choice of algorithm and protocol, and what a step costs on GPUs.

The constants are in `tuning.toml`, by NCCL version and by GPU. NCCL's own model adds up latencies and divides by a bus
bandwidth, and takes the least time. Genie uses the model for the choice alone. The time follows from the messages on
the network, and from the costs of GPUs: the same latencies without the network's.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from math import inf, log2
from pathlib import Path
from typing import Any

from genie.collectives.lower import LoweringError
from genie.collectives.nccl.sizes import over_channels

RING, TREE, NVLS, NVLS_TREE, PAT = "ring", "tree", "nvls", "nvlstree", "pat"
COLLNET_DIRECT, COLLNET_CHAIN = "collnetdirect", "collnetchain"
LL, LL128, SIMPLE = "ll", "ll128", "simple"
PROTOCOLS = (LL, LL128, SIMPLE)  # in the order of the constants
NEWEST = "2.30"
# NCCL's latency of a step over the network contains the network's own, which is left out of a GPU's costs. The vendor's
# machines are taken to have two cables and a switch, of 600 ns each way.
NETWORK_NS = 1200
KIB = 1024
LL128_SHARE, TREE_SHARE, TREE_LL_SHARE = 120 / 128, 0.92, 1 / 3.8
RING_LL128_SHARE = 0.92
PLATEAU_MIN_BYTES = 64  # of a channel's share of a rank
NVLS_RATIO, NVLS_BEFORE = 5 / 6, "2.27"  # earlier versions count NVLS by this ratio
THREADS = {LL: 512, LL128: 640, SIMPLE: 512}  # of a channel, at most
THREAD_BYTES = {LL: 8, LL128: 8, SIMPLE: 64}  # that justify a thread; LL in a ring: for each rank
LL_CHANNELS = 24  # that reach a server's bandwidth of LL: NVLink's, with 4 or 8 H100
EVEN_BEFORE = "2.22"
SIMPLE_OVERHEADS = 3  # posts of a step of the protocol Simple
SCATTERED = ("all_gather", "reduce_scatter")  # operations with a block of each member
COLLNET = (COLLNET_DIRECT, COLLNET_CHAIN)
ONLY_SIMPLE = (NVLS, NVLS_TREE, PAT, *COLLNET)
SAME_GENERATION = {"a100-40": "a100", "h800": "h100", "h20": "h100"}  # GPUs without costs of their own
COLLNET_MEMBERS_MAX = 8  # of a server
COLLNET_THREAD_BYTES, COLLNET_THREADS = 512, 640  # that justify a thread of CollnetChain, and threads of a channel
COLLNET_BUS_SHARE, COLLNET_DIRECT_SHARE = 0.5, 0.85  # of the bandwidth; the latter from Hopper on


@dataclass(frozen=True)
class Gpu:
    """A GPU as NCCL's model has it."""

    name: str
    generation: str
    scale_up_gb_per_s: float
    nvls: bool


@dataclass(frozen=True)
class Server:
    """GPUs and NICs of the servers of a job. Rates are in GB/s, which are bytes per ns.

    `scale_up_gb_per_s`: of a GPU to the others of its server, one direction. `nic_gb_per_s`: of the NICs of a rank.
    """

    gpu: str
    version: str
    scale_up_gb_per_s: float
    nic_gb_per_s: float

    def __post_init__(self) -> None:
        if self.gpu not in gpus():
            alike = SAME_GENERATION.get(self.gpu)
            advice = f"; give {alike}, of the same generation, and domain.rate as on {self.gpu}" if alike else ""
            raise LoweringError(
                f"GPU {self.gpu!r}: NCCL's costs on it are not known; known: {', '.join(gpus())}{advice}"
            )
        if self.version not in versions():
            raise LoweringError(f"NCCL {self.version}: its constants are not known; known: {', '.join(versions())}")


@dataclass(frozen=True)
class Costs:
    """Times of a collective on GPUs, beside those of its messages on the network. Times are in ps.

    start: from the call until the first step. hop: from a GPU of a server to the next one, fixed and for each KiB of a
    message. send, receive: of a message that leaves the server, at its two ends. work: of a channel for each KiB that
    it sends. finish: from the last message of a server to the end on its other GPUs. hops: through a server.
    """

    start_ps: int = 0
    hop_ps: int = 0
    hop_ps_per_kib: int = 0
    send_ps: int = 0
    receive_ps: int = 0
    work_ps_per_kib: int = 0
    finish_ps: int = 0
    hops: int = 0


NO_COSTS = Costs()


@dataclass(frozen=True)
class Choice:
    """Algorithm, protocol and greatest number of channels of a collective, and its costs on GPUs."""

    algorithm: str
    protocol: str
    channels: int
    costs: Costs = NO_COSTS
    even: bool = False  # each channel has an even share, as before NCCL 2.22


@cache
def constants() -> dict[str, Any]:
    """The tables of `tuning.toml`."""
    return tomllib.loads((Path(__file__).with_name("tuning.toml")).read_text(encoding="utf-8"))


@cache
def gpus() -> dict[str, Gpu]:
    """GPUs by name."""
    return {
        name: Gpu(name, row["generation"], float(row["scale_up_gb_per_s"]), bool(row["nvls"]))
        for name, row in constants()["gpu"].items()
    }


def versions() -> tuple[str, ...]:
    """Known NCCL versions, the newest last."""
    return tuple(constants()["nccl"])


@dataclass(frozen=True)
class _Candidate:
    algorithm: str
    protocol: str
    latency_us: float
    algorithm_gb_per_s: float  # size of the collective over its time

    def time_us(self, size_bytes: int) -> float:
        return self.latency_us + size_bytes / (1000 * self.algorithm_gb_per_s)


@dataclass(frozen=True)
class Tuner:
    """NCCL's model for one operation of `members`, `local` of them on each server.

    `links_limit`: whether the links inside servers have a rate.
    """

    server: Server
    op: str
    members: int
    local: int
    channels: int
    links_limit: bool = True

    def __post_init__(self) -> None:
        if self.local > 1 and not gpus()[self.server.gpu].scale_up_gb_per_s:
            raise LoweringError(f"GPU {self.server.gpu}: has a server of its own; this one has {self.local} of them")

    @property
    def nodes(self) -> int:
        """Number of servers."""
        return self.members // self.local

    def plays(self, algorithm: str) -> bool:
        """Whether NCCL has the algorithm for this operation and these servers."""
        if algorithm in (NVLS, NVLS_TREE):
            able = gpus()[self.server.gpu].nvls and self.op == "all_reduce" and self.local > 1
            return able and (self.nodes == 1) == (algorithm == NVLS)
        if algorithm == PAT:  # for one GPU a server
            return self.op in SCATTERED and self.local == 1 and PAT in constants()["nccl"][self.server.version]
        if algorithm in COLLNET:
            return self.op == "all_reduce" and self.nodes > 1 and self.local <= COLLNET_MEMBERS_MAX
        return algorithm == RING or (algorithm == TREE and self.nodes > 1)

    @property
    def scale_up_gb_per_s(self) -> float:
        """Bandwidth of a GPU inside its server, one direction."""
        if not self.links_limit:
            return inf
        return min(self.server.scale_up_gb_per_s, gpus()[self.server.gpu].scale_up_gb_per_s)

    def choose(self, size_bytes: int, algorithms: tuple[str, ...], protocols: tuple[str, ...]) -> Choice:
        """Return the choice of least time. Raises LoweringError if nothing is allowed.

        `size_bytes`: of the largest buffer, which for an all-gather has the blocks of all members.
        """
        found = [
            each
            for name in algorithms
            for protocol in protocols
            if (each := self._candidate(name, protocol, size_bytes)) is not None
        ]
        if not found:
            raise LoweringError(
                f"{self.op}: NCCL {self.server.version} has no algorithm among {', '.join(algorithms)} "
                f"with protocol {' or '.join(protocols)}"
            )
        return self._choice(min(found, key=lambda each: each.time_us(size_bytes)), size_bytes)

    def choose_only(self, size_bytes: int, algorithm: str, protocol: str, channels: int) -> Choice | None:
        """Return this choice; None where it is not available. `channels`: below 1, NCCL's own number."""
        found = self._candidate(algorithm, protocol, size_bytes)
        return None if found is None else self._choice(found, size_bytes, channels)

    def _choice(self, best: _Candidate, size_bytes: int, channels: int = 0) -> Choice:
        even = _is_before(self.server.version, EVEN_BEFORE)
        used = channels if channels > 0 else self._used(best, size_bytes, even)
        return Choice(best.algorithm, best.protocol, used, self._costs(best, size_bytes, used), even)

    def _used(self, best: _Candidate, size_bytes: int, even: bool) -> int:
        """Return the number of channels: each thread of a channel has a least number of bytes."""
        if best.algorithm in (NVLS, NVLS_TREE, COLLNET_DIRECT):
            return self.channels
        if best.algorithm == COLLNET_CHAIN:
            return min(self.channels, max(size_bytes // (COLLNET_THREADS * COLLNET_THREAD_BYTES), 1))
        least = THREADS[best.protocol] * THREAD_BYTES[best.protocol]
        if best.algorithm == RING and best.protocol == LL:
            least *= self.members
        most = min(self.channels, max(size_bytes // least, 1))
        if even:
            return most
        block_bytes, crossings = size_bytes, 2 if self.op == "all_reduce" else 1
        if self.op in SCATTERED:
            block_bytes, crossings = -(-size_bytes // self.members), self.members
        return max(len(over_channels(block_bytes, most, crossings)), 1)

    def _candidate(self, algorithm: str, protocol: str, size_bytes: int) -> _Candidate | None:
        if not self.plays(algorithm) or (algorithm in ONLY_SIMPLE and protocol != SIMPLE):
            return None
        bandwidth = self._bandwidth(algorithm, protocol, size_bytes)
        return _Candidate(algorithm, protocol, self._latency_us(algorithm, protocol, size_bytes), bandwidth)

    def _constant(self, table: str, algorithm: str, protocol: str) -> float:
        if algorithm in COLLNET:
            return float(constants()["collnet"][table][algorithm])
        return float(constants()["nccl"][self.server.version][table][algorithm][PROTOCOLS.index(protocol)])

    def _measured(self, table: str, best: _Candidate) -> float:
        """Return the constant of a step that measurements have shown; 0 where the model's own holds."""
        found = constants()["measured"].get(gpus()[self.server.gpu].generation, {}).get(table, {})
        return float(found.get(f"{best.algorithm}_{best.protocol}", 0.0))

    def _limit(self, name: str) -> float:
        """Return a limit of a channel, in GB/s."""
        generation = constants()["generation"][gpus()[self.server.gpu].generation]
        return float(generation[name][min(self.nodes, 3) - 1])

    @property
    def _steps(self) -> tuple[int, int]:
        """All steps of a ring, and those over the network."""
        phases = 2 if self.op == "all_reduce" else 1
        count = self.members - 1 if self.op in ("all_reduce", "all_gather", "reduce_scatter") else self.members
        over_network = self.nodes - 1 if self.nodes > 1 else 0
        return phases * count, phases * over_network

    def scale_up_us(self, algorithm: str, protocol: str) -> float:
        """Return the latency of a step inside a server."""
        scale_up = self._constant("scale_up_us", algorithm, protocol)
        if self.nodes == 1 or algorithm != RING:
            return scale_up
        posts = float(constants()["nccl"][self.server.version]["network_overhead_us"])
        return max(scale_up, posts * (SIMPLE_OVERHEADS if protocol == SIMPLE else 1))

    def network_us(self, algorithm: str, protocol: str) -> float:
        """Return the latency of a step over the network; with one rank a server it is always the tree's."""
        alone = self.local == 1 and algorithm in (RING, PAT, *COLLNET)
        return self._constant("network_us", TREE if alone else algorithm, protocol)

    def _pat(self) -> dict[str, float]:
        found: dict[str, float] = constants()["nccl"][self.server.version][PAT]
        return found

    def _latency_us(self, algorithm: str, protocol: str, size_bytes: int) -> float:
        network = self.network_us(algorithm, protocol)
        if algorithm == PAT:
            pat = self._pat()
            depth = int(log2(self.nodes))
            return pat["start_us"] + depth * network / pat["rounds_at_once"] + self.members * pat["member_us"]
        start = self._constant("start_us", algorithm, protocol)
        scale_up = self.scale_up_us(algorithm, protocol)
        if algorithm == RING:
            steps, over_network = self._steps
            latency = start + (steps - over_network) * scale_up + over_network * network
            return latency * self._plateau(protocol, size_bytes)
        depth = int(log2(self.nodes))
        if algorithm == TREE:
            return start + 2 * ((self.local - 1) * scale_up + depth * network)
        if algorithm in COLLNET:
            hops, hop_us = self._hops_to_switch(algorithm)
            return start + 2 * hops * hop_us + network
        return start + scale_up + 2 * depth * network

    def _hops_to_switch(self, algorithm: str) -> tuple[int, float]:
        """Return the hops of CollNet between a server's GPUs and the one that sends, and the time of one in us."""
        others = self.local - 1
        hop_us = self.scale_up_us(algorithm, SIMPLE) + others * self._constant("member_us", algorithm, SIMPLE)
        return others if algorithm == COLLNET_CHAIN else min(others, 1), hop_us

    def _plateau(self, protocol: str, size_bytes: int) -> float:
        """Return the factor of a ring's latencies, whose slices wait for a place in the buffers of the next ones."""
        small = size_bytes / (self.channels * self.members) < PLATEAU_MIN_BYTES
        if self.op != "all_reduce" or protocol != SIMPLE or self.nodes == 1 or small:
            return 1.0
        return float(constants()["nccl"][self.server.version]["plateau"])

    def _hop_ns_per_kib(self, best: _Candidate, used: int) -> float:
        """Return the time of a KiB from a GPU to the next one.

        All steps of a ring move at the pace of its slowest one, and a chunk passes a GPU as a whole. NCCL's model
        therefore counts every step at the bandwidth of the bus.
        """
        own = KIB / self._channel_gb_per_s(best.algorithm, best.protocol)
        if best.algorithm != RING:
            return own
        slices = 2 if best.protocol == SIMPLE else 1
        return max(own, slices * KIB * used / self._bus(RING, best.protocol))

    def _bus(self, algorithm: str, protocol: str) -> float:
        """Return the bus bandwidth of all channels, in GB/s."""
        inside = self.scale_up_gb_per_s
        bus = inside if self.nodes == 1 else min(inside, self.server.nic_gb_per_s * self.local)
        if self.local == 1:
            bus = self.server.nic_gb_per_s
        ll = self._ll()
        if algorithm == RING:
            if protocol == LL:
                return min(ll, bus * float(constants()["nccl"][self.server.version]["ring_ll_share"]))
            if protocol == LL128:
                return min(bus * RING_LL128_SHARE, self.channels * self._limit("ring_ll128_channel_gb_per_s"))
            return bus
        if algorithm == PAT:
            return bus * self._pat()["bus_share"]
        if algorithm == TREE:
            bus = min(bus * TREE_SHARE, self.channels * self._limit("tree_channel_gb_per_s"))
            if protocol == LL:
                return min(bus * TREE_LL_SHARE, ll)
            if protocol == LL128:
                return min(bus * LL128_SHARE, self.channels * self._limit("tree_ll128_channel_gb_per_s"))
            return bus
        if algorithm in COLLNET:
            return inside if self.local > 1 else bus
        if algorithm == NVLS:
            return self._nvls()
        between = self.server.nic_gb_per_s * self.local
        if _is_before(self.server.version, NVLS_BEFORE):
            return min(inside, between if self.nodes <= 2 else between / 2)
        limit = self.channels * self._limit("nvls_tree_channel_gb_per_s")
        return min(self._nvls(), between * (2 if self.nodes <= 2 else 1), limit)

    def _nvls(self) -> float:
        """Return the bandwidth at which a server's switch reduces, in GB/s of the bus."""
        generation = constants()["generation"][gpus()[self.server.gpu].generation]
        return 2 * self.scale_up_gb_per_s * float(generation["nvls_efficiency"]) * (self.local - 1) / self.local

    def _ll(self) -> float:
        version = constants()["nccl"][self.server.version]
        if self.nodes == 1:
            return float(constants()["generation"][gpus()[self.server.gpu].generation]["ll_single_gb_per_s"])
        return float(version["ll_gb_per_s"][min(self.nodes, 3) - 1])

    def _bandwidth(self, algorithm: str, protocol: str, size_bytes: int) -> float:
        """Return bytes of the collective's size per ns."""
        bus = self._bus(algorithm, protocol)
        if algorithm == RING:
            return bus * self.members / max(self._steps[0], 1)
        if algorithm == PAT:
            return bus
        if algorithm == TREE:
            factors = constants()["nccl"][self.server.version]["tree_factors"][PROTOCOLS.index(protocol)]
            at = max(size_bytes >> 6, 1).bit_length() - 1
            return bus / 2 * (float(factors[at]) if at < len(factors) else 1.0)
        if algorithm in COLLNET:
            slower = algorithm == COLLNET_DIRECT and gpus()[self.server.gpu].generation != "ampere"
            return bus * COLLNET_BUS_SHARE * (COLLNET_DIRECT_SHARE if slower else 1.0)
        return bus * (NVLS_RATIO if _is_before(self.server.version, NVLS_BEFORE) else self.members / self._steps[0])

    def _costs(self, best: _Candidate, size_bytes: int, used: int) -> Costs:
        algorithm, protocol = best.algorithm, best.protocol
        if algorithm == PAT:
            return self._costs_of_pat(size_bytes, used)
        if self.nodes == 1:
            return Costs(finish_ps=_ps(best.time_us(size_bytes)))
        scale_up = self.scale_up_us(algorithm, protocol)
        network = self._measured("network_us", best) or self.network_us(algorithm, protocol)
        if algorithm == RING:
            scale_up, network = (each * self._plateau(protocol, size_bytes) for each in (scale_up, network))
        wire = {LL: 2.0, LL128: 128 / 120, SIMPLE: 1.0}[protocol]
        inside = KIB / self._channel_gb_per_s(algorithm, protocol)
        work = inside
        if bus := self._measured("bus_gb_per_s", best):
            work = KIB * used / bus
        elif protocol == LL:  # the CPUs of the servers limit all channels together
            work = max(work, KIB * used / self._ll())
        hops = self.local - 1
        if algorithm == NVLS_TREE:
            scale_up, hops = scale_up / 2, min(hops, 1)
        if algorithm in COLLNET:
            hops, scale_up = self._hops_to_switch(algorithm)
        hop_ps = _ps(scale_up)
        return Costs(
            start_ps=_ps(self._measured("start_us", best) or self._constant("start_us", algorithm, protocol)),
            hop_ps=hop_ps,
            hop_ps_per_kib=0 if algorithm == NVLS_TREE else round(self._hop_ns_per_kib(best, used) * 1000 / wire),
            send_ps=max(_ps(network) - NETWORK_NS * 1000, 0) // 2,
            receive_ps=max(_ps(network) - NETWORK_NS * 1000, 0) // 2,
            work_ps_per_kib=round(work * 1000 / wire),
            finish_ps=hops * hop_ps,
            hops=hops,
        )

    def _costs_of_pat(self, size_bytes: int, used: int) -> Costs:
        """Return the costs of PAT: a channel takes a fixed time for the block of each member."""
        pat = self._pat()
        end_ps = max(_ps(self.network_us(PAT, SIMPLE) / pat["rounds_at_once"]) - NETWORK_NS * 1000, 0) // 2
        block_kib = size_bytes / self.members / used / KIB
        work_ps_per_kib = 1000 * KIB / self._channel_gb_per_s(PAT, SIMPLE) + _ps(pat["member_us"]) / block_kib
        return Costs(
            start_ps=_ps(pat["start_us"]), send_ps=end_ps, receive_ps=end_ps, work_ps_per_kib=round(work_ps_per_kib)
        )

    def costs_of_messages(self) -> Costs:
        """Return the costs of a grouped send over the network."""
        send_ps = _ps(self.network_us(RING, SIMPLE)) - NETWORK_NS * 1000
        return Costs(start_ps=_ps(self._constant("start_us", RING, SIMPLE)), send_ps=max(send_ps, 0))

    def _channel_gb_per_s(self, algorithm: str, protocol: str) -> float:
        """Return the data rate at which a channel of a GPU works, in GB/s."""
        if protocol == LL:
            generation = constants()["generation"][gpus()[self.server.gpu].generation]
            return float(generation["ll_single_gb_per_s"]) / LL_CHANNELS
        if algorithm == RING and protocol == LL128:
            return self._limit("ring_ll128_channel_gb_per_s")
        if algorithm == TREE:
            return self._limit("tree_ll128_channel_gb_per_s" if protocol == LL128 else "tree_channel_gb_per_s")
        if algorithm == NVLS_TREE:
            return self._nvls() * self.local / (2 * (self.local - 1)) / self.channels
        return self._limit("tree_channel_gb_per_s")


def _is_before(version: str, other: str) -> bool:
    return tuple(map(int, version.split("."))) < tuple(map(int, other.split(".")))


def _ps(time_us: float) -> int:
    return round(time_us * 1_000_000)
