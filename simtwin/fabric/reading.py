"""Fabric files: reading, checking and writing them, and the fabric of one machine's loopback."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from genie.config.congestion import name_of
from genie.config.source_ports import PINNED, SourcePorts
from genie.config.strict_toml import Document, SettingsError, Tables, changed_tables, dotted
from genie.config.units import Duration, Rate
from genie.record import warn_of_old_name
from simtwin.fabric.control_values import control_problem
from simtwin.fabric.faults import FaultError, check_faults
from simtwin.fabric.network import Network
from simtwin.fabric.paths import PathError, pinned_paths
from simtwin.fabric.queues import QueueError, queues_of
from simtwin.fabric.routing import RoutingError, check_joined
from simtwin.fabric.schema import (
    HOSTS_MAX,
    Downlink,
    Explicit,
    Fabric,
    Host,
    LeafSpine,
    Link,
    RailOptimized,
    SingleSwitch,
    Transport,
    hosts_of_server,
)
from simtwin.fabric.size import check_size
from simtwin.fabric.text import to_toml
from simtwin.fabric.topology import build_network
from simtwin.fabric.values import check_rates, check_retries, check_values

__all__ = [
    "Fabric",
    "FabricError",
    "changed_fabric",
    "fabric_from",
    "load_fabric",
    "loopback_fabric",
    "parse_fabric",
    "to_toml",
]


# Old names of keys, which are read for one release; each is reported once with its new name.
OLD_KEYS: dict[tuple[str, ...], str] = {
    ("congestion_control",): "congestion",
    ("transport", "congestion_control"): "congestion",
}


class FabricError(SettingsError):
    """A fabric file that cannot be used: one line that names file, line, key and the allowed values (exit code 2)."""


def load_fabric(path: Path) -> Fabric:
    """Read and check a fabric file. Raises FabricError."""
    return fabric_from(Document.open(path, FabricError))


def parse_fabric(text: str, name: str = "fabric.toml") -> Fabric:
    """Check a fabric file's text; errors call it `name`. Raises FabricError."""
    return fabric_from(Document(text, name, FabricError))


def loopback_fabric(
    ranks: int,
    rate_bps: int,
    *,
    packet_latency_ns: int = 0,
    message_latency_ns: int = 0,
    transport: Transport | None = None,
) -> Fabric:
    """Return the default fabric of `genie validate` on one machine: one host a rank on one switch.

    A soft NIC serialises at `rate_bps` in its send direction only, and loopback neither delays nor drops. The downlinks
    and the buffers are therefore unlimited.
    """
    return Fabric(
        name=f"loopback{ranks}",
        topology=SingleSwitch(hosts=ranks),
        link=Link(rate=Rate(rate_bps)),
        downlink=Downlink(rate=Rate(0)),
        transport=transport or Transport(),
        host=Host(
            packet_latency=Duration(packet_latency_ns * 1000),
            message_latency=Duration(message_latency_ns * 1000),
        ),
    )


def with_host_latency(fabric: Fabric, packet_latency_ns: int, message_latency_ns: int) -> Fabric:
    """Return the fabric with the latencies that `genie calibrate` measured, on every host, in place of the file's."""
    host = Host(
        packet_latency=Duration(packet_latency_ns * 1000),
        message_latency=Duration(message_latency_ns * 1000),
    )
    topology = fabric.topology
    if isinstance(topology, Explicit):
        hosts = [msgspec.structs.replace(h, packet_latency=None, message_latency=None) for h in topology.host]
        topology = msgspec.structs.replace(topology, host=hosts)
    return msgspec.structs.replace(fabric, host=host, topology=topology)


def changed_fabric(fabric: Fabric, changes: Mapping[str, Any]) -> Fabric:
    """Return a fabric with other values at dotted keys, written as in the file; None removes a key.

    For example {"switch.shared_buffer": "8MiB", "transport.mtu": 1024}. Raises FabricError.
    """
    data = Document(to_toml(fabric), fabric.name, FabricError).data
    for given, value in changes.items():
        key = new_key(given)
        try:
            data = changed_tables(data, {key: value})
        except KeyError as wrong:
            raise FabricError(f"{fabric.name}: {key}: there is nothing below {wrong.args[0]} to change") from None
    return fabric_from(Tables(data, fabric.name, FabricError))


def fabric_from(document: Document) -> Fabric:
    """Return the fabric of a document's tables, checked. Raises FabricError."""
    fabric = with_new_names(document).convert(Fabric)
    topology = fabric.topology
    if fabric.link is None and not isinstance(topology, Explicit):
        raise document.error(("link",), f" is missing: give [link] with rate = {Rate.allowed}")
    if not isinstance(topology, LeafSpine) and fabric.hosts > HOSTS_MAX:
        raise document.error(("topology",), f" makes {fabric.hosts} hosts: give at most {HOSTS_MAX}")
    if isinstance(topology, LeafSpine) and fabric.hosts > HOSTS_MAX:
        raise document.error(
            ("topology", "hosts_per_leaf"),
            f" = {topology.hosts_per_leaf} makes {fabric.hosts} hosts: give at most {HOSTS_MAX // topology.leaves}",
        )
    check_size(document, fabric)
    _check_domain(document, topology)
    _check_server(document, fabric)
    if isinstance(topology, Explicit):
        _check_explicit(document, fabric, topology)
    check_values(document, fabric)
    _check_queues(document, fabric)
    return fabric


def _check_domain(document: Document, topology: object) -> None:
    """Check the links inside of servers. Raises FabricError."""
    if isinstance(topology, LeafSpine):
        per_server, domain = topology.hosts_per_server, topology.domain
        if (per_server is None) != (domain is None):
            present, lacking = ("domain", "hosts_per_server") if domain else ("hosts_per_server", "domain")
            raise document.error(("topology", present), f" needs {lacking} beside it")
        if per_server is not None and topology.hosts_per_leaf % per_server:
            raise document.error(
                ("topology", "hosts_per_server"),
                f" = {per_server} does not divide hosts_per_leaf {topology.hosts_per_leaf}",
            )
        if domain and domain.pxn:
            raise document.error(("topology", "domain", "pxn"), ' is for kind = "rail-optimized"')
    domain = topology.domain if isinstance(topology, RailOptimized) else None
    if domain and domain.pxn and domain.kind != "switch":
        raise document.error(("topology", "domain", "pxn"), ' is for a domain with kind = "switch"')


def _check_server(document: Document, fabric: Fabric) -> None:
    """Check the number of GPUs of a server. Raises FabricError."""
    gpus, named = (None, None) if fabric.server is None else (fabric.server.gpus, hosts_of_server(fabric.topology))
    if gpus is None:
        if fabric.server is not None and fabric.server.gpu is None:
            raise document.error(("server",), " is empty: give gpu, gpus or both")
        return
    if fabric.hosts % gpus:
        raise document.error(
            ("server", "gpus"), f" = {gpus} does not divide the {fabric.hosts} hosts: give a number that does"
        )
    if named not in (None, gpus):
        raise document.error(("server", "gpus"), f" = {gpus}, and [topology] has servers of {named} hosts: give one")


def _check_explicit(document: Document, fabric: Fabric, topology: Explicit) -> None:
    if fabric.downlink is not None:
        raise document.error(("downlink",), " is for generators: give rate_back of each [[topology.link]]")
    seen: set[str] = set()
    names = {"host": [host.name for host in topology.host], "switch": [switch.name for switch in topology.switch]}
    for kind in names:
        for i, name in enumerate(names[kind]):
            if name in seen:
                raise document.error(("topology", kind, i, "name"), f' = "{name}" is taken: give each node its own')
            seen.add(name)
    for i, switch in enumerate(topology.switch):
        if switch.bridge and switch.buffer is not None:
            raise document.error(
                ("topology", "switch", i, "buffer"), " is not for a bridge, which holds all that comes"
            )
    if (per_server := topology.hosts_per_server) is not None and len(topology.host) % per_server:
        raise document.error(
            ("topology", "hosts_per_server"),
            f" = {per_server} does not divide the {len(topology.host)} hosts: give a number that does",
        )
    for i, link in enumerate(topology.link):
        key = ("topology", "link", i)
        for end in ("a", "b"):
            name = getattr(link, end)
            if name not in seen:
                raise document.error((*key, end), f' = "{name}" is not a node: give the name of a host or a switch')
        if link.a == link.b:
            raise document.error((*key, "b"), f' = "{link.b}" is a too: give another node')
        if link.rate is None and fabric.link is None:
            raise document.error((*key, "rate"), f" is missing, and so is [link]: give {Rate.allowed}")
    try:
        check_joined(build_network(fabric))
    except RoutingError as wrong:
        raise document.error(("topology", "link"), f": {wrong}") from wrong


def _check_addresses(document: Document, fabric: Fabric, network: Network) -> None:
    owner: dict[str, str] = {}
    for name, addresses in fabric.addresses.items():
        if name not in network.node_names:
            raise document.error(("addresses", name), " is not a node: give the name of a host or a switch")
        for address in addresses:
            try:
                plain = str(ipaddress.ip_address(address))
            except ValueError as wrong:
                raise document.error(("addresses", name), f': "{address}" is not an IP address') from wrong
            if (first := owner.setdefault(plain, name)) != name:
                raise document.error(("addresses", name), f": {address} is {first}'s: give each node its own")


def _check_queues(document: Document, fabric: Fabric) -> None:
    """Check values that depend on several tables, or on the network that they make."""
    control, name = fabric.congestion, fabric.transport.congestion
    if control is not None and name not in (None, name_of(control)):
        raise document.error(("congestion", "kind"), f' is {name_of(control)}, and [transport] says "{name}": give one')
    if (ecn := fabric.ecn) is not None and ecn.minimum > ecn.maximum:
        raise document.error(("ecn", "minimum"), f" = {ecn.minimum} B is above maximum = {ecn.maximum} B: give less")
    weights = {"data_weight": fabric.priority.data_weight, "control_weight": fabric.priority.control_weight}
    if missing := [key for key, weight in weights.items() if weight is None]:
        if len(missing) == 1:
            raise document.error(("priority", missing[0]), " is missing: give both weights or none")
    elif fabric.priority.data == fabric.priority.control:
        raise document.error(("priority", "control"), " is data's: weights are for priorities that differ")
    network = build_network(fabric)
    check_rates(document, fabric, network)
    check_retries(document, fabric, network)
    if problem := control_problem(fabric, network):
        raise document.error(*problem)
    try:
        queues_of(fabric, network)
    except QueueError as wrong:
        raise document.error(wrong.key, str(wrong)) from wrong
    try:
        if fabric.load_balancing.source_ports == PINNED:
            raise ValueError(f'"{PINNED}" is for the live world: the twin follows its paths')
        ports = SourcePorts(fabric.load_balancing.source_ports)
        if too_few := ports.spray_problem(fabric.spray):
            raise ValueError(too_few)
    except ValueError as wrong:
        raise document.error(("load_balancing", "source_ports"), f": {wrong}") from wrong
    _check_addresses(document, fabric, network)
    try:
        pinned_paths(fabric, network)
    except PathError as wrong:
        raise document.error(("path", wrong.number, wrong.key), str(wrong)) from wrong
    try:
        check_faults(fabric, network)
    except FaultError as wrong:
        raise document.error(("fault", wrong.number, wrong.key), str(wrong)) from wrong


def with_new_names(document: Document) -> Document:
    """Return the document with the new names in its tables. Raises the document's error where both names are given."""
    for old, new in OLD_KEYS.items():
        *tables, last = old
        table = document.data
        for name in tables:
            table = table.get(name, {}) if isinstance(table, dict) else {}
        if not isinstance(table, dict) or last not in table:
            continue
        if new in table:
            raise document.error(old, f" is the old name of {new}, which is given too: give {new} alone")
        warn_of_old_name(f"{document.name}:{document.line_of(old)}", dotted(old), dotted((*tables, new)))
        document.rename(old, new)
    return document


def new_key(dotted_key: str) -> str:
    """Return the new name of a change's dotted key, such as "transport.congestion_control"."""
    for old, new in OLD_KEYS.items():
        old_text = dotted(old)
        if dotted_key == old_text or dotted_key.startswith(f"{old_text}."):
            new_text = dotted((*old[:-1], new)) + dotted_key[len(old_text) :]
            warn_of_old_name("", dotted_key, new_text)
            return new_text
    return dotted_key


def with_old_names(tables: Mapping[str, Any]) -> dict[str, Any]:
    """A file's tables with the old names of keys, from which identities of earlier versions were computed."""
    changed = dict(tables)
    for *path, last in OLD_KEYS:
        new = OLD_KEYS[(*path, last)]
        table = changed
        for name in path:
            if not isinstance(table.get(name), dict):
                break
            table[name] = dict(table[name])
            table = table[name]
        else:
            if new in table:
                table[last] = table.pop(new)
    return changed
