"""Lines that a run prints at its end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SAID_MAX = 5  # warnings on counters that are printed


def closing_line(out: Path) -> str:
    """Return one line about a complete run folder: iterations, checks, retransmissions, and its path."""
    info: dict[str, Any] = json.loads((out / "run.json").read_bytes())
    counters = [each for each in json.loads((out / "counters.json").read_bytes())["ranks"] if each]

    def total(name: str) -> int:
        return sum(int(each.get(name, 0)) for each in counters)

    said = [f"{info['ranks']} ranks played {_times(info['iterations'], 'iteration')}"]
    if info["settings"]["verify"]:
        said.append(f"{_times(total('verified_bytes'), 'byte')} checked, none wrong")
    if any("retransmitted" in each for each in counters):  # absent where a device sends
        said.append(f"{_times(total('retransmitted'), 'packet')} sent again")
    if marks := total("congestion_marks"):
        said.append(f"{_times(marks, 'congestion mark')}, {_times(total('cnps_sent'), 'CNP')}")
    return "; ".join([*said, f"see {out}"])


def counted_amiss(out: Path) -> list[str]:
    """Return lines for the worst counters of a run folder that should not have grown; [] without records."""
    try:
        warnings = json.loads((out / "counters.json").read_bytes()).get("warnings", [])
    except (OSError, ValueError):
        return []
    more = len(warnings) - SAID_MAX
    said = [f"counters: {warning['text']}" for warning in warnings[:SAID_MAX]]
    return [*said, f"counters: {more} more are in {out / 'counters.json'}"] if more > 0 else said


def warned(out: Path) -> list[str]:
    """Return the warnings of a run folder; [] without records."""
    try:
        return list(json.loads((out / "run.json").read_bytes()).get("warnings", []))
    except (OSError, ValueError):
        return []


def _times(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'' if count == 1 else 's'}"
