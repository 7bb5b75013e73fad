"""A fabric of servers as in NCCL's topology XML: GPUs are hosts, and NICs are attached to a switch for each rail.

NCCL chooses the NICs of each GPU (its src/graph/topo.cc). A NIC of one GPU is that host's port. Where one serves
several, NICs are bridges, so that each GPU may use all of it while the others are idle.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from genie.config.units import Duration, Rate, format_duration, format_rate
from simtwin.fabric.reading import FabricError, parse_fabric, to_toml
from simtwin.fabric.routing import RoutingError, check_joined
from simtwin.fabric.schema import HOSTS_MAX, Explicit, Fabric, NamedHost, NamedLink, NamedSwitch
from simtwin.fabric.topology import build_network
from simtwin.imports.nccl_xml import Gpu, Nic, Server, read_server
from simtwin.imports.options import Imported, ImportOptions
from simtwin.imports.words import ForeignFileError

SERVERS, DELAY = 2, Duration(500_000)
SPINES_MAX = 4096  # in the file, each has a cable for every rail
GPU_TO_NIC_LENGTH = 2  # so that NVLinks are nearer than a NIC that two GPUs share


@dataclass(frozen=True)
class Choice:
    """The NICs that serve each GPU of a server."""

    of_gpu: tuple[tuple[int, ...], ...]
    nics: tuple[int, ...]  # that serve at least one GPU

    @property
    def is_shared(self) -> bool:
        return sum(map(len, self.of_gpu)) > len(self.nics)


def read_nccl(path: Path, options: ImportOptions) -> Imported:
    """Read NCCL's topology XML. Raises ForeignFileError."""
    server = read_server(path, options.nic_rate, options.nic)
    servers = SERVERS if options.servers is None else options.servers
    if servers * len(server.gpus) > HOSTS_MAX:
        raise ForeignFileError(f"--servers {servers}: make at most {HOSTS_MAX} GPUs: give fewer")
    if options.spines is not None and options.spines > SPINES_MAX:
        raise ForeignFileError(f"--spines {options.spines}: give {SPINES_MAX} or fewer")
    if options.nvlink_rate is not None and any(gpu.nvlinks for gpu in server.gpus):
        raise ForeignFileError(f"{path}: has NVLinks of its own: leave --nvlink-rate out")
    choice = choose_nics(server)
    rails = len(choice.nics)
    spines = (servers if rails > 1 else 0) if options.spines is None else options.spines
    delay = DELAY if options.delay is None else options.delay
    notes = [*server.notes, *_notes_on(server, choice)]
    if options.servers is None:
        notes.append(f"{servers} servers: --servers gives another number")
    if options.spines is None and rails > 1:
        notes.append(f"{spines} spines, as many as each rail's switch has servers: --spines gives another number")
    if options.delay is None:
        notes.append(f"cables of the network have a delay of {format_duration(delay)}: --delay gives another one")
    if options.nvlink_rate is None and not any(gpu.nvlinks for gpu in server.gpus):
        notes.append(
            "no NVLinks in the file: --nvlink-rate gives an NVSwitch; without one, GPUs of a server use their NICs, "
            "if their messages are played at all (simulate --ranks-per-node 1)"
        )
    switches = [NamedSwitch(f"rail{rail}") for rail in range(rails)] + [NamedSwitch(f"spine{i}") for i in range(spines)]
    hosts: list[NamedHost] = []
    links: list[NamedLink] = []
    for number in range(servers):
        one = _Cables(f"server{number}", server, choice, delay)
        hosts += [NamedHost(one.gpu(gpu)) for gpu in range(len(server.gpus))]
        one.to_rails()
        one.by_nvlink(options.nvlink_rate)
        switches += one.bridges
        links += one.links
    for rail, nic in enumerate(choice.nics):
        rate = Rate(port_bps(server.nics[nic]))
        links += [NamedLink(f"rail{rail}", f"spine{spine}", rate, delay) for spine in range(spines)]
    topology = Explicit(hosts_per_server=len(server.gpus), host=hosts, switch=switches, link=links)
    fabric = Fabric(name=path.stem[:64], topology=topology)
    try:
        parse_fabric(to_toml(fabric), "its fabric file")
    except FabricError as wrong:
        if rails > 1 and not spines and _is_apart(fabric):
            instead = ", or --nvlink-rate" if servers == 1 and not options.nvlink_rate else ""
            raise ForeignFileError(
                f"--spines 0: the {rails} rails of {path} are not joined: give --spines 1 or more{instead}"
            ) from wrong
        raise ForeignFileError(f"{path}: makes what the twin cannot play: {wrong}") from wrong
    return Imported(fabric, tuple(notes))


def _is_apart(fabric: Fabric) -> bool:
    """Return whether some pair of hosts has no path."""
    try:
        check_joined(build_network(fabric))
    except RoutingError:
        return True
    return False


class _Cables:
    """The nodes and cables of one server."""

    def __init__(self, name: str, server: Server, choice: Choice, delay: Duration) -> None:
        self.name, self.server, self.choice, self.delay = name, server, choice, delay
        self.links: list[NamedLink] = []
        self.bridges: list[NamedSwitch] = []

    def gpu(self, number: int) -> str:
        return f"{self.name}gpu{number}"

    def to_rails(self) -> None:
        server, nics = self.server, self.choice.nics
        rail_of = {nic: rail for rail, nic in enumerate(nics)}
        for number, (gpu, own) in enumerate(zip(server.gpus, self.choice.of_gpu, strict=True)):
            for nic in own:
                rail, path = rail_of[nic], pcie_bps(gpu, server.nics[nic])
                if self.choice.is_shared:
                    bridge = f"{self.name}nic{rail}"
                    self._join(self.gpu(number), bridge, path, length=GPU_TO_NIC_LENGTH)
                else:
                    rate = _least(port_bps(server.nics[nic]), path)
                    self.links.append(NamedLink(self.gpu(number), f"rail{rail}", Rate(rate), self.delay))
        if self.choice.is_shared:
            for rail, nic in enumerate(nics):
                self.bridges.append(NamedSwitch(f"{self.name}nic{rail}", bridge=True))
                rate = Rate(port_bps(server.nics[nic]))
                self.links.append(NamedLink(f"{self.name}nic{rail}", f"rail{rail}", rate, self.delay))

    def by_nvlink(self, rate: Rate | None) -> None:
        """Add cables to the NVSwitches, which are one bridge, and between GPUs.

        `rate`: to an NVSwitch that the file lacks.
        """
        number_of = {gpu.name: number for number, gpu in enumerate(self.server.gpus)}
        to_switch = [0 if rate is None else int(rate)] * len(self.server.gpus)
        between: dict[tuple[int, int], list[int]] = {}
        for number, gpu in enumerate(self.server.gpus):
            for nvlink in gpu.nvlinks:
                if not nvlink.target:
                    to_switch[number] += nvlink.rate_bps
                elif (other := number_of.get(nvlink.target)) is not None:
                    pair = between.setdefault((min(number, other), max(number, other)), [0, 0])
                    pair[number > other] += nvlink.rate_bps
        if any(to_switch):
            bridge = f"{self.name}nvswitch"
            self.bridges.append(NamedSwitch(bridge, bridge=True))
            for number, rate_bps in enumerate(to_switch):
                if rate_bps:
                    self._join(self.gpu(number), bridge, rate_bps)
        for (a, b), (there, back) in between.items():
            self._join(self.gpu(a), self.gpu(b), there or back, back or there)

    def _join(self, a: str, b: str, rate_bps: int, back_bps: int | None = None, length: int = 1) -> None:
        """Add a cable inside the server, where no delay is known."""
        back = None if back_bps in (None, rate_bps) else Rate(back_bps or 0)
        self.links.append(NamedLink(a, b, Rate(rate_bps), Duration(0), back, length=length))


def choose_nics(server: Server) -> Choice:
    """Return the NICs of each GPU as ncclTopoGetLocalNet does: a share of the nearest ones, rotated from GPU to GPU."""
    chosen = []
    for number, gpu in enumerate(server.gpus):
        near = _nearest(gpu, server.nics)
        sharers = _nearest(server.nics[near[0]], server.gpus)
        takes = -(-len(near) // len(sharers))
        first = (number if gpu.number is None else gpu.number) % len(sharers)
        bits = len(near).bit_length() - 1
        if len(near) == 1 << bits:  # bits in reverse: neighbours take distant NICs
            first = int(f"{first % len(near):0{bits}b}"[::-1], 2) if bits else 0
        chosen.append(tuple(sorted({near[(first + more) % len(near)] for more in range(takes)})))
    return Choice(tuple(chosen), tuple(sorted({nic for own in chosen for nic in own})))


def distance(a: Gpu | Nic, b: Gpu | Nic) -> tuple[bool, int]:
    """Return whether two devices are on different CPUs, and the number of PCIe links between them."""
    common = _common(a, b)
    return common == 0, len(a.hops) + len(b.hops) - 2 * common


def pcie_bps(gpu: Gpu, nic: Nic) -> int:
    """Return the rate of the slowest link between them; 0: unlimited. The links between CPUs are not in the file."""
    common = _common(gpu, nic)
    return _least(*(hop.rate_bps for hop in (*gpu.hops[common:], *nic.hops[common:])))


def port_bps(nic: Nic) -> int:
    """Return a NIC's send rate in b/s: its own, or its PCIe link's where that is lower."""
    return _least(nic.rate_bps, nic.hops[-1].rate_bps)


def _nearest(device: Gpu | Nic, others: list[Gpu] | list[Nic]) -> list[int]:
    distances = [distance(device, other) for other in others]
    return [number for number, found in enumerate(distances) if found == min(distances)]


def _common(a: Gpu | Nic, b: Gpu | Nic) -> int:
    """Return the number of steps from the CPU that both paths share."""
    common = 0
    for one, other in zip(a.hops, b.hops, strict=False):
        if one.name != other.name:
            break
        common += 1
    return common


def _least(*rates_bps: int) -> int:
    return min((rate for rate in rates_bps if rate > 0), default=0)


def _notes_on(server: Server, choice: Choice) -> list[str]:
    """Return notes on the NICs of each GPU, slow PCIe links, unused NICs and unknown NVLinks."""
    served = []
    for number, (gpu, own) in enumerate(zip(server.gpus, choice.of_gpu, strict=True)):
        crosses, _ = distance(gpu, server.nics[own[0]])
        way = " on another CPU" if crosses else ""
        served.append(f"gpu{number} {gpu.name} by {', '.join(server.nics[nic].name for nic in own)}{way}")
    notes = [f"the NICs nearest on PCIe serve GPUs: {'; '.join(served)}"]
    if slow := [nic for nic in server.nics if port_bps(nic) < nic.rate_bps]:
        rate, limit = format_rate(slow[0].rate_bps), format_rate(port_bps(slow[0]))
        notes.append(f"PCIe lets {slow[0].name} send {limit} of its {rate} ({len(slow)} such NICs)")
    if idle := [nic.name for number, nic in enumerate(server.nics) if number not in choice.nics]:
        notes.append(f"no GPU is nearest to {', '.join(idle)}: left out")
    names = {gpu.name for gpu in server.gpus}
    lost = [link.target for gpu in server.gpus for link in gpu.nvlinks if link.target and link.target not in names]
    if lost:
        notes.append(f"NVLinks to {lost[0]} are not used: it is not a GPU in the file")
    return notes
