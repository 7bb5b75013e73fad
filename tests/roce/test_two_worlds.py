"""One loss pattern, scripted or drawn, through both drivers: the data packets that come out are the same, one by one.

The worlds differ in when things happen, so the patterns are such that the order does not depend on it:
- The sender asks for an acknowledgement only when its window closes or a message ends (`ack_every_packets` is larger).
  A window leaves at once: unpaced, within one batch of the engine, and in the twin within microseconds on a cable of a
  millisecond. So a window has left before its first answer comes, and has one answer: an ACK or a NAK.
- Answers are not lost, and the timeout is long: it fires only where nothing else can follow.
- After a timeout duplicates are acknowledged as they come; how many at once depends on the clock. Where that would move
  the window in mid-message (long messages, short window), patterns that end in a timeout are not drawn.
- A machine that stalls for longer than the timeout causes timeouts itself. Where their number differs from the twin's,
  the pattern is played once more, alone and with a longer timeout. A fault of the engine has them again.
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from two_worlds import Pattern, Play, play_live, play_twin

PATTERNS = 50  # of each kind
MTU = 1024
BATCH = 56  # packets that leave in one batch of the engine, with room for answers
AGAIN_TIMEOUT_S = 4.0  # the deadline of a play leaves room for 15 of them
AT_ONCE = 8  # live plays side by side: most of the time they wait for timeouts
COUNTED = ("data_sent", "retransmitted", "naks_sent", "naks_received", "timeouts", "out_of_sequence", "refused")


def sizes(draw: random.Random, messages: int, packets: int) -> tuple[int, ...]:
    """Message sizes of 0 bytes to so many packets, some of them whole."""
    return tuple(draw.choice([MTU * draw.randint(1, packets), draw.randint(0, MTU * packets)]) for _ in range(messages))


def numbers(draw: random.Random, count: int, below: int) -> tuple[int, ...]:
    return tuple(sorted(draw.sample(range(below), count)))


def one_packet_at_a_time(draw: random.Random) -> Pattern:
    """Window 1: every loss is a timeout."""
    return Pattern((sizes(draw, 4, 6), sizes(draw, 4, 6)), (numbers(draw, 3, 14), numbers(draw, 2, 14)), MTU, 1, 1, 0.3)


def a_message_a_window(draw: random.Random) -> Pattern:
    """A lost end of a message is a timeout, another loss a NAK."""
    return Pattern(
        (sizes(draw, 6, BATCH), sizes(draw, 6, BATCH)),
        (numbers(draw, 12, 250), numbers(draw, 12, 250)),
        MTU,
        BATCH,
        BATCH,
        0.3,
    )


def many_windows(draw: random.Random) -> Pattern:
    """Losses that a NAK mends: the end of a window is never lost."""
    while True:
        window = draw.choice([4, 8, 16, 32, BATCH])
        lost = draw.randint(2, 24 if window < 32 else 48)
        pattern = Pattern(
            (sizes(draw, 2, 200), sizes(draw, 2, 200)),
            (numbers(draw, lost, 400), numbers(draw, lost, 400)),
            MTU,
            window,
            1_000,
            1.0,
        )
        if sum(play.counters["timeouts"] for play in play_twin(pattern)) == 0:
            return pattern


def one_of_every_five(draw: random.Random) -> Pattern:
    """Window 1, and losses whose places each world draws for itself."""
    return Pattern((sizes(draw, 4, 4), sizes(draw, 4, 4)), ((), ()), MTU, 1, 1, 0.3, lose_every=5)


def sprayed(draw: random.Random) -> Pattern:
    """Four source ports: the next packet of the same port tells of a loss, which alone is sent again.

    No two packets in a row are lost: how many of them one NAK asks for depends on when it leaves.
    """
    while True:
        lost = [tuple(5 * number + draw.randint(0, 3) for number in numbers(draw, 4, 40)) for _ in (0, 1)]
        pattern = Pattern(
            (sizes(draw, 6, BATCH), sizes(draw, 6, BATCH)), (lost[0], lost[1]), MTU, BATCH, BATCH, 1.0, spray=4,
            reordering=draw.randint(1, 8),
        )  # fmt: skip
        if sum(play.counters["timeouts"] for play in play_twin(pattern)) == 0:
            return pattern


KINDS = {
    "one packet at a time": one_packet_at_a_time,
    "a message a window": a_message_a_window,
    "many windows": many_windows,
    "one of every five": one_of_every_five,
    "sprayed": sprayed,
}
REACHED = {
    "one packet at a time": {"timeouts": True, "naks_sent": False},
    "a message a window": {"timeouts": True, "naks_sent": True},
    "many windows": {"timeouts": False, "naks_sent": True},
    "one of every five": {"timeouts": True, "naks_sent": False},
    "sprayed": {"timeouts": False, "naks_sent": True},
}


@pytest.mark.parametrize("kind", KINDS)
def test_both_worlds_send_the_same_packets(kind: str) -> None:
    block = list(KINDS).index(kind) * PATTERNS
    patterns = [KINDS[kind](random.Random(f"{kind} {number}")) for number in range(PATTERNS)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        lives = list(pool.map(play_live, patterns, range(block, block + PATTERNS)))
    twins = [play_twin(pattern) for pattern in patterns]
    for number, pattern in enumerate(patterns):
        if timeouts(lives[number]) != timeouts(twins[number]):
            lives[number] = play_live(replace(pattern, ack_timeout_s=AGAIN_TIMEOUT_S), block + number)
        for live, twin in zip(lives[number], twins[number], strict=True):
            compare(live, twin, f"{kind} {number}: {pattern}")
    plays = [play for pair in twins for play in pair]
    assert all(any(lost for play in pair for *_, lost in play.data) for pair in twins)
    for name, met in REACHED[kind].items():
        assert (sum(play.counters[name] for play in plays) > 0) == met, name


def timeouts(plays: tuple[Play, Play]) -> int:
    return sum(play.counters["timeouts"] for play in plays)


def compare(live: Play, twin: Play, seed: str) -> None:
    assert live.data == twin.data, seed
    assert live.naks == twin.naks, seed
    assert {name: live.counters[name] for name in COUNTED} == {name: twin.counters[name] for name in COUNTED}, seed
