"""Rates, durations and sizes in words."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genie.config.units import (
    format_duration,
    format_rate,
    format_size,
    parse_duration,
    parse_rate,
    parse_size,
)


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_rate, "200Mb/s", 200_000_000),
        (parse_rate, "1.5 Gb/s", 1_500_000_000),
        (parse_rate, "400Gbps", 400_000_000_000),
        (parse_rate, "unlimited", 0),
        (parse_duration, "1.5us", 1_500_000),
        (parse_duration, "2µs", 2_000_000),
        (parse_duration, "0.3ns", 300),
        (parse_duration, "3 s", 3 * 10**12),
        (parse_duration, "0", 0),
        (parse_duration, 0, 0),
        (parse_size, "64KiB", 65536),
        (parse_size, "32MB", 32_000_000),
        (parse_size, "1.5kB", 1500),
        (parse_size, 4096, 4096),
        (parse_size, "unlimited", -1),
    ],
)
def test_reads(parse: Callable[[object], int], text: object, value: int) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text", "problem"),
    [
        (parse_rate, "25GB/s", "unknown unit 'GB/s'"),
        (parse_rate, "fast", "not a number with a unit"),
        (parse_rate, "100", "no unit"),
        (parse_rate, 100, "no unit"),
        (parse_rate, "-1Gb/s", "not a number"),
        (parse_rate, 0, "out of range"),
        (parse_rate, "1001Tb/s", "out of range"),
        (parse_rate, "0.5b/s", "finer than 1 b/s"),
        (parse_rate, 1e9, "is a float"),
        (parse_rate, True, "is a bool"),
        (parse_duration, 5, "no unit"),
        (parse_duration, "5", "no unit"),
        (parse_duration, "5m", "unknown unit 'm'"),
        (parse_duration, "0.5ps", "finer than 1 ps"),
        (parse_duration, "1001s", "out of range"),
        (parse_size, "0B", "out of range"),
        (parse_size, "1.5B", "finer than 1 B"),
    ],
)
def test_refuses(parse: Callable[[object], int], text: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse(text)


@given(st.integers(0, 10**15))
def test_rates_are_written_as_they_are_read(value: int) -> None:
    assert parse_rate(format_rate(value)) == value


@given(st.integers(0, 10**15))
def test_durations_are_written_as_they_are_read(value: int) -> None:
    assert parse_duration(format_duration(value)) == value


@given(st.integers(1, 2**50) | st.just(-1))
def test_sizes_are_written_as_they_are_read(value: int) -> None:
    assert parse_size(format_size(value)) == value


def test_writes_what_a_person_would() -> None:
    assert [format_rate(v) for v in (0, 200_000_000, 1500)] == ["unlimited", "200Mb/s", "1500b/s"]
    assert [format_duration(v) for v in (0, 61_000_000, 1_500_000)] == ["0ns", "61us", "1500ns"]
    assert [format_size(v) for v in (-1, 65536, 32_000_000)] == ["unlimited", "64KiB", "32MB"]
