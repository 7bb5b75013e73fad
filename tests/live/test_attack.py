"""Runs under attack, in short: `make attack` has every kind of hostile packet by itself."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = [pytest.mark.live, pytest.mark.extended]

BENCHMARKS = Path(__file__).resolve().parent.parent.parent / "benchmarks"
SEED, ITERATIONS = 7, 30
TOUCHES_NOTHING = ("wrong port", "blind", "queue pair known")


@pytest.fixture(scope="module")
def benchmark_module() -> ModuleType:
    sys.path.append(str(BENCHMARKS))
    import attack

    return attack


@pytest.fixture
def attack(as_root: None, benchmark_module: ModuleType) -> ModuleType:
    return benchmark_module


def problems(attack: ModuleType, level: str, counted: dict[str, int], *names: str, **fields: Any) -> list[str]:
    """Of a run under attack by these kinds of packets that ended like this."""
    kinds = [kind for kind in attack.KINDS if kind.name in names]
    row = {"code": 0, "wrong_bytes": 0, "senders": ["127.0.0.1 port 1"], **fields}
    return attack.problems_of(attack.Row(level, "", 9, verified_bytes=1, counted=counted, **row), kinds)


def test_wrong_bytes_are_never_right(benchmark_module: ModuleType) -> None:
    assert problems(benchmark_module, "all known", {}, "WRITE", wrong_bytes=64) == ["64 wrong bytes"]
    error = "rank 1 ended its connection with rank 0: it refused from 127.0.0.1 port 9 a WRITE"
    assert problems(benchmark_module, "all known", {}, "WRITE", wrong_bytes=64, code=1, error=error) == [
        "64 wrong bytes"
    ]
    assert problems(benchmark_module, "all known", {}, "WRITE", code=1, error=error) == []


def test_each_kind_of_packet_must_be_counted(benchmark_module: ModuleType) -> None:
    counted = {"forged_acks": 5}
    assert problems(benchmark_module, "queue pair known", counted, "ACK") == []
    assert problems(benchmark_module, "queue pair known", counted, "ACK", "CNP", "truncated") == [
        "nothing of CNP is counted (forged_cnps)",
        "nothing of truncated is counted (malformed or bad_icrc)",
    ]
    assert problems(benchmark_module, "stranger", {"malformed": 3}, "truncated") == [
        "nothing of it is counted (strangers)"
    ]


@pytest.mark.parametrize("level", TOUCHES_NOTHING)
def test_who_knows_less_than_the_exchange_harms_nothing_and_is_named(attack: ModuleType, level: str) -> None:
    row = attack.attacked(level, attack.KINDS, SEED, ITERATIONS)
    assert row.problems == [], f"again: benchmarks/attack.py --quick --seed {SEED} --levels '{level}'"
    assert (row.code, row.wrong_bytes) == (0, 0)
    assert row.packets > 500
    assert row.verified_bytes > 0
    assert sum(row.counted.values()) > 0  # how many, a busy machine decides
    assert all(sender.startswith("127.") for sender in row.senders)
    assert row.senders


def test_a_run_that_is_ended_by_who_hears_all_says_by_which_packet(attack: ModuleType) -> None:
    kinds = [each for each in attack.KINDS if each.name == "WRITE"]
    row = attack.attacked("all known", kinds, SEED, 400)
    assert (row.code, row.wrong_bytes, row.problems) == (1, 0, [])
    for text in ("ended its connection with rank ", " port ", " a WRITE with PSN ", "something forges its packets"):
        assert text in row.error
