"""Results of the examples as bars for the documents; `make picture` draws them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

ROOT = Path(__file__).resolve().parents[2]
GENIE = str(Path(sys.executable).parent / "genie")
COLOURS = ("#4a90c4", "#e08a3c", "#5fa55a")
WIDTH, LEFT, BAR, GAP = 760, 190, 15, 10
Row = tuple[str, str, float]  # group, member of the group, ms


def of_circuits() -> list[Row]:
    """Return iterations of the sweep examples/circuits.toml."""
    with TemporaryDirectory() as folder:
        words = ["-q", "sweep", str(ROOT / "examples/circuits.toml"), "-o", folder, "--jobs", "1"]
        subprocess.run([GENIE, *words], check=True, capture_output=True)
        table = pl.read_parquet(Path(folder) / "sweep.parquet")
    return [(row["case"], Path(row["fabric"]).stem, row["completion_s"] * 1000) for row in table.iter_rows(named=True)]


def of_decentralized() -> list[Row]:
    """Return iterations of examples/decentralized.py."""
    sys.path.insert(0, str(ROOT / "examples"))
    import decentralized

    return [
        (str(row["job"]), str(row["network"]), float(str(row["iteration (ms)"]))) for row in decentralized.results()
    ]


@dataclass(frozen=True)
class Bars:
    """A drawing of docs/studies.md."""

    file: str
    label: str
    rows: Callable[[], list[Row]]


PICTURES = (
    Bars("circuits.svg", "Iterations on a mesh and on optical circuits", of_circuits),
    Bars("decentralized.svg", "Iterations of all-reduce and decentralized training", of_decentralized),
)


def drawing(picture: Bars, rows: Sequence[Row]) -> str:
    """Return the drawing as SVG."""
    groups, members = (list(dict.fromkeys(row[at] for row in rows)) for at in (0, 1))
    scale = (WIDTH - LEFT - 90) / max(row[2] for row in rows)
    parts = []
    y = 34
    for at, member in enumerate(members):
        x = LEFT + 150 * at
        parts.append(f'<rect x="{x}" y="8" width="12" height="12" fill="{COLOURS[at]}"/>')
        parts.append(f'<text x="{x + 17}" y="18">{member}</text>')
    for group in groups:
        own = [row for row in rows if row[0] == group]
        parts.append(f'<text x="{LEFT - 10}" y="{y + BAR * len(own) / 2 + 4:.1f}" text-anchor="end">{group}</text>')
        for _, member, value_ms in own:
            colour = COLOURS[members.index(member)]
            parts.append(
                f'<rect x="{LEFT}" y="{y}" width="{value_ms * scale:.1f}" height="{BAR - 2}" fill="{colour}"/>'
            )
            parts.append(f'<text x="{LEFT + value_ms * scale + 6:.1f}" y="{y + 11}">{value_ms:.1f} ms</text>')
            y += BAR
        y += GAP
    text = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" role="img" aria-label="{picture.label}" '
        f'font-family="sans-serif" font-size="12" fill="#222222">\n'
        f'<rect width="{WIDTH}" height="{y}" fill="#ffffff"/>\n'
        f"{text}\n</svg>\n"
    )


if __name__ == "__main__":
    for each in PICTURES:
        Path(sys.argv[1], each.file).write_text(drawing(each, each.rows()))
