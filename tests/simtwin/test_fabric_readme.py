"""docs/reference-files.md says of the congestion controls what the schema and the core do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import genie_core

from genie.config.congestion import CONTROLS, UNITS, NoControl
from genie.config.units import Duration, Rate, Size, parse_duration, parse_rate, parse_size

README = Path(__file__).resolve().parents[2] / "docs" / "reference-files.md"
HEAD = re.compile(r"^(?:`([a-z-]+)` (?:is|limits|follows|adapts) |(Each control has these parameters:))", re.MULTILINE)
ITEM = re.compile(r"^- `([a-z_]+)` \(default\s([^)]+)\):", re.MULTILINE)
PARSERS: dict[type, Any] = {Rate: parse_rate, Duration: parse_duration, Size: parse_size}


def rows() -> dict[tuple[str, str], str]:
    """Default in words of each parameter of each control; `all` has what they share."""
    section = README.read_text().split("## Congestion controls")[1].split("\n#")[0]
    heads = [*HEAD.finditer(section)]
    found = {}
    for head, after in zip(heads, [*heads[1:], None], strict=True):
        part = section[head.end() : after.start() if after else len(section)]
        for parameter, default in ITEM.findall(part):
            found[head[1] or "all", parameter] = " ".join(default.split())
    assert len(found) == section.count("(default")
    return found


def in_units(unit: type, told: str) -> int:
    """0 for words."""
    try:
        return int(PARSERS[unit](told))
    except ValueError:
        return 0


def test_every_parameter_of_every_control_is_told() -> None:
    shared = NoControl.__struct_fields__
    parameters = {("all", field) for field in shared}
    for name, kind in CONTROLS.items():
        parameters |= {(name, field) for field in kind.__struct_fields__ if field not in shared}
    assert set(rows()) == parameters


def test_defaults_are_the_cores() -> None:
    """A default that follows from the fabric is 0 in the core, and words in the table."""
    congestion: Any = genie_core.QueuePairConfig().congestion
    for (control, parameter), told in rows().items():
        owner = getattr(congestion, control.replace("-", "_"), congestion)
        unit, name = next(
            ((kind, parameter + suffix) for kind, suffix in UNITS.items() if hasattr(owner, parameter + suffix)),
            (None, parameter),
        )
        default = getattr(owner if hasattr(owner, name) else congestion, name)
        if unit is not None:
            assert in_units(unit, told) == default, (control, parameter)
        else:
            assert told == (str(default).lower() if isinstance(default, bool) else f"{default:g}"), (control, parameter)
