"""Experiments of ns-3's RDMA model: what is read, what is refused, and that the twin gives that model's times."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from genie.config.congestion import DcqcnTimer, Hpcc, NoControl
from genie.workload.load import load
from genie.workload.write import save
from simtwin.fabric.reading import parse_fabric, to_toml
from simtwin.fabric.topology import build_network
from simtwin.imports.ns3 import Experiment, read_experiment
from simtwin.imports.words import ForeignFileError
from simtwin.play.twin import Twin

CONFIG = """\
PACKET_PAYLOAD_SIZE 1000
TOPOLOGY_FILE topology.txt
FLOW_FILE flows.txt
CC_MODE 12
HAS_WIN 0
KMAX_MAP 2 25000000000 400 100000000000 1600
KMIN_MAP 2 25000000000 100 100000000000 400
PMAX_MAP 2 25000000000 0.2 100000000000 0.2
BUFFER_SIZE 32
"""
TOPOLOGY = "4 1 3\n3\n3 0 100Gbps 0.001ms 0\n3 1 100Gbps 0.001ms 0\n3 2 100Gbps 0.001ms 0\n"
FLOWS = "2\n0 2 3 100 1000000 2.0\n1 2 3 100 5000 2.00001\n"


def write(folder: Path, config: str = CONFIG, topology: str = TOPOLOGY, flows: str = FLOWS) -> Path:
    (folder / "topology.txt").write_text(topology)
    (folder / "flows.txt").write_text(flows)
    (folder / "config.txt").write_text(config)
    return folder / "config.txt"


def played(experiment: Experiment, seeds: range = range(1, 2)) -> tuple[np.ndarray, list[int]]:
    """(seeds, flows) flow completion times, sorted, and each seed's pauses."""
    network = build_network(experiment.fabric)
    rows, pauses = [], []
    for seed in seeds:
        result = Twin(experiment.fabric, network, range(network.hosts), seed).play(experiment.workload)
        assert result.counters["dropped"] == 0
        rows.append(sorted((result.transfers["acked_ns"] - result.transfers["post_ns"]).to_list()))
        pauses.append(sum(result.counters["links"]["pauses"]))
    return np.array(rows), pauses


def test_the_fabric_has_what_the_files_say(tmp_path: Path) -> None:
    experiment = read_experiment(write(tmp_path))
    fabric = experiment.fabric
    assert [flow.start_ns for flow in experiment.flows] == [0, 10_000]
    assert fabric.hosts == 3
    assert fabric.control == NoControl()
    assert fabric.frame.payload == 1000
    assert fabric.switch.shared_buffer == 32 << 20
    assert fabric.pfc is not None
    assert fabric.pfc.headroom == 37_500  # 3 rates of 12.5 GB/s for 1 us
    assert fabric.ecn is not None
    assert (fabric.ecn.minimum, fabric.ecn.maximum, fabric.ecn.probability) == (400_000, 1_600_000, 0.2)
    assert parse_fabric(to_toml(fabric)) == fabric
    assert experiment.notes == ()


def test_flows_start_in_their_time_and_are_the_same_as_traces(tmp_path: Path) -> None:
    experiment = read_experiment(write(tmp_path))
    save(experiment.workload, tmp_path / "traces", "flows")
    network = build_network(experiment.fabric)
    twin = Twin(experiment.fabric, network, range(3))
    straight, by_files = (twin.play(workload) for workload in (experiment.workload, load(tmp_path / "traces")))
    assert straight.transfers.equals(by_files.transfers)
    assert sorted(straight.transfers["post_ns"].to_list()) == [0, 10_000]


def change_of(line: str, old: str) -> dict[str, str]:
    """CONFIG, TOPOLOGY or FLOWS with `line` in place of `old`, or as one more key of the configuration."""
    if not old:
        return {"config": CONFIG + line + "\n"}
    name, text = next((n, t) for n, t in {"config": CONFIG, "topology": TOPOLOGY, "flows": FLOWS}.items() if old in t)
    return {name: text.replace(old, line, 1)}


DCQCN = CONFIG.replace("CC_MODE 12", "CC_MODE 1")
RATE = 'give a rate of 1 to 1000000000000000 b/s with its unit, such as "100Gb/s"'
DELAY = 'give 0 to 1000 s with its unit, such as "0.001ms" (ps, ns, us, ms or s)'
MAP = "give how many rates there are, then a rate in b/s and a number for each"
MICROS = "give a number from 0.001 to 1000000000"
WRONG_KEYS = [
    ("CC_MODE 5", "CC_MODE 12", "config.txt:4: CC_MODE 5: must be one of 1, 3, 7, 8, 12"),
    ("FLOW_FILE none.txt", "FLOW_FILE flows.txt", "config.txt:3: FLOW_FILE none.txt: is neither in"),
    ("LINK_DOWN 5 1 2", "", "config.txt:10: LINK_DOWN 5 1 2: links that fail are not read: give 0 0 0"),
    ("ERROR_RATE_PER_LINK x", "", "config.txt:10: ERROR_RATE_PER_LINK x: give a number from 0 to 1"),
    ("ERROR_RATE_PER_LINK 0.1", "", "ERROR_RATE_PER_LINK 0.1: links that lose packets are not read: give 0"),
    ("HAS_WIN 2", "HAS_WIN 0", "config.txt:5: HAS_WIN 2: give a whole number from 0 to 1"),
    *(
        (f"PACKET_PAYLOAD_SIZE {bad}", "PACKET_PAYLOAD_SIZE 1000", f"config.txt:1: PACKET_PAYLOAD_SIZE {bad}: give a")
        for bad in ("x", "0", "-5", "70000", "1_000")
    ),
    (f"PACKET_PAYLOAD_SIZE {'9' * 5000}", "PACKET_PAYLOAD_SIZE 1000", f"PACKET_PAYLOAD_SIZE {'9' * 40}...: give a"),
    ("PACKET_PAYLOAD_SIZE", "PACKET_PAYLOAD_SIZE 1000", "PACKET_PAYLOAD_SIZE (nothing): give a whole number from 1"),
    ("BUFFER_SIZE 0", "BUFFER_SIZE 32", "config.txt:9: BUFFER_SIZE 0: give a whole number from 1 to"),
    ("BUFFER_SIZE -1", "BUFFER_SIZE 32", "config.txt:9: BUFFER_SIZE -1: give a whole number from 1 to"),
    ("KMAX_MAP 1 5", "KMAX_MAP 2 25000000000 400 100000000000 1600", f"config.txt:6: KMAX_MAP 1 5: {MAP}"),
    (
        "KMAX_MAP 2 25000000000 400 100000000000",
        "KMAX_MAP 2 25000000000 400 100000000000 1600",
        f" 400 100000000000: {MAP}",
    ),
    ("400 1 1600", "400 100000000000 1600", "config.txt:6: KMAX_MAP 2 25000000000 400 1 1600: says nothing of links"),
    (
        "KMAX_MAP 1 100000000000 300",
        "KMAX_MAP 2 25000000000 400 100000000000 1600",
        "300 at 100000000000 b/s: give no less than 400, which KMIN_MAP has for it",
    ),
    ("PMAX_MAP 1 100000000000 nan", "PMAX_MAP 2 25000000000 0.2 100000000000 0.2", "PMAX_MAP nan: give a number"),
]
WRONG_ROWS = [
    ("99999999999 1 2", "4 1 3", "topology.txt:1: number of nodes = 99999999999: give a whole number from 1 to 131072"),
    ("100000 1 3", "4 1 3", "topology.txt:1: number of nodes = 100000: makes 99999 hosts: give at most 65536"),
    ("4 4 3", "4 1 3", "topology.txt:1: number of switches = 4: give a whole number from 0 to 3"),
    ("4 1 4", "4 1 3", "topology.txt:1: number of links = 4: the file has 3: give 3, or add the missing ones"),
    ("3 0 100Gbps 0.001ms x", "3 0 100Gbps 0.001ms 0", "topology.txt:3: error rate of link 0 = x: give a number from"),
    ("3 0 100Gbps 0.001ms 0.01", "3 0 100Gbps 0.001ms 0", "error rate of link 0 = 0.01: links that lose packets"),
    ("3 0 unlimited", "3 0 100Gbps", f"topology.txt:3: rate of link 0 = unlimited: {RATE}"),
    ("3 0 100Gbps -1ms", "3 0 100Gbps 0.001ms", f"topology.txt:3: delay of link 0 = -1ms: {DELAY}"),
    ("3 0 100Gbps infms", "3 0 100Gbps 0.001ms", f"topology.txt:3: delay of link 0 = infms: {DELAY}"),
    ("3 4", "3 0", "topology.txt:3: target of link 0 = 4: give a whole number from 0 to 3"),
    ("3 3", "3 0", "topology.txt:3: target of link 0 = 3: is its source too: give another node"),
    ("3 1 100Gbps", "3 2 100Gbps", "topology.txt: no path from node 0 to node 2: join their switches by links"),
    ("0\n", "2\n0 2", "flows.txt:1: number of flows = 0: give a whole number from 1 to"),
    ("two\n", "2\n0 2", "flows.txt:1: number of flows = two: give a whole number from 1 to"),
    ("3\n0 2", "2\n0 2", "flows.txt:1: number of flows = 3: the file has 2: give 2, or add the missing ones"),
    ("9 2 3", "0 2 3", "flows.txt:2: source of flow 0 = 9: give a whole number from 0 to 3"),
    ("0 3 3", "0 2 3", "flows.txt:2: target of flow 0 = 3: is a switch: give a host"),
    ("2 2 3", "0 2 3", "flows.txt:2: target of flow 0 = 2: is its source too: give another host"),
    *(
        (f"100 {bad} 2.0", "100 1000000 2.0", f"flows.txt:2: bytes of flow 0 = {bad}: give a whole number from 1 to")
        for bad in ("99999999999999999999", "3000000000", "-5", "0", "1e6")
    ),
    *(
        (f"100 1000000 {bad}", "100 1000000 2.0", f"flows.txt:2: start of flow 0 = {bad}: give a number from 0 to 1000")
        for bad in ("inf", "1e300", "nan", "-1", "x")
    ),
]
WRONG_DCQCN = [
    *((f"RP_TIMER {bad}", f"RP_TIMER {bad}: {MICROS}") for bad in ("inf", "nan", "-4", "0", "1e300", "x")),
    *((f"EWMA_GAIN {bad}", f"EWMA_GAIN {bad}: give a number above 0 and at most 1") for bad in ("7", "0", "nan")),
    ("RATE_AI 0Mb/s", f"RATE_AI 0Mb/s: {RATE}"),
    ("RATE_HAI unlimited", f"RATE_HAI unlimited: {RATE}"),
    ("FAST_RECOVERY_TIMES -1", "FAST_RECOVERY_TIMES -1: give a whole number from 0 to 1000000"),
]


@pytest.mark.parametrize(
    ("change", "says"),
    [(change_of(new, old), says) for new, old, says in WRONG_KEYS + WRONG_ROWS]
    + [({"config": f"{DCQCN}{line}\n"}, f"config.txt:10: {says}") for line, says in WRONG_DCQCN]
    + [
        ({"config": "HELLO 1\n"}, "TOPOLOGY_FILE is missing"),
        ({"topology": ""}, "topology.txt:1: the file ends before the number of nodes: give it"),
        ({"topology": "3 0 1\n0 1 100Gbps 1us 0\n", "flows": "1\n0 1 3 1 9 0\n"}, "topology.txt: no path from host"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(tmp_path: Path, change: dict[str, str], says: str) -> None:
    with pytest.raises(ForeignFileError) as refused:
        read_experiment(write(tmp_path, **change))
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_buffer_that_headroom_uses_up_is_refused_at_its_key(tmp_path: Path) -> None:
    topology = TOPOLOGY.replace("0.001ms", "1ms")
    with pytest.raises(
        ForeignFileError, match=r"config\.txt:9: BUFFER_SIZE 32: the ports of switch3 keep .*; .* is in MiB$"
    ):
        read_experiment(write(tmp_path, topology=topology))


def test_remarks_below_the_last_row_are_passed_over(tmp_path: Path) -> None:
    """That model's own examples end with the names of their columns."""
    plain = read_experiment(write(tmp_path))
    warning = "\nFirst line: flow #\nsrc dst priority port size start\n"
    assert read_experiment(write(tmp_path, topology=TOPOLOGY + warning, flows=FLOWS + warning)).flows == plain.flows


def test_links_without_a_delay_have_a_fabric_file(tmp_path: Path) -> None:
    experiment = read_experiment(write(tmp_path, topology=TOPOLOGY.replace("0.001ms", "0ms")))
    assert parse_fabric(to_toml(experiment.fabric)) == experiment.fabric


# -- that model's own times, see README.md beside them --------------------------------------------------------------


def reference_ns(data: Path, name: str) -> np.ndarray:
    lines = (data / "ns3-reference" / "fct" / f"{name}.txt").read_text().split("\n")
    return np.array(sorted(int(line.split()[6]) for line in lines if line.strip()))


def experiment_of(data: Path, name: str) -> Experiment:
    return read_experiment(data / "ns3-reference" / "config" / f"{name}.txt")


def test_controls_and_windows_are_read(shared_data: Path) -> None:
    windowed = experiment_of(shared_data, "incast16_star__dcqcn_win").fabric.control
    assert isinstance(windowed, DcqcnTimer)
    assert (windowed.window, windowed.rate_window, windowed.notify_in_acks) == (52_000, True, True)
    hpcc = experiment_of(shared_data, "incast16_star__hpcc").fabric
    assert isinstance(hpcc.control, Hpcc)
    assert (hpcc.control.base_round_trip, hpcc.frame.control) == (4_160_000, 76)


@pytest.mark.parametrize(("mode", "sizes"), [(1, (36, 48)), (3, (78, 76)), (7, (44, 48)), (12, (36, 48))])
def test_frames_carry_what_the_control_is_told(tmp_path: Path, mode: int, sizes: tuple[int, int]) -> None:
    """Headers of data and whole acknowledgements; a pause frame is that model's too."""
    frame = read_experiment(write(tmp_path, CONFIG.replace("CC_MODE 12", f"CC_MODE {mode}"))).fabric.frame
    assert (frame.data_header, frame.control, frame.pause) == (*sizes, 31)


def test_a_single_flow_is_exact(shared_data: Path) -> None:
    name = "single1MB_star__dcqcn"
    fct_ns, _ = played(experiment_of(shared_data, name))
    assert fct_ns.tolist() == [reference_ns(shared_data, name).tolist()]


def pauses_there(data: Path, name: str) -> int:
    fired = data / "ns3-reference" / "pfc" / f"incast16_star__{name}.txt"
    return sum(line.endswith(" 1") for line in fired.read_text().split("\n")) if fired.is_file() else 0


SEEDS = range(1, 21)


@cache
def incast(data: Path, name: str) -> tuple[np.ndarray, list[int], np.ndarray]:
    """Of an incast: our times and pauses by seed, and that model's times."""
    fct_ns, pauses = played(experiment_of(data, f"incast16_star__{name}"), SEEDS)
    return fct_ns, pauses, reference_ns(data, f"incast16_star__{name}")


@pytest.mark.parametrize("name", ["nocc", "nocc_buf4"])
def test_an_incast_without_control_is_exact(shared_data: Path, name: str) -> None:
    """All sixteen flows to the nanosecond, and with a small buffer every pause."""
    ours, pauses, theirs = incast(shared_data, name)
    assert ours.tolist() == [theirs.tolist()] * len(SEEDS)
    assert pauses == [pauses_there(shared_data, name)] * len(SEEDS)


# benchmarks/ns3_reference.py lists figures that these tests lack as NOT MET.


@pytest.mark.parametrize("name", ["nocc", "nocc_buf4", "dcqcn", "hpcc"])
def test_the_median_of_an_incast_is_that_models(shared_data: Path, name: str) -> None:
    """The median over 20 seeds of the median within 5 %."""
    ours, _, theirs = incast(shared_data, name)
    assert np.median(np.median(ours, axis=1)) == pytest.approx(np.median(theirs), rel=0.05)


@pytest.mark.parametrize("name", ["nocc", "nocc_buf4", "dcqcn", "dcqcn_buf4", "dcqcn_win", "hpcc"])
def test_the_longest_of_an_incast_is_among_ours(shared_data: Path, name: str) -> None:
    """From the smallest to the largest of 20 seeds' longest times."""
    ours, _, theirs = incast(shared_data, name)
    assert ours.max(axis=1).min() <= theirs[-1] <= ours.max(axis=1).max()


@pytest.mark.parametrize("name", ["nocc", "nocc_buf4", "dcqcn", "dcqcn_buf4", "dcqcn_win", "hpcc"])
def test_ports_pause_in_an_incast_where_they_do_there(shared_data: Path, name: str) -> None:
    _, pauses, _ = incast(shared_data, name)
    fired = pauses_there(shared_data, name) > 0
    assert fired == name.endswith("_buf4")
    assert [count > 0 for count in pauses] == [fired] * len(SEEDS)
