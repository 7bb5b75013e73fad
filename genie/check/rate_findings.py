"""Findings about rates below what others reach. Pure.

Packet loss lowers rates: where packets get lost, the loss is reported, and no rate of the flows it affects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from genie.check.names import Names
from genie.check.rate_plans import host_rates, nears, slow_hosts, slow_links, usual_rate
from genie.check.settings import Flow, Rates
from genie.config.units import format_rate


def rate_findings(rates: Rates, names: Names, is_excused: Callable[[Flow], bool] = lambda flow: False) -> Iterator[str]:
    """Yield findings about directions of hosts, slowest first, then about links between switches."""
    best = rates.by_flow
    hosts, usual = host_rates(best), usual_rate(best)
    sound = [flow for flow in best if not is_excused(flow)]
    judged = {("from", flow.source) for flow in sound} | {("to", flow.target) for flow in sound}
    slow = sorted(slow_hosts(best, rates.slow_share) & judged, key=lambda which: hosts[which])
    for direction, rank in slow:
        where = f"from {names.rank(rank)} to all" if direction == "from" else f"from all to {names.rank(rank)}"
        yield (
            f"{where} {_share(hosts[direction, rank], usual)} what hosts reach: see the speed and the errors of its "
            "link at both ends (ethtool, the switch port), and what else runs on it"
        )
    tests = [test for test in rates.links if not any(is_excused(flow) for flow in test.flows)]
    for number, reached in slow_links(tests, rates.slow_share).items():
        test = tests[number]
        flow, names_of_links = test.flows[0], names.links(test.links)
        example = f"rank {flow.source} to rank {flow.target} by UDP source port {names.port(flow.path)}"
        yield (
            f"over {names_of_links} {len(test.flows)} flows {_share(test.rate_bps, reached)} what they reach over "
            f"others, for example from {example}: see the speed and the errors of that link at both ends"
        )


def reach_note(rates: Rates, line_rate_bps: int) -> str:
    """Return a note where hosts do not come near the line rate, as slower links than that are then not seen."""
    best = rates.by_flow
    usual = usual_rate(best)
    if not best or nears(best, line_rate_bps) or (usual > 0 and line_rate_bps == 0):
        return ""
    if usual == 0:
        return "rates were not judged: no flow between most hosts arrived in time"
    reached = f"hosts reach {usual / 1e6:,.0f} Mb/s of {format_rate(line_rate_bps)}"
    return f"{reached}: rates were compared with each other, and a link that is slow but faster than that was not seen"


def _share(rate_bps: float, usual_bps: float) -> str:
    return f"get {rate_bps / 1e6:,.0f} Mb/s, {100 * rate_bps / usual_bps:.0f} % of"
