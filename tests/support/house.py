"""The structure of the Python sources from their imports; `make picture` draws it.

    python tests/support/house.py docs/rooms.svg

A room is a folder of modules. Imports inside functions count, those for type checkers alone do not.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOPS = ("chakra_schemas", "genie", "simtwin")
Graph = dict[str, set[str]]


def modules() -> dict[str, Path]:
    """Name -> file of every module of the product; a package has its folder's name."""
    found = {}
    for path in sorted(path for top in TOPS for path in (ROOT / top).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def room_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).parts[:-1])


def imported(source: str) -> Iterator[tuple[str, str]]:
    """Module and name ("" for a whole module) of each import that runs."""
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.module, alias.name) for alias in node.names)
        waiting += ast.iter_child_nodes(node)


def imports() -> Graph:
    """Module -> the modules of the product that it imports."""
    files = modules()
    graph: Graph = {}
    for name, path in files.items():
        wanted = set()
        for module, item in imported(path.read_text()):
            wanted.add(f"{module}.{item}" if f"{module}.{item}" in files else module)
        graph[name] = {each for each in wanted if each in files and each != name}
    return graph


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of nodes that reach each other (Tarjan's strongly connected components), without those of one node."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def rooms() -> dict[tuple[str, str], int]:
    """(room, room) -> number of imports from the first in the second."""
    files, arrows = modules(), defaultdict(int)
    for name, others in imports().items():
        for other in others:
            pair = room_of(files[name]), room_of(files[other])
            if pair[0] != pair[1]:
                arrows[pair] += 1
    return dict(arrows)


def levels(names: set[str], arrows: Mapping[tuple[str, str], int]) -> dict[str, int]:
    """Room -> its floor, above all rooms that it imports. A package's own rooms count where both import each other."""
    below: dict[str, set[str]] = {name: set() for name in names}
    for a, b in arrows:
        if not (arrows.get((b, a)) and a.startswith(f"{b}.")):
            below[a].add(b)
    floor: dict[str, int] = {}

    def of(name: str, above: tuple[str, ...] = ()) -> int:
        if name not in floor:
            others = [other for other in below[name] if other not in above]
            floor[name] = 1 + max((of(other, (*above, name)) for other in others), default=-1)
        return floor[name]

    for name in sorted(names):
        of(name)
    return floor


BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y, MARGIN = 158, 44, 16, 62, 24


def picture() -> str:
    """SVG: rooms on floors, each above those that it imports."""
    arrows = rooms()
    files = Counter(room_of(path) for path in modules().values())
    floors: dict[int, list[str]] = defaultdict(list)
    for name, floor in levels(set(files), arrows).items():
        floors[floor].append(name)
    widest = max(len(names) for names in floors.values())
    width = 2 * MARGIN + widest * (BOX_WIDTH + GAP_X) - GAP_X
    height = 2 * MARGIN + len(floors) * (BOX_HEIGHT + GAP_Y) - GAP_Y
    place: dict[str, tuple[float, float]] = {}
    for floor, names in floors.items():
        names.sort()
        left = (width - len(names) * (BOX_WIDTH + GAP_X) + GAP_X) / 2
        for at, name in enumerate(names):
            place[name] = (left + at * (BOX_WIDTH + GAP_X), height - MARGIN - BOX_HEIGHT - floor * (BOX_HEIGHT + GAP_Y))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="12">',
        "<title>Rooms of Genie and their imports</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for a, b in sorted(arrows):
        (xa, ya), (xb, yb) = place[a], place[b]
        x1, y1, x2, y2 = xa + BOX_WIDTH / 2, ya + BOX_HEIGHT, xb + BOX_WIDTH / 2, yb
        bend = (y2 - y1) / 2
        lines.append(
            f'<path d="M{x1:.0f} {y1:.0f} C{x1:.0f} {y1 + bend:.0f} {x2:.0f} {y2 - bend:.0f} {x2:.0f} {y2:.0f}" '
            f'fill="none" stroke="#8a94a6" stroke-opacity="0.55" stroke-width="1.2">'
            f"<title>{escape(a)} imports {escape(b)}</title></path>"
        )
    for name, (x, y) in sorted(place.items()):
        fill = "#e8f1e4" if name.startswith("simtwin") else "#e6eef8"
        lines += [
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="4" fill="{fill}" '
            'stroke="#5a6a80"/>',
            f'<text x="{x + BOX_WIDTH / 2:.0f}" y="{y + 19:.0f}" text-anchor="middle" font-weight="bold">'
            f"{escape(name)}</text>",
            f'<text x="{x + BOX_WIDTH / 2:.0f}" y="{y + 35:.0f}" text-anchor="middle" fill="#445">'
            f"{files[name]} files</text>",
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(picture())
