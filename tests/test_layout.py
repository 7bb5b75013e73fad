"""The layout: no import cycle between files or rooms, at most 20 files per room, and a current picture."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import house

ROOT = Path(__file__).resolve().parent.parent

FILES_MAX = 20  # of a folder


def test_no_circle_between_files() -> None:
    assert house.circles(house.imports()) == []


def test_no_circle_between_rooms() -> None:
    """A package and the rooms in it may import each other."""
    graph: dict[str, set[str]] = {}
    arrows = house.rooms()
    for a, b in arrows:
        nested = a.startswith(f"{b}.") or b.startswith(f"{a}.")
        graph.setdefault(b, set())
        if nested and (b, a) in arrows:
            continue
        if a != "genie" and b != "genie":  # __main__ is above all, errors below
            graph.setdefault(a, set()).add(b)
    assert house.circles(graph) == []


def test_circles_are_found() -> None:
    assert house.circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a", "e"}, "e": set()}) == [["a", "b", "c"]]


def test_folders_have_few_files() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    sources = [Path(name) for name in listed if name.endswith((".py", ".cpp", ".hpp"))]
    counts = Counter(str(path.parent) for path in sources if path.parts[0] != "tests")
    assert {folder: count for folder, count in counts.items() if count > FILES_MAX} == {}


def test_the_picture_is_drawn_from_the_imports() -> None:
    assert (ROOT / "docs" / "rooms.svg").read_text() == house.picture(), "make picture draws it anew"
