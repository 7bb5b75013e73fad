"""ASTRA-sim's analytical model beside the numbers of ASTRA-sim itself."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simtwin.imports.astra.files import Algorithm, AstraError, System, read_network, read_system
from simtwin.imports.astra.network import Dimension, Network
from simtwin.levels.astra.model import AstraModel

MIB = 2**20
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
COLUMNS = {("Ring", "Ring"): 0, ("Switch", "Ring"): 1, ("Switch", "Direct"): 2}


# Results of ASTRA-sim (commit 518bd51, its analytical backend 599a047), ns:
# network, system, operation, bytes, members, keys that differ from the system file's.
MEASURED = [
    ("Switch_16npus", "Ring", "all_reduce", MIB, None, {}, 159640),
    ("Switch_16npus", "Ring", "all_gather", MIB, None, {}, 353560),
    ("Switch_16npus", "Ring", "reduce_scatter", MIB, None, {}, 80740),
    ("Switch_16npus", "Ring", "all_to_all", MIB, None, {}, 631240),
    ("Switch_16npus", "Direct", "all_reduce", MIB, None, {}, 10680),
    ("Switch_16npus", "Direct", "all_gather", MIB, None, {}, 23608),
    ("Switch_16npus", "Direct", "reduce_scatter", MIB, None, {}, 5420),
    ("Switch_16npus", "Direct", "all_to_all", MIB, None, {}, 5300),
    ("Ring_8npus", "Direct", "all_reduce", MIB, None, {}, 21240),
    ("Ring_8npus", "Direct", "all_gather", MIB, None, {}, 27608),
    ("Ring_16npus", "Direct", "all_reduce", MIB, None, {}, 34680),
    ("Ring_16npus", "Direct", "reduce_scatter", MIB, None, {}, 17420),
    ("Ring_16npus", "Direct", "all_to_all", MIB, None, {}, 17300),
    ("Ring_8npus", "HD", "all_reduce", MIB, None, {}, 63168),
    ("Ring_8npus", "HD", "all_gather", MIB, None, {}, 150872),
    ("Switch_16npus", "HD", "all_reduce", MIB, None, {}, 69808),
    ("Switch_16npus", "HD", "reduce_scatter", MIB, None, {}, 35344),
    ("Ring_8npus", "DBT", "all_reduce", MIB, None, {}, 139052),
    ("Switch_16npus", "DBT", "all_reduce", MIB, None, {}, 184600),
    ("RingSwitch_4x4", "RingDirect_2D", "all_reduce", MIB, None, {}, 13250),
    ("RingSwitch_4x4", "RingDirect_2D", "all_gather", MIB, None, {}, 65246),
    ("RingSwitch_4x4", "RingDirect_2D", "reduce_scatter", MIB, None, {}, 7215),
    ("RingSwitch_4x4", "RingDirect_2D", "all_to_all", MIB, None, {}, 11160),
    ("RingSwitch_4x4", "RingDirect_2D", "all_reduce", MIB, None, {"collective-optimization": "baseline"}, 20920),
    ("RingSwitch_4x4", "RingDirect_2D", "all_reduce", MIB, None, {"active-chunks-per-dimension": 2}, 7910),
    ("RingSwitch_4x4", "RingDirect_2D", "all_reduce", MIB, None, {"all-reduce-implementation": ["oneRing"]}, 18160),
    ("HGX-H100-validated", "Ring", "all_reduce", 16 * MIB, None, {"active-chunks-per-dimension": 2}, 100638),
    ("Switch_16npus", "Direct", "all_reduce", MIB, None, {"all-reduce-implementation": ["direct3"]}, 53000),
    ("Ring_8npus", "Ring", "reduce_scatter", 1000003, None, {"preferred-dataset-splits": 3}, 38232),
    # Communicators, of which the first three are not as far apart everywhere.
    ("Ring_16npus", "Ring", "all_reduce", MIB, [0, 1, 2, 5], {}, 61000),
    ("Ring_16npus", "Direct", "all_reduce", MIB, [0, 1, 2, 5], {}, 30840),
    ("Ring_16npus", "HD", "all_reduce", MIB, [0, 1, 2, 5], {}, 57968),
    ("RingSwitch_4x4", "RingDirect_2D", "all_gather", MIB, [0, 4, 8, 12], {}, 70744),
    ("RingSwitch_4x4", "RingDirect_2D", "all_gather", MIB, [0, 1, 2, 3], {"endpoint-delay": 100}, 15400),
]


@cache
def reference(shared_data: Path) -> dict[tuple[str, int, str, str], int]:
    """ns by operation, ranks, network and system, without contention: the table of REFERENCE.md."""
    found = {}
    text = (shared_data / "astra-sim" / "REFERENCE.md").read_text()
    for op, ranks, *columns in re.findall(r"^\| ([a-z-]+) (\d+) \| (.*?) \| (.*?) \| (.*?) \|$", text, re.MULTILINE):
        for (network, system), column in COLUMNS.items():
            unaware = columns[column].split("/")[-1]  # of "aware / unaware"
            found[op.replace("-", "_"), int(ranks), network, system] = int(unaware.replace(",", ""))
    return found


def model_of(shared_data: Path, network: str, system: str) -> AstraModel:
    config = shared_data / "astra-sim" / "config"
    return AstraModel(
        read_network(config / "network" / f"{network}.yml")[0],
        read_system(config / "system" / f"{system}_4chunks.json")[0],
    )


def test_the_reference_has_all_that_is_compared(shared_data: Path) -> None:
    assert set(reference(shared_data)) == {(op, ranks, *pair) for op in OPS for ranks in (4, 8) for pair in COLUMNS}


@pytest.mark.parametrize(("network", "system"), COLUMNS)
@pytest.mark.parametrize("ranks", [4, 8])
@pytest.mark.parametrize("op", OPS)
def test_costs_are_astra_sims(shared_data: Path, op: str, ranks: int, network: str, system: str) -> None:
    model = model_of(shared_data, f"{network}_{ranks}npus", system)
    assert model.cost_ps(op, range(ranks), MIB) == reference(shared_data)[op, ranks, network, system] * 1000


@pytest.mark.parametrize("ranks", [4, 8, 16])
@pytest.mark.parametrize("op", OPS)
def test_a_ring_has_the_closed_forms_of_the_reference(shared_data: Path, op: str, ranks: int) -> None:
    """REFERENCE.md's own words; it has no table for 16 ranks."""
    chunk = MIB // 4
    message = chunk if op == "all_gather" else chunk // ranks
    step, reduction = int(500 + message / 53.6870912), 3 * (message // 1600)
    k = ranks * (ranks - 1) // 2
    per_chunk = {
        "reduce_scatter": (ranks - 1) * (step + reduction) + 10 * ranks,
        "all_reduce": 2 * (ranks - 1) * step + (ranks - 1) * reduction + 10 * (2 * ranks - 1),
        "all_gather": (ranks - 1) * step + 10 * ranks,
        "all_to_all": k * step + 10 * (k + 1),
    }[op]
    model = model_of(shared_data, f"Ring_{ranks}npus", "Ring")
    assert model.cost_ps(op, range(ranks), MIB) == 4 * per_chunk * 1000


@pytest.mark.parametrize(("network", "system", "op", "size", "members", "changed", "expected_ns"), MEASURED)
def test_costs_are_what_astra_sim_was_seen_to_say(
    shared_data: Path,
    tmp_path: Path,
    network: str,
    system: str,
    op: str,
    size: int,
    members: list[int] | None,
    changed: dict[str, object],
    expected_ns: int,
) -> None:
    config = shared_data / "astra-sim" / "config"
    given = json.loads((config / "system" / f"{system}_4chunks.json").read_text())
    (tmp_path / "system.json").write_text(json.dumps(given | changed))
    model = AstraModel(read_network(config / "network" / f"{network}.yml")[0], read_system(tmp_path / "system.json")[0])
    assert model.cost_ps(op, members or range(model.npus), size) == expected_ns * 1000


def one_dimension(kind: str, npus: int) -> Network:
    return Network((Dimension(kind, npus, 50.0, 500.0),))  # type: ignore[arg-type]


def system_of(*names: str, **given: object) -> System:
    algorithms = [Algorithm(name) for name in names]
    implementations = {f"{op}_implementation": algorithms for op in OPS}
    return System(**({"preferred_dataset_splits": 4, "local_mem_bw": 1600.0} | implementations | given))  # type: ignore[arg-type]


def test_a_message_takes_its_hops_and_one_serialisation() -> None:
    ring, switch = (AstraModel(one_dimension(kind, 8), system_of("ring")) for kind in ("Ring", "Switch"))
    serialisation_ns = MIB / 53.6870912
    assert ring.message_ps(1, 7, MIB) == int(2 * 500 + serialisation_ns) * 1000
    assert ring.message_ps(0, 4, MIB) == int(4 * 500 + serialisation_ns) * 1000
    assert switch.message_ps(1, 7, MIB) == int(2 * 500 + serialisation_ns) * 1000
    assert ring.message_ps(3, 3, MIB) == 0
    with pytest.raises(AstraError, match=r"network.yml: npus_count: has no room for rank 8: makes 8 NPUs; give more"):
        ring.message_ps(0, 8, MIB)


def test_of_several_dimensions_a_message_is_charged_for_the_first(shared_data: Path) -> None:
    model = model_of(shared_data, "RingSwitch_4x4", "RingDirect_2D")
    assert model.message_ps(0, 6, MIB) == model.message_ps(0, 2, MIB) == int(2 * 50 + MIB / 214.7483648) * 1000
    assert model.message_ps(0, 4, MIB) == int(2 * 500 + MIB / 53.6870912) * 1000


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(["Switch", "FullyConnected"]),
    npus=st.integers(2, 40),
    size=st.integers(1, 2**30),
    splits=st.integers(1, 20),
)
def test_where_all_are_as_far_apart_direct_is_two_turns_and_a_message(
    kind: str, npus: int, size: int, splits: int
) -> None:
    model = AstraModel(one_dimension(kind, npus), system_of("direct", preferred_dataset_splits=splits))
    chunk = size // splits
    chunk, chunks = (chunk, -(-size // chunk)) if chunk >= npus else (npus, splits)
    message = chunk // npus
    step = int((2 if kind == "Switch" else 1) * 500 + message / 53.6870912)
    reduction = 3 * int(message / 1600e9 * 1e9)
    once = {"all_to_all": 20 + step, "reduce_scatter": 20 + step + reduction, "all_reduce": 30 + 2 * step + reduction}
    for op, chunk_ns in once.items():
        assert model.cost_ps(op, range(npus), size) == chunks * chunk_ns * 1000


@settings(max_examples=40, deadline=None)
@given(
    shape=st.lists(st.tuples(st.sampled_from(["Ring", "Switch"]), st.sampled_from([2, 4])), min_size=1, max_size=3),
    names=st.lists(st.sampled_from(["ring", "direct", "direct2", "halvingDoubling"]), min_size=3, max_size=3),
    optimization=st.sampled_from(["baseline", "localBWAware"]),
    op=st.sampled_from(OPS[:3]),
    size=st.integers(2**12, 2**24),
)
def test_more_chunks_at_a_time_never_cost_more(
    shape: list[tuple[str, int]], names: list[str], optimization: str, op: str, size: int
) -> None:
    network = Network(tuple(Dimension(kind, npus, 50.0, 500.0) for kind, npus in shape))  # type: ignore[arg-type]

    def cost_ps(active: int) -> int:
        system = system_of(
            *names[: len(shape)],
            collective_optimization=optimization,
            active_chunks_per_dimension=active,
        )
        return AstraModel(network, system).cost_ps(op, range(network.npus), size)

    alone, all_at_once = cost_ps(1), cost_ps(100)
    assert all_at_once <= cost_ps(2) <= alone <= 5 * all_at_once  # of 4 splits, 5 chunks where they leave a rest


@pytest.mark.parametrize(
    ("kind", "logical", "op", "measured_ns"),
    [
        ("Switch", (8, 2), "all_reduce", 92480),
        ("Switch", (8, 2), "all_gather", 307642),
        ("Ring", (8, 2), "all_reduce", 88480),  # the last of 8 on half a ring has 7 links to the first
        ("Ring", (16,), "all_reduce", 99640),
    ],
)
def test_logical_dimensions_stand_for_the_networks(
    kind: str, logical: tuple[int, ...], op: str, measured_ns: int
) -> None:
    system = system_of(*["ring"] * len(logical), collective_optimization="localBWAware")
    model = AstraModel(one_dimension(kind, 16), system, logical)
    assert model.cost_ps(op, range(16), MIB) == measured_ns * 1000


def test_who_is_alone_waits_for_nobody() -> None:
    assert AstraModel(one_dimension("Ring", 4), system_of("ring")).cost_ps("all_reduce", [2], MIB) == 0


def test_a_size_that_chunks_leave_a_rest_of_costs_one_chunk_more() -> None:
    model = AstraModel(one_dimension("Switch", 4), system_of("ring"))
    whole, rest = (model.cost_ps("all_gather", range(4), size) for size in (MIB, MIB + 1))
    assert rest * 4 == whole * 5


@pytest.mark.parametrize(
    ("system", "op", "members", "words"),
    [
        (system_of("ring"), "broadcast", range(4), "ASTRA-sim's model has no broadcast: choose another model"),
        (
            system_of("ring", all_gather_implementation=None),
            "all_gather",
            range(4),
            "all-gather-implementation: is",
        ),
        (
            system_of("ring", "ring"),
            "all_gather",
            range(4),
            "is ring, ring for 1 dimensions; give an",
        ),
        (system_of("halvingDoubling"), "all_to_all", range(4), "halvingDoubling does not do all-to-all with 4 members"),
        (system_of("halvingDoubling"), "all_reduce", range(3), "halvingDoubling does not do all-reduce with 3 members"),
        (system_of("doubleBinaryTree"), "all_gather", range(4), "does not do all-gather with 4 members; give another"),
        (system_of("doubleBinaryTree"), "all_reduce", [0, 2], "does not do all-reduce with a group smaller than"),
        (system_of("ring"), "all_reduce", [0, 4], "network.yml: npus_count: has no room for rank 4: makes 4 NPUs"),
    ],
)
def test_what_has_no_cost_is_refused_in_one_line(
    system: System, op: str, members: range | list[int], words: str
) -> None:
    model = AstraModel(one_dimension("Ring", 4), system)
    with pytest.raises(AstraError) as refused:
        model.cost_ps(op, members, MIB)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_logical_dimensions_have_as_many_ranks_as_the_network() -> None:
    with pytest.raises(AstraError, match="npus_count: makes 8 NPUs, and logical-dims 4 x 4"):
        AstraModel(one_dimension("Ring", 8), system_of("ring", "ring"), (4, 4))


def test_an_answer_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    model = AstraModel(one_dimension("Ring", 512), system_of("direct"))
    first = model.cost_ps("all_reduce", range(512), MIB)
    monkeypatch.setattr(model, "_cost_ns", lambda *_: pytest.fail("it is worked out again"))
    assert {model.cost_ps("all_reduce", range(512), MIB) for _ in range(10)} == {first}
