"""`genie inspect`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from genie.errors import EXIT_FAILED, EXIT_OK
from genie.workload.compute import fill_durations, parse_compute
from genie.workload.inspect import inspect_workload
from genie.workload.load import load

INSPECT_EXAMPLES = """
Examples:

```text
genie inspect examples/transformer
genie inspect TRACE --json
genie inspect TRACE --compute roofline:300,2000
```
"""

WorkloadFolder = Annotated[
    str,
    typer.Argument(
        metavar="WORKLOAD",
        help="Folder with a trace for each rank (`PREFIX.RANK.et`) and a groups file, or the path of such files up to "
        "PREFIX.",
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
) -> int:
    """Report the contents of a workload, its critical path and its errors.

    Exit code 1: the workload has an error.
    """
    model = None if compute is None else parse_compute(compute)
    loaded = load(workload, allow_cycles=True)
    if model is not None:
        fill_durations(loaded, model)
    inspection = inspect_workload(loaded)
    print(json.dumps(inspection.to_dict(), indent=1) if as_json else "\n".join(inspection.lines()))
    return EXIT_OK if inspection.ok else EXIT_FAILED
