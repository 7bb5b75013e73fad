"""Notebooks as pages: executed, with their outputs as HTML between their text and code."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

TIMEOUT_S = 120  # of a cell
FENCE = "`````"


def executed(path: Path, *more: str) -> Any:
    """Return a notebook with its outputs, run in its folder. `more`: code of further cells at its end.

    Raises nbclient's CellExecutionError.
    """
    notebook: Any = nbformat.reads(path.read_text(), as_version=4)  # type: ignore[no-untyped-call]
    notebook.cells += [nbformat.v4.new_code_cell(code) for code in more]  # type: ignore[no-untyped-call]
    resources = {"metadata": {"path": str(path.parent)}}
    with tempfile.TemporaryDirectory() as folder:  # in place of the user's profile and history
        client = NotebookClient(notebook, timeout=TIMEOUT_S, kernel_name="python3", resources=resources)
        client.extra_arguments = ["--log-level=ERROR"]
        client.execute(env={**os.environ, "IPYTHONDIR": folder})
    return notebook


def page_of(path: Path) -> str:
    """Return an executed notebook as Markdown for the site."""
    parts = [part for cell in executed(path).cells for part in parts_of(cell)]
    return "\n\n".join([*parts, f"This page is the notebook `docs/{path.name}`, with its outputs."]) + "\n"


def parts_of(cell: Any) -> Iterator[str]:
    """Yield the Markdown of a cell: its text, or its code and outputs."""
    if cell.cell_type == "markdown":
        yield cell.source
        return
    yield f"```python\n{cell.source}\n```"
    for output in cell.outputs:
        data = output.get("data", {})
        if "text/html" in data:
            yield f'{FENCE}{{raw}} html\n<div class="cell-output">{data["text/html"]}</div>\n{FENCE}'
        elif text := output.get("text") or data.get("text/plain"):
            yield f"{FENCE}text\n{text.rstrip()}\n{FENCE}"
