"""Published measurements: tables of the shared data (GENIE_SHARED_DATA, or ../shared/data beside the checkout)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

EXIT_ENVIRONMENT = 3


def shared_data(folder: str) -> Path:
    """Return the shared data. Ends the program where it has no such folder."""
    data = Path(os.environ.get("GENIE_SHARED_DATA") or Path(__file__).resolve().parents[3] / "shared/data")
    if not (data / folder).is_dir():
        print(f"{data}/{folder}: no such folder: set GENIE_SHARED_DATA to the shared data", file=sys.stderr)
        sys.exit(EXIT_ENVIRONMENT)
    return data


def tables(text: str) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """(heading above, column names, rows of cells) of each Markdown table."""
    heading, header = "", list[str]()
    rows: list[list[str]] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if not header:
                header = cells
            elif set("".join(cells)) - set("-: "):
                rows.append(cells)
            continue
        if header:
            yield heading, header, rows
            header, rows = [], []
        if line.startswith("#"):
            heading = line.lstrip("# ")


if __name__ == "__main__":
    print(f"{__doc__}\nNot a benchmark: run one that uses them.")
