"""Traces of the paths between hosts, once their probes are done and all ports are free again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from genie.check.settings import CheckSettings, Trace
from genie.live.paths.probe import PathProber, trace

FLOWS_AT_ONCE = 64  # routers answer a limited number at once
LIMIT_S = 3.0  # for one such group of flows


def traces_to(
    settings: CheckSettings, rank: int, targets: Sequence[int], udp_port: int, alive: Callable[[], object]
) -> list[Trace]:
    """Return the routers on each path from a rank to a closed UDP port of others. `alive`: called often."""
    prober = PathProber(settings.addresses[rank], udp_port)
    at_once = max(FLOWS_AT_ONCE // settings.paths, 1)
    found: list[Trace] = []
    try:
        for first in range(0, len(targets), at_once):
            flows = {
                (target, path): (settings.addresses[target], port)
                for target in targets[first : first + at_once]
                for path, port in enumerate(settings.probe_ports)
            }
            hops = trace(prober, list(flows.values()), LIMIT_S)
            found += [Trace(rank, *key, hops[flow]) for key, flow in flows.items() if hops[flow]]
            alive()
    finally:
        prober.close()
    return found
