"""Sprayed packets over the four spines of a lab: all bytes arrive, out of order, and nothing is sent again."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from lab_fabrics import leaf_spine, written
from live_runs import genie, rings

from genie.record import open_run
from genie.workload.graph import Op

pytestmark = [pytest.mark.live, pytest.mark.extended]

SPRAY, RANKS, ITERATIONS = 16, 4, 3
WINDOW = '[transport]\nwindow_packets = 32\nack_timeout = "2s"\n'  # a window fits the buffer of a spine's port


def counted(folder: Path) -> dict[str, int]:
    """The counters of all ranks together."""
    ranks = json.loads((folder / "counters.json").read_text())["ranks"]
    return {name: sum(of_rank.get(name, 0) for of_rank in ranks) for name in ranks[0]}


def test_sprayed_packets_arrive_out_of_order_and_nothing_is_sent_again(as_root: None, tmp_path: Path) -> None:
    """One spine is slow, so that the packets of the others overtake."""
    trace = rings(tmp_path / "rings", RANKS, size_bytes=262_144, op=Op.ALL_TO_ALL)
    fabric = written(tmp_path, leaf_spine(spines=4, more=WINDOW))
    run = ["run", trace, "--lab", str(fabric), "--spray", str(SPRAY), "--verify", "-n", str(ITERATIONS)]
    slow = ["--lab-fault", "leaf0-spine1 rate=20%", "--lab-fault", "leaf1-spine1 rate=20%"]
    ended = genie(*run, *slow, "-o", str(tmp_path / "live"))
    assert (ended.code, ended.left) == (0, []), ended
    assert "none wrong" in ended.stdout + ended.stderr
    counters = counted(tmp_path / "live")
    assert counters["verified_bytes"] > 0
    assert counters["wrong_bytes"] == 0
    assert counters["out_of_sequence"] > 0
    assert [counters[name] for name in ("retransmitted", "timeouts", "naks_sent")] == [0, 0, 0]
    live = open_run(tmp_path / "live")
    assert live.info["settings"]["spray"] == SPRAY
    assert live.paths is not None
    ports = live.paths.group_by("src", "dst").agg(pl.col("source_port").n_unique())
    assert set(ports["source_port"]) == {SPRAY}
    spines = {link for link in live.paths["link"] if link.startswith("leaf0->spine")}
    assert len(spines) >= 3
    # The twin sends each source port over the path that it had.
    ended = genie("simulate", trace, "--fabric", str(fabric), "--spray", str(SPRAY),
                  "--follow", str(tmp_path / "live"), "-o", str(tmp_path / "twin"))  # fmt: skip
    assert ended.code == 0, ended
    twin = open_run(tmp_path / "twin")
    assert twin.info["paths"]["not_followed"] == 0
    assert twin.paths is not None
    columns = ["src", "dst", "source_port", "hop", "link"]
    assert (
        twin.paths.select(columns)
        .sort(columns)
        .equals(live.paths.join(twin.paths, on=["src", "dst"], how="semi").select(columns).sort(columns))
    )
