"""genie bench pingpong and write over verbs: a rank in each of two guests, on rxe, as the launcher starts them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from roce_pcaps import judge
from rxe.guest import SHARE
from rxe.network import ipv4, ipv6
from rxe.peer import SHORT_TIMEOUT, TIMEOUT
from rxe.rig import Rig
from rxe.warm import WarmPython
from verbs_jobs import Played, Ranks

from genie.bench.pair import PairSettings
from genie.live.settings import VerbsSettings

pytestmark = [pytest.mark.guests, pytest.mark.extended, pytest.mark.slow]

SIZES = [2, 5000, 65536]
PINGS = [2, 1500, 8000]
WRITES_IMMEDIATE = (0x09, 0x0B)  # WRITE_LAST, WRITE_ONLY, both with immediate data
_numbers = itertools.count()


@dataclass
class Bench:
    """A bench under way."""

    ranks: Ranks
    out: Path

    def end(self) -> tuple[Played, dict[str, Any]]:
        """How it ended, and run.json, empty without one."""
        played = self.ranks.end()
        path = self.out / "run.json"
        return played, json.loads(path.read_text()) if path.exists() else {}


@pytest.fixture
def bench(rig: Rig, guest_environment: dict[str, str], warm: list[WarmPython]) -> Callable[..., Bench]:
    def begin(test: str, rounds: int, ipv6_path: bool = False, **more: Any) -> Bench:
        assert rig.share
        name = f"bench{next(_numbers)}"
        out = rig.share / name
        out.mkdir()
        address = ipv6 if ipv6_path else ipv4
        fields = {
            "workload": "", "out": f"{SHARE}/{name}", "ranks": 2, "addresses": [address(1), address(2)],
            "ports": [None, None], "host_names": ["guest1", "guest2"], "transport": "verbs", "mtu": 1024,
            "stall_s": 60.0, "test": test, "sizes_bytes": SIZES, "rounds": rounds,
            "verbs": VerbsSettings(timeout=TIMEOUT), **more,
        }  # fmt: skip
        (out / "launch.json").write_bytes(msgspec.json.encode(PairSettings(**fields)))
        line = ["python3", "-P", "-m", "genie.bench.rank", f"{SHARE}/{name}/launch.json"]
        return Bench(Ranks(rig, (1, 2), guest_environment, lambda place: line, out, warm=warm), out)

    return begin


@pytest.mark.parametrize("poll", [True, False])
def test_pingpong(bench: Callable[..., Bench], rig: Rig, tmp_path: Path, tshark: str, poll: bool) -> None:
    """Polling, with the path MTU looked for; asleep on the completion channel, over IPv6."""
    rounds = 150
    with rig.capture(tmp_path / "pingpong.pcap", guest=1) as capture:
        played, info = bench(
            "pingpong", rounds, ipv6_path=not poll, poll=poll, mtu=0 if poll else 1024, sizes_bytes=PINGS
        ).end()
    assert played.codes == [0, 0], played.said
    assert (info["transport"], info["mtu_bytes"]) == ("verbs", 1024)
    assert [(line["size_bytes"], line["rounds"], line["wrong_bytes"]) for line in info["lines"]] == [
        (size, rounds, 0) for size in PINGS
    ]
    for line in info["lines"]:
        assert 0 < line["minimum_us"] <= line["typical_us"] <= line["percentile_99_us"] <= line["maximum_us"]
    # Two turns or more, each of which begins with a round that wakes the other end.
    messages = info["ranks"][0]["counters"]["messages_sent"]
    assert messages >= len(PINGS) * (rounds + 2)
    for rank in info["ranks"]:
        assert rank["poll"] is poll
        assert rank["counters"]["messages_sent"] == rank["counters"]["messages_received"] == messages
    seen = judge(capture.path, tshark).distinct
    assert sum(seen[opcode] for opcode in WRITES_IMMEDIATE) == 2 * messages


@pytest.mark.parametrize(("queue_pairs", "depth", "lost_percent"), [(1, 128, 0), (3, 4, 1)])
def test_write(bench: Callable[..., Bench], rig: Rig, queue_pairs: int, depth: int, lost_percent: float) -> None:
    rounds = 100
    rig.network.lose(lost_percent)
    played, info = bench("write", rounds, queue_pairs=queue_pairs, depth=depth).end()
    assert played.codes == [0, 0], played.said
    assert (rig.network.lost_packets() > 0) is (lost_percent > 0)
    for line, size in zip(info["lines"], SIZES, strict=True):
        assert (line["size_bytes"], line["messages"], line["wrong_bytes"]) == (size, rounds, 0)
        assert 0 < line["average_bytes_per_s"] <= line["peak_bytes_per_s"]
        assert line["messages_per_s"] * size == pytest.approx(line["average_bytes_per_s"])
    sender, receiver = (rank["counters"] for rank in info["ranks"])
    assert sender["messages_sent"] == receiver["messages_received"] == rounds * len(SIZES)
    assert receiver["bytes_received"] == rounds * sum(SIZES)
    assert sender["posts"] < sender["messages_sent"]  # lists
    assert sender["signals"] < sender["messages_sent"]  # not each is signaled


def test_the_named_error_of_a_bench(bench: Callable[..., Bench], rig: Rig) -> None:
    """Three tries of at most 4 x 67 ms; the other end hears of it when its own patience ends."""
    rig.network.lose(100)
    played, info = bench("pingpong", 10, verbs=VerbsSettings(timeout=SHORT_TIMEOUT, retry_count=1), stall_s=10.0).end()
    assert set(played.codes) == {1}, played.said
    assert info == {}
    assert "2 bytes: rank 0 gave up sending to rank 1: no acknowledgement after all retries" in " ".join(played.said)
