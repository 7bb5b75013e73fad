"""Which rates are below what their peers reach. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from genie.live.check.names import Names
from genie.live.check.rate_plans import host_rates, slow_hosts, slow_links, usual_rate
from genie.live.check.settings import Rates


def rate_findings(rates: Rates, names: Names, slow_share: float) -> Iterator[str]:
    """Directions of hosts, slowest first, then links between switches."""
    best = {each.flow: each.rate_bps for each in rates.pairs}
    hosts, usual = host_rates(best), usual_rate(best)
    slow = sorted(slow_hosts(best, slow_share), key=lambda which: hosts[which])
    for direction, rank in slow:
        where = f"from {names.rank(rank)} to all" if direction == "from" else f"from all to {names.rank(rank)}"
        yield (
            f"{where} {_share(hosts[direction, rank], usual)} what hosts reach: see the speed and the errors of its "
            "link at both ends (ethtool, the switch port), and what else runs on it"
        )
    for number, reached in slow_links(rates.links, slow_share).items():
        test = rates.links[number]
        flow, names_of_links = test.flows[0], names.links(test.links)
        example = f"rank {flow.source} to rank {flow.target} by UDP source port {names.port(flow.path)}"
        yield (
            f"over {names_of_links} {len(test.flows)} flows {_share(test.rate_bps, reached)} what they reach over "
            f"others, for example from {example}: see the speed and the errors of that link at both ends"
        )


def _share(rate_bps: float, usual_bps: float) -> str:
    return f"get {rate_bps / 1e6:,.0f} Mb/s, {100 * rate_bps / usual_bps:.0f} % of"
