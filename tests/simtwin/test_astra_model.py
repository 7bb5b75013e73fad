"""ASTRA-sim's analytical model beside the numbers of ASTRA-sim itself."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from simtwin.astra.files import read_network, read_system
from simtwin.astra.model import AstraModel

MIB = 2**20
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
COLUMNS = {("Ring", "Ring"): 0, ("Switch", "Ring"): 1, ("Switch", "Direct"): 2}


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
