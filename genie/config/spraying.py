"""Sprayed queue pairs: their packets take several UDP source ports in turn, and so several paths, in both worlds."""

from __future__ import annotations

from typing import Any


def set_spray(config: Any, spray: int, reordering_packets: int | None) -> None:
    """Set source ports of the native `config` of a queue pair, and how far ahead a packet of one port tells of a loss.

    `reordering_packets`: None for 1, as the packets of one source port take one path and keep their order.
    """
    config.spray = spray
    if spray > 1:
        config.selective_repeat = True
        config.reordering_packets = 1 if reordering_packets is None else reordering_packets


def spray_problem(spray: int, queue_pairs: int) -> str:
    """Return why so many queue pairs cannot be sprayed, from the number of ports on; "" when they can."""
    if spray == 1 or queue_pairs == 1:
        return ""
    return f"{spray}: the packets of one queue pair are sprayed, and each connection has {queue_pairs}: give it one"
