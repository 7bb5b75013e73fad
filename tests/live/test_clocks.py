"""Clock offsets from ping-pongs: the true offset lies within the bound, whatever the delays are."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genie.live.rank import clocks as clocks_of_ranks
from genie.live.rank.clocks import SHARED_CLOCK, ClockFit, Exchange, clock_identity, exchange, fit

pytestmark = pytest.mark.live

DAY_NS = 86_400_000_000_000


class Clocks:
    """Two clocks: rank 0's is true time, ours = offset + (1 + drift) · true time."""

    def __init__(self, offset_ns: float, drift: float) -> None:
        self.offset_ns, self.drift = offset_ns, drift

    def ours(self, true_ns: float) -> int:
        return round(true_ns * (1 + self.drift) + self.offset_ns)

    def exchange(self, true_ns: float, there_ns: float, back_ns: float) -> Exchange:
        answered = true_ns + there_ns
        return Exchange(self.ours(true_ns), round(answered), self.ours(answered + back_ns))


def ping_pongs(clocks: Clocks, draw: random.Random, start_ns: float, asymmetry: float = 0.0) -> list[Exchange]:
    """32 exchanges with queueing now and then; `asymmetry`: this share of the base delay is added on the way back."""
    found, at = [], start_ns
    for _ in range(32):
        there = 20_000 + draw.expovariate(1 / 5_000)
        back = 20_000 * (1 + asymmetry) + draw.expovariate(1 / 5_000)
        found.append(clocks.exchange(at, there, back))
        at += there + back + 1_000
    return found


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    offset_ns=st.integers(-30 * DAY_NS, 30 * DAY_NS),
    drift_ppm=st.floats(-50, 50),
    asymmetry=st.floats(0, 3),
    span_s=st.floats(0.01, 600),
    seed=st.integers(0, 2**32),
)
def test_the_error_is_within_the_bound(
    offset_ns: int, drift_ppm: float, asymmetry: float, span_s: float, seed: int
) -> None:
    draw = random.Random(seed)
    clocks = Clocks(offset_ns, drift_ppm * 1e-6)
    begin = draw.uniform(0, 100 * DAY_NS)
    end = begin + span_s * 1e9
    before = ping_pongs(clocks, draw, begin, asymmetry)
    after = ping_pongs(clocks, draw, end, asymmetry)
    found = fit(before, after)
    assert found.bound_ns < 1_000_000
    for share in (0.0, 0.1, 0.5, 0.9, 1.0):
        true_ns = begin + share * (end - begin)
        ours = clocks.ours(true_ns)
        assert abs(found.at(ours) - (ours - true_ns)) <= found.bound_ns + 4  # ns: clocks count whole ones
        assert found.at_reference(true_ns) == pytest.approx(found.at(ours), abs=found.bound_ns + 4)


def test_symmetric_delays_and_a_constant_offset_are_exact() -> None:
    clocks = Clocks(5_000_000, 0.0)
    sides = [[clocks.exchange(start + 1000 * k, 30_000, 30_000) for k in range(8)] for start in (0.0, 1e9)]
    found = fit(*sides)
    assert (found.offset_ns, found.drift) == (5_000_000, 0.0)
    assert found.bound_ns == 30_000  # half the round trip: an asymmetry of that size would not show


def test_the_fastest_exchange_counts() -> None:
    clocks = Clocks(1_000, 0.0)
    slow = [clocks.exchange(1e6 * k, 500_000, 20_000) for k in range(10)]
    fast = clocks.exchange(2e7, 10_000, 12_000)
    found = fit([*slow[:5], fast, *slow[5:]], [])
    assert abs(found.at(0) - 1_000) <= found.bound_ns == 11_000


class Answers:
    """Rank 0 as rank 1 sees it: an answer takes 30 us, and those whose number `delayed` accepts 3 ms."""

    rank = 1

    def __init__(self, monkeypatch: pytest.MonkeyPatch, delayed: Callable[[int], bool]) -> None:
        self.channel, self.delayed, self.now_ns = self, delayed, 10**12
        self.asked, self.ended = 0, False
        monkeypatch.setattr(clocks_of_ranks.time, "monotonic_ns", lambda: self.now_ns)

    def send(self, rank: int, tag: int, payload: bytes) -> None:
        assert (rank, self.ended) == (0, False)
        self.ended = payload != b""
        self.asked += not self.ended

    def wait_for(self, tag: int, ranks: Iterable[int], idle: object) -> tuple[int, bytes]:
        answered = self.now_ns + 15_000
        self.now_ns = answered + (3_000_000 if self.delayed(self.asked) else 15_000)
        return 0, str(answered).encode()


@pytest.mark.parametrize(
    ("delayed", "remote", "asked"),
    [
        (lambda number: number % 2 == 0, [1], 32),
        (lambda number: number % 20 != 0, [1], 180),  # until nine were quick
        (lambda number: number > 3, [1], 512),
        (lambda number: number > 3, list(range(1, 1001)), 32),  # rank 0 answers many
    ],
)
def test_a_busy_machine_is_asked_more_often(
    delayed: Callable[[int], bool], remote: list[int], asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = Answers(monkeypatch, delayed)
    found = exchange(answers, remote)  # type: ignore[arg-type]
    assert (answers.asked, answers.ended, len(found)) == (asked, True, asked)
    if asked == 180:
        assert fit(found, found).bound_ns == 15_000


class Asks:
    """Ranks 1 and 2 as rank 0 hears them, in turn: so many questions of each, and then its end."""

    rank = 0

    def __init__(self, questions: dict[int, int]) -> None:
        self.channel, self.answered = self, dict.fromkeys(questions, 0)
        turns = [(number, rank, b"") for rank, count in questions.items() for number in range(count)]
        ends = [(count, rank, b"end") for rank, count in questions.items()]
        self.messages = [(rank, payload) for _, rank, payload in sorted([*turns, *ends])]

    def wait_for(self, tag: int, ranks: Iterable[int], idle: object) -> tuple[int, bytes]:
        rank, payload = self.messages.pop(0)
        assert rank in set(ranks)
        return rank, payload

    def send(self, rank: int, tag: int, payload: bytes) -> None:
        assert int(payload) > 0
        self.answered[rank] += 1


def test_rank_0_answers_until_each_has_enough() -> None:
    asks = Asks({1: 32, 2: 40})
    assert exchange(asks, [1, 2]) == []  # type: ignore[arg-type]
    assert (asks.answered, asks.messages) == ({1: 32, 2: 40}, [])


def test_before_the_end_one_side_is_enough() -> None:
    clocks = Clocks(-7 * DAY_NS, 20e-6)
    found = fit(ping_pongs(clocks, random.Random(1), 1e12), [])
    assert found.drift == 0.0
    now = 1e12 + 1e9  # a second later a drift of 20 ppm has made 20 us: known only after the run
    ours = clocks.ours(now)
    assert abs(found.at(ours) - (ours - now)) <= found.bound_ns + 20_000 + 4


def test_a_shared_clock_has_no_offset() -> None:
    assert SHARED_CLOCK.at(1e18) == SHARED_CLOCK.at_reference(1e18) == 0.0
    assert SHARED_CLOCK.bound_ns == 0.0
    assert clock_identity() == clock_identity()
    assert ClockFit(100.0, 0.0, 0.0).at_reference(5e9) == 100.0
