"""Quantities as text, formatted alike on every page and in every sentence."""

from __future__ import annotations

import math
import re

TITLE_MAX = 120  # characters of a title
_ASIDE = re.compile(r" \((?:[^()]|\([^()]*\))*\)")  # in brackets, with brackets inside


def three_digits(value: float) -> str:
    """`1.234` → `1.23`, `1023` → `1023`."""
    return f"{value:.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def percent(fraction: float | None) -> str:
    """`0.412` → `41 %`; "none" for None."""
    return "none" if fraction is None else f"{100 * fraction:.0f} %"


def share(fraction: float) -> str:
    """As `percent`, with two digits for small fractions: `0.0034` → `0.34 %`."""
    if 0 < fraction < 0.0005:
        return "below 0.1 %"
    return f"{100 * fraction:.2g} %" if fraction < 0.0995 else percent(fraction)


def upper_bound(fraction: float) -> str:
    """`0.01774` → `1.78 %`: a bound is never rounded down, so that `0.00001` → `0.01 %`."""
    return f"{math.ceil(round(fraction * 1e4, 6)) / 100:.2f} %"


def times(slow_down: float) -> str:
    """`1.0` → `2.00x`."""
    return f"{1 + slow_down:.2f}x"


def duration(duration_ns: float) -> str:
    """Duration with three digits and a suitable unit."""
    for limit, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if abs(duration_ns) >= limit:
            return f"{three_digits(duration_ns / limit)} {unit}"
    return f"{duration_ns:.0f} ns"


def amount(size_bytes: float) -> str:
    """Bytes with three digits, in binary units."""
    for limit, unit in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= limit:
            return f"{three_digits(size_bytes / limit)} {unit}"
    return f"{size_bytes:.0f} B"


def rate(rate_bps: float) -> str:
    """Bits per second; 0 is unlimited."""
    for limit, unit in ((1e12, "Tb/s"), (1e9, "Gb/s"), (1e6, "Mb/s"), (1e3, "kb/s")):
        if rate_bps >= limit:
            return f"{rate_bps / limit:.4g} {unit}"
    return f"{rate_bps:.0f} b/s" if rate_bps else "unlimited"


def count_of(number: int, one: str, several: str = "") -> str:
    """`1204, "mark"` → `1,204 marks`; `0` → `no marks`."""
    if number == 1:
        return f"1 {one}"
    return f"{f'{number:,}' if number else 'no'} {several or f'{one}s'}"


def title_of(text: str) -> str:
    """A sentence as a title of one line: without what stands in brackets, and cut, where it is longer."""
    while len(text) > TITLE_MAX and (aside := _ASIDE.search(text)):
        text = text[: aside.start()] + text[aside.end() :]
    return text if len(text) <= TITLE_MAX else f"{text[: TITLE_MAX - 2].rsplit(' ', 1)[0]} …"
