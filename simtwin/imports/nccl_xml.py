"""One server as in NCCL's topology XML: its CPUs with the PCIe devices below them, and NVLinks between its GPUs.

NCCL reads such a file by NCCL_TOPO_FILE, and writes one to NCCL_TOPO_DUMP_FILE. The first kind lacks what NCCL then
asks the driver for: NVLinks, speeds of NICs, sometimes classes. The elements' meaning is NCCL's (its
src/graph/topo.cc). So are the rate of an NVLink, and the PCIe link that stands for one of unknown speed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from operator import attrgetter
from pathlib import Path

from genie.config.units import RATE_MAX_BPS, Rate
from simtwin.imports.words import ForeignFileError, shown
from simtwin.imports.xml_tree import Element, read_xml

KNOWN = {
    "system": "version",
    "cpu": "numaid affinity arch vendor familyid modelid host_hash",
    "pci": "busid class vendor device subsystem_vendor subsystem_device link_speed link_width",
    "gpu": "dev sm rank gdr",
    "nvlink": "target count tclass",
    "nic": "",
    "net": "name dev speed port latency guid maxconn gdr coll net",
}
EVERYWHERE = {"keep"}
GPU_CLASS, NIC_CLASS, NVSWITCH_CLASS = "0x03", "0x02", "0x068000"
# PCI Express: GT/s of a lane -> share of data (8b/10b, 128b/130b, from 6.0 on flits of 256 B).
PCIE_DATA = {
    "2.5": Fraction(8, 10),
    "5": Fraction(8, 10),
    "8": Fraction(128, 130),
    "16": Fraction(128, 130),
    "32": Fraction(128, 130),
    "64": Fraction(242, 256),
}
PCIE_DEFAULT, WIDTH_DEFAULT, WIDTH_MAX = "8", 16, 32
NVLINK_GBPS = {100: 320.8, 90: 164.8, 86: 96.0, 70: 160.0, 60: 144.0, 0: 160.0}  # by least compute capability
COUNT_MAX = 1024
MBPS_MAX = RATE_MAX_BPS // 10**6

_SPEED = re.compile(r"([0-9]+(?:\.[0-9]+)?) GT/s(?: PCIe)?")


@dataclass(frozen=True)
class Hop:
    """A step on the path from a CPU to a device."""

    name: str
    rate_bps: int  # of the link above it; 0: unlimited


@dataclass(frozen=True)
class NvLink:
    """All links of a GPU to another GPU, or to the NVSwitches."""

    target: str  # bus id; "": NVSwitches
    rate_bps: int


@dataclass(frozen=True)
class Gpu:
    name: str  # bus id
    number: int | None  # CUDA's, where given
    hops: tuple[Hop, ...]
    nvlinks: tuple[NvLink, ...] = ()


@dataclass(frozen=True)
class Nic:
    """A port of a NIC."""

    name: str
    number: int | None  # NCCL's, where given
    hops: tuple[Hop, ...]
    rate_bps: int


@dataclass
class Server:
    """GPUs and NICs in NCCL's order: by number, or by bus id."""

    gpus: list[Gpu] = field(default_factory=list)
    nics: list[Nic] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_server(path: Path, nic_rate: Rate | None = None, nic_names: tuple[str, ...] = ()) -> Server:
    """Read the file of a server.

    `nic_rate`: of NICs without a speed; `nic_names`: bus ids of NICs without a class. Raises ForeignFileError.
    """
    root = read_xml(path)
    if root.name == "graphs":
        raise root.error("has the channels that NCCL chose and not a topology: give the file of NCCL_TOPO_DUMP_FILE")
    if root.name != "system":
        raise root.error("is not <system>: give a topology file of NCCL_TOPO_FILE or NCCL_TOPO_DUMP_FILE")
    if root.attributes.get("version") != "1":
        raise root.value("version").error("must be 1")
    return _Reader(path, nic_rate, nic_names).read(root)


class _Reader:
    def __init__(self, path: Path, nic_rate: Rate | None, nic_names: tuple[str, ...]) -> None:
        self.path, self.nic_rate = path, nic_rate
        self.nic_names = dict.fromkeys(name.lower() for name in nic_names)
        self.server, self.seen = Server(), set[str]()
        self.used_nic_rate, self.used_nic_names = False, set[str]()
        self.without_speed: list[Element] = []
        self.to_itself: list[Element] = []  # NVLinks from a GPU to itself

    def read(self, root: Element) -> Server:
        cpus = [child for child in root.children if child.name == "cpu"]
        if len({cpu.attributes.get("host_hash") for cpu in cpus}) > 1:
            raise root.error("has CPUs of several servers (host_hash): give the file of a single server")
        for cpu in cpus:
            hop = self._once(Hop(f"CPU {cpu.value('numaid').whole(0, COUNT_MAX)}", 0), cpu)
            self._devices(cpu, (hop,))
        server = self.server
        if not server.gpus:
            raise root.error("names no GPU: give a file of a server with GPUs")
        if not server.nics:
            raise root.error("names no NIC, and nothing else joins servers: give the file of a server that has one")
        if self.nic_rate is not None and not self.used_nic_rate:
            raise ForeignFileError(f"{self.path}: every NIC has its speed there: leave --nic-rate out")
        if unused := [name for name in self.nic_names if name not in self.used_nic_names]:
            raise ForeignFileError(f"{self.path}: --nic {shown(unused[0])}: is not a pci entry without a class")
        for kind in (server.gpus, server.nics):
            numbered = all(device.number is not None for device in kind)
            kind.sort(key=attrgetter("number" if numbered else "name"))
        server.notes += [*self._missing(), *_not_understood(root)]
        return server

    def _devices(self, parent: Element, hops: tuple[Hop, ...]) -> None:
        for child in parent.children:
            if child.name == "pci":
                self._pci(child, hops)
            elif child.name == "nic":
                self._nets(child, hops, hops[-1].name)

    def _pci(self, pci: Element, hops: tuple[Hop, ...]) -> None:
        name, kind = pci.value("busid").text.lower(), pci.value("class").text.lower()
        if not name:
            raise pci.error("has no busid: give it")
        gpus = [child for child in pci.children if child.name == "gpu"]
        nics = [child for child in pci.children if child.name == "nic"]
        switched = any(child.name == "pci" for child in pci.children)
        if not kind and not gpus and not nics and not switched:
            kind = self._class_of(pci, name)
        way = (*hops, self._once(Hop(name, self._rate(pci)), pci))
        if gpus or kind.startswith(GPU_CLASS):
            self._gpu(pci, gpus, way)
        elif nics:
            for nic in nics:
                self._nets(nic, way, name)
        elif kind.startswith(NIC_CLASS):
            self.server.nics.append(Nic(name, None, way, self._nic_rate(pci)))
        elif switched:
            self._devices(pci, way)
        elif not kind.startswith((NVSWITCH_CLASS, "0x0604")):
            self.server.notes.append(pci.value("class").note(f"pci {name} of class {kind} is not used"))

    def _class_of(self, pci: Element, name: str) -> str:
        if name in self.nic_names:
            self.used_nic_names.add(name)
            return NIC_CLASS
        if not self.nic_names:
            raise pci.error(
                f"{shown(name)} has no class, which NCCL finds on its machine: give --nic BUSID for each that is a NIC "
                "(the others are GPUs), or the file of NCCL_TOPO_DUMP_FILE"
            )
        return GPU_CLASS

    def _gpu(self, pci: Element, gpus: list[Element], way: tuple[Hop, ...]) -> None:
        if len(gpus) > 1:
            raise gpus[1].error("is a part of the GPU above: parts of a GPU are not read")
        links, number = [], None
        for gpu in gpus:
            number = gpu.value("dev").whole(0, COUNT_MAX) if "dev" in gpu.attributes else None
            if number is not None and any(number == other.number for other in self.server.gpus):
                raise gpu.value("dev").error("is there twice: give each GPU its own")
            links = list(self._nvlinks(gpu, way[-1].name))
        self.server.gpus.append(Gpu(way[-1].name, number, way, tuple(links)))

    def _nvlinks(self, gpu: Element, own: str) -> Iterator[NvLink]:
        for link in gpu.children:
            if link.name != "nvlink":
                continue
            target, kind = link.value("target").text.lower(), link.value("tclass").text.lower()
            rate_bps = link.value("count").whole(1, COUNT_MAX) * _nvlink_bps(gpu.value("sm").whole(0, COUNT_MAX))
            if kind == NVSWITCH_CLASS:
                yield NvLink("", rate_bps)
            elif not kind.startswith(GPU_CLASS):
                self.server.notes.append(link.value("tclass").note(f"nvlink of {own} to class {kind} is not used"))
            elif target == own:
                self.to_itself.append(link)
            else:
                yield NvLink(target, rate_bps)

    def _nets(self, nic: Element, way: tuple[Hop, ...], place: str) -> None:
        """Add the ports of one NIC, which share its PCIe link; NCCL does not use ports without a number."""
        nets = [net for net in nic.children if net.name == "net" and "dev" in net.attributes]
        nets = [net for net in nets if net.attributes.get("net", "1") != "0"]
        for net in nets:
            number = net.value("dev").whole(0, COUNT_MAX)
            if any(number == other.number for other in self.server.nics):
                raise net.value("dev").error("is there twice: give each port its own")
            speed = net.value("speed", "0").whole(-1, MBPS_MAX)
            rate_bps = speed * 10**6 if speed > 0 else self._nic_rate(net)
            if net.value("latency", "0").number(0, 10**9) > 0:
                self.server.notes.append(net.value("latency").note(f"latency of net {number} is not used"))
            last = Hop(way[-1].name, way[-1].rate_bps // len(nets))
            name = shown(net.attributes.get("name", f"{place} port {number}"))
            self.server.nics.append(Nic(name, number, (*way[:-1], last), rate_bps))

    def _nic_rate(self, nic: Element) -> int:
        if self.nic_rate is None:
            name = shown(nic.attributes.get("busid", nic.attributes.get("name", "")))
            raise nic.error(f"{name} is a NIC whose speed the file lacks: give --nic-rate, such as 200Gb/s")
        self.used_nic_rate = True
        return int(self.nic_rate)

    def _rate(self, pci: Element) -> int:
        """Return the rate of the link above in b/s, of its data."""
        speed, width = pci.value("link_speed"), pci.value("link_width", "0").whole(0, WIDTH_MAX)
        match = _SPEED.fullmatch(speed.text)
        known = match[1].removesuffix(".0") if match else ""
        if match and known not in PCIE_DATA:
            raise speed.error(f"must be one of {', '.join(PCIE_DATA)} GT/s")
        if not match or width == 0:
            self.without_speed.append(pci)
        lane = known or PCIE_DEFAULT
        return int(Fraction(lane) * 10**9 * PCIE_DATA[lane] * (width or WIDTH_DEFAULT))

    def _once(self, hop: Hop, element: Element) -> Hop:
        if hop.name in self.seen:
            raise element.error(f"{shown(hop.name)} is there twice: give each its own number")
        self.seen.add(hop.name)
        return hop

    def _missing(self) -> Iterator[str]:
        if pcis := self.without_speed:
            yield pcis[0].note(
                f"link_speed or link_width is missing ({len(pcis)} entries): {PCIE_DEFAULT} GT/s x{WIDTH_DEFAULT}, as "
                "NCCL takes them"
            )
        if links := self.to_itself:
            yield links[0].note(f"leads from a GPU to itself ({len(links)} times): not used")


def _nvlink_bps(compute_capability: int) -> int:
    return round(next(rate for least, rate in NVLINK_GBPS.items() if compute_capability >= least) * 10**9)


def _not_understood(root: Element) -> Iterator[str]:
    """Yield a note for each unknown element and attribute, at its first place."""
    counts: Counter[str] = Counter()
    first: dict[str, Element] = {}
    for element in root.walk():
        known = KNOWN.get(element.name)
        names = [f"<{element.name}>"]
        if known is not None:
            names = [f"{element.name} {key}" for key in element.attributes if key not in {*known.split(), *EVERYWHERE}]
        for name in names:
            counts[name] += 1
            first.setdefault(name, element)
    for name, element in first.items():
        more = f" ({counts[name]} times)" if counts[name] > 1 else ""
        yield element.note(f"{name} is not understood, and not used{more}")
