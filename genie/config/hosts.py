"""Hosts files: the host, address, device and fabric port of each rank.

Both worlds read them. The live world takes addresses and devices; the twin takes fabric ports and the host latency that
`genie calibrate` stored.
"""

from __future__ import annotations

import ipaddress
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from genie.config.strict_toml import Document, SettingsError
from genie.config.toml_lines import table_span
from genie.config.units import Rate, parse_rate
from genie.inputs.printable import shown_value

RANKS_MAX = 65536
DILATION_MAX = 10**6
LOOPBACK_BASE = "127.0.1.1"
BROADCAST = ("255.255.255.255", "127.255.255.255")

Nanoseconds = Annotated[int, Meta(ge=0, le=10**12)]
_TEMPLATE = re.compile(r"\{(rank|index)(?:\+([0-9]{1,9}))?\}")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


class HostsError(SettingsError):
    """A mistake in a hosts file: one line that names file, line, key and the allowed values (exit code 2)."""


class Calibration(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Costs of a message on these hosts, measured beforehand. Spreads are half the distance between quartiles.

    softroce's costs are all per packet. `message_latency_ns` is for NICs that acknowledge in hardware, and is written
    by hand.
    """

    packet_latency_ns: Nanoseconds  # from a packet's arrival until the transport has handled it
    packet_latency_spread_ns: Nanoseconds = 0
    message_latency_ns: Nanoseconds = 0  # from a message's completion until the messages that depend on it are posted
    message_latency_spread_ns: Nanoseconds = 0
    samples: Annotated[int, Meta(ge=0, le=10**12)] = 0
    transport: str = "softroce"
    rate: str = "unlimited"  # line rate during the measurement
    dilation: Annotated[float, Meta(ge=1, le=DILATION_MAX)] = 1.0
    scheduling: str = ""  # scheduling class of the ranks: SCHED_FIFO, SCHED_OTHER
    measured_at: str = ""  # ISO 8601
    commit: str = ""


class HostEntry(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One [[host]] table of the file."""

    # mpirun passes the name to ssh, which takes a leading hyphen for an option. mpirun also splits its list at commas.
    name: Annotated[
        str,
        Meta(
            max_length=253,
            pattern=r"\A[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?\Z",
            description="the host's name, as mpirun and srun know it: letters, digits, dots, hyphens and underscores",
        ),
    ]
    ranks: Annotated[int | str | list[int], Meta(description='a rank, a list of ranks or ranges such as "0-3,8"')]
    address: Annotated[
        str | list[str],
        Meta(description='an IP address, one with {rank+1} or {index+1} in it such as "127.0.1.{rank+1}", or a list'),
    ]
    transport: Literal["softroce", "verbs"] | None = None  # in jobs that mix both; None: the run's own
    # RDMA devices for verbs, in NCCL_IB_HCA's grammar: "mlx5_0:1", a text with {index}, or a list with one for each
    # rank.
    device: Annotated[str | list[str] | None, Meta(description='such as "mlx5_0:1" or "mlx5_{index}", or a list')] = (
        None
    )
    port: Annotated[str, Meta(min_length=1)] | None = None  # host name in the fabric; may contain {rank} or {index}


class HostsFile(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A hosts file, as written."""

    host: Annotated[list[HostEntry], Meta(min_length=1, description="tables [[host]], one a host")]
    calibration: Calibration | None = None


@dataclass(frozen=True)
class Place:
    """Host, address, device and fabric port of a rank."""

    rank: int
    host: str
    address: str  # IPv4 or IPv6 address in the data network
    device: str | None = None  # RDMA devices, in NCCL_IB_HCA's grammar
    port: str | None = None  # name of a host of the fabric; None: the host with the rank's number
    transport: str | None = None  # softroce or verbs; None: the run's own


@dataclass(frozen=True)
class Hosts:
    """Places of all ranks, in rank order, and the calibration of their hosts."""

    places: tuple[Place, ...]
    calibration: Calibration | None = None
    name: str = "loopback"  # file name, for messages

    @property
    def ranks(self) -> int:
        return len(self.places)

    def names(self) -> list[str]:
        """Host names in the order of their first rank."""
        return list(dict.fromkeys(place.host for place in self.places))

    def mpirun_hosts(self) -> str:
        """Hydra's -hosts argument, in rank order: `node1:4,node2:4`."""
        blocks: list[tuple[str, int]] = []
        for place in self.places:
            if blocks and blocks[-1][0] == place.host:
                blocks[-1] = (place.host, blocks[-1][1] + 1)
            else:
                blocks.append((place.host, 1))
        return ",".join(f"{host}:{count}" for host, count in blocks)

    def first(self, ranks: int) -> Hosts:
        """The places of the first `ranks` ranks. Raises HostsError when the file has fewer."""
        if ranks > self.ranks:
            raise HostsError(
                f"{self.name}: has places for {self.ranks} ranks, {ranks} are asked for: add [[host]] tables"
            )
        return Hosts(self.places[:ranks], self.calibration, self.name)


def load_hosts(path: Path) -> Hosts:
    """Read and check a hosts file. Raises HostsError."""
    return _places(Document.open(path, HostsError))


def parse_hosts(text: str, name: str = "hosts.toml") -> Hosts:
    """Check the text of a hosts file; errors use `name` as the file's name. Raises HostsError."""
    return _places(Document(text, name, HostsError))


def loopback_hosts(ranks: int, base: str = LOOPBACK_BASE) -> Hosts:
    """`ranks` ranks on this machine, rank r at the address `base` + r. Raises HostsError if one is outside 127/8."""
    first = ipaddress.IPv4Address(base)
    addresses = [str(first + r) for r in range(ranks)]
    if ranks and not (ipaddress.IPv4Address(addresses[-1]).is_loopback and first.is_loopback):
        raise HostsError(f"{ranks} ranks from {base} on leave 127.0.0.0/8: give a lower base or fewer ranks")
    return Hosts(tuple(Place(r, "localhost", address) for r, address in enumerate(addresses)))


def write_calibration(path: Path, calibration: Calibration) -> None:
    """Write [calibration] into a hosts file, replacing an earlier one; all other text stays as it is.

    A link remains a link, and the file's mode is kept. Raises HostsError when the file cannot be read or has no place
    for the table, OSError when it cannot be written.
    """
    document = Document.open(path, HostsError)
    text = with_calibration(document.text, calibration)
    try:
        parse_hosts(text)
    except HostsError as wrong:
        raise document.error(("calibration",), " cannot be replaced: give it as a table, [calibration]") from wrong
    target = path.resolve()
    try:
        with TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as aside:
            part = Path(aside) / target.name
            part.write_text(text, encoding="utf-8")
            shutil.copymode(target, part)
            os.replace(part, target)
    except OSError as wrong:
        wrong.filename = str(path)
        raise


def with_calibration(text: str, calibration: Calibration) -> str:
    """The text of a hosts file with this [calibration], in place of an earlier one or at the end."""
    values = msgspec.to_builtins(calibration)
    lines = ["[calibration]  # written by genie calibrate", *(f"{key} = {_literal(values[key])}" for key in values)]
    section = "\n".join(lines) + "\n"
    span = table_span(text, ("calibration",))
    if span is None:
        return text.rstrip("\n") + "\n\n" + section
    return text[: span[0]] + section + text[span[1] :]


def _literal(value: object) -> str:
    return msgspec.json.encode(value).decode()  # numbers and plain strings have the same form in JSON and TOML


def _places(document: Document) -> Hosts:
    file = document.convert(HostsFile)
    if file.calibration is not None:
        try:
            parse_rate(file.calibration.rate)
        except ValueError as wrong:
            shown = shown_value(file.calibration.rate)
            raise document.error(("calibration", "rate"), f" = {shown}: give {Rate.allowed}") from wrong
    places: dict[int, Place] = {}
    taken: dict[str, str] = {}  # address -> host
    for i, entry in enumerate(file.host):
        for index, rank in enumerate(_ranks(document, i, entry.ranks)):
            if rank in places:
                raise document.error(("host", i, "ranks"), f": rank {rank} is on {places[rank].host} too: give it once")
            address = _address(document, i, entry, rank, index)
            owner = taken.setdefault(address, entry.name)
            if owner != entry.name:
                raise document.error(("host", i, "address"), f" = {address} is {owner}'s: give each host its own")
            port = None if entry.port is None else _fill(document, ("host", i, "port"), entry.port, rank, index)
            device = _device(document, i, entry, rank, index)
            places[rank] = Place(rank, entry.name, address, device, port, entry.transport)
    versions = {ipaddress.ip_address(place.address).version for place in places.values()}
    if len(versions) > 1:
        raise document.error(("host",), ": some ranks have IPv4 and some IPv6 addresses: give all of them one kind")
    missing = sorted(set(range(max(places) + 1)) - set(places))
    if missing:
        raise document.error(("host",), f": rank {missing[0]} is on no host: give ranks 0 to {max(places)} a host each")
    return Hosts(tuple(places[rank] for rank in sorted(places)), file.calibration, document.name)


def _ranks(document: Document, i: int, given: int | str | Sequence[int]) -> list[int]:
    ranks: list[int] = []
    if isinstance(given, str):
        for part in given.split(","):
            match = _RANGE.fullmatch(part.strip())
            first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
            if not first <= last < RANKS_MAX:
                raise document.error(
                    ("host", i, "ranks"), f' = "{given}": give ranges below {RANKS_MAX} such as "0-3,8"'
                )
            ranks += range(first, last + 1)
    else:
        ranks = [given] if isinstance(given, int) else list(given)
    if not ranks or not all(0 <= rank < RANKS_MAX for rank in ranks):
        wanted = f"give one or more ranks from 0 to {RANKS_MAX - 1}"
        raise document.error(("host", i, "ranks"), f" = {shown_value(given)}: {wanted}")
    return ranks


def _address(document: Document, i: int, entry: HostEntry, rank: int, index: int) -> str:
    key = ("host", i, "address")
    if isinstance(entry.address, str):
        text = _fill(document, key, entry.address, rank, index)
    elif index < len(entry.address):
        text = entry.address[index]
    else:
        raise document.error(key, f" has {len(entry.address)} addresses: give one for each of the host's ranks")
    try:
        address = ipaddress.ip_address(text)
    except ValueError as wrong:
        raise document.error(key, f' = "{text}" (rank {rank}): give an IP address such as "10.0.0.1"') from wrong
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise document.error(key, f' = "{text}" (rank {rank}): write it as "{address.ipv4_mapped}"')
    if address.is_unspecified or address.is_multicast or str(address) in BROADCAST:
        raise document.error(key, f' = "{text}" (rank {rank}): give an address of one host, such as "10.0.0.1"')
    if isinstance(address, ipaddress.IPv6Address) and (address.is_link_local or address.scope_id is not None):
        raise document.error(
            key, f' = "{text}" (rank {rank}): give a global or unique local address, not one of a link'
        )
    return str(address)


def _device(document: Document, i: int, entry: HostEntry, rank: int, index: int) -> str | None:
    key = ("host", i, "device")
    if entry.device is None or isinstance(entry.device, str):
        return None if entry.device is None else _fill(document, key, entry.device, rank, index)
    if index >= len(entry.device):
        raise document.error(key, f" has {len(entry.device)} devices: give one for each of the host's ranks")
    return entry.device[index]


def _fill(document: Document, key: tuple[str | int, ...], text: str, rank: int, index: int) -> str:
    """The text with {rank}, {rank+1}, {index} and {index+1} replaced."""
    values = {"rank": rank, "index": index}
    filled = _TEMPLATE.sub(lambda match: str(values[match[1]] + int(match[2] or 0)), text)
    if "{" in filled or "}" in filled:
        raise document.error(key, f' = "{text}": give {{rank}}, {{rank+1}}, {{index}} or {{index+1}} between braces')
    return filled
