"""The end of a run, when rank 0 writes all records: the others wait as long as it takes, and hear of failures."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from fake_channels import fake, play

from genie.errors import EXIT_ENVIRONMENT, RankError
from genie.live.launch import merge
from genie.live.launch.endings import unexpected
from genie.live.rank.gather import gather
from genie.live.rendezvous.meeting import Rendezvous
from genie.live.settings import RunSettings

pytestmark = pytest.mark.live

RANKS, LIMIT_S = 3, 1.0


def settings(out: Path) -> RunSettings:
    addresses = [f"127.0.0.{rank + 1}" for rank in range(RANKS)]
    return RunSettings(
        workload="", out=str(out), ranks=RANKS, addresses=addresses, ports=[None] * RANKS, host_names=["h"] * RANKS
    )


def ends(out: Path) -> list[Any]:
    """Return the result of gather() on each rank, for a run of two iterations."""

    def body(meet: Rendezvous) -> str:
        try:
            gather(settings(out), meet, {"rank": meet.rank}, [b"first", b"second"], lambda: time.sleep(0.001))
        except RankError as error:
            return f"{error.code} {error.agreed} {error}"
        return "written"

    return play(fake(RANKS), [body] * RANKS, limit_s=LIMIT_S)


@pytest.mark.extended
def test_writing_may_take_longer_than_the_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    written: list[Any] = []

    def slow(_: RunSettings, facts: list[Any], parts: list[Any]) -> None:
        time.sleep(4 * LIMIT_S)
        written.append((facts, parts))

    monkeypatch.setattr(merge, "write_live_run", slow)
    assert ends(tmp_path) == ["written"] * RANKS
    assert written == [([{"rank": rank} for rank in range(RANKS)], [[b"first"] * RANKS, [b"second"] * RANKS])]


def test_all_ranks_hear_that_it_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def failing(*_: Any) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(merge, "write_live_run", failing)
    assert ends(tmp_path) == [f"{EXIT_ENVIRONMENT} True the disk is full"] * RANKS


def test_a_clock_s_correction_moves_messages_past_the_origin_and_nodes_to_it() -> None:
    messages = pl.DataFrame({"first_ns": [-1, 3, 4, 9]})
    assert merge._shift(messages, ("first_ns",), -5)["first_ns"].to_list() == [-1, -2, -2, 4]
    nodes = pl.DataFrame({"end_ns": [-1, 3, 9]})
    assert merge._shift(nodes, ("end_ns",), -5, lowest=0)["end_ns"].to_list() == [-1, 0, 4]


def test_a_fault_of_ours_is_one_line_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        [][1]
    except IndexError as error:
        told = unexpected(error)
    assert str(told).startswith("this is a fault of Genie: IndexError in test_gather.py:")
    assert "list index out of range; its traceback is in " in str(told)
    assert told.code == 70
    (kept,) = tmp_path.iterdir()
    assert "Traceback (most recent call last)" in kept.read_text()


def test_too_little_memory_is_no_fault_of_ours() -> None:
    told = unexpected(MemoryError())
    assert (told.code, str(told)[:15]) == (3, "memory ran out:")
