"""A bench of one path: its times and arrivals, perftest's columns, and the two ends on soft NICs."""

from __future__ import annotations

import itertools
import os
import threading
import time
from typing import Any

import pytest

from genie.bench import perftest_table
from genie.bench.pair import Arrivals, Bandwidth, PairSettings, bandwidth_of, latency_of
from genie.bench.softroce_pair import SoftRocePair

pytestmark = pytest.mark.live

LIMIT_S = 20.0
_numbers = itertools.count()


def test_latency_is_half_of_each_round_trip() -> None:
    # 1 to 1000 us one way, in an order that is none.
    round_trips_ps = [2_000_000 * (at * 7 % 1000 + 1) for at in range(1000)]
    line = latency_of(64, round_trips_ps, 0)
    assert (line.rounds, line.minimum_us, line.maximum_us) == (1000, 1.0, 1000.0)
    assert (line.typical_us, line.average_us) == (500.5, 500.5)
    assert line.deviation_us == pytest.approx(288.675, abs=0.001)  # sqrt((1000^2 - 1) / 12)
    assert (line.percentile_95_us, line.percentile_99_us, line.percentile_99_9_us) == (950.0, 990.0, 999.0)


def test_bandwidth_is_the_sender_s_and_the_peak_the_receiver_s_fastest_tenth() -> None:
    # 4 messages of 1000 B in 8 us at the sender. At the receiver after 2, 3 and 6 us, two of them in the last 3.
    arrivals = [Arrivals(1, 1000, 2_000_000), Arrivals(2, 2000, 3_000_000), Arrivals(4, 4000, 6_000_000)]
    line = bandwidth_of(1000, 4, 8_000_000, arrivals, 0)
    assert line.average_bytes_per_s == pytest.approx(500e6)
    assert line.messages_per_s == pytest.approx(500e3)
    assert line.peak_bytes_per_s == pytest.approx(1000e6)
    # Of the last four messages, each on a queue pair of its own, three may have come before but for a few bytes.
    burst = [Arrivals(4, 4000, 1_000_000_000), Arrivals(8, 8000, 1_001_000_000)]
    four = bandwidth_of(1000, 8, 4_000_000_000, burst, 0, 4)
    assert four.average_bytes_per_s == pytest.approx(2e6)
    assert four.peak_bytes_per_s == pytest.approx(1000e6)
    alone = bandwidth_of(1000, 1, 8_000_000, [Arrivals(1, 1000, 0)], 0)
    assert alone.peak_bytes_per_s == alone.average_bytes_per_s


def test_latency_columns_are_those_of_ib_write_lat() -> None:
    *_, rule, names = perftest_table.head(True, [("Path", "a -> b")])
    assert set(rule) == {"-"}
    row = perftest_table.row(latency_of(64, [3_000_000, 5_000_000], 0))
    columns = [
        ("#bytes", "64"),
        ("#iterations", "2"),
        ("t_min[usec]", "1.50"),
        ("t_max[usec]", "2.50"),
        ("t_typical[usec]", "2.00"),
        ("t_avg[usec]", "2.00"),
        ("t_stdev[usec]", "0.50"),
        ("99% percentile[usec]", "2.50"),
        ("99.9% percentile[usec]", "2.50"),
    ]
    assert " ".join(names.split()) == " ".join(name for name, _ in columns)
    assert row.split() == [cell for _, cell in columns]
    for name, cell in columns:
        at = names.index(f" {name}") + 1
        assert row[at : at + len(cell) + 1].rstrip() == cell


@pytest.mark.parametrize("gigabits", [False, True])
def test_bandwidth_columns_are_those_of_ib_write_bw(gigabits: bool) -> None:
    *_, names = perftest_table.head(False, [], gigabits)
    unit = "Gb/sec" if gigabits else "MB/sec"
    assert names.split() == ["#bytes", "#iterations", "BW", f"peak[{unit}]", "BW", f"average[{unit}]", "MsgRate[Mpps]"]
    row = perftest_table.row(Bandwidth(65536, 5000, 250 * 2.0**20, 125e6, 1907.348, 0), gigabits)
    rates = ["2.10", "1.00"] if gigabits else ["250.00", "119.21"]
    assert row.split() == ["65536", "5000", *rates, "0.001907"]
    assert row.index("5000") == names.index("#iterations")
    assert row.index(rates[1]) == names.index("BW average")


def pair(**fields: Any) -> tuple[SoftRocePair, SoftRocePair]:
    """Both ends, connected over loopback addresses of this test alone."""
    number = os.getpid() * 251 + next(_numbers)
    base = f"127.{64 + number % 61}.{number // 61 % 251 + 1}"
    settings = PairSettings(
        **{
            "workload": "", "out": "", "ranks": 2, "addresses": [f"{base}.1", f"{base}.2"], "ports": [None, None],
            "host_names": ["localhost"] * 2, "test": "write", "sizes_bytes": [1 << 16], "rounds": 10, "depth": 4,
            **fields,
        }
    )  # fmt: skip
    ends = SoftRocePair(settings, 0, poll=False), SoftRocePair(settings, 1, poll=False)
    for end in ends:
        end.open(4096)
    for end, other in zip(ends, reversed(ends), strict=True):
        end.connect(other.endpoint_info())
        end.forget()
    return ends


def in_thread(body: Any) -> tuple[threading.Thread, list[Any]]:
    """A call that goes on beside the test, and what it will have answered."""
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(body()), daemon=True)
    thread.start()
    return thread, answers


def test_a_ping_that_comes_before_its_answerer_is_ready_is_answered() -> None:
    here, there = pair()
    answered = threading.Event()

    def begin() -> tuple[bool, list[int]]:
        played = here.pingpong(64, 5, begins=True, limit_s=LIMIT_S)
        while not answered.is_set():
            here.idle()  # the last answer has to be acknowledged
        return played

    here.fill(64, 1)
    there.fill(64, 2)
    for turn in range(3):
        answered.clear()
        thread, answers = in_thread(begin)
        # The ping arrives while the other end is busy with something else.
        deadline = time.monotonic() + LIMIT_S
        while there.serve(0, 0.0).messages < 5 * turn + 1 and time.monotonic() < deadline:
            there.idle()
        began = time.monotonic()
        assert there.pingpong(64, 5, begins=False, limit_s=LIMIT_S)[0]
        answered.set()
        thread.join(LIMIT_S)
        assert time.monotonic() - began < LIMIT_S / 2, "it waited for a ping that had come already"
        ended, times_ps = answers[0]
        assert ended
        assert len(times_ps) == 5
        assert min(times_ps) > 0
    # Each end has what the other sent, and not what it sent itself.
    assert (here.differs(64, 2), there.differs(64, 1)) == (0, 0)
    assert here.differs(64, 1) > 32
    assert (here.error, there.error) == ("", "")


@pytest.mark.parametrize("queue_pairs", [1, 3])
def test_the_bytes_of_a_stream_are_compared(queue_pairs: int) -> None:
    here, there = pair(queue_pairs=queue_pairs)
    size_bytes = 10_000
    here.fill(size_bytes, 1)
    there.fill(size_bytes, 2)
    assert there.differs(size_bytes, 1) > size_bytes // 2
    thread, answers = in_thread(lambda: here.stream(size_bytes, 10, LIMIT_S))
    arrivals = there.serve(10, LIMIT_S)
    while thread.is_alive():
        there.idle()
    assert answers[0] > 0
    assert (arrivals.messages, arrivals.size_bytes) == (10, 10 * size_bytes)
    assert there.differs(size_bytes, 1) == 0
    there.fill(1, 2)  # one byte of another pattern
    assert there.differs(size_bytes, 1) == 1


def test_a_peer_that_is_not_there_ends_the_stream_with_its_name() -> None:
    here, there = pair(ack_timeout_ns=5_000_000, retry_limit=2)
    address = there.endpoint_info().address
    del there
    assert here.stream(64, 1, LIMIT_S) == -1
    assert f"gave up sending to {address}" in here.error or f"cannot send to {address}" in here.error
