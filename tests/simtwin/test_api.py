"""The twin from Python: what `genie simulate` gives, in tables, without a file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from live_runs import in_this_process
from polars.testing import assert_frame_equal

import simtwin
from genie.config.congestion import Hpcc, Swift, name_of
from genie.record import open_run
from genie.workload.graph import Kind, WorkloadError
from genie.workload.write import save
from simtwin.fabric.reading import to_toml

ROOT = Path(__file__).resolve().parent.parent.parent
LEAF_SPINE = ROOT / "hosts/fabrics/leaf-spine.toml"
ECN = {"minimum": "20KiB", "maximum": "80KiB", "probability": 0.2}


def small(**tables: Any) -> simtwin.Fabric:
    """Two leaves, two spines, four hosts."""
    topology = {"kind": "leaf-spine", "leaves": 2, "spines": 2, "hosts_per_leaf": 2}
    return simtwin.Fabric.make(**{"topology": topology, "link": {"rate": "10Gb/s", "delay": "1us"}, **tables})


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ({"iterations": 2, "seed": 7}, "-n 2 --seed 7"),
        (
            {"wire": "plain", "algorithms": {"all_reduce": "recursive_doubling"}, "queue_pairs": 2},
            "--wire plain --algorithm all_reduce=recursive_doubling --queue-pairs 2",
        ),
        (
            {"congestion": "dcqcn", "slots": "astra", "threads": 2, "series_interval": "20us"},
            "--congestion dcqcn --slots astra --threads 2 --series 20us",
        ),
        ({"level": "flow", "sharing": "equal", "channels": 1}, "--level flow --sharing equal --channels 1"),
        ({"level": "analytic", "ranks_per_node": 2, "gpu": "a100"}, "--level analytic --ranks-per-node 2 --gpu a100"),
    ],
)
def test_the_same_bits_as_genie_simulate(
    options: dict[str, Any], arguments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fabric = small(ecn={"minimum": "20kB", "maximum": "80kB"})
    workload = simtwin.collective(fabric, "all_reduce", "256KiB", count=2)
    save(workload, tmp_path / "trace", "trace")
    (tmp_path / "fabric.toml").write_text(to_toml(fabric))
    monkeypatch.chdir(tmp_path)
    ended = in_this_process("simulate", "trace", "--fabric", "fabric.toml", *arguments.split(), "-o", "theirs")
    assert ended.code == 0, ended
    theirs = open_run(Path("theirs"))

    run = simtwin.simulate("fabric.toml", "trace", **options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fabric.toml", "theirs", "trace"]
    assert_frame_equal(run.timeline, theirs.timeline)
    assert_frame_equal(run.transfers, theirs.transfers)
    assert run.counters == theirs.counters
    if "series_interval" in options:
        assert run.series is not None
        assert theirs.series is not None
        assert_frame_equal(run.series, theirs.series)
    if options.get("level") == "analytic":  # which has no paths
        assert run.paths is theirs.paths is None
    else:
        assert run.paths is not None
        assert theirs.paths is not None
        assert_frame_equal(run.paths, theirs.paths)
    passing = {"recorded_at", "wall_s", "load"}
    assert {key: run.info[key] for key in run.info if key not in passing} == {
        key: theirs.info[key] for key in theirs.info if key not in passing
    }

    # A workload in memory is the one in files, and `out` writes the folder.
    again = simtwin.simulate(fabric, workload, **options, out="mine")
    mine = open_run(Path("mine"))
    assert_frame_equal(again.timeline, run.timeline)
    assert_frame_equal(mine.timeline, theirs.timeline)
    assert (tmp_path / "mine/fabric.toml").read_text() == (tmp_path / "theirs/fabric.toml").read_text()


def test_ranks_on_hosts_by_name() -> None:
    run = simtwin.simulate(small(), _one_message(), hosts=["host3", "host0"])
    assert [rank["host"] for rank in run.info["hosts"]] == ["host3", "host0"]
    used = run.links.filter(pl.col("packets") > 0)["link"].to_list()
    assert "host3->leaf1" in used
    assert "leaf0->host0" in used


def _one_message(size: str = "1MiB") -> Any:
    return simtwin.incast(small(), size, senders=1, ranks=2)


@pytest.mark.parametrize(
    ("tables", "size"),
    [
        ({}, "1B"),
        ({}, "4096B"),
        ({}, "8190B"),
        ({}, "300001B"),
        ({"switch": {"cut_through": True}}, "300001B"),
        ({"switch": {"cut_through": True, "latency": "700ns"}}, "8190B"),
        ({"host": {"packet_latency": "3us", "doorbell_latency": "500ns"}}, "100KiB"),
        ({"downlink": {"rate": "4Gb/s"}}, "100KiB"),
        ({"downlink": {"rate": "unlimited"}}, "100KiB"),
        ({"transport": {"mtu": 1024}}, "50000B"),
        ({"frame": {"payload": "1000B", "data_header": "36B", "control": "48B", "time_unit": "1ns"}}, "50500B"),
    ],
)
def test_a_message_alone_takes_what_the_idle_network_takes(tables: dict[str, Any], size: str) -> None:
    """To the nanosecond, across a spine whose cables are slower than a host's, and faster."""
    for rate in ("3Gb/s", "40Gb/s"):
        topology = {"kind": "leaf-spine", "leaves": 2, "spines": 1, "hosts_per_leaf": 1, "spine_link": {"rate": rate}}
        fabric = small(**{"topology": topology, **tables})
        flow = simtwin.simulate(fabric, simtwin.incast(fabric, size)).flow_completion
        assert len(flow) == 1
        assert abs(flow["fct_ns"].item() - flow["idle_ns"].item()) <= 1, flow


def test_flows_of_an_incast_share_the_last_link() -> None:
    fabric = small(transport={"congestion": "swift"})
    run = simtwin.simulate(fabric, simtwin.incast(fabric, "1MiB", target=3))
    flows = run.flow_completion
    assert flows["dst"].to_list() == [3, 3, 3]
    assert flows["size_bytes"].to_list() == [2**20] * 3
    assert flows["slowdown"].min() >= 1  # type: ignore[operator]
    assert 2.5 < flows["slowdown"].max() < 3.5  # type: ignore[operator]
    assert run.completion_s == run.timeline["end_ns"].max() / 1e9  # type: ignore[operator]
    assert run.links.filter(pl.col("link") == "leaf1->host3")["longest_queue_bytes"].item() > 0


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: simtwin.simulate(small(), None),  # type: ignore[arg-type]
            "simulate: workload is None: give a workload, or a folder or prefix of traces",
        ),
        (
            lambda: simtwin.simulate({}, "traces"),  # type: ignore[arg-type]
            "simulate: fabric is of type dict: give a fabric, or the path of its file",
        ),
        (
            lambda: simtwin.incast(None, "1MiB"),  # type: ignore[arg-type]
            "incast: fabric is None: give a fabric, or the path of its file",
        ),
    ],
)
def test_what_is_no_fabric_and_no_workload_is_named(call: Callable[[], object], says: str) -> None:
    with pytest.raises(simtwin.OptionError, match=f"^{re.escape(says)}$"):
        call()


def test_all_transfers_of_a_collective_have_a_completion_time() -> None:
    """Of several messages too, as the page has them."""
    fabric = small()
    run = simtwin.simulate(fabric, simtwin.collective(fabric, "all_reduce", "1MiB", count=2))
    flows = run.flow_completion
    assert len(flows) == len(run.transfers) == 8
    assert flows["op"].unique().to_list() == ["all_reduce"]
    assert flows["messages"].min() > 1  # type: ignore[operator]
    assert flows["fct_ns"].to_list() == run.transfers["busy_ns"].to_list()
    assert flows["slowdown"].min() >= 1  # type: ignore[operator]


def test_level_analytic_has_no_slowdowns() -> None:
    """Messages of a collective that is played whole have sizes that say nothing of its time."""
    fabric = small()
    workload = simtwin.collective(fabric, "all_to_all", "1MiB")
    for level, known in (("flow", True), ("analytic", False)):
        flows = simtwin.simulate(fabric, workload, level=level).flow_completion
        assert flows.height > 0
        assert flows["slowdown"].is_not_null().all() == known, level
        assert str(flows.schema["slowdown"]) == "Float64"


def test_what_a_load_is() -> None:
    """Flows bring it on average, sizes are the distribution's, and another load draws the same flows sooner."""
    fabric = small()
    at = {load: simtwin.poisson(fabric, load=load, duration="50ms", sizes="web-search", seed=3) for load in (0.4, 0.8)}
    sizes = {
        load: [graph.size_bytes[graph.kind == Kind.SEND].tolist() for graph in workload.ranks.values()]
        for load, workload in at.items()
    }
    port_bytes = 10**10 / 8 * 0.05 * 4
    assert sum(map(sum, sizes[0.4])) / port_bytes == pytest.approx(0.4, rel=0.25)
    assert sum(map(sum, sizes[0.8])) / port_bytes == pytest.approx(0.8, rel=0.25)
    assert [more[: len(few)] for few, more in zip(sizes[0.4], sizes[0.8], strict=True)] == sizes[0.4]
    same = simtwin.poisson(fabric, load=0.4, duration="50ms", sizes="web-search", seed=3)
    assert all((same.ranks[r].size_bytes == at[0.4].ranks[r].size_bytes).all() for r in range(4))
    other = simtwin.poisson(fabric, load=0.4, duration="50ms", sizes="web-search", seed=4)
    assert [len(other.ranks[r]) for r in range(4)] != [len(same.ranks[r]) for r in range(4)]


def test_sizes_come_from_files_too(tmp_path: Path) -> None:
    path = tmp_path / "sizes.txt"
    path.write_text("1 0\n1000 50   # half are mice\n1000000 100\n")
    fabric = small()
    named = simtwin.poisson(fabric, load=0.5, duration="5ms", sizes=str(path))
    points: Any = [(1, 0.0), (1000, 0.5), (1_000_000, 1.0)]
    given = simtwin.poisson(fabric, load=0.5, duration="5ms", sizes=points)
    assert [graph.size_bytes.tolist() for graph in named.ranks.values()] == [
        graph.size_bytes.tolist() for graph in given.ranks.values()
    ]
    path.write_text("0 0\n1000\n")
    with pytest.raises(WorkloadError, match=r"sizes.txt:2: '1000': give a size in bytes and a percentage"):
        simtwin.poisson(fabric, load=0.5, duration="5ms", sizes=str(path))
    path.write_text("0 0\n1000 50\n")
    with pytest.raises(WorkloadError, match=r"sizes.txt: the shares .* must ascend from 0 or more to 1"):
        simtwin.poisson(fabric, load=0.5, duration="5ms", sizes=str(path))


def test_a_permutation_leaves_nobody_out() -> None:
    workload = simtwin.permutation(simtwin.Fabric.load(LEAF_SPINE), "64KiB", seed=5)
    pairs = [(r, int(g.peer[g.kind == Kind.SEND][0])) for r, g in workload.ranks.items()]
    assert sorted(target for _, target in pairs) == list(range(16))
    assert all(source != target for source, target in pairs)


def test_fabrics_change_by_the_file_s_keys() -> None:
    fabric = simtwin.Fabric.load(LEAF_SPINE)
    changed = fabric.replace({"switch.buffer": "64KiB", "transport.mtu": 1024, "topology.leaves": 8})
    assert (changed.switch.buffer, changed.transport.mtu, changed.hosts) == (65536, 1024, 32)
    assert changed.replace({"switch.buffer": None}).switch == small().switch
    tuned = fabric.with_control("hpcc", utilisation=0.9)
    assert tuned.control == Hpcc(utilisation=0.9)
    assert tuned.with_control("swift").control == Swift()
    assert fabric.transport.congestion is None


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda f: f.replace({"switch.bufer": 1}), "leaf-spine: switch.bufer is an unknown key; the keys here are"),
        (lambda f: f.replace({"link.rate": "fast"}), "leaf-spine: link.rate = 'fast' is not a number with a unit"),
        (lambda f: f.replace({"name.first": 1}), "leaf-spine: name.first: there is nothing below first to change"),
        (
            lambda f: f.with_control("prayer"),
            'congestion = \'prayer\': give "dcqcn" or "dcqcn-timer"',
        ),
        (lambda f: simtwin.Fabric.make(link={"rate": "1Gb/s"}), "the fabric: topology is missing: give a table with"),
        (lambda f: simtwin.incast(f, "lots"), "incast: size = 'lots' is not a number with a unit"),
        (lambda f: simtwin.incast(f, "1KiB", senders=99), "incast: senders = 99: give 1 to 15"),
        (lambda f: simtwin.poisson(f, load=0, duration="1ms", sizes="1KiB"), "poisson: load = 0: give a number above"),
        (lambda f: simtwin.poisson(f, load=1, duration="1ms", sizes="x"), r"sizes x: cannot be read .*web-search"),
        (lambda f: simtwin.collective(f, "dance", "1KiB"), "collective: operation = 'dance': give \"all_gather\""),
        (
            lambda f: simtwin.simulate(f, _one_message(), level="fluid"),
            r"level fluid: is not a level; give packet, packet\+skip, flow",
        ),
        (lambda f: simtwin.simulate(f, _one_message(), iterations=0), "simulate: iterations = 0: give an integer"),
        (lambda f: simtwin.simulate(f, _one_message(), wire="copper"), "simulate: wire = 'copper': give \"nccl\""),
        (
            lambda f: simtwin.simulate(f, _one_message(), algorithms={"all_gather": "direct"}),
            "^algorithms all_gather=direct: NCCL does not play it: give wire plain too",
        ),
        (
            lambda f: simtwin.simulate(f, _one_message(), wire="plain", slice_delay="1us"),
            "^slice_delay: is for NCCL's messages: give wire nccl",
        ),
        (lambda f: simtwin.simulate(f, "nowhere/at-all"), "there is no folder nowhere"),
        (lambda f: simtwin.simulate(f, _one_message(), hosts=["host99", "host0"]), 'has no host "host99"'),
    ],
)
def test_what_cannot_be_is_one_line(call: Any, says: str) -> None:
    with pytest.raises(Exception, match=says) as raised:
        call(simtwin.Fabric.load(LEAF_SPINE))
    assert "\n" not in str(raised.value)
    assert "--" not in str(raised.value)


def test_a_name_loads_what_it_needs() -> None:
    code = "import sys, simtwin; assert dir(simtwin); print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"polars", "numpy", "msgspec"} & set(done.stdout.split()) == set()
    with pytest.raises(AttributeError, match="no attribute 'simulation'"):
        simtwin.simulation  # noqa: B018


def test_three_controls_in_forty_lines() -> None:
    example = ROOT / "examples/compare_controls.py"
    assert len(example.read_text().splitlines()) < 40
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, env=environment, check=True)
    assert done.stderr == ""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()]
    assert rows[0][:3] == ["control", "FCT p50 (us)", "FCT p99 (us)"]
    assert [row[0] for row in rows[2:]] == ["dcqcn", "hpcc", "swift"]
    longest_us = [float(row[2]) for row in rows[2:]]
    assert min(longest_us) > 15 * 2**20 * 8 / 100e3  # the last link carries all that is sent
    marks = [int(row[4]) for row in rows[2:]]
    assert marks[0] > 0
    assert marks[1] == 0  # HPCC's packets are not marked


def test_names_can_be_looked_up() -> None:
    """By completion in a notebook, and errors by who catches them."""
    assert dir(simtwin) == sorted(simtwin.__all__)
    errors = [getattr(simtwin, name) for name in simtwin.__all__ if name.endswith("Error")]
    assert len(errors) == 7
    assert all(issubclass(error, Exception) for error in errors)


@pytest.mark.parametrize("control", ["hpcc", "none", "dcqcn"])
def test_an_option_s_control_is_that_of_the_written_fabric(control: str, tmp_path: Path) -> None:
    given = small(ecn=ECN).with_control("dcqcn", additive="50Mb/s")
    traffic = simtwin.incast(given, "64KiB", senders=1, ranks=2)
    simtwin.simulate(given, traffic, congestion=control).write(tmp_path / "run")
    read = simtwin.Fabric.load(tmp_path / "run" / "fabric.toml")
    assert name_of(read.control) == control
    assert (read.congestion is not None) == (control == "dcqcn")
