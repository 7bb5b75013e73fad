"""Warnings of a command; under a launcher one rank prints them."""

from __future__ import annotations

from genie import record
from genie.live.launched import speaks


def warn(text: str) -> None:
    """Print a warning once, on one rank of a launch, and keep it for run.json."""
    record.warn(text, aloud=speaks())
