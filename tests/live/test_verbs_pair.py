"""The ends of a bench over verbs, on devices that are lists. The real proof is in tests/rxe."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest
from fake_verbs import Wire, fake_wire

from genie.bench.pair import PairSettings, bandwidth_of
from genie.bench.verbs_pair import VerbsPair
from genie.live.settings import VerbsSettings
from genie.live.transport import TransportError

pytestmark = pytest.mark.live

LIMIT_S = 30.0
SIZE_BYTES = 5000


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    return fake_wire(monkeypatch, seed=3)


def ends(**fields: Any) -> tuple[VerbsPair, VerbsPair]:
    settings = PairSettings(
        **{
            "workload": "", "out": "", "ranks": 2, "addresses": ["10.0.0.1", "10.0.0.2"], "ports": [None, None],
            "host_names": ["a", "b"], "transport": "verbs", "test": "write", "sizes_bytes": [64, SIZE_BYTES],
            "rounds": 10, "depth": 4, **fields,
        }
    )  # fmt: skip
    made = VerbsPair(settings, 0, poll=True), VerbsPair(settings, 1, poll=True)
    for end in made:
        end.open(1024)
    for end, other in zip(made, reversed(made), strict=True):
        end.connect(other.endpoint_info())
    return made


def beside(body: Callable[[], Any]) -> Callable[[], Any]:
    """Start a call in a thread of its own; what it gives when it has ended."""
    given: list[Any] = []
    thread = threading.Thread(target=lambda: given.append(body()), daemon=True)
    thread.start()

    def end() -> Any:
        thread.join(LIMIT_S)
        assert not thread.is_alive(), "it does not end"
        return given[0]

    return end


@pytest.mark.parametrize("slow_completions", [False, True])
def test_messages_go_to_and_fro(wire: Wire, slow_completions: bool) -> None:
    wire.slow_completions = slow_completions
    here, there = ends()
    here.fill(SIZE_BYTES, 1)
    there.fill(SIZE_BYTES, 2)
    for end in (here, there):
        end.forget()
    played = threading.Event()

    def answer() -> tuple[bool, list[int]]:
        answered = there.pingpong(SIZE_BYTES, 5, begins=False, limit_s=LIMIT_S)
        while not played.is_set():
            there.idle()  # a real device answers by itself, this one when it is polled
        return answered

    for turn in range(1, 4):
        played.clear()
        answers = beside(answer)
        done, times = here.pingpong(SIZE_BYTES, 5, begins=True, limit_s=LIMIT_S)
        played.set()
        assert (done, len(times), min(times) > 0) == (True, 5, True)
        assert answers() == (True, [])
        for end, what in itertools.product((here, there), ("messages_sent", "messages_received")):
            assert end.counters()[what] == 5 * turn
    assert (here.differs(SIZE_BYTES, 2), there.differs(SIZE_BYTES, 1)) == (0, 0)
    assert here.differs(SIZE_BYTES, 1) > SIZE_BYTES // 2


@pytest.mark.parametrize(("queue_pairs", "depth", "messages"), [(1, 4, 10), (3, 4, 100), (3, 1, 7), (2, 128, 1)])
def test_a_stream_arrives_within_its_depth(wire: Wire, queue_pairs: int, depth: int, messages: int) -> None:
    """The fake device refuses more than the depth, and keeps order on each queue pair."""
    here, there = ends(queue_pairs=queue_pairs, depth=depth)
    here.fill(SIZE_BYTES, 1)
    there.fill(SIZE_BYTES, 2)
    marks = sorted({max(messages * tenth // 10, 1) for tenth in range(1, 11)})
    for turn in range(1, 3):
        for end in (here, there):
            end.forget()
        served = beside(lambda: [there.serve(mark, LIMIT_S) for mark in marks])
        took_ps = here.stream(SIZE_BYTES, messages, LIMIT_S)
        arrivals = served()
        assert took_ps > 0
        assert arrivals[-1].messages == messages
        assert arrivals[-1].size_bytes == (messages - 1) * SIZE_BYTES  # after the first, from which the span runs
        assert bandwidth_of(SIZE_BYTES, messages, took_ps, arrivals, 0).average_bytes_per_s > 0
        assert here.counters()["messages_sent"] == there.counters()["messages_received"] == turn * messages
    assert there.differs(SIZE_BYTES, 1) == 0
    assert {pair.peer for pair in wire.pairs.values()} == set(wire.pairs)
    assert all(not pair.under_way for pair in wire.pairs.values())


def test_a_byte_that_differs_is_counted(wire: Wire) -> None:
    here, there = ends()
    here.fill(64, 1)
    wire.flip = 1
    served = beside(lambda: there.serve(1, LIMIT_S))
    assert here.stream(64, 1, LIMIT_S) > 0
    served()
    assert there.differs(64, 1) == 1


def test_what_does_not_come_ends_at_its_limit(wire: Wire) -> None:
    here, there = ends()
    wire.drop = True
    assert here.stream(64, 3, 0.05) == -1
    assert there.serve(1, 0.05).messages == 0
    assert there.pingpong(64, 3, begins=False, limit_s=0.05) == (False, [])
    assert (here.error, there.error) == ("", "")


def test_a_connection_that_fails_is_named(wire: Wire) -> None:
    here, _ = ends(queue_pairs=2)
    victim = list(wire.pairs)[1]
    wire.fail = lambda pair: pair.qp_num == victim
    assert here.stream(64, 10, LIMIT_S) == -1
    assert here.error == (
        "rank 0 gave up sending to rank 1: no acknowledgement after all retries "
        f"(queue pair 0x{victim:06x} of fake0 port 1, status 12, vendor error 0x81)"
    )


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"active_mtu_bytes": 512}, "fake0 port 1 carries a path MTU of 512 bytes and the bench has 1024"),
        ({"message_max_bytes": 4096}, "fake0 port 1 takes messages of 4096 bytes and the bench has 5000"),
    ],
)
def test_a_device_that_is_too_small_is_said(wire: Wire, limits: dict[str, int], says: str) -> None:
    end = ends(verbs=VerbsSettings(signal_every=1))[0]
    for name, value in limits.items():
        setattr(end._device, name, value)
    with pytest.raises(TransportError, match=says) as told:
        end.open(1024)
    assert told.value.code == 2
