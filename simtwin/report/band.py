"""The band of an iteration's time, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


def band_in_words(info: Mapping[str, Any], time: Callable[[float], str], of: Callable[[Sequence[int]], float]) -> str:
    """Return `35.9 ms at compute times x 0.85, 46.8 ms at x 1.15`; "" for a run without a band.

    info: run.json; time: a time in ns in words; of: the time of several iterations from theirs, such as the longest.
    """
    said = [f"{time(of(play['ends_ns']))} at x {play['compute_scale']:g}" for play in info.get("band") or ()]
    return ", ".join(said).replace("at x", "at compute times x", 1)


def mean(values: Sequence[int]) -> float:
    """Return the mean of the iterations' times."""
    return sum(values) / len(values)
