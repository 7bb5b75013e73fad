"""`genie bench pingpong` and `genie bench write` with `--simulate`, and the streams that they play."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_usage import in_this_process

FABRIC = """[topology]
kind = "single-switch"
hosts = 4
[link]
rate = "100Gb/s"
[host]
packet_latency = "2us"
"""
NIC = '[nic]\nmessage_time = "1us"\n'
HEADERS, RETH, IMMEDIATE, ACK = 82, 16, 4, 86  # bytes on the wire beside the payload


@pytest.fixture
def fabric(tmp_path: Path) -> Path:
    path = tmp_path / "fabric.toml"
    path.write_text(FABRIC)
    return path


def line_of(tmp_path: Path, *words: str) -> dict[str, Any]:
    """The only line of a bench's JSON."""
    out = tmp_path / "bench.json"
    ended = in_this_process("bench", *words, "--simulate", "--json", str(out))
    assert ended.code == 0, ended.stderr
    report = json.loads(out.read_text())
    assert (report["world"], report["bench"]) == ("twin", words[0])
    [line] = report["lines"]
    return dict(line)


def on_wire_us(size_bytes: int) -> float:
    """Of one message of a packet, on one link."""
    return (size_bytes + HEADERS + RETH + IMMEDIATE) * 8 / 100e3


@pytest.mark.parametrize("level", ["packet", "flow"])
def test_one_message_at_a_time(level: str, fabric: Path, tmp_path: Path) -> None:
    """Each waits for the acknowledgement of the one before: two links and a latency each way."""
    words = ("write", "--fabric", str(fabric), "-s", "4K", "-n", "20", "--depth", "1", "--level", level)
    line = line_of(tmp_path, *words)
    period_us = 2 * on_wire_us(4096) + 2 * ACK * 8 / 100e3 + 4
    assert line["average_bytes_per_s"] == pytest.approx(4096 / period_us * 1e6, rel=0.001)
    assert line["messages"] == 20
    assert line["peak_bytes_per_s"] >= line["average_bytes_per_s"]


def test_outstanding_messages_fill_the_line(fabric: Path, tmp_path: Path) -> None:
    line = line_of(tmp_path, "write", "--fabric", str(fabric), "-s", "64K", "-n", "400", "--depth", "16")
    assert line["average_bytes_per_s"] * 8e-9 == pytest.approx(100 * 4096 / 4178, rel=0.01)


def test_queue_pairs_and_mtu(fabric: Path, tmp_path: Path) -> None:
    fabric.write_text(FABRIC + NIC)
    words = ("write", "--fabric", str(fabric), "-s", "1K", "-n", "400", "--mtu", "1024")
    one, four = (line_of(tmp_path, *words, "-q", pairs)["messages_per_s"] for pairs in ("1", "4"))
    assert one == pytest.approx(1e6, rel=0.02)
    assert four == pytest.approx(4e6, rel=0.05)


def test_half_of_a_round_trip(fabric: Path, tmp_path: Path) -> None:
    line = line_of(tmp_path, "pingpong", "--fabric", str(fabric), "-s", "64", "-n", "9")
    expected_us = 2 + 2 * on_wire_us(64) + ACK * 8 / 100e3  # the answer waits for the acknowledgement before it
    assert [line["typical_us"], line["maximum_us"]] == pytest.approx(2 * [expected_us], abs=1e-3)
    assert line["minimum_us"] <= line["typical_us"]
    assert line["rounds"] == 9


def test_the_table_names_the_ends(fabric: Path) -> None:
    ended = in_this_process(
        "bench", "write", "--simulate", "--fabric", str(fabric), "--ends", "3,1", "-n", "5", "--report-gbits"
    )
    assert ended.code == 0
    assert "host3 -> host1" in ended.stdout
    assert "BW average[Gb/sec]" in ended.stdout
    assert "Simulated by the twin: level packet" in ended.stdout


def test_a_fabric_without_costs_is_noted(fabric: Path) -> None:
    words = ("bench", "write", "--simulate", "--fabric", str(fabric), "-n", "2")
    note = "the twin's hosts cost nothing"
    assert note not in in_this_process(*words).stderr
    fabric.write_text(FABRIC[: FABRIC.index("[host]")])
    assert note in in_this_process(*words).stderr


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("write --fabric FABRIC", "--fabric FABRIC: has an effect with --simulate only: add it, or leave this out"),
        ("write --simulate --fabric FABRIC --ends 0,4", "--ends 0,4: give two hosts of FABRIC, 0 to 3, such as 0,1"),
        ("write --simulate --fabric FABRIC --ends 1,1", "--ends 1,1: give two hosts of FABRIC, 0 to 3, such as 0,1"),
        (
            "write --simulate --fabric FABRIC -n 1000001",
            "-n 1000001: with --simulate at most 1000000: give a smaller -n",
        ),
        ("pingpong --simulate", "--simulate: a loopback without a rate takes no time: give --rate, or"),
        ("pingpong --simulate --fabric FABRIC --level fine", "--level fine: must be one of"),
        ("pingpong --simulate --fabric FABRIC --rate 1Gb/s", "--rate 1Gb/s: the links of FABRIC have 100Gb/s"),
    ],
)
def test_wrong_usage_is_one_line(given: str, problem: str, fabric: Path) -> None:
    ended = in_this_process("bench", *given.replace(" FABRIC", f" {fabric}").split())
    assert ended.code == 2
    [line] = ended.stderr.strip().splitlines()
    assert problem.replace(" FABRIC", f" {fabric}") in line
