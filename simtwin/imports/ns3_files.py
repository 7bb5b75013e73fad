"""Topology and flow files of ns-3's RDMA model (HPCC's tree and its derivatives), and SimAI's topology files.

Both topologies have a header and the numbers of the switch nodes. Source, target, rate, delay and error rate of each
link follow. SimAI's header also has servers and NVSwitches, whose numbers come first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from genie.config.units import Duration, Rate
from genie.plan.build import MESSAGE_MAX_BYTES
from genie.workload.flows import Flow
from simtwin.fabric.schema import HOSTS_MAX, Explicit, NamedHost, NamedLink, NamedSwitch
from simtwin.imports.words import DURATION_MAX_S, Value, Words

NS_PER_S = 10**9
PRIORITY_MAX, PORT_MAX = 7, 65535
NODES_MAX, ROWS_MAX = 2 * HOSTS_MAX, 2**31 - 1
HOST_CABLE_LENGTH = 2  # with NVSwitches: the other GPUs of a server are nearer than its switch of the network

_LINK = re.compile(r"[0-9]+ [0-9]+ [0-9.]+[A-Za-z/]+ [0-9.]+[a-z]+ [0-9.eE+-]+")


@dataclass(frozen=True)
class TopologyLink:
    a: int
    b: int
    rate_bps: int
    delay_ps: int


@dataclass(frozen=True)
class TopologyFile:
    """Numbered nodes and links; nodes that are not switches are hosts, counted from 0 in the order of their numbers."""

    path: Path
    hosts: dict[int, int]  # node number -> host
    switches: tuple[int, ...]
    links: tuple[TopologyLink, ...]
    nvswitches: tuple[int, ...] = ()  # each joins GPUs of one server
    gpus_per_server: int | None = None
    notes: tuple[str, ...] = ()

    @cached_property
    def _inside(self) -> frozenset[int]:
        return frozenset(self.nvswitches)

    def name(self, node: int) -> str:
        if node in self.hosts:
            return f"host{self.hosts[node]}"
        return f"{'nvswitch' if self.is_nvswitch(node) else 'switch'}{node}"

    def is_nvswitch(self, node: int) -> bool:
        return node in self._inside

    @property
    def switch_links(self) -> list[TopologyLink]:
        """Links at a switch of the network, which marks, shares a buffer and pauses."""
        switches = set(self.switches)
        return [link for link in self.links if switches & {link.a, link.b}]

    def explicit(self) -> Explicit:
        """Return the topology with every node and link by name."""
        return Explicit(
            hosts_per_server=self.gpus_per_server if self.nvswitches else None,
            host=[NamedHost(self.name(node)) for node in self.hosts],
            switch=[NamedSwitch(self.name(node), bridge=True) for node in self.nvswitches]
            + [NamedSwitch(self.name(node)) for node in self.switches],
            link=[
                NamedLink(
                    self.name(link.a),
                    self.name(link.b),
                    Rate(link.rate_bps),
                    Duration(link.delay_ps),
                    length=HOST_CABLE_LENGTH if self._is_host_cable(link) else 1,
                )
                for link in self.links
            ],
        )

    def _is_host_cable(self, link: TopologyLink) -> bool:
        """Return whether a link joins a host with the network, in a topology with NVSwitches."""
        ends = {link.a, link.b}
        return bool(self._inside) and len(self.hosts.keys() & ends) == 1 and not self._inside & ends


def read_topology(path: Path) -> TopologyFile:
    """Read ns-3's topology; its header has the numbers of nodes, switches and links. Raises ForeignFileError."""
    words = Words(path)
    nodes, switch_count, link_count = words.row(("number of nodes", "number of switches", "number of links"))
    hosts, (switches,) = _nodes(words, nodes, (switch_count,))
    links = tuple(link for link, _ in _links(words, nodes, link_count))
    return TopologyFile(path, hosts, switches, links, notes=_left(words, link_count))


def read_simai_topology(path: Path) -> TopologyFile:
    """Read SimAI's topology.

    Its header has the numbers of nodes, GPUs of a server, NVSwitches, switches and links, and the GPUs' type, which is
    unrelated to the network. Raises ForeignFileError.
    """
    words = Words(path)
    nodes, per_server, nvswitch_count, switch_count, link_count, _ = words.row(
        (
            "number of nodes",
            "number of GPUs of a server",
            "number of NVSwitches",
            "number of switches",
            "number of links",
            "type of GPUs",
        )
    )
    hosts, (nvswitches, switches) = _nodes(words, nodes, (nvswitch_count, switch_count))
    gpus_per_server = per_server.whole(1, HOSTS_MAX)
    if len(hosts) % gpus_per_server:
        raise per_server.error(f"does not divide the {len(hosts)} GPUs: give a number that does")
    links = _links(words, nodes, link_count)
    _check_nvswitches(links, hosts, frozenset(nvswitches), gpus_per_server)
    plain = tuple(link for link, _ in links)
    return TopologyFile(path, hosts, switches, plain, nvswitches, gpus_per_server, _left(words, link_count))


def read_flows(path: Path, topology: TopologyFile) -> tuple[Flow, ...]:
    """Read the number of flows, then source, target, priority, port, bytes and start in s of each.

    Ranks are hosts, counted from 0 in the order of node numbers; times are relative to the first flow's. Raises
    ForeignFileError.
    """
    words = Words(path)
    (count,) = words.row(("number of flows",))
    highest = len(topology.hosts) + len(topology.switches) - 1
    rows = []
    for number in range(words.count(count, count.whole(1, ROWS_MAX), 6)):
        source, target, priority, port, size, start = words.row(
            tuple(f"{what} of flow {number}" for what in ("source", "target", "priority", "port", "bytes", "start"))
        )
        for end in (source, target):
            if end.whole(0, highest) not in topology.hosts:
                raise end.error("is a switch: give a host")
        if int(source.text) == int(target.text):
            raise target.error("is its source too: give another host")
        priority.whole(0, PRIORITY_MAX)
        port.whole(0, PORT_MAX)
        ends = topology.hosts[int(source.text)], topology.hosts[int(target.text)]
        rows.append((*ends, size.whole(1, MESSAGE_MAX_BYTES), round(start.number(0, DURATION_MAX_S) * NS_PER_S)))
    first = min(row[3] for row in rows)
    return tuple(Flow(source, target, size, start - first) for source, target, size, start in rows)


def _nodes(words: Words, nodes: Value, counts: tuple[Value, ...]) -> tuple[dict[int, int], tuple[tuple[int, ...], ...]]:
    """Return hosts by node number, and the switches of each kind, which the file lists kind by kind."""
    highest = nodes.whole(1, NODES_MAX) - 1
    totals = [count.whole(0, highest) for count in counts]
    host_total = highest + 1 - sum(totals)
    if host_total < 1:
        raise nodes.error(f"is no more than the {sum(totals)} switches: give at least one host more")
    if host_total > HOSTS_MAX:
        raise nodes.error(f"makes {host_total} hosts: give at most {HOSTS_MAX}")
    kinds: list[tuple[int, ...]] = []
    seen: set[int] = set()
    for count, total in zip(counts, totals, strict=True):
        kind = []
        for _ in range(words.count(count, total, 1)):
            (switch,) = words.row(("switch",))
            if switch.whole(0, highest) in seen:
                raise switch.error("is there twice: give each switch once")
            seen.add(int(switch.text))
            kind.append(int(switch.text))
        kinds.append(tuple(kind))
    hosts = [node for node in range(highest + 1) if node not in seen]
    return {node: host for host, node in enumerate(hosts)}, tuple(kinds)


def _links(words: Words, nodes: Value, count: Value) -> list[tuple[TopologyLink, Value]]:
    """Return each link with its target as in the file, for errors about its ends."""
    highest = int(nodes.text) - 1
    links = []
    for number in range(words.count(count, count.whole(1, ROWS_MAX), 5)):
        a, b, rate, delay, error_rate = words.row(
            tuple(f"{what} of link {number}" for what in ("source", "target", "rate", "delay", "error rate"))
        )
        if a.whole(0, highest) == b.whole(0, highest):
            raise b.error("is its source too: give another node")
        if error_rate.number(0, 1) != 0:
            raise error_rate.error("links that lose packets are not read: give 0")
        links.append((TopologyLink(int(a.text), int(b.text), int(rate.rate()), int(delay.delay())), b))
    return links


def _check_nvswitches(
    links: list[tuple[TopologyLink, Value]], hosts: dict[int, int], nvswitches: frozenset[int], gpus_per_server: int
) -> None:
    """Refuse an NVSwitch with links to anything but one server's GPUs: traffic between servers uses the network."""
    server_of: dict[int, int] = {}
    for link, target in links:
        for nvswitch, other in ((link.a, link.b), (link.b, link.a)):
            if nvswitch not in nvswitches:
                continue
            if other not in hosts:
                raise target.error(f"joins NVSwitch {nvswitch} and switch {other}: NVSwitches join GPUs of a server")
            server = hosts[other] // gpus_per_server
            if (first := server_of.setdefault(nvswitch, server)) != server:
                raise target.error(
                    f"joins NVSwitch {nvswitch} of server {first} and GPU {other} of server {server}: give one of its "
                    "own server"
                )


def _left(words: Words, count: Value) -> tuple[str, ...]:
    """Return a note on words after the last link; one more link is an error in the header."""
    left = words.left
    if not left:
        return ()
    if _LINK.fullmatch(" ".join(word.text for word in left[:5])):
        raise count.error(f"line {left[0].line} has one more: give the number of all links, or leave that line out")
    start = " ".join(word.text for word in left)
    return (left[0].note(f"this text below the last link is not read: {start}"),)
