"""ASTRA-sim's files: what is read, what is named and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from genie.workload.compute import Roofline
from genie.workload.files import read_groups
from simtwin.imports.astra.files import (
    Algorithm,
    AstraError,
    read_logical_topology,
    read_network,
    read_remote_memory,
    read_system,
)
from simtwin.imports.astra.network import Dimension

NETWORK = {"topology": ["Ring", "Switch"], "npus_count": [4, 2], "bandwidth": [200.0, 50], "latency": [50, 500.0]}
SYSTEM: dict[str, Any] = {"preferred-dataset-splits": 4, "local-mem-bw": 1600}
READERS = {
    "network": read_network,
    "system": read_system,
    "logical": read_logical_topology,
    "remote memory": read_remote_memory,
}


def write(path: Path, data: object) -> Path:
    path.write_text(data if isinstance(data, str) else json.dumps(data))  # JSON is YAML
    return path


def refusal(reader: str, path: Path) -> str:
    with pytest.raises(AstraError) as refused:
        READERS[reader](path)
    assert "\n" not in str(refused.value)
    return str(refused.value).removeprefix(f"{path}: ")


def test_all_samples_are_read_with_nothing_unknown(shared_data: Path) -> None:
    config = shared_data / "astra-sim" / "config"
    networks = {path.stem: read_network(path) for path in (config / "network").iterdir()}
    assert {notes for _, notes in networks.values()} == {()}
    assert networks["RingSwitch_4x4"][0].dimensions == (
        Dimension("Ring", 4, 200.0, 50.0),
        Dimension("Switch", 4, 50.0, 500.0),
    )
    assert networks["HGX-H100-validated"][0].dimensions == (Dimension("Switch", 8, 400.0, 936.25),)
    for path in (config / "system").iterdir():
        system, notes = read_system(path)
        assert (system.preferred_dataset_splits, system.local_mem_bw, system.endpoint_delay) == (4, 1600, 10)
        assert {note.split(": ")[1] for note in notes} == {"scheduling-policy", "boost-mode"}
        assert all("has no effect: " in note for note in notes)
    assert read_logical_topology(config / "logical" / "sample_16nodes_2D.json") == (8, 2)
    memory, notes = read_remote_memory(config / "no_memory_expansion.json")
    assert (memory.memory_type, notes) == ("NO_MEMORY_EXPANSION", ())


def test_communicator_groups_are_a_workloads_groups_file(tmp_path: Path) -> None:
    assert read_groups(write(tmp_path / "groups.json", {"1": [0, 2], "2": [3, 1]})) == {"1": [0, 2], "2": [1, 3]}


def test_a_key_that_is_unknown_or_idle_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "n.yml", NETWORK | {"colour": "red"})
    assert read_network(path)[1] == (f"{path}: colour: is not understood and left out",)
    path = write(tmp_path / "s.json", SYSTEM | {"L": 1, "path": "x"})
    system, notes = read_system(path)
    assert system.path == str(path)
    assert notes == (
        f"{path}: L: has no effect: it is of a shared bus, which is not modelled",
        f"{path}: path: is not understood and left out",
    )
    path = write(tmp_path / "s.json", {"preferred-dataset-splits": 1})
    assert read_system(path)[1] == (f"{path}: local-mem-bw: is missing: reductions take no time",)


@pytest.mark.parametrize(
    ("reader", "data", "words"),
    [
        ("network", NETWORK | {"npus_count": [4]}, "npus_count: has 1 values for 2 of topology; give one each"),
        ("network", NETWORK | {"npus_count": [4, 1]}, "npus_count[1] = 1: give a whole number >= 2"),
        ("network", NETWORK | {"npus_count": [4, "x"]}, "npus_count[1] = 'x': give a whole number"),
        ("network", NETWORK | {"npus_count": [65536, 2]}, "npus_count: makes 131072 NPUs; give at most 65536"),
        ("network", NETWORK | {"bandwidth": [0, 50]}, "bandwidth[0] = 0: give a number >= 1e-06"),
        ("network", NETWORK | {"latency": [50, -1]}, "latency[1] = -1: give a number >= 0.0"),
        ("network", NETWORK | {"topology": ["Ring", "Torus"]}, "topology[1] = 'Torus': give Ring or Switch or Fully"),
        ("network", NETWORK | {"topology": "Ring"}, "topology = 'Ring': give a list"),
        ("network", {"topology": ["Ring"]}, "npus_count: is missing; give it"),
        ("network", "topology: [Ring", "is not YAML: "),
        ("network", "[" * 60_000, "is not YAML: "),
        ("network", "", "is not a table of keys"),
        ("network", "latency: [.nan]\nbandwidth: [1]\nnpus_count: [2]\ntopology: [Ring]", "latency[0] = nan: give a"),
        ("system", {}, "preferred-dataset-splits: is missing; give it"),
        ("system", SYSTEM | {"preferred-dataset-splits": 0}, "preferred-dataset-splits = 0: give a whole number >= 1"),
        ("system", SYSTEM | {"collective-optimization": "x"}, "collective-optimization = 'x': give baseline or local"),
        ("system", SYSTEM | {"scheduling-policy": "x"}, "scheduling-policy = 'x': give LIFO or FIFO or EXPLICIT"),
        ("system", SYSTEM | {"roofline-enabled": 2}, "roofline-enabled = 2: give 0 or 1"),
        (
            "system",
            SYSTEM | {"all-reduce-implementation": ["ring", "Ring"]},
            "all-reduce-implementation[1] = 'Ring': give ring, oneRing, direct[W]",
        ),
        (
            "system",
            SYSTEM | {"all-reduce-implementation": ["direct0"]},
            "all-reduce-implementation[0] = 'direct0': give",
        ),
        ("system", SYSTEM | {"all-reduce-implementation": [3]}, "all-reduce-implementation[0] = 3: give ring"),
        ("system", SYSTEM | {"all-reduce-implementation": []}, "all-reduce-implementation = []: give a list of length"),
        ("system", SYSTEM | {"replay-only": 1}, "replay-only: plays the traces' durations without a network; give 0"),
        ("system", SYSTEM | {"model-shared-bus": 1}, "model-shared-bus: a bus that messages share is not modelled"),
        ("system", SYSTEM | {"roofline-enabled": 1}, "peak-perf: is missing, and roofline-enabled needs it"),
        ("system", '{"a": ', "is not JSON: "),
        ("system", "[]", "is not a table of keys"),
        ("logical", {"logical-dims": ["8", "x"]}, "logical-dims[1] = 'x': give a size as a string"),
        ("logical", {"logical-dims": [8, 2]}, "logical-dims[0] = 8: give a string"),
        ("logical", {"logical-dims": ["8"], "more": 1}, "more: is not understood"),
        ("logical", {}, "logical-dims: is missing; give it"),
        ("remote memory", {"memory-type": "MEMORY_POOL"}, "remote-mem-bw: is missing; give GB/s above 0"),
        ("remote memory", {"memory-type": "MEMORY"}, "memory-type = 'MEMORY': give NO_MEMORY_EXPANSION or PER"),
    ],
)
def test_a_mistake_is_one_line_with_file_and_key(tmp_path: Path, reader: str, data: object, words: str) -> None:
    assert refusal(reader, write(tmp_path / "file", data)).startswith(words)


@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_is_not_there_or_too_long_is_refused(tmp_path: Path, reader: str) -> None:
    assert refusal(reader, tmp_path / "none").startswith("cannot be read: No such file")
    assert refusal(reader, write(tmp_path / "long", " " * (2**16 + 1))).startswith("has more than 65536 bytes")


@pytest.mark.parametrize(
    ("name", "base", "window", "is_one"),
    [
        ("ring", "ring", None, False),
        ("oneRing", "ring", None, True),
        ("direct", "direct", None, False),
        ("direct12", "direct", 12, False),
        ("oneDirect3", "direct", 3, True),
        ("halvingDoubling", "halvingDoubling", None, False),
        ("oneHalvingDoubling", "halvingDoubling", None, True),
        ("doubleBinaryTree", "doubleBinaryTree", None, False),
    ],
)
def test_an_algorithms_name_says_how_it_runs(name: str, base: str, window: int | None, is_one: bool) -> None:
    algorithm = Algorithm(name)
    assert (algorithm.base, algorithm.window, algorithm.is_one) == (base, window, is_one)


def test_remote_memory_takes_its_latency_and_its_bytes(tmp_path: Path) -> None:
    given = {"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 200, "remote-mem-bw": 16}
    memory, notes = read_remote_memory(write(tmp_path / "memory.json", given))
    assert (memory.duration_ns(16_007), notes) == (1200, ())
    memory, _ = read_remote_memory(write(tmp_path / "memory.json", {"memory-type": "NO_MEMORY_EXPANSION"}))
    assert memory.duration_ns(1) is None


def test_an_operation_without_an_algorithm_is_refused_when_it_comes(tmp_path: Path) -> None:
    path = write(tmp_path / "s.json", SYSTEM | {"all-gather-implementation-custom": ["trace"]})
    system, _ = read_system(path)
    with pytest.raises(AstraError, match=r"s.json: all-reduce-implementation: is missing"):
        system.algorithms("all_reduce")
    with pytest.raises(AstraError, match="all-gather-implementation-custom: a trace as algorithm"):
        system.algorithms("all_gather")


def test_the_compute_model_is_the_files_when_it_is_enabled(tmp_path: Path) -> None:
    given = SYSTEM | {"peak-perf": 900}
    assert read_system(write(tmp_path / "s.json", given | {"roofline-enabled": 0}))[0].roofline is None
    assert read_system(write(tmp_path / "s.json", given | {"roofline-enabled": True}))[0].roofline == Roofline(
        900e12, 1600e9
    )


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("Ring"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from([*NETWORK, *SYSTEM, "all-reduce-implementation", "logical-dims", "memory-type"])


@pytest.mark.parametrize("reader", READERS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=40) | st.dictionaries(KEYS, VALUES, max_size=5).map(msgspec.json.encode))
def test_any_file_is_read_or_refused_in_one_line(tmp_path: Path, reader: str, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    try:
        READERS[reader](path)
    except AstraError as refused:
        assert str(refused).startswith(f"{path}: ")  # noqa: PT017
        assert "\n" not in str(refused)  # noqa: PT017
