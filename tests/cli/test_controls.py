"""Congestion control on the wire, from `genie run --congestion` or from a fabric file."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from live_runs import genie, in_this_process, loopback, rings

pytestmark = pytest.mark.live

FABRIC = """
[topology]
kind = "single-switch"
hosts = 2
[link]
rate = "200Mb/s"
delay = "50us"
[host]
packet_latency = "50us"
"""


@pytest.mark.parametrize("control", ["dctcp", "swift", "timely", "nscc"])
def test_a_job_runs_under_each_control(control: str, tmp_path: Path) -> None:
    fabric = tmp_path / "fabric.toml"
    fabric.write_text(FABRIC)
    out = tmp_path / "out"
    # On a busy host delays look like congestion. Swift then sends a packet in 65 ms, and takes a while to recover.
    ended = genie(
        "run", rings(tmp_path / "w", 2), "--hosts", loopback(tmp_path, 2), "--fabric", str(fabric), "-n", "2",
        "--congestion", control, "--verify", "-o", str(out), limit_s=200,
    )  # fmt: skip
    assert ended.code == 0, ended.stderr
    settings = json.loads((out / "run.json").read_text())["settings"]
    assert settings["congestion"] == {"kind": control}
    # A full packet and an ACK, twice each, at 200 Mb/s, four cables, two hosts: 0.65 ms for controls that need it.
    if control == "timely":
        assert settings["base_round_trip_ps"] == 0
    else:
        assert 6e8 < settings["base_round_trip_ps"] < 7e8


@pytest.mark.extended
def test_a_window_of_one_packet_costs_a_round_trip_each(tmp_path: Path) -> None:
    """A packet takes 3 us at this rate. At a slower one, ACKs on loopback are back before a packet has been sent."""
    takes, fast = [], FABRIC.replace("200Mb/s", "10Gb/s")
    for number, window in enumerate(("4200B", "1MiB")):
        fabric = tmp_path / f"fabric{number}.toml"
        fabric.write_text(f'{fast}[congestion]\nkind = "window"\nwindow = "{window}"\n')
        out = tmp_path / f"out{number}"
        workload = rings(tmp_path / f"w{number}", 2, size_bytes=1 << 20)
        ended = genie(
            "run", workload, "--hosts", loopback(tmp_path, 2), "--fabric", str(fabric), "-n", "5", "-o", str(out)
        )
        assert ended.code == 0, ended.stderr
        transfers = pl.read_parquet(out / "transfers.parquet")
        takes.append((transfers["last_ns"] - transfers["first_ns"]).min())  # other programs only make it longer
    assert takes[0] > 1.5 * takes[1], takes  # type: ignore[operator]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--congestion", "hpcc"), "hpcc: needs telemetry from switches, which only the twin has"),
        (("--congestion", "swift"), "swift: needs the base round trip: give a --fabric FILE"),
        (("--congestion", "prayer"), "must be one of none, window, dcqcn"),
    ],
)
def test_what_cannot_be_is_one_line(given: tuple[str, str], says: str, tmp_path: Path) -> None:
    ended = in_this_process(
        "run", rings(tmp_path / "w", 2), "--hosts", loopback(tmp_path, 2), "--rate", "200Mb/s", *given,
        "-o", str(tmp_path / "out"),
    )  # fmt: skip
    assert ended.code == 2
    assert says in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
