"""Faults of links and hosts that probes have shown, of all kinds but slow rates. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from genie.check.blame import Blame, Layout, Path, blame, unseen
from genie.check.congestion_findings import bleached_pairs, congestion_faults
from genie.check.findings import layout_of
from genie.check.loss_findings import lossy_parts
from genie.check.settings import OTHER, ROCE, SMALL, CheckSettings, Flow, Latency, Observed
from genie.probe.delays import delays_of

Links = tuple[str, ...]


class Fault(Struct, frozen=True):
    """A fault that probes have located.

    `kind`: loss, delay, mtu, dscp, ecn, unreachable or congestion. `size`: the share of lost packets, the delay in ns,
    or the largest path MTU that does not pass, in bytes; 0 for other kinds.
    """

    kind: str
    words: str  # the predicate: "loses 0.52 % of its packets (12 of 2,310)"
    links: list[str]  # directed; several where no path distinguishes them
    ranks: list[int] = []  # the host whose NIC or link it is; both hosts of a path
    size: float = 0.0
    paths: int = 0  # on which it showed


def faults_of(
    settings: CheckSettings, seen: Observed, paths: Mapping[Flow, Links], latencies: Sequence[Latency]
) -> list[Fault]:
    """Return all faults. `paths`: the links of each traced flow, in order."""
    layout = layout_of(settings, seen)
    places = _Places(seen, paths)
    lost = {(each.source, each.target, each.path) for each in seen.probed.lost if each.what == ROCE}
    others = {(each.source, each.target, each.path): each.hops for each in seen.probed.other_traces}
    others_lost = Counter((each.source, each.target) for each in seen.probed.lost if each.what == OTHER)
    found = []
    for cause in unseen(blame(lost, layout), layout, others):
        some = "" if any(others_lost[path[:2]] for path in cause.paths) else " to the UDP port of RoCE"
        found.append(places.fault("unreachable", f"passes no packets{some}", cause))
    found += _sizes(seen, places, lost, layout)
    found += _header_bits(seen, places, layout)
    for lossy in lossy_parts(seen.tallies, layout):
        share = lossy.lost / lossy.sent
        words = f"loses {100 * share:.2g} % of its packets ({lossy.lost:,} of {lossy.sent:,})"
        found.append(places.fault("loss", words, lossy.blame, share))
    sound = {flow: links for flow, links in paths.items() if (flow.source, flow.target, flow.path) not in lost}
    for delay in delays_of(latencies, sound, layout, places.names, clocks_of(seen)):
        words = f"delays packets by {delay.delay_ns / 1e6:.2g} ms"
        found.append(Fault("delay", words, list(delay.links), list(delay.ranks), float(delay.delay_ns), delay.paths))
    for rank, said in congestion_faults(seen.incasts or [], bleached_pairs(seen)):
        words = f"marks packets: {said}" if rank is None else f"does not control congestion: {said}"
        found.append(Fault("congestion", words, [], [] if rank is None else [rank]))
    return found


def clocks_of(seen: Observed) -> dict[int, str]:
    """Return the name of each rank's clock: its machine."""
    return {rank: facts.machine.partition(" ")[0] for rank, facts in enumerate(seen.facts)}


def host_links_of(paths: Mapping[Flow, Links]) -> dict[str, tuple[str, int]]:
    """Return link -> (direction, rank) of the NIC whose own link it is."""
    up = {links[0]: ("egress", flow.source) for flow, links in paths.items()}
    return up | {links[-1]: ("ingress", flow.target) for flow, links in paths.items()}


class _Places:
    """Names of the parts of the network."""

    def __init__(self, seen: Observed, paths: Mapping[Flow, Links]) -> None:
        self.names: dict[str, str] = {}  # address at which a link ends -> link
        self._up: dict[int, str] = {}
        self._down: dict[int, str] = {}
        hops = {Flow(each.source, each.target, each.path): each.hops for each in seen.probed.traces}
        for flow, links in paths.items():
            self.names.update(zip(hops.get(flow, ()), links, strict=False))
            self._up[flow.source], self._down[flow.target] = links[0], links[-1]

    def fault(self, kind: str, words: str, cause: Blame, size: float = 0.0) -> Fault:
        """Return the fault of a cause."""
        links = [self.names.get(address, address) for address in cause.links]
        if cause.kind in ("from", "to"):
            ends = self._up if cause.kind == "from" else self._down
            links = [ends[rank] for rank in cause.ranks if rank in ends]
        return Fault(kind, words, links, list(cause.ranks), size, len(cause.paths))


def _sizes(seen: Observed, places: _Places, gone: set[Path], layout: Layout) -> Iterator[Fault]:
    lost: dict[Path, set[int]] = defaultdict(set)
    for each in seen.probed.lost:
        if each.what not in SMALL:
            lost[each.source, each.target, each.path].add(each.what)
    for cause in blame(set(lost) - gone, layout):
        if cause.kind in ("pair", "path") and all(layout.is_traced(path) for path in cause.paths):
            continue  # each link on the way passes this size on another path: a full queue has dropped the packets
        largest = max(max(lost[path]) for path in cause.paths)
        yield places.fault("mtu", f"drops packets of path MTU {largest} and not shorter ones", cause, largest)


def _header_bits(seen: Observed, places: _Places, layout: Layout) -> Iterator[Fault]:
    ecn: dict[Path, tuple[int, int]] = {}
    dscp: dict[Path, tuple[int, int]] = {}
    for each in seen.probed.changed:
        path = (each.source, each.target, each.path)
        if each.arrived & 3 not in (each.sent & 3, 3):
            ecn[path] = (each.sent & 3, each.arrived & 3)
        if each.arrived >> 2 != each.sent >> 2:
            dscp[path] = (each.sent >> 2, each.arrived >> 2)
    for cause in blame(set(ecn), layout):
        yield places.fault("ecn", "clears the ECN bits of packets", cause)
    for cause in blame(set(dscp), layout):
        was, now = dscp[cause.paths[0]]
        yield places.fault("dscp", f"changes DSCP {was} to {now}", cause)
