"""UDP source ports of queue pairs. ECMP hashes them, so that they choose the path through the fabric.

The rules are:
  - `pair`: one port for each pair of ranks; the next if it is taken
  - `nccl`: the port of an RDMA device with flow label 0, computed from the numbers of both queue pairs
  (`rdma_get_udp_sport` in Linux's ib_verbs.h). Paths are then spread as NCCL's are.
  - `PORT`: one port for all
  - `FIRST-LAST`: a sweep, one port after another over all queue pairs
  - `pinned`: ports chosen by the paths that they lead to
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

FIRST, LAST = 0xC000, 0xFFFF  # RoCEv2's source ports (annex A17)
PAIR, NCCL, PINNED = "pair", "nccl", "pinned"
_RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")


class SourcePorts:
    """A rule for the source ports of one rank."""

    def __init__(self, rule: str = PAIR, chosen: Mapping[int, Sequence[int]] | None = None) -> None:
        """`rule`: pair, nccl, pinned, a port or a range of ports; `chosen`: peer -> pinned ports by queue pair.

        Raises ValueError that says what is allowed.
        """
        self.rule = rule
        self._chosen = chosen or {}
        self._first = self._last = 0
        if rule in (PAIR, NCCL, PINNED):
            return
        match = _RANGE.fullmatch(rule)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1024 <= first <= last <= 65535:
            raise ValueError(
                f"source ports '{rule}': must be pair, nccl, a port from 1024 to 65535, a range of them such as "
                "49152-49167 or, for genie run and validate, pinned"
            )
        self._first, self._last = first, last

    def __contains__(self, port: int) -> bool:
        """Whether the port is among the ports given by number."""
        return self._first > 0 and self._first <= port <= self._last

    @property
    def exact(self) -> bool:
        """Whether the rule allows no substitute for a port that is taken."""
        return self.rule not in (PAIR, PINNED) or bool(self._chosen)

    def port(self, rank: int, peer: int, connection: int, queue_pairs: int, own_qpn: int, peer_qpn: int) -> int:
        """The port of queue pair number `connection` of `queue_pairs` from a rank to a peer."""
        if self.rule == PINNED and peer in self._chosen:
            return self._chosen[peer][connection]
        if self.rule == NCCL:
            return rdma_source_port(own_qpn, peer_qpn)
        if self.rule in (PAIR, PINNED):
            mixed = (rank * 0x9E3779B1 ^ peer * 0x85EBCA77 ^ connection * 0xC2B2AE3D) & 0xFFFFFFFF
            return FIRST | mixed >> 13 & 0x3FFF
        return self._first + (peer * queue_pairs + connection) % (self._last - self._first + 1)

    def sprayed(self, rank: int, peer: int, count: int, own_qpn: int, peer_qpn: int) -> list[int]:
        """The `count` ports over which a rank sprays its one queue pair to a peer."""
        if self.rule == NCCL:  # those that follow on the one of the numbers
            return [FIRST | rdma_source_port(own_qpn, peer_qpn) + place & 0x3FFF for place in range(count)]
        return [self.port(rank, peer, place, count, own_qpn, peer_qpn) for place in range(count)]

    def spray_problem(self, spray: int) -> str:
        """Return why so many ports cannot be taken; "" when they can."""
        known = self._last - self._first + 1
        if not self._first or spray <= known:
            return ""
        return f"source ports '{self.rule}' are {known}, and packets are sprayed over {spray}: give a longer range"


def rdma_source_port(own_qpn: int, peer_qpn: int) -> int:
    """The source port of an RDMA device between two queue pairs with flow label 0."""
    label = own_qpn * peer_qpn
    label ^= label >> 20
    label ^= label >> 40
    label &= 0xFFFFF
    return FIRST | (label ^ label >> 14) & 0x3FFF
