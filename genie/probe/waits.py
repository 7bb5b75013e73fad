"""Waits of small datagrams while the job is silent: they show traffic of others.

A slow link has no queue while nothing is sent over it. A datagram that waits there waits behind other traffic. Each
watched flow has a flow beside it that crosses none of the watched links: what delays both is the hosts' load.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from genie.check.settings import Flow
from genie.record.waits import WATCHED_MAX, LinkWaits

Links = tuple[str, ...]


class Watched(Struct, frozen=True):
    """A flow over a watched link, and the flow beside it."""

    link: str
    flow: Flow
    beside: Flow


def watch_of(paths: Mapping[Flow, Links], links: Collection[str], first: Collection[str] = ()) -> list[Watched]:
    """Return for each of these links a flow over it and one beside it; none for a link without them. Pure.

    `paths`: the links of each flow. `first`: the links to watch if there are more than WATCHED_MAX.
    """
    chosen = sorted(links, key=lambda link: (link not in first, link))[:WATCHED_MAX]
    flows = sorted(paths, key=lambda each: (each.source, each.target, each.path))
    found = []
    for link in chosen:
        crossing = [flow for flow in flows if link in paths[flow]]
        # As few other watched links as possible, so that what it sees is of this link.
        flow = min(crossing, key=lambda each: len(set(paths[each]) & set(chosen)), default=None)
        clear = [each for each in flows if not set(paths[each]) & set(chosen)]
        if flow is None or not clear:
            continue
        # The same hosts at best: the drift between their clocks looks like waits.
        beside = min(
            clear,
            key=lambda each: (
                (each.source, each.target) != (flow.source, flow.target),
                len(paths[each]) != len(paths[flow]),
                each.source != flow.source,
            ),
        )
        found.append(Watched(link, flow, beside))
    return found


def unwatched(links: Collection[str], watched: Sequence[Watched]) -> list[str]:
    """Return those of the links to watch that are not watched: beyond WATCHED_MAX, or without a flow beside them."""
    return sorted(set(links) - {each.link for each in watched})


def flows_of(watched: Sequence[Watched]) -> list[Flow]:
    """Return all flows, each once."""
    return list(dict.fromkeys(flow for each in watched for flow in (each.flow, each.beside)))


def waits_of(took_ns: Mapping[Flow, Sequence[int]], watched: Sequence[Watched]) -> list[LinkWaits]:
    """Return the waits over each link. `took_ns`: the latencies of each flow."""
    return [LinkWaits(each.link, _waits(took_ns, each.flow), _waits(took_ns, each.beside)) for each in watched]


def _waits(took_ns: Mapping[Flow, Sequence[int]], flow: Flow) -> tuple[int, ...]:
    mine = took_ns.get(flow, [])
    return tuple(each - min(mine) for each in mine)
