"""ASTRA-sim's microbenchmarks and its custom ring in the twin: the bytes that each must move, and how long it takes."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from path_oracle import one_message
from twin_fabrics import GBPS, NS, Cable, single_switch, twin_of, wire_bytes

from genie.plan.lowering import Lowering
from genie.workload.load import load
from simtwin.play.twin import Simulation

MIB = 1 << 20
# Bytes that all ranks together send; sizes follow ASTRA-sim: input of one rank, but for all-reduce the buffer.
TOTAL = {
    "all_gather": lambda ranks: ranks * (ranks - 1) * MIB,
    "all_reduce": lambda ranks: 2 * (ranks - 1) * MIB,
    "all_to_all": lambda ranks: (ranks - 1) * MIB,
    "reduce_scatter": lambda ranks: (ranks - 1) * MIB,
}
RATE, DELAY = 400 * GBPS, 500 * NS


def _play(folder: Path, ranks: int, channels: int = 1) -> Simulation:
    return twin_of(single_switch(ranks, RATE, DELAY)).play(load(folder), lowering=Lowering(channels))


@pytest.mark.parametrize("ranks", [4, 8, 16])
@pytest.mark.parametrize("op", TOTAL)
def test_microbenchmarks(shared_data: Path, op: str, ranks: int) -> None:
    folder = shared_data / "astra-sim" / "microbenchmarks" / op / f"{ranks}npus_1MB"
    for channels in (1, 4):
        result = _play(folder, ranks, channels)
        assert result.timeline.select("rank", "op", "size_bytes").rows() == [(rank, op, MIB) for rank in range(ranks)]
        assert result.transfers["size_bytes"].sum() == TOTAL[op](ranks)
        assert result.transfers.group_by("src").agg(pl.col("size_bytes").sum())["size_bytes"].unique().to_list() == [
            TOTAL[op](ranks) // ranks
        ]
        busiest = sum(wire_bytes(TOTAL[op](ranks) // ranks)) * 8 / RATE * 1e9
        assert busiest < result.timeline["end_ns"].max() < 1.2 * busiest + 2 * ranks * 2 * DELAY // 1000


def test_the_custom_ring_moves_what_a_ring_all_reduce_does(shared_data: Path) -> None:
    """112 messages of 128 KiB, written as sends, receives and 7 µs reductions by a scheduler's converter."""
    result = _play(shared_data / "astra-sim" / "custom_ring_allreduce_8npus_1MB", 8)
    transfers = result.transfers
    assert len(transfers) == 112
    assert transfers["messages"].unique().to_list() == [1]
    sent = transfers.group_by("src").agg(pl.col("size_bytes").sum())
    assert sent["size_bytes"].to_list() == [1_835_008] * 8
    assert (transfers["last_ns"] > 0).all(), "every send has met its receive"
    ours = _play(shared_data / "astra-sim" / "microbenchmarks" / "all_reduce" / "8npus_1MB", 8)
    assert ours.transfers["size_bytes"].sum() == transfers["size_bytes"].sum()
    # Its receives wait for the send before them: 14 round trips, and seven reductions of 7 µs one after the other.
    cable = Cable(RATE, RATE, DELAY)
    expected_ps = 14 * one_message([cable, cable], 131_072).acked_ps + 7 * 7_000_000
    assert result.timeline["end_ns"].max() == pytest.approx(expected_ps / 1000, rel=0.01)
