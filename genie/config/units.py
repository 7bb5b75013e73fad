"""Rates, durations and sizes as people write them ("200Mb/s", "1.5us", "64KiB"), exact in integers."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import ClassVar

RATE_UNITS_BPS = {"b/s": 1, "kb/s": 10**3, "Mb/s": 10**6, "Gb/s": 10**9, "Tb/s": 10**12}
RATE_ALIASES_BPS = {unit.replace("b/s", "bps"): factor for unit, factor in RATE_UNITS_BPS.items()}
DURATION_UNITS_PS = {"ps": 1, "ns": 10**3, "us": 10**6, "ms": 10**9, "s": 10**12}
DURATION_ALIASES_PS = {"µs": 10**6, "μs": 10**6}  # micro sign and Greek mu
SIZE_UNITS_BYTES = {
    "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30
}  # fmt: skip
SIZE_ALIASES_BYTES = {"KB": 10**3}

RATE_MAX_BPS = 10**15
DURATION_MAX_PS = 1000 * 10**12
SIZE_MAX_BYTES = 2**50

_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(\S*)\s*")


class Rate(int):
    """Bits per second; 0 = unlimited, written "unlimited"."""

    allowed: ClassVar = 'a rate above 0 such as "200Mb/s" (b/s, kb/s, Mb/s, Gb/s or Tb/s, in bits) or "unlimited"'


class Duration(int):
    """Picoseconds."""

    allowed: ClassVar = 'a duration from 0 to 1000 s with its unit, such as "1.5us" (ps, ns, us, ms or s)'


class Size(int):
    """Bytes; -1 = unlimited, written "unlimited"."""

    allowed: ClassVar = 'a size above 0 such as "64KiB" (B, kB, MB, GB, KiB, MiB or GiB) or "unlimited"'


def parse_rate(value: object) -> Rate:
    """Rate from "200Mb/s" or "unlimited"; a number needs a unit. Raises ValueError."""
    if value == "unlimited":
        return Rate(0)
    _refuse_bare(value)
    return Rate(_scaled(value, RATE_UNITS_BPS | RATE_ALIASES_BPS, "b/s", 1, RATE_MAX_BPS))


def parse_duration(value: object) -> Duration:
    """Duration from "1.5us"; a number needs a unit unless it is 0. Raises ValueError."""
    _refuse_bare(value)
    return Duration(_scaled(value, DURATION_UNITS_PS | DURATION_ALIASES_PS, "ps", 0, DURATION_MAX_PS))


def parse_size(value: object) -> Size:
    """Size from "64KiB", "unlimited" or an integer of bytes. Raises ValueError."""
    if value == "unlimited":
        return Size(-1)
    return Size(_scaled(value, SIZE_UNITS_BYTES | SIZE_ALIASES_BYTES, "B", 1, SIZE_MAX_BYTES))


def format_rate(rate_bps: int) -> str:
    """The shortest exact form that parse_rate reads back."""
    return "unlimited" if rate_bps == 0 else _shortest(rate_bps, RATE_UNITS_BPS)


def format_duration(duration_ps: int) -> str:
    """The shortest exact form that parse_duration reads back."""
    return "0ns" if duration_ps == 0 else _shortest(duration_ps, DURATION_UNITS_PS)


def format_size(size_bytes: int) -> str:
    """The shortest exact form that parse_size reads back."""
    return "unlimited" if size_bytes == -1 else _shortest(size_bytes, SIZE_UNITS_BYTES)


def _refuse_bare(value: object) -> None:
    """Raise ValueError for a bare number where several units are common; a bare size is in bytes."""
    if isinstance(value, int) and not isinstance(value, bool) and value != 0:
        raise ValueError("has no unit")


def _scaled(value: object, units: dict[str, int], bare_unit: str, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"is a {type(value).__name__}")
    if isinstance(value, int):
        exact = Fraction(value)
    else:
        match = _QUANTITY.fullmatch(value)
        if match is None:
            raise ValueError("is not a number with a unit")
        number, unit = match.groups()
        if unit not in units and not (unit == "" and Fraction(number) == 0):
            raise ValueError(f"has the unknown unit {unit!r}" if unit else "has no unit")
        exact = Fraction(number) * units.get(unit, 1)
    if exact.denominator != 1:
        raise ValueError(f"is finer than 1 {bare_unit}")
    if not least <= exact <= most:
        raise ValueError("is out of range")
    return int(exact)


def _shortest(value: int, units: dict[str, int]) -> str:
    forms = [f"{value // factor}{unit}" for unit, factor in units.items() if value % factor == 0]
    return min(forms, key=len)
