"""A plan as input for ip, tc, nft and marker.py, node by node. This module runs no command."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

from genie.lab.as_built import caught_up_bytes
from genie.lab.faults import Fault, Faults
from genie.lab.marker import Port
from genie.lab.plan import DEVICE_MTU_BYTES, LabLink, Plan

FIRST_FD = 100  # file descriptors of the keeper: FIRST_FD + n holds node n's namespace
PARTS = 1_000_000  # resolution of random shares of packets

# Paths by addresses and UDP ports; answers to all probes of a path, from the port that a probe arrived by.
_SYSCTLS = {
    "net/ipv6/conf/all/disable_ipv6": "1",
    "net/ipv6/conf/default/disable_ipv6": "1",
    "net/ipv4/conf/all/rp_filter": "0",
    "net/ipv4/conf/default/rp_filter": "0",
    "net/ipv4/icmp_ratelimit": "0",
    "net/ipv4/icmp_ratemask": "0",
    "net/ipv4/icmp_errors_use_inbound_ifaddr": "1",
}

# With policy 1 Linux takes the hash that the first node has kept beside the packet, for the core that processes it. All
# switches would choose alike, so that half of the links of a fabric of three tiers would be idle. Policy 3 hashes anew.
POLICY, FIELDS = "net/ipv4/fib_multipath_hash_policy", "net/ipv4/fib_multipath_hash_fields"
ADDRESSES_AND_PORTS = 0x37  # in FIELDS: both addresses, the protocol, both ports

# The one core that processes packets arriving at a node. Otherwise a packet waits at the core that sent it. Packets of
# a sender that moves to another core could then overtake those that wait at the first. Only devices made later use it.
RPS_MASK = "net/core/rps_default_mask"

# The consequences where a kernel lacks a setting; other settings are as old as the lab's other requirements.
_WITHOUT = {
    "net/ipv4/fib_multipath_hash_seed": "a flow's path is another one in every lab of the file (Linux before 6.11)",
    RPS_MASK: "packets of a flow may overtake each other when ranks move between cores (Linux before 6.3)",
    POLICY: "paths follow addresses alone, not UDP ports",
    FIELDS: "switches of several tiers choose alike, so that some links are idle (Linux before 5.12)",
}


def without(missing_settings: Iterable[str]) -> Iterator[str]:
    """Yield sentences on what a lab lacks because its kernel has no such settings (paths below /proc/sys)."""
    for path in missing_settings:
        if follows := _WITHOUT.get(path):
            yield f"This kernel has no setting {path.replace('/', '.')}: {follows}."


def sysctls(plan: Plan, node: int, cores: Sequence[int] = (0,), *, has_fields: bool = True) -> dict[str, str]:
    """Return path below /proc/sys -> value, to be set before the node has devices.

    `cores`: process the nodes' packets; nodes take them in turn.
    """
    forwards = "0" if node < plan.hosts else "1"  # hosts never forward
    # Switches must hash differently, and a lab's paths must be the same each time.
    seed = zlib.crc32(plan.nodes[node].encode()) or 1
    core = core_mask(cores[node % len(cores)])
    return {
        **_SYSCTLS,
        POLICY: "3" if has_fields else "1",
        FIELDS: str(ADDRESSES_AND_PORTS),
        RPS_MASK: core,
        "net/ipv4/ip_forward": forwards,
        "net/ipv4/fib_multipath_hash_seed": str(seed),
    }


def core_mask(core: int) -> str:
    """Return a set of one core in the kernel's notation: words of 32 bits, the highest first."""
    return ",".join([f"{1 << core % 32:x}", *["00000000"] * (core // 32)])


def cables(plan: Plan) -> list[str]:
    """Return lines for `ip -batch`, in a process that has the keeper's descriptors."""
    lines = []
    for number, link in enumerate(plan.links[::2]):
        here, there = (f"netns /proc/self/fd/{FIRST_FD + node}" for node in (link.source, link.target))
        end = f"name {link.device} address"
        lines.append(
            f"link add {end} {mac(number, 0)} mtu {DEVICE_MTU_BYTES} {here} type veth "
            f"peer {end} {mac(number, 1)} mtu {DEVICE_MTU_BYTES} {there}"
        )
    return lines


def mac(cable: int, end: int) -> str:
    """Return the Ethernet address of a cable's end a (0) or b (1)."""
    return f"02:00:0a:{end:02x}:{cable // 256:02x}:{cable % 256:02x}"


def interfaces(plan: Plan, node: int) -> list[str]:
    """Return lines for `ip -batch` in the node's namespace: addresses, and permanent neighbours that need no ARP."""
    lines = ["link set lo up"]
    for number, link in enumerate(plan.links):
        if link.source == node:
            lines.append(f"addr add {link.source_address}/31 dev {link.device}")
            lines.append(f"link set {link.device} up")
            far = mac(number // 2, 1 - number % 2)
            lines.append(f"neigh replace {link.target_address} lladdr {far} dev {link.device} nud permanent")
    return lines


def routes(plan: Plan, down: frozenset[str] = frozenset()) -> list[list[str]]:
    """Return, by node, lines for `ip -batch`: routes to every host address that can be reached."""
    tables = []
    for hops in plan.next_hops(down):
        lines = []
        for address, links in hops.items():
            via = [f"via {link.target_address} dev {link.device} onlink" for link in links]
            if len(links) == 1 and links[0].target_address == address:
                via = [f"dev {links[0].device} scope link"]
            hop = via[0] if len(via) == 1 else " ".join(f"nexthop {each}" for each in via)
            lines.append(f"route replace {address}/32 {hop}")
        tables.append(lines)
    return tables


def bucket(link: LabLink, fault: Fault) -> str:
    """Return a line for `tc -batch` in the namespace of the link's source, which sets the link's rate."""
    rate_bps = _rate_bps(link, fault)
    if rate_bps == 0:
        return f"qdisc replace dev {link.device} root noqueue"
    burst_bytes = _burst_bytes(link, fault)
    limits = f"rate {rate_bps}bit burst {burst_bytes}b limit {link.queue_bytes}b overhead {link.overhead_bytes}"
    return f"qdisc replace dev {link.device} root tbf {limits}"


def _rate_bps(link: LabLink, fault: Fault) -> int:
    return link.rate_bps if fault.rate_bps is None else fault.rate_bps


def _burst_bytes(link: LabLink, fault: Fault) -> int:
    """Return the bucket's size: one made for the file's rate is too small for a higher one."""
    rate_bps, own_bytes = _rate_bps(link, fault), link.burst_bytes or 2 * (DEVICE_MTU_BYTES + 14)
    return max(own_bytes, caught_up_bytes(rate_bps)) if rate_bps > link.rate_bps else own_bytes


def buckets(plan: Plan, node: int, faults: Faults) -> list[str]:
    """Return lines for `tc -batch` in the node's namespace."""
    return [bucket(link, faults.get(link.name, Fault())) for link in plan.links if link.source == node]


def marks(plan: Plan, node: int, faults: Faults) -> list[str]:
    """Return lines for `marker.py` in the node's namespace: the ports that set ECN marks."""
    lines = []
    for link in plan.links:
        if link.source == node and link.marks is not None:
            minimum_bytes, maximum_bytes, probability = link.marks
            fault = faults.get(link.name, Fault())
            port = Port(
                link.device,
                _rate_bps(link, fault),
                _burst_bytes(link, fault),
                link.queue_bytes,
                link.overhead_bytes,
                minimum_bytes,
                maximum_bytes,
                probability,
            )
            lines.append(json.dumps(asdict(port)))
    return lines


def filters(plan: Plan, node: int, faults: Faults) -> str:
    """Return text for `nft -f` in the node's namespace: faults of links to it, applied when their packets arrive."""
    rules = [
        f'    iifname "{link.device}" {rule}\n'
        for link in plan.links
        if link.target == node
        for rule in _arrival_rules(faults.get(link.name, Fault()))
    ]
    # "add" first: so the deletion succeeds whether the table exists or not.
    text = "add table ip genie\ndelete table ip genie\n"
    if rules:
        chain = "  chain arrivals {\n    type filter hook prerouting priority raw; policy accept;\n"
        text += f"table ip genie {{\n{chain}{''.join(rules)}  }}\n}}\n"
    return text


def _arrival_rules(fault: Fault) -> list[str]:
    """Return rules for arriving packets, so that packets that a link loses have used its capacity."""
    # Packets that are held come a second time, with a mark: the other rules are for these.
    unheld = "ether saddr & 04:00:00:00:00:00 == 00:00:00:00:00:00 counter drop"
    rules = ["counter drop"] if fault.is_down else [unheld] if fault.is_held else []
    if fault.mtu_bytes is not None:
        rules.append(f"ip length > {fault.mtu_bytes} counter drop")
    if fault.loss:
        rules.append(f"{_draw(fault.loss)} counter drop")
    if fault.ecn:
        rules.append(f"ip ecn {{ ect0, ect1 }} {_draw(fault.ecn)} counter ip ecn set ce")
    if fault.dscp is not None:
        rules.append(f"ip dscp != {fault.dscp:#04x} counter ip dscp set {fault.dscp:#04x}")
    return rules


def _draw(share: float) -> str:
    """Return a condition that holds for this share of the packets."""
    return "" if share >= 1 else f"numgen random mod {PARTS} < {max(round(share * PARTS), 1)}"
