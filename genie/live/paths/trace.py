"""Learning the paths of a run's queue pairs, before it and again after it. All ranks take part together.

Trains of probes distinguish links that carry the same flows.
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from genie.config.source_ports import FIRST, LAST, NCCL, PINNED, SourcePorts
from genie.live.path_names import Graph, TracePlan
from genie.live.paths.choice import Links, Pair, choose_ports, ports_needed, trains
from genie.live.paths.probe import Flow, PathProber, trace, train
from genie.live.rendezvous.meeting import Rendezvous
from genie.live.settings import RunSettings
from genie.live.transport import SOFTROCE

PEERS_MAX = 64  # peers whose paths a rank learns
TRACE_LIMIT_S = 2.0
TRAINS_EACH, TRAINS_MAX = 3, 48  # paths per group of indistinguishable links, and in total
TRAINS_LIMIT_S = 4.0
TRAIN_PACKETS, TRAIN_TRIALS = 24, 4
Hops = dict[tuple[int, int], list[str]]  # (peer, source port) -> addresses


class PathTrace:
    """One rank's part in learning the paths."""

    def __init__(self, settings: RunSettings, meet: Rendezvous, plan: TracePlan) -> None:
        self._settings, self._meet, self._rank = settings, meet, meet.rank
        self._graph = Graph(plan)
        self._before: Hops = {}
        self._prober: PathProber | None = None
        if settings.transport_of(self._rank) == SOFTROCE:
            self._prober = PathProber(settings.addresses[self._rank], settings.udp_port)

    def learn(self) -> dict[int, list[int]]:
        """Trace the flows of the run before their ports are bound; return the chosen ports by peer, {} unless pinned.

        With the rule "nccl" ports follow from queue pair numbers, which are not known yet: those paths are learned
        afterwards.
        """
        rule, count = self._settings.source_ports, self._settings.ports_each
        chosen: dict[int, list[int]] = {}
        try:
            if rule == PINNED:
                chosen = self._choose()
            elif rule != NCCL:
                ports = SourcePorts(rule)
                numbers = range(count)
                self._before = self._trace(
                    [(peer, ports.port(self._rank, peer, at, count, 0, 0)) for peer in self._peers() for at in numbers]
                )
        finally:
            if self._prober:
                self._prober.close()
        self._meet.agree(None)  # no rank binds ports while others still probe
        return chosen

    def _peers(self) -> list[int]:
        """Return the peers to trace: the next PEERS_MAX ranks in cyclic order, without those of the same address."""
        size, own = self._settings.ranks, self._settings.addresses[self._rank]
        others = [(self._rank + far) % size for far in range(1, size)]
        return [peer for peer in others[:PEERS_MAX] if self._settings.addresses[peer] != own]

    def _trace(self, wanted: Sequence[tuple[int, int]], limit_s: float = TRACE_LIMIT_S) -> Hops:
        """Trace flows, given as peers and source ports; return their hops."""
        if self._prober is None or not wanted:
            return {}
        flows = {key: (self._settings.addresses[key[0]], key[1]) for key in wanted}
        found = trace(self._prober, sorted(set(flows.values())), limit_s)
        return {key: found[flow] for key, flow in flows.items()}

    def _choose(self) -> dict[int, list[int]]:
        """Try ports until each peer's have most likely shown all of its paths; rank 0 then chooses for all ranks."""
        draw = random.Random(f"{self._settings.seed}/{self._rank}/ports")
        first = draw.randrange(LAST - FIRST + 1)
        tried = 0
        deadline = time.monotonic() + TRACE_LIMIT_S
        wanted = dict.fromkeys(self._peers(), max(ports_needed(1), self._settings.ports_each))
        while any(count > tried for count in wanted.values()) and (left_s := deadline - time.monotonic()) > 0:
            most = max(wanted.values())
            ports = [FIRST + (first + at) % (LAST - FIRST + 1) for at in range(tried, most)]
            flows = [(peer, port) for peer, count in wanted.items() if count > tried for port in ports]
            self._before |= self._trace(flows, left_s)
            tried = most
            for peer in wanted:
                paths = {tuple(hops) for (to, _), hops in self._before.items() if to == peer}
                wanted[peer] = max(ports_needed(len(paths)), self._settings.ports_each)
        known = [[peer, port, hops] for (peer, port), hops in self._before.items()]
        answer: list[Any] = self._meet.agree(known, self._decide)
        chosen = {int(peer): [int(port) for port in ports] for peer, ports in answer[self._rank]}
        kept = {(peer, port) for peer, ports in chosen.items() for port in ports}
        self._before = {key: hops for key, hops in self._before.items() if key in kept}
        return chosen

    def _decide(self, everyone: list[Any]) -> list[list[Any]]:
        """Return, by rank, [peer, ports] of each of its peers."""
        candidates: dict[Pair, list[tuple[int, Links]]] = {}
        for rank, known in enumerate(everyone):
            for peer, port, hops in known:
                candidates.setdefault((rank, peer), []).append((port, self._links(rank, peer, hops)))
        settings = self._settings
        chosen = choose_ports(candidates, settings.ranks, settings.ports_each, settings.seed)
        return [[[dst, ports] for (src, dst), ports in chosen.items() if src == rank] for rank in range(settings.ranks)]

    def _links(self, rank: int, peer: int, hops: Sequence[str]) -> Links:
        """Return the fabric's links; without a fabric each address that answered stands for the link to it."""
        return tuple(self._graph.links(rank, peer, hops)) or tuple(f"->{name}" for name in self._graph.names(hops))

    def again(self, used: Sequence[str]) -> dict[str, Any]:
        """Trace the run's flows again once all ports are free, for the record. `used`: source ports by peer."""
        flows: list[tuple[int, int]] = []
        if self._prober:
            flows = [(peer, int(port)) for peer in self._peers() for port in used[peer].split(",") if port]
        try:
            self._meet.agree(None)
            after = self._trace(flows)
            rows = [[peer, port, self._before.get((peer, port), []), after.get((peer, port), [])]
                    for peer, port in flows]  # fmt: skip
            probes = self._trains(rows)
        finally:
            if self._prober:
                self._prober.close()
        return {"paths": rows, "probes": probes}

    def _trains(self, rows: list[list[Any]]) -> list[list[Any]]:
        """Send trains on the paths that need them, one by one; return this rank's, as [peer, port, ns by hop]."""
        flows: list[list[int]] = self._meet.agree(rows, self._needed)
        found: list[list[Any]] = []
        if not flows:
            return found
        hops = {(peer, port): len(before or after) for peer, port, before, after in rows}
        sink = self._sink()
        deadline = time.monotonic() + TRAINS_LIMIT_S
        try:
            for src, dst, port in flows:
                if self._meet.agree(time.monotonic() >= deadline, any):
                    break
                if src == self._rank and self._prober is not None:
                    flow: Flow = (self._settings.addresses[dst], port)
                    size_bytes = self._settings.mtu or 1024
                    times = train(self._prober, flow, hops[dst, port], count=TRAIN_PACKETS, size_bytes=size_bytes,
                                  trials=TRAIN_TRIALS)  # fmt: skip
                    found.append([dst, port, times])
        finally:
            if sink is not None:
                sink.close()
        return found

    def _needed(self, everyone: list[Any]) -> list[tuple[int, int, int]]:
        paths: dict[Pair, list[tuple[int, Links]]] = {}
        for rank, rows in enumerate(everyone):
            for peer, port, before, after in rows:
                if links := self._graph.links(rank, peer, before or after):
                    paths.setdefault((rank, peer), []).append((port, tuple(links)))
        return trains(paths, TRAINS_EACH, TRAINS_MAX)

    def _sink(self) -> socket.socket | None:
        """Bind a socket that swallows the trains, so that this host does not answer them; None if the port is taken."""
        address = self._settings.addresses[self._rank]
        made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
        with suppress(OSError):  # another rank of the address has bound it
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((address, self._settings.udp_port))
            return made
        made.close()
        return None
