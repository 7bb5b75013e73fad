"""Runs under attack, in short: `make attack` has every kind of hostile packet by itself."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent.parent / "benchmarks"
SEED, ITERATIONS = 7, 30
TOUCHES_NOTHING = ("wrong port", "blind", "queue pair known")


@pytest.fixture(scope="module")
def attack(as_root: None) -> ModuleType:
    sys.path.append(str(BENCHMARKS))
    import attack

    return attack


@pytest.mark.parametrize("level", TOUCHES_NOTHING)
def test_who_knows_less_than_the_exchange_harms_nothing_and_is_named(attack: ModuleType, level: str) -> None:
    row = attack.attacked(level, attack.KINDS, SEED, ITERATIONS)
    assert row.problems == [], f"again: benchmarks/attack.py --quick --seed {SEED} --levels '{level}'"
    assert (row.code, row.wrong_bytes) == (0, 0)
    assert row.packets > 500
    assert row.verified_bytes > 0
    assert sum(row.counted.values()) > 100
    assert all(sender.startswith("127.") for sender in row.senders)
    assert row.senders


def test_a_run_that_is_ended_by_who_hears_all_says_by_which_packet(attack: ModuleType) -> None:
    kinds = [each for each in attack.KINDS if each.name == "WRITE"]
    row = attack.attacked("all known", kinds, SEED, 400)
    assert (row.code, row.wrong_bytes, row.problems) == (1, 0, [])
    for text in ("ended its connection with rank ", " port ", " a WRITE with PSN ", "something forges its packets"):
        assert text in row.error
