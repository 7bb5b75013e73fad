"""Topology files of SimAI and ns-3 as fabrics: their own numbers, counted again, and what is refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twin_fabrics import GBPS, twin_of

from genie.config.congestion import DcqcnTimer
from genie.config.units import parse_rate
from genie.workload.graph import Op
from genie.workload.synthetic import collective
from simtwin.fabric.reading import parse_fabric, to_toml
from simtwin.fabric.routing import shortest_path_routes
from simtwin.fabric.schema import Explicit, Fabric
from simtwin.fabric.topology import build_network
from simtwin.imports.fabrics import import_fabric
from simtwin.imports.ns3 import read_experiment
from simtwin.imports.options import ImportOptions
from simtwin.imports.words import ForeignFileError

SAMPLE = "Spectrum-X_16g_8gps_400Gbps_H100"
SIMAI = """\
4 5 6
0 4 2880Gbps 0.000025ms 0
1 4 2880Gbps 0.000025ms 0
2 5 2880Gbps 0.000025ms 0
3 5 2880Gbps 0.000025ms 0
0 6 100Gbps 0.001ms 0
1 6 100Gbps 0.001ms 0
2 6 100Gbps 0.001ms 0
3 6 100Gbps 0.001ms 0
"""
CONF = "KMAX_MAP 1 100000000000 300\nKMIN_MAP 1 100000000000 100\nPMAX_MAP 1 100000000000 0.2\n"


def simai(header: str = "7 2 2 1 8 H100") -> str:
    """Two servers of two GPUs with an NVSwitch each, on switch 6."""
    return f"{header}\n{SIMAI}"


def imported(folder: Path, text: str, conf: str | None = None, name: str = "topology") -> tuple[Fabric, list[str]]:
    (folder / name).write_text(text)
    options = ImportOptions()
    if conf is not None:
        (folder / "conf").write_text(conf)
        options = ImportOptions(conf=folder / "conf")
    made = import_fabric(folder / name, options=options)
    return made.fabric, list(made.notes)


def explicit(fabric: Fabric) -> Explicit:
    assert isinstance(fabric.topology, Explicit)
    return fabric.topology


def counted(text: str) -> tuple[list[int], Counter[int], Counter[int]]:
    """Header's numbers, cables of each node, and cables of each rate: SimAI's file by plain splitting."""
    lines = text.strip().split("\n")
    header = [int(word) for word in lines[0].split()[:5]]
    rows = [line.split() for line in lines[2:]]
    degrees = Counter(int(end) for row in rows for end in row[:2])
    return header, degrees, Counter(int(row[2].removesuffix("Gbps")) * GBPS for row in rows)


@pytest.mark.parametrize("with_conf", [False, True])
def test_simai_s_sample_has_its_own_numbers(shared_data: Path, with_conf: bool) -> None:
    folder = shared_data / "simai"
    (nodes, per_server, nvswitches, switches, links), degrees, rates = counted((folder / SAMPLE).read_text())
    options = ImportOptions(conf=folder / "SimAI.conf" if with_conf else None)
    fabric = import_fabric(folder / SAMPLE, options=options).fabric
    assert parse_fabric(to_toml(fabric)) == fabric
    network = build_network(fabric)
    assert network.nodes == nodes
    assert network.hosts == nodes - nvswitches - switches == 16
    assert explicit(fabric).hosts_per_server == per_server == 8
    assert network.links == 2 * links
    assert int(network.is_bridge.sum()) == nvswitches == 2
    assert Counter(network.rate_bps[::2].tolist()) == rates
    assert int(network.rate_bps[::2].sum()) == sum(rate * count for rate, count in rates.items())
    assert np.bincount(network.src_node).tolist() == [degrees[node] for node in range(nodes)]
    assert set(network.delay_ps[network.rate_bps == 400 * GBPS].tolist()) == {500_000}
    result = twin_of(fabric).play(collective(Op.ALL_REDUCE, 16, 1 << 20))
    assert result.counters["dropped"] == 0


def test_same_server_traffic_takes_nvlink_and_no_other_does(shared_data: Path) -> None:
    network = build_network(import_fabric(shared_data / "simai" / SAMPLE).fabric)
    routes = shortest_path_routes(network)
    for source in range(16):
        for target in set(range(16)) - {source}:
            to = {int(network.dst_node[link]) for link in routes.choices(source, target)}
            assert all(network.is_bridge[list(to)]) == (source // 8 == target // 8), (source, target)
            assert len(to) == 1


def test_nvlink_is_nearer_than_a_switch_that_gpus_of_a_server_share(tmp_path: Path) -> None:
    """By hops both are as far: where racks have one switch, and not one a rail."""
    network = build_network(imported(tmp_path, simai())[0])
    routes = shortest_path_routes(network)
    assert [network.node_names[network.dst_node[link]] for link in routes.choices(0, 1)] == ["nvswitch4"]
    assert [network.node_names[network.dst_node[link]] for link in routes.choices(0, 2)] == ["switch6"]


def test_simai_s_configuration_is_ns3_s(shared_data: Path) -> None:
    folder = shared_data / "simai"
    made = import_fabric(folder / SAMPLE, options=ImportOptions(conf=folder / "SimAI.conf"))
    fabric = made.fabric
    assert isinstance(fabric.control, DcqcnTimer)
    # Two servers' rails: four links of 500 ns, and a payload of 9000 B on each; the window is what a sender sends then.
    trip_ps = 2 * 4 * 500_000 + 4 * 180_000
    assert fabric.control.window == trip_ps * 400 // 8000
    assert fabric.frame.payload == 9000
    assert fabric.switch.shared_buffer == 32 << 20
    assert fabric.ecn is not None
    assert (fabric.ecn.minimum, fabric.ecn.maximum, fabric.ecn.probability) == (800_000, 3_200_000, 0.2)
    assert fabric.pfc is not None
    assert fabric.pfc.headroom == 75_000  # of the network's links; NVSwitches do not pause
    assert made.notes == ("all windows follow the longest base round trip: that model has one for each pair of hosts",)


def test_what_is_not_understood_or_not_played_is_named(tmp_path: Path) -> None:
    conf = f"{CONF}GLOBAL_T 1\nTRACE_FILE none\nCOLOUR red\nL2_ACK_INTERVAL 4\nCC_MODE 8\nDCTCP_RATE_AI 1Gb/s\n"
    _, notes = imported(tmp_path, simai() + "src dst rate delay error\n", conf)
    where = tmp_path / "conf"
    assert notes == [
        f"{tmp_path / 'topology'}:11: this text below the last link is not read: src dst rate delay error",
        f"{where}:7: L2_ACK_INTERVAL 4 is not played: the twin has 1",
        f"{where}:9: DCTCP_RATE_AI is not played: the twin's DCTCP adds a packet in a round trip",
        f"{where}:6: COLOUR is not understood, and not used",
    ]


def test_a_bare_topology_of_ns3_is_a_fabric(shared_data: Path) -> None:
    path = shared_data / "ns3-reference" / "star_17_100Gbps_0.001ms.txt"
    nodes, switches, links = (int(word) for word in path.read_text().split()[:3])
    made = import_fabric(path)
    network = build_network(made.fabric)
    assert (network.nodes, network.hosts, network.links) == (nodes, nodes - switches, 2 * links)
    assert set(network.rate_bps.tolist()) == {100 * GBPS}
    assert made.fabric.pfc is made.fabric.ecn is None
    assert len(made.notes) == 1
    assert "--conf" in made.notes[0]


def test_a_configuration_without_flows_has_the_parameters_of_one_with(shared_data: Path) -> None:
    """Of hosts on one switch all pairs are as far as the flows' pairs."""
    folder = shared_data / "ns3-reference"
    for name in ("hpcc", "dcqcn_win", "nocc_buf4"):
        conf = folder / "config" / f"incast16_star__{name}.txt"
        star = import_fabric(folder / "star_17_100Gbps_0.001ms.txt", options=ImportOptions(conf=conf)).fabric
        experiment = read_experiment(conf).fabric
        assert star.control == experiment.control
        assert (star.topology, star.pfc, star.ecn) == (experiment.topology, experiment.pfc, experiment.ecn)


REFUSED = [
    (simai(header="7 3 2 1 8 H100"), "topology:1: number of GPUs of a server = 3: does not divide the 4 GPUs"),
    (simai(header="7 2 2 1 7 H100"), "topology:1: number of links = 7: line 10 has one more: give the number of all"),
    (simai(header="7 2 2 1 9 H100"), "topology:1: number of links = 9: the file has 8: give 8, or add the missing"),
    (simai(header="7 2 4 3 8 H100"), "topology:1: number of nodes = 7: is no more than the 7 switches"),
    (simai().replace("\n1 4 ", "\n2 4 "), "topology:4: target of link 1 = 4: joins NVSwitch 4 of server 0 and GPU 2"),
    (simai().replace("\n1 4 ", "\n6 4 "), "topology:4: target of link 1 = 4: joins NVSwitch 4 and switch 6"),
    (simai().replace("4 5 6", "4 5 5"), "topology:2: switch = 5: is there twice"),
    (simai().replace("100Gbps 0.001ms 0", "100Gbps 0.001ms 0.1", 1), "topology:7: error rate of link 4 = 0.1: links"),
    (simai().replace("3 6 100", "2 6 100"), "topology: no path from host"),
    (CONF + "TOPOLOGY_FILE t\n", "topology: is a configuration: give the topology file, and this one by --conf"),
    ("test\nTP:\nallreduce,: 300\n", "topology: is none of SimAI's topology (simai)"),
    ("", "topology: is none of"),
]


@pytest.mark.parametrize(("text", "says"), REFUSED)
def test_what_cannot_be_read_is_said_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ForeignFileError) as refused:
        imported(tmp_path, text)
    assert str(refused.value).startswith(f"{tmp_path}/{says}")
    assert "\n" not in str(refused.value)


def test_an_option_that_means_nothing_to_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "topology").write_text(simai())
    with pytest.raises(ForeignFileError, match=r"^--nic-rate: is for nccl, and .*topology is SimAI's topology"):
        import_fabric(tmp_path / "topology", options=ImportOptions(nic_rate=parse_rate("1Gb/s")))
    with pytest.raises(ForeignFileError, match=r"^--from ns2: must be one of simai, ns3, astra-sim, nccl"):
        import_fabric(tmp_path / "topology", "ns2")


def test_a_configuration_of_something_else_is_called_so(tmp_path: Path) -> None:
    with pytest.raises(ForeignFileError) as refused:
        imported(tmp_path, simai(), "test\nTP:\nallreduce,: 300\n")
    assert str(refused.value).startswith(f"{tmp_path / 'conf'}: is not a configuration of SimAI or ns-3: it has no")


# -- drawn files -----------------------------------------------------------------------------------------------------

DRAWS = settings(max_examples=60, deadline=None, derandomize=True)
RATES = st.sampled_from(["25Gbps", "100Gb/s", "400Gbps", "2880Gbps"])
DELAYS = st.sampled_from(["0.000025ms", "1us", "500ns", "0ms"])


@dataclass(frozen=True)
class Drawn:
    """A file, and what it says."""

    text: str
    hosts: list[int]  # node numbers
    nvswitches: list[int]
    switches: list[int]
    links: list[tuple[int, int, int]]  # ends and rate in b/s


@st.composite
def topologies(draw: st.DrawFn) -> Drawn:
    """SimAI's or ns-3's: servers with NVSwitches or without, leaves and spines, nodes in any order."""
    per_server, servers = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    leaves, spines = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    of_server = draw(st.integers(0, 2))  # NVSwitches
    hosts, nvswitches = per_server * servers, of_server * servers
    total = hosts + nvswitches + leaves + spines
    numbers = draw(st.permutations(range(total)))  # hosts need not come first
    gpus, rest = sorted(numbers[:hosts]), numbers[hosts:]
    nv, leaf, spine = rest[:nvswitches], rest[nvswitches : nvswitches + leaves], rest[nvswitches + leaves :]
    ends = [(gpu, nv[at // per_server * of_server + k]) for at, gpu in enumerate(gpus) for k in range(of_server)]
    ends += [(gpu, leaf[at % leaves]) for at, gpu in enumerate(gpus)]
    ends += [(a, b) for a in leaf for b in spine]
    ends = [draw(st.sampled_from([pair, pair[::-1]])) for pair in ends]
    kinds = [(draw(RATES), draw(DELAYS)) for _ in ends]
    rows = [f"{a} {b} {rate} {delay} 0" for (a, b), (rate, delay) in zip(ends, kinds, strict=True)]
    is_simai = of_server > 0 or draw(st.booleans())
    header = f"{total} {leaves + spines} {len(ends)}"
    if is_simai:
        header = f"{total} {per_server} {nvswitches} {leaves + spines} {len(ends)} H100"
    text = "\n".join([header, " ".join(map(str, [*nv, *leaf, *spine])), *rows]) + "\n"
    links = [(a, b, int(parse_rate(rate))) for (a, b), (rate, _) in zip(ends, kinds, strict=True)]
    return Drawn(text, gpus, nv, leaf + spine, links)


@DRAWS
@given(topologies())
def test_drawn_topologies_keep_their_numbers(drawn: Drawn) -> None:
    with TemporaryDirectory() as folder:
        fabric, _ = imported(Path(folder), drawn.text)
    assert parse_fabric(to_toml(fabric)) == fabric
    topology = explicit(fabric)
    nodes = [*drawn.hosts, *drawn.nvswitches, *drawn.switches]  # in the order of the fabric
    names = [node.name for node in (*topology.host, *topology.switch)]
    node_of = dict(zip(names, nodes, strict=True))
    bridges = [switch.name for switch in topology.switch if switch.bridge]
    assert [node_of[name] for name in bridges] == drawn.nvswitches
    assert [(node_of[link.a], node_of[link.b], link.rate) for link in topology.link] == drawn.links


@DRAWS
@given(topologies(), st.sampled_from(["1", "3", "7", "8", "12"]))
def test_a_configuration_that_fits_makes_a_fabric_of_any_topology(drawn: Drawn, mode: str) -> None:
    rates = sorted({rate for _, _, rate in drawn.links})
    maps = ((key, value) for key, value in (("KMIN_MAP", 100), ("KMAX_MAP", 300), ("PMAX_MAP", 0.2)))
    lines = [f"{key} {len(rates)} {' '.join(f'{rate} {value}' for rate in rates)}" for key, value in maps]
    with TemporaryDirectory() as folder:
        fabric, _ = imported(Path(folder), drawn.text, "\n".join([*lines, f"CC_MODE {mode}", "BUFFER_SIZE 256"]))
    assert parse_fabric(to_toml(fabric)) == fabric
    assert fabric.ecn is not None


def test_a_server_without_a_network_has_nothing_that_marks(tmp_path: Path) -> None:
    text = "3 2 1 0 2 H100\n2\n0 2 2880Gbps 25ns 0\n1 2 2880Gbps 25ns 0\n"
    fabric, _ = imported(tmp_path, text, CONF)
    assert fabric.ecn is None
    assert int(build_network(fabric).is_bridge.sum()) == 1


JUNK = [
    *("", "-1", "0", "1", "2", "99999999999", "9" * 60, "1e9", "nan", "x", "1_0", "é", "\x00", "\x1b[31m", "\ufeff"),
    *("100Gbps", "0Gbps", "unlimited", "1ms", "-1ms", "400Gbps 1us 0", "\n", "3 1 2\n"),
]


def read_or_refused(path: Path, kind: str, conf: Path | None = None) -> str:
    """The reason for which a file was refused; "" where it is a fabric that a file keeps."""
    try:
        made = import_fabric(path, kind, ImportOptions(conf=conf))
    except ForeignFileError as refused:
        return str(refused)
    assert parse_fabric(to_toml(made.fabric)) == made.fabric
    assert all(note.isprintable() for note in made.notes)
    return ""


def corrupted(data: st.DataObject, text: str) -> str:
    words = text.replace("\n", " \n ").split(" ")
    for _ in range(data.draw(st.integers(1, 3))):
        words[data.draw(st.integers(0, len(words) - 1))] = data.draw(st.sampled_from(JUNK))
    return " ".join(words)


@settings(DRAWS, max_examples=300)
@given(topologies(), st.data())
def test_corrupted_topologies_are_refused_in_one_line_or_read(drawn: Drawn, data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "topology"
        path.write_text(corrupted(data, drawn.text), encoding="utf-8")
        why = read_or_refused(path, data.draw(st.sampled_from(["simai", "ns3"])))
        assert why == "" or (why.startswith(f"{path}:") and why.isprintable()), why


@settings(DRAWS, max_examples=100)
@given(st.data())
def test_corrupted_configurations_are_refused_in_one_line_or_read(shared_data: Path, data: st.DataObject) -> None:
    folder = shared_data / "simai"
    with TemporaryDirectory() as scratch:
        conf = Path(scratch) / "SimAI.conf"
        conf.write_text(corrupted(data, (folder / "SimAI.conf").read_text()), encoding="utf-8")
        why = read_or_refused(folder / SAMPLE, "simai", conf)
        assert why == "" or (why.startswith(f"{conf}:") and why.isprintable()), why
