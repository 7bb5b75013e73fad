"""Lists of ranks in options: `0-7,64`."""

from __future__ import annotations

import re

from genie.errors import UsageError

RANK_MAX = 1 << 20
_PART = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?")


def parse_ranks(option: str, text: str) -> list[int]:
    """Return the ranks of a list, ascending. Raises UsageError."""
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last <= RANK_MAX:
            raise UsageError(f"{option} {text}: {part.strip()!r} is no rank and no range: give a list such as 0-7,64")
        found.update(range(first, last + 1))
    return sorted(found)
