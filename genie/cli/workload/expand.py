"""`genie expand`: a trace file for each rank of a workload of classes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from genie.cli.convert.workloads import Compress, Prefix
from genie.cli.convert.writing import Out, check_traces_folder, writing
from genie.config.rank_lists import parse_ranks
from genie.workload.graph import Workload
from genie.workload.load import load
from genie.workload.pytorch.convert import check_prefix
from genie.workload.write import save

EXPAND_EXAMPLES = """
Examples:

```text
genie expand traces/llama -o traces/plain
genie expand traces/llama --ranks 0-7,64 -o traces/some
```
"""


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command("expand", epilog=EXPAND_EXAMPLES)(expand)


def expand(
    workload: Annotated[
        str, typer.Argument(help="Folder or prefix of a workload, as for `genie simulate`.", show_default=False)
    ],
    out: Out,
    ranks: Annotated[
        str | None, typer.Option(help="Ranks to write, such as `0-7,64`.  [default: all]", show_default=False)
    ] = None,
    prefix: Prefix = "workload",
    compress: Compress = False,
) -> int:
    """Write one Chakra trace for each rank of a workload, for other tools."""
    check_prefix(prefix)
    check_traces_folder(out, prefix)
    found = load(workload, None if ranks is None else parse_ranks("--ranks", ranks))
    plain = Workload(found.name, found.world_size, found.groups, dict(found.ranks))
    with writing(out):
        save(plain, Path(out), prefix, compress)
    print(f"{out}: {len(plain.ranks)} traces written")
    return 0
