"""Waits of small datagrams that probes record, and the faults that traffic of others looks like."""

from __future__ import annotations

from msgspec import Struct

SLOWNESS = ("rate", "intermittent")
WATCHED_MAX = 16  # links that one probe watches for traffic of others
OF_OTHERS = (*SLOWNESS, "loss", "delay")  # kinds of fault that traffic of others looks like


class LinkWaits(Struct, frozen=True):
    """Waits of datagrams over a link, in ns beyond the least latency of their flow."""

    link: str
    waits_ns: tuple[int, ...]
    beside_ns: tuple[int, ...]  # of a flow that does not cross the link
