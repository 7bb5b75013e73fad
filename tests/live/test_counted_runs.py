"""counters.json of whole runs: what ranks and the interfaces below them counted, once each, and what is said of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cable import Cable, cable
from live_runs import GENIE, Ended, genie, loopback, rings, started

from genie.record import open_run

pytestmark = pytest.mark.live

MPIRUN = str(Path(sys.executable).parent / "mpirun")
HOSTS = """
[[host]]
name = "a"
ranks = "0-1"
address = "10.78.0.1"

[[host]]
name = "b"
ranks = "2-3"
address = "10.78.0.2"
"""


def warnings(ended: Ended) -> list[str]:
    return [line for line in ended.stderr.splitlines() if line.startswith("genie: counters: ")]


def test_ranks_of_one_interface_count_it_once(tmp_path: Path) -> None:
    out = tmp_path / "out"
    ended = genie("run", rings(tmp_path / "rings"), "--hosts", loopback(tmp_path), "--rate", "200Mb/s", "--warmup", "1",
                  "-o", str(out))  # fmt: skip
    assert (ended.code, ended.said) == (0, [])
    counters = open_run(out).counters
    (device,) = counters["devices"]
    assert {name: device[name] for name in ("host", "device", "kind", "ranks")} == {
        "host": "localhost", "device": "lo", "kind": "interface", "ranks": [0, 1, 2, 3]
    }  # fmt: skip
    # Each byte of every rank was sent on it, in the warm-up too; others may use it meanwhile.
    assert device["counters"]["tx_bytes"] >= sum(rank["bytes_sent"] for rank in counters["ranks"])
    assert [f"genie: counters: {warning['text']}" for warning in counters["warnings"]] == warnings(ended)


@pytest.fixture(scope="module")
def pair(as_root: None) -> Iterator[Cable]:
    with cable() as made:
        yield made


def run_in(pair: Cable, folder: Path, *given: str) -> Ended:
    (folder / "hosts.toml").write_text(HOSTS)
    near, far = (f'exec ip netns exec {name} "$@"' for name in pair.names)
    wrapper = f"case $PMI_RANK in 0|1) {near};; *) {far};; esac"
    job = ["run", rings(folder / "rings"), "--hosts", str(folder / "hosts.toml"), "--gpu", "none"]
    job += ["-o", str(folder / "out")]
    with started(line=[MPIRUN, "-n", "4", "sh", "-c", wrapper, "sh", str(GENIE), *job, *given]) as command:
        return command.end()


def by_host(counters: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["host"]: each for each in counters["devices"]}


def test_packets_that_are_lost_on_the_way_are_remarked(pair: Cable, tmp_path: Path) -> None:
    pair.rule(1, "udp dport 4791 numgen inc mod 40 == 7 drop")
    try:
        ended = run_in(pair, tmp_path, "--rate", "200Mb/s", "--no-offload", "-n", "2")
    finally:
        pair.clear(1)
    assert (ended.code, ended.said, ended.left) == (0, [], [])
    counters = json.loads((tmp_path / "out" / "counters.json").read_text())
    found = by_host(counters)
    assert sorted(found) == ["a", "b"]
    assert [found[host]["ranks"] for host in "ab"] == [[0, 1], [2, 3]]
    assert {found[host]["device"] for host in "ab"} == {"cable"}
    assert {found[host]["driver"] for host in "ab"} == {"veth"}
    # All traffic to the other host crosses the cable; what one end sends, the other receives.
    sent, received = found["a"]["counters"]["tx_packets"], found["b"]["counters"]["rx_packets"]
    assert sent > 0
    assert abs(sent - received) <= 0.02 * sent
    again = [warning for warning in counters["warnings"] if warning["counter"] == "retransmitted"]
    assert len(again) == 1
    assert again[0]["grew"] == max(rank["retransmitted"] for rank in counters["ranks"])
    assert warnings(ended)[0] == f"genie: counters: {counters['warnings'][0]['text']}"
    assert any("retransmitted grew by" in line for line in warnings(ended))


def test_a_run_that_dies_leaves_what_was_counted(tmp_path: Path) -> None:
    """Rank 1's packets are lost, all of them, from the start: its peers wait, and the record says what it counted."""
    plan, out = tmp_path / "faults.toml", tmp_path / "out"
    plan.write_text("[[loss]]\nrank = 1\nevery = 1\n")
    ended = genie("run", rings(tmp_path / "rings"), "--hosts", loopback(tmp_path), "--rate", "200Mb/s", "--stall", "1",
                  "--faults", str(plan), "-o", str(out))  # fmt: skip
    assert ended.code == 1
    run = open_run(out)
    assert run.info["complete"] is False
    assert run.counters["ranks"][1]["injected_losses"] > 0
    assert run.counters["devices"][0]["counters"]["tx_packets"] > 0
