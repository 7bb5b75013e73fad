"""`genie inspect`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from genie.compute.gpus import find_gpu, gpus
from genie.errors import EXIT_FAILED, EXIT_OK, UsageError
from genie.extrapolate.operator_table import OperatorRow, OperatorTable, read_operators
from genie.extrapolate.times import gpu_named
from genie.page.words import duration, percent
from genie.record import unwritable
from genie.workload.compute import fill_durations, parse_compute
from genie.workload.inspect import inspect_workload
from genie.workload.load import load

INSPECT_EXAMPLES = """
Examples:

```text
genie inspect examples/transformer
genie inspect TRACE --json
genie inspect TRACE --compute roofline:300,2000
genie inspect RANK0.json --operators --gpu h100 --csv times.csv
```
"""

OPERATORS_SHOWN, SHAPES_SHOWN = 40, 4

WorkloadFolder = Annotated[
    str,
    typer.Argument(
        metavar="WORKLOAD",
        help="Folder with a trace for each rank (`PREFIX.RANK.et`) and a groups file, or the path of such files up to "
        "PREFIX. With `--operators`: a Kineto trace.",
        show_default=False,
    ),
]
Compute = Annotated[
    str | None,
    typer.Option(
        help="Model that gives a duration to compute nodes and memory nodes without one: `roofline:TFLOPS,GBPS`. "
        "TFLOPS is in 10^12 operations per second, GBPS is in 10^9 bytes per second. Example: `roofline:300,2000`.  "
        "[default: none]"
    ),
]


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command("inspect", epilog=INSPECT_EXAMPLES)(inspect)


def inspect(
    workload: WorkloadFolder,
    compute: Compute = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON object.")] = False,
    operators: Annotated[
        bool, typer.Option("--operators", help="Print the operators of a Kineto trace by total time instead.")
    ] = False,
    gpu: Annotated[
        str | None,
        typer.Option(help=f"GPU of the Kineto trace: {', '.join(gpus())}.  [default: as the trace says]"),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(
            "--csv",
            metavar="FILE",
            help="Write the matrix products of the Kineto trace to a table for `--compute` of `genie generate`.  "
            "[default: none]",
        ),
    ] = None,
) -> int:
    """Report the contents of a workload, its critical path and its errors.

    Exit code 1: the workload has an error.
    """
    if operators:
        if compute is not None or as_json:
            raise UsageError(f"--operators: leave out {'--compute' if compute is not None else '--json'}")
        return _inspect_operators(Path(workload), gpu, table)
    if gpu is not None or table is not None:
        raise UsageError(f"{'--gpu' if gpu is not None else '--csv'}: has a meaning with --operators only")
    model = None if compute is None else parse_compute(compute)
    loaded = load(workload, allow_cycles=True)
    if model is not None:
        fill_durations(loaded, model)
    inspection = inspect_workload(loaded)
    print(json.dumps(inspection.to_dict(), indent=1) if as_json else "\n".join(inspection.lines()))
    return EXIT_OK if inspection.ok else EXIT_FAILED


def _inspect_operators(path: Path, gpu: str | None, table: Path | None) -> int:
    found = read_operators(path)
    name = gpu or gpu_named(found.gpu)
    known = None if name is None else find_gpu(name)
    print(
        f"{path.name}: {duration(found.total_ns)} of kernels without communication on "
        f"{known.label if known else found.gpu or 'a GPU'}"
    )
    cells = [["total", "share", "calls", "mean", "of peak", "operator", "shapes"]]
    for row in found.rows[:OPERATORS_SHOWN]:
        peak = row.share_of_peak(known) if known is not None else None
        cells.append(
            [
                duration(row.total_ns), percent(row.total_ns / max(found.total_ns, 1)), f"{row.count:,}",
                duration(row.mean_ns), "-" if peak is None else percent(peak), row.name, _shapes(row),
            ]
        )  # fmt: skip
    widths = [max(len(line[at]) for line in cells) for at in range(5)]
    for line in cells:
        numbers = "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=False))
        print(f"{numbers}  {line[5]} {line[6]}".rstrip())
    if len(found.rows) > OPERATORS_SHOWN:
        left_ns = sum(row.total_ns for row in found.rows[OPERATORS_SHOWN:])
        print(f"and {len(found.rows) - OPERATORS_SHOWN:,} more, {duration(left_ns)} together")
    if table is not None:
        _write_table(found, name, table)
    return EXIT_OK


def _shapes(row: OperatorRow) -> str:
    return " ".join("x".join(map(str, shape)) for shape in row.shapes[:SHAPES_SHOWN])


def _write_table(found: OperatorTable, gpu: str | None, table: Path) -> None:
    if gpu is None:
        named = f"is of {found.gpu!r}" if found.gpu else "does not name its GPU"
        raise UsageError(f"{found.path}: {named}: give --gpu, one of {', '.join(gpus())}")
    text, count = found.as_csv(gpu)
    if not count:
        raise UsageError(f"{found.path}: has no matrix products in BF16 or FP8 with shapes: no {table} was written")
    try:
        table.write_text(text)
    except OSError as error:
        raise unwritable(table, error) from error
    print(f"{table}: {count} matrix products in BF16 and FP8, for --compute")
