"""NCCL's topology XML as a fabric: what each file says, counted again, NCCL's choice of NICs, and what is refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twin_fabrics import GBPS, twin_of

from genie.config.units import Rate, parse_duration, parse_rate
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, Workload
from genie.workload.synthetic import collective
from simtwin.fabric.network import Network
from simtwin.fabric.reading import parse_fabric, to_toml
from simtwin.fabric.routing import shortest_path_routes
from simtwin.fabric.schema import Explicit, Fabric
from simtwin.fabric.topology import build_network
from simtwin.imports.fabrics import import_fabric
from simtwin.imports.nccl import choose_nics
from simtwin.imports.nccl_xml import read_server
from simtwin.imports.options import ImportOptions
from simtwin.imports.words import ForeignFileError

PCIE3_X16, PCIE4_X16 = 126_030_769_230, 252_061_538_461  # 8 and 16 GT/s x 16 lanes x 128/130
NO_NVLINK = (
    "no NVLinks in the file: --nvlink-rate gives an NVSwitch; without one, GPUs of a server use their NICs, if "
    "their messages are played at all (simulate --ranks-per-node 1)"
)


@dataclass(frozen=True)
class Sample:
    """A file of the shared data, the rate that its NICs have in fact, and what a server of it has."""

    file: str
    nic_gbps: int | None
    gpus: int
    nics: int
    port_bps: int
    pcie_bps: int  # between a GPU and a NIC that it shares; 0: no NIC is shared
    nic: tuple[str, ...] = ()

    def options(self, **more: int) -> ImportOptions:
        rate = None if self.nic_gbps is None else Rate(self.nic_gbps * GBPS)
        return ImportOptions(nic_rate=rate, nic=self.nic, servers=more.get("servers"), spines=more.get("spines"))


SAMPLES = [
    Sample("azure/ndv2-topo.xml", 100, 8, 1, 100 * GBPS, PCIE4_X16),
    Sample("azure/ndv4-topo.xml", 200, 8, 8, 200 * GBPS, 0),
    Sample("azure/ndv5-topo.xml", 400, 8, 8, 400 * GBPS, 0),
    Sample("azure/ncv4-topo.xml", None, 4, 1, 100 * GBPS, PCIE3_X16),
    Sample("aws/p4d-24xl-topo.xml", 100, 8, 4, 100 * GBPS, PCIE3_X16),
    Sample("aws/p4de-24xl-topo.xml", 100, 8, 4, 100 * GBPS, PCIE3_X16),
    Sample("aws/g5.48xl-topo.xml", 100, 8, 1, 100 * GBPS, PCIE3_X16, ("0000:00:15.0",)),
]


def network_of(fabric: Fabric) -> Network:
    assert parse_fabric(to_toml(fabric)) == fabric
    return build_network(fabric)


def rates(network: Network, inside: bool) -> Counter[int]:
    """Cables of each rate, at the hosts (or bridges) or towards the network's switches."""
    outside = (np.arange(network.nodes) >= network.hosts) & ~network.is_bridge
    cables = slice(0, network.links, 2)
    is_outside = outside[network.src_node[cables]] | outside[network.dst_node[cables]]
    return Counter(network.rate_bps[cables][is_outside != inside].tolist())


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.file)
def test_each_file_has_its_own_numbers(shared_data: Path, sample: Sample) -> None:
    path = shared_data / "topo" / sample.file
    classes = Counter(pci.get("class", "")[:4] for pci in ElementTree.parse(path).iter("pci"))
    if not sample.nic:
        nets = len(list(ElementTree.parse(path).iter("net")))
        assert (classes["0x03"], classes["0x02"] + nets) == (sample.gpus, sample.nics)
    made = import_fabric(path, options=sample.options(servers=3, spines=2))
    network = network_of(made.fabric)
    assert network.hosts == 3 * sample.gpus
    spines = 2 * sample.nics
    if sample.pcie_bps:
        assert network.nodes == 3 * (sample.gpus + sample.nics) + sample.nics + 2
        assert int(network.is_bridge.sum()) == 3 * sample.nics
        assert rates(network, inside=True) == {sample.pcie_bps: 3 * sample.gpus}
    else:
        assert network.nodes == 3 * sample.gpus + sample.nics + 2
        assert not network.is_bridge.any()
    assert rates(network, inside=False) == {sample.port_bps: 3 * sample.nics + spines}
    assert isinstance(made.fabric.topology, Explicit)
    assert made.fabric.topology.hosts_per_server == sample.gpus
    assert NO_NVLINK in made.notes


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.file)
def test_a_collective_plays_on_each(shared_data: Path, sample: Sample) -> None:
    made = import_fabric(shared_data / "topo" / sample.file, options=sample.options())
    assert made.fabric.hosts == 2 * sample.gpus
    result = twin_of(made.fabric).play(collective(Op.ALL_REDUCE, made.fabric.hosts, 1 << 18))
    assert result.counters["dropped"] == 0


def test_gpus_have_the_nics_of_their_pcie_switch(shared_data: Path) -> None:
    """The vendors' pairs: the k-th GPU by bus id with the k-th NIC, or two GPUs of a switch with its one NIC."""
    azure = read_server(shared_data / "topo" / "azure" / "ndv4-topo.xml", Rate(200 * GBPS))
    assert choose_nics(azure).of_gpu == tuple((number,) for number in range(8))
    assert [(gpu.name[:4], nic.name[:4]) for gpu, nic in zip(azure.gpus, azure.nics, strict=True)][3:5] == [
        ("0004", "0104"),
        ("000b", "0105"),
    ]
    aws = read_server(shared_data / "topo" / "aws" / "p4d-24xl-topo.xml", Rate(100 * GBPS))
    assert choose_nics(aws).of_gpu == tuple((number // 2,) for number in range(8))


def test_gpus_that_share_a_nic_may_have_all_of_it(shared_data: Path) -> None:
    """One alone sends at the NIC's rate, two at half of it; what stays in the server does not leave its NIC."""
    made = import_fabric(shared_data / "topo" / "aws" / "p4d-24xl-topo.xml", options=SAMPLES[4].options())
    network = network_of(made.fabric)
    routes = shortest_path_routes(network)

    def way(source: int, target: int) -> list[str]:
        names, node = [], source
        while node != target:
            node = int(network.dst_node[routes.choices(node, target)[0]])
            names.append(network.node_names[node])
        return names

    assert way(0, 8) == ["server0nic0", "rail0", "server1nic0", "server1gpu0"]
    assert way(0, 1) == ["server0nic0", "server0gpu1"]
    assert [name.startswith("spine") for name in way(0, 10)] == [False, False, True, False, False, False]
    size_bytes = 8 << 20
    alone_ns, both_ns = (slowest_ns(made.fabric, size_bytes, flows) for flows in ([(0, 8)], [(0, 8), (1, 9)]))
    assert alone_ns == pytest.approx(size_bytes * 8 / 100, rel=0.05)
    assert both_ns == pytest.approx(2 * alone_ns, rel=0.05)


def slowest_ns(fabric: Fabric, size_bytes: int, flows: list[tuple[int, int]]) -> int:
    """Until the last of these messages is acknowledged."""
    workload = Workload("flows", fabric.hosts, [Group("world", tuple(range(fabric.hosts)))], {})
    builders = [RankBuilder(rank) for rank in range(fabric.hosts)]
    for number, (source, target) in enumerate(flows):
        builders[source].add(number, "flow", Kind.SEND, size_bytes=size_bytes, peer=target, tag=number)
        builders[target].add(number, "flow", Kind.RECV, size_bytes=size_bytes, peer=source, tag=number)
    for rank, builder in enumerate(builders):
        workload.ranks[rank], _ = builder.finish()
    return int(twin_of(fabric).play(workload).transfers["acked_ns"].max())  # type: ignore[arg-type]


# -- files of our own ------------------------------------------------------------------------------------------------


def pci(busid: str, kind: str, inner: str = "", speed: str = "16.0 GT/s PCIe", width: int = 16) -> str:
    return f'<pci busid="{busid}" class="{kind}" link_speed="{speed}" link_width="{width}">{inner}</pci>\n'


def gpu(number: int, inner: str = "", sm: int = 90) -> str:
    return pci(f"00{number:02x}:00", "0x030200", f'<gpu dev="{number}" sm="{sm}" rank="{number}" gdr="1">{inner}</gpu>')


def nic(number: int, *speeds_mbps: int, kind: str = "0x020700", width: int = 16) -> str:
    nets = "".join(
        f'<net name="mlx5_{number + at}" dev="{number + at}" speed="{speed}" port="1"/>'
        for at, speed in enumerate(speeds_mbps)
    )
    return pci(f"01{number:02x}:00", kind, f"<nic>{nets}</nic>", width=width)


def switched(number: int, *devices: str) -> str:
    return pci(f"ff{number:02x}:00", "0x060400", "".join(devices))


def system(*cpus: str) -> str:
    inner = "".join(f'<cpu numaid="{at}" arch="x86_64">\n{devices}</cpu>\n' for at, devices in enumerate(cpus))
    return f'<system version="1">\n{inner}</system>\n'


def imported(folder: Path, text: str, **options: object) -> tuple[Network, tuple[str, ...]]:
    (folder / "topo.xml").write_text(text)
    made = import_fabric(folder / "topo.xml", options=ImportOptions(**options))  # type: ignore[arg-type]
    return network_of(made.fabric), made.notes


def cables(network: Network, *starts: str) -> dict[str, int]:
    """Rates of links of server 0 between nodes whose names start so."""
    names = [name for name in network.link_names if all(part in name for part in ("server0", *starts))]
    return {name: int(network.rate_bps[network.link_names.index(name)]) for name in names}


@pytest.mark.parametrize(
    ("gpus", "nics", "chosen"),
    [
        (1, 4, ((0, 1, 2, 3),)),
        (2, 1, ((0,), (0,))),
        (2, 4, ((0, 1), (2, 3))),
        (3, 2, ((0,), (1,), (0,))),
        (4, 4, ((0,), (2,), (1,), (3,))),  # bits in reverse
        (3, 3, ((0,), (1,), (2,))),
    ],
)
def test_gpus_of_a_switch_share_its_nics_as_nccl_does(
    tmp_path: Path, gpus: int, nics: int, chosen: tuple[tuple[int, ...], ...]
) -> None:
    devices = [gpu(number) for number in range(gpus)] + [nic(number, 200_000) for number in range(nics)]
    (tmp_path / "topo.xml").write_text(system(switched(0, *devices)))
    assert choose_nics(read_server(tmp_path / "topo.xml")).of_gpu == chosen


def test_the_nearest_nic_is_on_the_same_switch_then_on_the_same_cpu(tmp_path: Path) -> None:
    text = system(
        switched(0, gpu(0), nic(0, 100_000)) + switched(1, gpu(1)),
        nic(1, 400_000) + switched(2, gpu(2)) + gpu(3),
    )
    (tmp_path / "topo.xml").write_text(text)
    assert choose_nics(read_server(tmp_path / "topo.xml")).of_gpu == ((0,), (0,), (1,), (1,))


def test_a_port_is_as_fast_as_its_nic_or_its_pcie_lets_it_be(tmp_path: Path) -> None:
    text = system(switched(0, gpu(0), nic(0, 400_000)), switched(1, gpu(1), nic(1, 100_000, 100_000, width=8)))
    network, notes = imported(tmp_path, text)
    assert cables(network, "->rail") == {
        "server0gpu0->rail0": PCIE4_X16,  # and not 400 Gb/s
        "server0gpu1->rail1": PCIE4_X16 // 4,  # two ports share eight lanes
        "server0gpu1->rail2": PCIE4_X16 // 4,
    }
    assert "PCIe lets mlx5_0 send 252061538461b/s of its 400Gb/s (3 such NICs)" in notes


def test_nvswitches_are_a_bridge_with_the_rate_of_all_links(tmp_path: Path) -> None:
    """18 links of 20.6 GB/s at compute capability 9.0; the same server's GPUs meet there."""
    nvlinks = '<nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/>'
    devices = [gpu(number, nvlinks) for number in range(2)]
    network, notes = imported(tmp_path, system(switched(0, *devices, nic(0, 400_000))), servers=2)
    assert set(cables(network, "nvswitch").values()) == {18 * 164_800_000_000}
    routes = shortest_path_routes(network)
    assert [network.link_names[link] for link in routes.choices(0, 1)] == ["server0gpu0->server0nvswitch"]
    assert [network.link_names[link] for link in routes.choices(0, 2)] == ["server0gpu0->server0nic0"]
    assert NO_NVLINK not in notes


def test_nvlinks_between_gpus_are_cables(tmp_path: Path) -> None:
    """Two links there and two back of 20 GB/s at compute capability 7.0."""
    devices = [gpu(at, f'<nvlink target="00{1 - at:02x}:00" count="2" tclass="0x030200"/>', sm=70) for at in range(2)]
    network, _ = imported(tmp_path, system(switched(0, *devices, nic(0, 100_000))))
    assert cables(network, "gpu0->server0gpu1") == {"server0gpu0->server0gpu1": 2 * 160 * GBPS}
    assert cables(network, "gpu1->server0gpu0") == {"server0gpu1->server0gpu0": 2 * 160 * GBPS}
    routes = shortest_path_routes(network)
    assert [network.link_names[link] for link in routes.choices(0, 1)] == ["server0gpu0->server0gpu1"]


def test_options_say_what_a_file_leaves_open(tmp_path: Path) -> None:
    text = system(switched(0, gpu(0), nic(0, 100_000)) + switched(1, gpu(1), nic(1, -1)))
    network, notes = imported(
        tmp_path, text, servers=3, spines=1, nic_rate=parse_rate("25Gb/s"), nvlink_rate=parse_rate("900Gb/s"),
        delay=parse_duration("1us"),
    )  # fmt: skip
    assert (network.hosts, network.links // 2) == (6, 6 + 6 + 2)
    assert cables(network, "->rail") == {"server0gpu0->rail0": 100 * GBPS, "server0gpu1->rail1": 25 * GBPS}
    assert set(cables(network, "nvswitch").values()) == {900 * GBPS}
    assert set(network.delay_ps.tolist()) == {0, 10**6}
    assert [note for note in notes if "--" in note] == []
    by_default, notes = imported(tmp_path, text, nic_rate=parse_rate("25Gb/s"))
    assert by_default.hosts == 4
    assert [note for note in notes if "--" in note] == [
        "2 servers: --servers gives another number",
        "2 spines, as many as each rail's switch has servers: --spines gives another number",
        "cables of the network have a delay of 500ns: --delay gives another one",
        NO_NVLINK,
    ]


def test_what_is_not_understood_is_named(tmp_path: Path) -> None:
    text = system(switched(0, gpu(0, '<c2c bw="1"/>'), nic(0, 100_000), pci("0200:00", "0x010802")))
    text = text.replace("arch=", 'mood="good" arch=').replace("port=", 'rail="0" latency="1.5" port=')
    _, notes = imported(tmp_path, text)
    where = tmp_path / "topo.xml"
    assert {note for note in notes if note.startswith(str(where))} == {
        f"{where}:2: <cpu>: cpu mood is not understood, and not used",
        f"{where}:3: <c2c>: <c2c> is not understood, and not used",
        f"{where}:4: <net>: net rail is not understood, and not used",
        f"{where}:4: latency of net 0 is not used",
        f"{where}:5: pci 0200:00 of class 0x010802 is not used",
    }


ONE = system(switched(0, gpu(0), nic(0, 100_000)))
REFUSED = [
    ("<graphs version='1'/>", ":1: <graphs> has the channels that NCCL chose and not a topology"),
    ("<network/>", ":1: <network> is not <system>"),
    (ONE.replace('version="1"', 'version="2"'), ":1: system version = 2: must be 1"),
    (ONE.replace("</cpu>", ""), ":7: is not XML: mismatched tag"),
    ("<!DOCTYPE system []>" + ONE, ":1: has a document type: leave it out"),
    (system(gpu(0)), ":1: <system> names no NIC"),
    (system(nic(0, 100_000)), ":1: <system> names no GPU"),
    (ONE.replace('speed="100000"', 'speed="-1"'), ":4: <net> mlx5_0 is a NIC whose speed the file lacks: give --nic-"),
    (ONE.replace('speed="100000"', 'speed="fast"'), ":4: net speed = fast: give a whole number from -1 to"),
    (
        ONE.replace('"16.0 GT/s PCIe"', '"17 GT/s"'),
        ":3: pci link_speed = 17 GT/s: must be one of 2.5, 5, 8, 16, 32, 64",
    ),
    (ONE.replace('link_width="16"', 'link_width="99"'), ":3: pci link_width = 99: give a whole number from 0 to 32"),
    (ONE.replace("0100:00", "0000:00"), ":4: <pci> 0000:00 is there twice"),
    (ONE.replace('busid="0100:00"', 'busid=""'), ":4: <pci> has no busid"),
    (
        ONE.replace('class="0x030200"', 'class=""').replace("<gpu", "<x").replace("</gpu", "</x"),
        ":3: <pci> 0000:00 has no",
    ),
    (ONE.replace('numaid="0"', ""), ":2: cpu numaid = (nothing): give a whole number"),
    (system(switched(0, gpu(0), gpu(1).replace('dev="1"', 'dev="0"'), nic(0, 9))), ":4: gpu dev = 0: is there twice"),
    (
        system(switched(0, gpu(0), nic(0, 9), nic(1, 9).replace('dev="1"', 'dev="0"'))),
        ":5: net dev = 0: is there twice",
    ),
    ("<a>" * 70 + "</a>" * 70, ":1: <a> is nested deeper than 64 elements"),
    ("<?xml version='1.0' encoding='klingon'?>" + ONE, ": has an encoding that is not read: unknown encoding: klingon"),
]


@pytest.mark.parametrize(("text", "says"), REFUSED)
def test_what_cannot_be_read_is_said_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ForeignFileError) as refused:
        imported(tmp_path, text)
    assert str(refused.value).startswith(f"{tmp_path / 'topo.xml'}{says}")
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"nic_rate": Rate(1)}, "every NIC has its speed there: leave --nic-rate out"),
        ({"nic": ("00:99",)}, "--nic 00:99: is not a pci entry without a class"),
        ({"spines": 0}, "are not joined: give --spines 1 or more"),
        ({"servers": 65_536}, "--servers 65536: make at most 65536 GPUs: give fewer"),
        ({"conf": Path("x")}, "--conf: is for simai and ns3, and"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path: Path, options: dict[str, object], says: str) -> None:
    text = system(switched(0, gpu(0), nic(0, 100_000)) + switched(1, gpu(1), nic(1, 100_000)))
    with pytest.raises(ForeignFileError) as refused:
        imported(tmp_path, text, **options)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


JUNK = ["", "-1", "0", "1", "99999999999", "9" * 60, "0x03", "0x02", "0x068000", "x", "1_0", "é", "5.0 GT/s", "0101:00"]
NVLINK = '<nvlink target="0000:00" count="2" tclass="0x030200"/>'
WHOLE = system(switched(0, gpu(0), nic(0, 200_000)) + switched(1, gpu(1, NVLINK), nic(1, 1, 2)))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.data())
def test_corrupted_files_are_refused_in_one_line_or_read(data: st.DataObject) -> None:
    """Attributes with other values and, now and then, other characters of the XML itself."""
    parts = WHOLE.split('"')
    for _ in range(data.draw(st.integers(1, 3))):
        parts[2 * data.draw(st.integers(0, len(parts) // 2 - 1)) + 1] = data.draw(st.sampled_from(JUNK))
    text = '"'.join(parts)
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(text) - 1))
        text = text[:at] + data.draw(st.sampled_from(["", "<", ">", "&", "/", "pci", "nic"])) + text[at + 1 :]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "topo.xml"
        path.write_text(text, encoding="utf-8")
        why, notes = "", tuple[str, ...]()
        try:
            made = import_fabric(path, "nccl", ImportOptions(nic_rate=data.draw(st.none() | st.just(Rate(10**9)))))
            notes = made.notes
            assert parse_fabric(to_toml(made.fabric)) == made.fabric
        except ForeignFileError as refused:
            why = str(refused)
        assert why == "" or why.startswith(f"{path}:"), why
        assert all(line.isprintable() for line in (why, *notes))
