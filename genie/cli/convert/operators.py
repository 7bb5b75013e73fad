"""`genie convert operators`: operator times of other tools as a table for `--compute`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from genie.compute.gpus import find_gpu, gpus
from genie.compute.imports import import_times
from genie.inputs.printable import one_line
from genie.record import unwritable

OPERATORS_EXAMPLES = """
Example:

```text
genie convert operators a100_pcie.json --gpu a100 -o times.csv
genie generate llama3-8b --gpus 64 --tp 8 --gpu a100 --compute times.csv -o traces/llama
```
"""


def register(convert: typer.Typer) -> None:
    """Add this file's command to `genie convert`."""
    convert.command("operators", epilog=OPERATORS_EXAMPLES)(convert_operators)


def convert_operators(
    file: Annotated[
        Path,
        typer.Argument(
            help="System file of SimuMax (`.json`), or operator times of AICB (`.txt`).", show_default=False
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="Table to write, such as `times.csv`.", show_default=False)],
    gpu: Annotated[str, typer.Option(help=f"GPU of the times: {', '.join(gpus())}.", show_default=False)],
) -> int:
    """Convert measured operator times of other tools into a table for `--compute`."""
    find_gpu(gpu)
    found = import_times(file)
    text = found.as_csv(gpu.lower())
    try:
        out.write_text(text)
    except OSError as error:
        raise unwritable(out, error) from error
    for note in found.notes:
        print(f"note: {one_line(note)}")
    print(f"{out}: {text.count(chr(10)) - 1} operators of {find_gpu(gpu).label}, for --compute")
    return 0
