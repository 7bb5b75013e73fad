"""The verbs transport's loop between ranks of one process, on devices that are lists: as pyverbs would have it.

The real proof is in tests/rxe; here are orders, limits and ends that a real device shows rarely.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from fake_verbs import Wire, fake_wire
from live_runs import rings

from genie.live.settings import RunSettings, VerbsSettings
from genie.live.transport import EndpointInfo, Site, TransportContext, TransportError
from genie.live.verbs import places
from genie.live.verbs.transport import VerbsTransport
from genie.plan.build import build_plan
from genie.plan.lowering import Lowering
from genie.workload.load import load

pytestmark = pytest.mark.live

SIZE_BYTES = 4096
SLICE_PS = 100_000_000  # of one rank's turn
RING = Lowering(1, False, {"all_reduce": "ring"})


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    return fake_wire(monkeypatch, seed=7)


class Ranks:
    """All ranks of a ring all-reduce trace, played in turns by one thread: nothing depends on the machine's speed."""

    def __init__(
        self, folder: Path, ranks: int, stall_s: float = 5.0, lowering: Lowering = RING, **settings: Any
    ) -> None:
        trace = rings(folder / "trace", ranks, collectives=4, size_bytes=SIZE_BYTES, compute_ns=0)
        self.settings = RunSettings(
            workload=trace, out=str(folder), ranks=ranks, addresses=[f"10.0.0.{rank + 1}" for rank in range(ranks)],
            ports=[None] * ranks, host_names=["h"] * ranks, transport="verbs", **settings,
        )  # fmt: skip
        plans = [build_plan(load(trace, ranks=[rank]), lowering=lowering) for rank in range(ranks)]
        size = max(plan.message_max_bytes for plan in plans)
        site = Site(0, 1, 1, True)
        self.all = [
            VerbsTransport(TransportContext(self.settings, rank, site, size, stall_s, True)) for rank in range(ranks)
        ]
        for each in self.all:
            each.open(1024)
        endpoints = [msgspec.convert(msgspec.to_builtins(each.endpoint_info()), EndpointInfo) for each in self.all]
        for each, plan in zip(self.all, plans, strict=True):
            each.connect(endpoints)
            each.set_plan(plan.native)

    def play(self, limit: int = 200_000) -> list[str]:
        states: list[str] = [each.begin(each.now_ps) for each in self.all]
        for _ in range(limit):
            if all(state != "timeout" for state in states):
                break
            for rank, each in enumerate(self.all):
                if states[rank] == "timeout":
                    states[rank] = each.run(each.now_ps + SLICE_PS)
                elif states[rank] == "done":
                    states[rank] = "done" if each.serve(0) != "failed" else "failed"
        return states


@pytest.mark.parametrize(
    ("queue_pairs", "split", "depths"),
    [
        (1, False, (512, 512, 16)),
        (1, False, (2, 1, 16)),
        (3, False, (4, 2, 3)),
        (3, True, (4, 2, 3)),
        (5, True, (1, 1, 1)),
    ],
)
def test_all_is_played_again_and_again(
    wire: Wire, tmp_path: Path, queue_pairs: int, split: bool, depths: tuple[int, int, int]
) -> None:
    send, receive, every = depths
    verbs = VerbsSettings(send_depth=send, receive_depth=receive, signal_every=every)
    ranks = Ranks(tmp_path, 4, queue_pairs=queue_pairs, split=split, verbs=verbs)
    for _ in range(3):
        assert ranks.play() == ["done"] * 4, [each.error or each.waiting() for each in ranks.all]
        for each in ranks.all:
            records = each.records()
            assert (records["nodes"]["end_ps"] >= records["nodes"]["start_ps"]).all()
            assert (records["sends"]["acked_ps"] >= records["sends"]["post_ps"]).all()
            assert np.sum(records["receives"]["size_bytes"]) == np.sum(records["sends"]["size_bytes"])
    counters = [each.counters() for each in ranks.all]
    # Each of four ranks passes on six blocks of every all-reduce.
    assert [each["messages_sent"] for each in counters] == [3 * 4 * 6] * 4
    assert [each["messages_received"] for each in counters] == [3 * 4 * 6] * 4
    assert sum(each["bytes_sent"] for each in counters) == 3 * 4 * 2 * 3 * SIZE_BYTES
    assert all(length <= send and signals >= 1 for length, signals in wire.posted)


CHANNELS = Lowering(16, False, {"all_reduce": "ring"})


@pytest.mark.parametrize(("queue_pairs", "split"), [(1, False), (3, False), (3, True), (5, True)])
@pytest.mark.parametrize("wanted_bytes", [0, 64 << 20])
def test_every_byte_is_checked_before_another_takes_its_place(
    wire: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queue_pairs: int, split: bool, wanted_bytes: int
) -> None:
    """Many more messages are under way than the fewest places, four, would hold."""
    monkeypatch.setattr(places, "WANTED_BYTES", wanted_bytes)
    ranks = Ranks(tmp_path, 3, lowering=CHANNELS, queue_pairs=queue_pairs, split=split, verify=True)
    for _ in range(3):
        assert ranks.play() == ["done"] * 3, [each.error or each.waiting() for each in ranks.all]
    for each in ranks.all:
        counters = each.counters()
        assert counters["verified_bytes"] == counters["bytes_received"]
        assert counters["wrong_bytes"] == 0
    assert sum(each.counters()["verified_bytes"] for each in ranks.all) == 3 * 4 * 2 * 2 * SIZE_BYTES
    assert max(length for length, _ in wire.posted) > 4


def test_one_receive_too_many_and_messages_would_be_overwritten(
    wire: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound on what is under way is what keeps messages until they are checked."""
    monkeypatch.setattr(places, "WANTED_BYTES", 0)
    ranks = Ranks(tmp_path, 2, lowering=CHANNELS, verify=True)
    for pair in wire.pairs.values():
        pair.receives += 1
    assert ranks.play() == ["done"] * 2
    assert sum(each.counters()["wrong_bytes"] for each in ranks.all) > 0


def test_a_wrong_byte_is_found(wire: Wire, tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2, verify=True)
    wire.flip = 3
    assert ranks.play() == ["done"] * 2
    assert sum(each.counters()["wrong_bytes"] for each in ranks.all) == 3


def test_lists_are_signaled_sparingly(wire: Wire, tmp_path: Path) -> None:
    """Messages that a collective's channels send at once go as one list, with one signal in four."""
    ranks = Ranks(
        tmp_path, 2, lowering=Lowering(16, False, {"all_reduce": "ring"}), verbs=VerbsSettings(signal_every=4)
    )
    assert ranks.play() == ["done"] * 2
    assert (16, 4) in wire.posted
    messages = sum(length for length, _ in wire.posted)
    assert messages == sum(each.counters()["messages_sent"] for each in ranks.all)
    assert sum(signals for _, signals in wire.posted) < messages


def test_a_connection_that_fails_is_named(wire: Wire, tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 3)
    victim = ranks.all[1]._peers[2].numbers[0]  # from rank 1 to rank 2
    wire.fail = lambda pair: pair.qp_num == victim
    assert ranks.play(2000)[1] == "failed"
    assert ranks.all[1].error == (
        "rank 1 gave up sending to rank 2: no acknowledgement after all retries "
        f"(queue pair 0x{victim:06x} of fake0 port 1, status 12, vendor error 0x81)"
    )


def test_a_run_without_progress_ends_and_says_what_it_waits_for(wire: Wire, tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2, stall_s=0.05)
    wire.drop = True
    assert "failed" in ranks.play()
    told = next(each.error for each in ranks.all if each.error)
    assert "0 of" in told
    assert "messages received from rank" in told


def test_a_rank_that_slept_too_long_in_compute_does_not_stall(wire: Wire, tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2, stall_s=0.01)
    each = ranks.all[0]
    assert each.serve(each.now_ps + 30_000_000_000) == "timeout"  # only play stalls


def test_what_comes_before_an_iteration_begins_counts_in_it(wire: Wire, tmp_path: Path) -> None:
    """Rank 1 starts late: rank 0's messages are there, timed against the new origin."""
    ranks = Ranks(tmp_path, 2)
    first, second = ranks.all
    assert first.begin(first.now_ps) == "timeout"
    for _ in range(50):
        assert first.run(0) == "timeout"
        assert second.serve(0) == "timeout"
    assert second.counters()["messages_received"] > 0
    begun_ps = second.now_ps
    assert second.begin(begun_ps) == "timeout"
    states = ["timeout", "timeout"]
    for _ in range(5000):
        states = [each.run(0) if state == "timeout" else state for each, state in zip(ranks.all, states, strict=True)]
    assert states == ["done", "done"]
    assert second.counters()["messages_received"] == first.counters()["messages_sent"]
    # Later than the new origin by no more than the test has taken.
    assert second.records()["receives"]["last_ps"].max() <= second.now_ps - begun_ps


def test_a_device_that_is_too_small_is_said_before_anything_is_sent(wire: Wire, tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2)
    transport = ranks.all[0]
    with pytest.raises(TransportError, match="carries a path MTU of 1024 and the run has mtu = 2048") as told:
        transport.open(2048)
    assert told.value.code == 2
    transport._device.message_max_bytes = 1000
    with pytest.raises(TransportError, match="takes messages of 1000 bytes") as told:
        transport.open(1024)
    assert told.value.code == 2
    transport._device.message_max_bytes = 1 << 23
    transport._device.queue_pairs_max = 0
    with pytest.raises(TransportError, match="has 0 queue pairs and the run needs 1") as told:
        transport.open(1024)
    assert told.value.code == 3


def test_ranks_that_disagree_on_queue_pairs_are_told(wire: Wire, tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2)
    endpoints = [each.endpoint_info() for each in ranks.all]
    endpoints[1] = msgspec.structs.replace(endpoints[1], queue_pairs=[[1, 2], []])
    with pytest.raises(TransportError, match="rank 1 has 2 queue pairs for rank 0, which wants 1") as told:
        ranks.all[0].connect(endpoints)
    assert told.value.code == 2
