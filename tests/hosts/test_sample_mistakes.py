"""Any one mistake in a sample is either harmless or one clear line: never another exception."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from genie.config.hosts import HostsError, parse_hosts
from genie.config.strict_toml import SettingsError
from simtwin.fabric.reading import FabricError, parse_fabric

pytestmark = pytest.mark.live

HOSTS = Path(__file__).resolve().parents[2] / "hosts"
FABRICS = [path.read_text() for path in sorted((HOSTS / "fabrics").glob("*.toml"))]
INVENTORIES = [path.read_text() + "\n[calibration]\npacket_latency_ns = 5\n" for path in sorted(HOSTS.glob("*.toml"))]
VALUES = [
    *("0", "-1", "3", "1e3", "nan", "true", "1979-05-27", "99999999999999999999"),
    *('""', '"a"', '"1us"', '"5Gb/s"', '"unlimited"', '"{rank"', '"0-70000"'),
    *("[]", "[1]", '["a"]', "[{}]", '[{name="a"}]', "{}", '{kind="x"}'),
]
KEYS = ["name", "kind", "rate", "x", "link", "host.x", '"a.b"', "ranks"]
ONE_LINE = re.compile(r"f:(\d+): [^\n]+")


def refusal(parse: Callable[[str, str], object], error: type[SettingsError], text: str) -> str | None:
    """Return the reader's error for the text; None when it accepts it."""
    try:
        parse(text, "f")
    except error as refused:
        return str(refused)
    return None


def assert_clear(message: str | None, text: str) -> None:
    """One line that names a line of the text."""
    if message is not None:
        match = ONE_LINE.fullmatch(message)
        assert match is not None, message
        assert 1 <= int(match[1]) <= text.count("\n") + 1


@st.composite
def mistaken(draw: st.DrawFn, samples: list[str]) -> str:
    """A sample with one line dropped, doubled, moved, or its key or value replaced."""
    lines = [line for line in draw(st.sampled_from(samples)).splitlines() if line and not line.startswith("#")]
    at = draw(st.integers(0, len(lines) - 1))
    line = lines.pop(at)
    key, _, value = line.partition("=")
    change = draw(st.sampled_from(["drop", "double", "move", "key", "value", "cut"]))
    if change == "double":
        lines[at:at] = [line, line]
    elif change == "move":
        lines.insert(draw(st.integers(0, len(lines))), line)
    elif change == "key":
        lines.insert(at, f"{draw(st.sampled_from(KEYS))} = {value or 1}")
    elif change == "value":
        lines.insert(at, f"{key.strip('[] ')} = {draw(st.sampled_from(VALUES))}")
    elif change == "cut":
        lines[at:] = [line[: draw(st.integers(0, len(line)))]]
    return "\n".join(lines)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(mistaken(FABRICS))
@example("topology = [{}]")
@example("[topology]\nkind = 'explicit'\nhost = [{name = 'a', x = 1}]\nlink = []")
def test_fabric_mistakes(text: str) -> None:
    assert_clear(refusal(parse_fabric, FabricError, text), text)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(mistaken(INVENTORIES))
@example("host = [{}]")
@example("host = 1")
def test_hosts_mistakes(text: str) -> None:
    assert_clear(refusal(parse_hosts, HostsError, text), text)
