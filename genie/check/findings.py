"""Findings of a check from its observations, in one line each with what to do. Pure.

They are in the order in which to mend them: addresses first, then reachability, then sizes and header bits. Packet
loss, rates and congestion control follow.
"""

from __future__ import annotations

import errno
import os
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct

from genie.check.blame import Blame, Layout, Path, blame, unseen
from genie.check.congestion_findings import bleached_pairs, congestion_findings
from genie.check.loss_findings import is_hampered, loss_findings, lossy_parts
from genie.check.names import Names
from genie.check.rate_findings import rate_findings
from genie.check.settings import OTHER, ROCE, SMALL, CheckSettings, Flow, Observed, Pair, Refusal
from genie.check.stations import duplicates, local_pairs, rails_apart
from genie.live.paths.icmp import version_of
from genie.live.paths.mtu import HEADER_BYTES

PAIRS_MAX = 4  # findings about single pairs, per kind; further ones are counted


KINDS = (
    "address", "duplicate", "interface", "port", "gid", "unreachable", "dropped", "mtu", "ecn", "dscp", "loss", "rate",
    "congestion",
)  # fmt: skip


class Finding(Struct, frozen=True):
    """A fault, its place, and what to do."""

    kind: str  # one of KINDS
    text: str


def findings_of(settings: CheckSettings, seen: Observed) -> list[Finding]:
    """Return all findings, in the order in which to mend them."""
    names = Names(settings)
    apart = apart_of(settings, seen)
    layout = layout_of(settings, seen, apart)
    lossy = lossy_parts(seen.tallies, layout)
    said = [
        *(("address", text) for text in _addresses(settings, seen, names)),
        *(("duplicate", text) for text in _duplicates(settings, seen, names)),
        *_hosts(settings, seen, names),
        *_arrivals(settings, seen, layout, names, apart),
        *(("mtu", text) for text in _sizes(settings, seen, layout, names)),
        *_header_bits(seen, layout, names),
        *(("loss", text) for text in loss_findings(lossy, names)),
    ]
    if seen.rates is not None:

        def is_excused(flow: Flow) -> bool:
            return is_hampered(flow, lossy, layout)

        said += [("rate", text) for text in rate_findings(seen.rates, names, is_excused)]
    if seen.incasts is not None:
        said += [("congestion", text) for text in congestion_findings(seen.incasts, names, bleached_pairs(seen))]
    return [Finding(kind, text) for kind, text in said]


def layout_of(settings: CheckSettings, seen: Observed, apart: Collection[Pair] = ()) -> Layout:
    """Return the layout of the tested paths."""
    traces = {(each.source, each.target, each.path): each.hops for each in seen.probed.traces}
    return Layout(seen.stations, settings.paths, traces, set(apart) | local_pairs(seen.stations, seen.facts))


# -- facts of hosts ------------------------------------------------------------------------------------------


def _addresses(settings: CheckSettings, seen: Observed, names: Names) -> Iterator[str]:
    for rank, address in enumerate(settings.addresses):
        own = seen.facts[rank]
        if own.interface:
            continue
        holders = [
            other
            for other, facts in enumerate(seen.facts)
            if facts.machine != own.machine and any(address in each for each in facts.addresses.values())
        ]
        version = version_of(address)
        there = [
            f"{each} ({interface})"
            for interface, addresses in own.addresses.items()
            for each in addresses
            if interface != "lo" and version_of(each) == version and not each.startswith("fe80:")
        ]
        elsewhere = f"; {address} is on the host of {names.ranks(holders[:1])}" if holders else ""
        has = f"its interfaces have {', '.join(there)}" if there else "its interfaces have no address"
        yield (
            f"{names.rank(rank)}: its host has no such address: {has}{elsewhere}: correct the hosts file, or the "
            "interface"
        )


def _duplicates(settings: CheckSettings, seen: Observed, names: Names) -> Iterator[str]:
    told = set()
    for rank, other in duplicates(settings, seen.facts):
        address = settings.addresses[rank]
        if (address, seen.facts[other].machine) in told:
            continue
        told.add((address, seen.facts[other].machine))
        interface = next(name for name, each in seen.facts[other].addresses.items() if address in each)
        yield (
            f"{address} is on two hosts: on {seen.facts[rank].interface} of {names.rank(rank)} and on {interface} of "
            f"{names.rank(other)}: take it from one of them"
        )
    for rank, own in enumerate(seen.facts):
        if own.duplicate_owner and not any(address == settings.addresses[rank] for address, _ in told):
            machine = f"a machine with the Ethernet address {own.duplicate_owner}"
            where = f"on {own.interface} of {names.rank(rank)} and on {machine}"
            yield (
                f"{settings.addresses[rank]} is on two hosts: {where}: find that in the switch's table, and take the "
                "address from one of them"
            )


def unasked(seen: Observed, names: Names) -> str:
    """Return a note on hosts whose addresses were not probed for duplicates; "" when there are none."""
    ranks = [rank for rank, own in enumerate(seen.facts) if own.duplicate_owner is None]
    if not ranks:
        return ""
    what = "a test for duplicate addresses on machines outside the job was not made"
    whose = "for any host" if len(ranks) == len(seen.facts) else f"for {names.ranks(ranks)}"
    return f"{what} {whose}: it needs IPv4 on an Ethernet, and CAP_NET_RAW (root)"


def _hosts(settings: CheckSettings, seen: Observed, names: Names) -> Iterator[tuple[str, str]]:
    usual = Counter(seen.facts[rank].mtu_bytes for rank in seen.stations).most_common(1)
    for rank, own in enumerate(seen.facts):
        where = f"{names.rank(rank)}: {own.interface}"
        if own.interface and not own.is_up:
            yield "interface", f"{where} is down, or has no carrier: ip link set {own.interface} up, and see the cable"
        if own.roce_port:
            what = f"UDP port {settings.udp_port} {own.roce_port}"
            yield "port", f"{names.rank(rank)}: {what}: see ss -ulpn, end the process that has it, or give --udp-port"
        if own.gid:
            yield "gid", f"{names.rank(rank)}: {own.gid}"
        if own.switches_off:
            off = ", ".join(own.switches_off)
            path = f"/sys/class/net/{own.interface}/ecn/"
            yield "congestion", f"{where}: congestion control is off ({off}): write 1 to its enable files below {path}"
        if rank in seen.stations and usual and own.mtu_bytes < usual[0][0]:
            text = f"{where} has an MTU of {own.mtu_bytes}, and most have {usual[0][0]}"
            yield "mtu", f"{text}: ip link set {own.interface} mtu {usual[0][0]}"
        elif rank in seen.stations and settings.mtu > seen.mtu_bytes[rank]:
            needs = settings.mtu + HEADER_BYTES[version_of(settings.addresses[rank])]
            text = f"{where} has an MTU of {own.mtu_bytes}, and path MTU {settings.mtu} needs {needs}"
            yield "mtu", f"{text}: ip link set {own.interface} mtu {needs}, or lower the job's"


# -- arrivals ------------------------------------------------------------------------------------------------


def apart_of(settings: CheckSettings, seen: Observed) -> set[Pair]:
    """Return pairs on different rails that do not reach each other at all, as some networks intend."""
    count = Counter((each.source, each.target) for each in seen.probed.lost if each.what in (ROCE, OTHER))
    return rails_apart(seen.stations, seen.facts, {pair for pair, lost in count.items() if lost == 2 * settings.paths})


def _arrivals(
    settings: CheckSettings, seen: Observed, layout: Layout, names: Names, apart: Collection[Pair]
) -> Iterator[tuple[str, str]]:
    lost = {(each.source, each.target, each.path) for each in seen.probed.lost if each.what == ROCE}
    lost = {path for path in lost if path[:2] not in apart}
    others = Counter((each.source, each.target) for each in seen.probed.lost if each.what == OTHER)
    others_traces = {(each.source, each.target, each.path): each.hops for each in seen.probed.other_traces}
    causes = unseen(blame(lost, layout), layout, others_traces)
    for cause in told(causes):
        where = names.where(cause)
        passes = not any(others[path[:2]] for path in cause.paths)
        why = _refused(seen.probed.refusals, cause) + _reached(cause, layout, names)
        if passes:
            what = f"UDP port {settings.udp_port} is dropped and other ports pass {where}"
            yield "dropped", f"{what}{why}: allow it in the filters there (nft list ruleset, the switch's ACLs)"
        else:
            yield "unreachable", f"nothing arrives {where}{why}: see the cable, ip route and the filters there"
    yield from _more("unreachable", causes)


def _refused(refusals: Sequence[Refusal], cause: Blame) -> str:
    """Return the answers on the paths of a cause, in brackets."""
    paths = set(cause.paths)
    said = {_answer(each) for each in refusals if (each.source, each.target, each.path) in paths}
    said.discard("")
    return f" ({'; '.join(sorted(said)[:2])})" if said else ""


def _answer(refusal: Refusal) -> str:
    if not refusal.by:
        return "" if refusal.kind == errno.EMSGSIZE else f"the sender's own kernel says: {os.strerror(refusal.kind)}"
    codes = {0: "network unreachable", 1: "host unreachable", 3: "port unreachable", 13: "prohibited by a filter"}
    codes |= {9: "prohibited", 10: "prohibited"}
    if refusal.kind == 3 and refusal.code in codes:
        return f"{refusal.by} answers: {codes[refusal.code]}"
    return ""


def _reached(cause: Blame, layout: Layout, names: Names) -> str:
    """Return the last router that answered on a failing path, where routers answer at all."""
    if not layout.crossing or cause.kind not in ("pair", "path", "from"):
        return ""
    ends = {links[-1] for path in cause.paths if (links := layout.links.get(path))}
    if len(ends) == 1:
        return f" (traces end behind {names.link(ends.pop())})"
    return ""


# -- sizes ---------------------------------------------------------------------------------------------------


def _sizes(settings: CheckSettings, seen: Observed, layout: Layout, names: Names) -> Iterator[str]:
    lost: dict[Path, set[int]] = defaultdict(set)
    gone = {(each.source, each.target, each.path) for each in seen.probed.lost if each.what == ROCE}
    for each in seen.probed.lost:
        if each.what not in SMALL:
            lost[each.source, each.target, each.path].add(each.what)
    failing = set(lost) - gone
    causes = blame(failing, layout)
    for cause in told(causes):
        largest = max(max(lost[path]) for path in cause.paths)
        passing = [mtu for mtu in (4096, 2048, 1024, 512, 256) if mtu < max(lost[cause.paths[0]])]
        passing = [mtu for mtu in passing if not any(mtu in lost[path] for path in cause.paths)]
        gets = f"and of {passing[0]} do" if passing else "and small ones do"
        headers = HEADER_BYTES[version_of(settings.addresses[0])]
        answers = {
            f" ({each.by} answers that {each.mtu_bytes} bytes fit)"
            for each in seen.probed.refusals
            if each.by and each.mtu_bytes and (each.source, each.target, each.path) in set(cause.paths)
        }
        yield (
            f"packets of path MTU {largest} do not arrive, {gets}, {names.where(cause)}{min(answers, default='')}: "
            f"raise the MTU of the link there to {largest + headers} or more"
        )
    yield from (text for _, text in _more("mtu", causes))


# -- header bits ---------------------------------------------------------------------------------------------


def _header_bits(seen: Observed, layout: Layout, names: Names) -> Iterator[tuple[str, str]]:
    ecn: dict[Path, tuple[int, int]] = {}
    dscp: dict[Path, tuple[int, int]] = {}
    for each in seen.probed.changed:
        path = (each.source, each.target, each.path)
        if each.arrived & 3 not in (each.sent & 3, 3):  # to set a mark is the purpose of the bits
            ecn[path] = (each.sent & 3, each.arrived & 3)
        if each.arrived >> 2 != each.sent >> 2:
            dscp[path] = (each.sent >> 2, each.arrived >> 2)
    causes = blame(set(ecn), layout)
    for cause in told(causes):
        was, now = ecn[cause.paths[0]]
        what = "ECN bits are cleared" if now == 0 else f"ECN bits are changed from {was:02b} to {now:02b}"
        why = "switches cannot mark, and congestion control hears nothing"
        yield "ecn", f"{what} {names.where(cause)}: {why}: keep the TOS byte in the rules there"
    yield from _more("ecn", causes)
    causes = blame(set(dscp), layout)
    for cause in told(causes):
        was, now = dscp[cause.paths[0]]
        why = "the job's packets would be in another queue"
        yield "dscp", f"DSCP {was} arrives as {now} {names.where(cause)}: {why}: trust DSCP on the ports there"
    yield from _more("dscp", causes)


def told(causes: Sequence[Blame]) -> list[Blame]:
    """Return all causes that are parts of the network, and the first PAIRS_MAX that are pairs."""
    parts = [cause for cause in causes if cause.kind not in ("pair", "path")]
    return parts + [cause for cause in causes if cause.kind in ("pair", "path")][:PAIRS_MAX]


def _more(kind: str, causes: Sequence[Blame]) -> Iterator[tuple[str, str]]:
    more = len(causes) - len(told(causes))
    if more:
        yield kind, f"the same between {more} more pairs of hosts: --json FILE has them all"
