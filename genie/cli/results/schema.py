"""`genie schema`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from genie.errors import UsageError

SCHEMA_EXAMPLES = """
Examples:

```text
genie schema                           # the names
genie schema verdict                   # of verdict.json
genie schema live > live.schema.json   # of a live run's run.json
```
"""


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command("schema", epilog=SCHEMA_EXAMPLES)(schema)


def schema(
    name: Annotated[
        str | None, typer.Argument(help="Name of an output, such as verdict.  [default: list the names]")
    ] = None,
) -> int:
    """Print the JSON Schema of a JSON file that Genie writes."""
    from genie.report.json_outputs import OUTPUTS, json_schema

    if name is None:
        for each, described in OUTPUTS.items():
            print(f"{each:<12}{(described.__doc__ or '').splitlines()[0]}")
        return 0
    if name not in OUTPUTS:
        raise UsageError(f"{name}: no JSON output: give one of {', '.join(OUTPUTS)}")
    print(json.dumps(json_schema(name), indent=2))
    return 0
