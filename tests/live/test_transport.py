"""Ranks draw the numbers that a blind sender would have to guess from the system's secrets."""

from __future__ import annotations

import genie_core
import pytest

from genie.live.transport import EndpointInfo, draw_key, draw_psns

pytestmark = pytest.mark.live

DRAWS = 2000


def test_first_psns_and_keys_are_drawn_from_all_that_the_headers_hold() -> None:
    psns, keys = draw_psns(DRAWS), [draw_key() for _ in range(DRAWS)]
    for drawn, bits in ((psns, 24), (keys, 32)):
        assert all(0 <= number < 1 << bits for number in drawn)
        assert len(set(drawn)) > 0.99 * DRAWS
        for bit in range(bits):  # 10 standard deviations from half
            assert abs(sum(number >> bit & 1 for number in drawn) - DRAWS / 2) < 10 * (DRAWS / 4) ** 0.5
    assert psns != draw_psns(DRAWS)


def drawn_numbers(local_rank: int, count: int = 1000) -> list[int]:
    config = genie_core.NicConfig()
    config.address, config.local_rank, config.draw_numbers = "127.98.7.6", local_rank, True
    nic = genie_core.Endpoint(config)
    nic.open()
    pair = genie_core.QueuePairConfig()
    return [nic.qpn(nic.add_queue_pair(pair)) for _ in range(count)]


def test_queue_pair_numbers_keep_the_local_rank_and_draw_the_rest() -> None:
    first, second = drawn_numbers(4), drawn_numbers(4)
    for numbers in (first, second):
        assert {number >> 16 for number in numbers} == {5}
        assert len(set(numbers)) == len(numbers)
        assert max(number & 0xFFFF for number in numbers) > 0xF000
        assert sorted(numbers) != numbers
    assert len(set(first) & set(second)) < 100  # 15 are expected


def test_a_card_that_says_fewer_psns_than_queue_pairs_is_refused() -> None:
    endpoint = EndpointInfo(
        transport="softroce", rank=1, address="127.0.0.1", local_rank=0, mtu_bytes=4096, rkey=1, memory_address=0,
        memory_bytes=4096, queue_pairs=[[1, 2]], first_psns=[[3]],
    )  # fmt: skip
    with pytest.raises(ValueError, match="start all ranks with the same settings"):
        endpoint.queue_pairs_for(0, 2)
