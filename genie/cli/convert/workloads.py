"""`genie convert aicb` and `genie convert msccl`: workloads and algorithms that researchers already have."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from genie.cli.convert.writing import Out, check_traces_folder, quantity, reading, writing
from genie.collectives.msccl.algorithm import load_msccl
from genie.config.units import SIZE_MAX_BYTES, format_size, parse_duration, parse_size
from genie.errors import UsageError
from genie.inputs.printable import one_line
from genie.plan.msccl_trace import msccl_workload
from genie.workload.aicb.convert import Given, convert_aicb
from genie.workload.classes import RankViews
from genie.workload.graph import Kind, Op, Workload
from genie.workload.pytorch.convert import check_prefix
from genie.workload.write import save
from simtwin.fabric.schema import HOSTS_MAX

AICB_EXAMPLES = """
Example:

```text
genie convert aicb GPT13B_tp8.txt --ranks 16 -o traces/gpt13b
genie simulate traces/gpt13b --fabric FABRIC.toml -o run
```
"""

MSCCL_EXAMPLES = """
Example:

```text
genie convert msccl allreduce.xml --size 64MiB -o traces/ar
genie simulate traces/ar --rate 100Gb/s -o run
```
"""

Prefix = Annotated[str, typer.Option(help="Prefix of the file names, which are `PREFIX.RANK.et`.")]
Compress = Annotated[bool, typer.Option("--compress", help="Write compressed traces: `.et.gz` files.")]


def register(convert: typer.Typer) -> None:
    """Add this file's commands to `genie convert`."""
    convert.command("aicb", epilog=AICB_EXAMPLES)(convert_aicb_file)
    convert.command("msccl", epilog=MSCCL_EXAMPLES)(convert_msccl_file)


def convert_aicb_file(
    file: Annotated[
        Path,
        typer.Argument(
            help="Workload for SimAI (`.txt`), or list of communications of AICB (`.csv`).", show_default=False
        ),
    ],
    out: Out,
    ranks: Annotated[
        int | None,
        typer.Option(min=1, max=HOSTS_MAX, help="Number of ranks of the job.  [default: the number in the file]"),
    ] = None,
    tensor_parallel: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of ranks in a tensor-parallel group.  [default: the number in the file, otherwise 1]"
        ),
    ] = None,
    pipeline_parallel: Annotated[
        int | None,
        typer.Option(min=1, help="Number of pipeline stages.  [default: the number in the file, otherwise 1]"),
    ] = None,
    expert_parallel: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of ranks in an expert-parallel group.  [default: the number in the file, otherwise 1]"
        ),
    ] = None,
    passes: Annotated[
        int, typer.Option(min=1, max=1000, help="For a `.txt` file: number of training iterations in the traces.")
    ] = 1,
    skip_init: Annotated[
        bool,
        typer.Option(
            "--skip-init", help="For a `.csv` file: leave out the first epoch, which is the start of the job."
        ),
    ] = False,
    prefix: Prefix = "workload",
    compress: Compress = False,
) -> int:
    """Convert workloads of AICB into a Chakra trace.

    All ranks share the trace; `genie expand` writes one for each rank.

    The traces of a .txt file follow the order of SimAI. In the forward pass, the communication of a row comes before
    the next row. The backward pass computes the gradient of the input, communicates it, and computes the gradient of
    the weights. The communication of the weights runs in the background until the end. The rows of a .csv file follow
    one after the other.
    """
    check_prefix(prefix)
    check_traces_folder(out, prefix)
    given = Given(ranks, tensor_parallel, pipeline_parallel, expert_parallel)
    with reading(file):
        found = convert_aicb(file, given, passes, skip_init)
    with writing(out):
        save(found.workload, out, prefix, compress)
    shape = found.parallelism
    print(
        f"{shape.ranks} ranks: tensor {shape.tensor} x data {shape.data} x pipeline {shape.pipeline}; expert "
        f"{shape.expert}"
    )
    graph = found.workload.ranks[0]
    collectives = Counter(Op(op).name.lower() for op in graph.op[graph.kind == Kind.COLL].tolist())
    counts = ", ".join(f"{count} {op}" for op, count in sorted(collectives.items())) or "none"
    print(f"each rank: {len(graph)} nodes, compute {found.compute_ns / 1e6:.3f} ms; collectives: {counts}")
    _tell(found.notes, found.workload, out)
    return 0


def convert_msccl_file(
    file: Annotated[Path, typer.Argument(help="Algorithm file of MSCCL (XML).", show_default=False)],
    size: Annotated[
        str,
        typer.Option(
            help="Size of the collective, such as 64MiB. It is the input of one rank, for an all-gather too.",
            show_default=False,
        ),
    ],
    out: Out,
    reduction: Annotated[
        str,
        typer.Option(
            help="Time that a rank takes to reduce one chunk, such as 7us.  [default: 0s]", show_default=False
        ),
    ] = "0",
    prefix: Prefix = "workload",
    compress: Compress = False,
) -> int:
    """Convert an MSCCL algorithm into Chakra traces that play it once, one for each rank.

    Genie first proves that the algorithm is correct. If the algorithm has too many chunks for a proof, the command
    prints a note. Each chunk that the algorithm sends becomes a send and a receive.

    The same algorithm can replace the collectives of another workload. Give `--wire plain` and `--algorithm
    OPERATION=FILE.xml` to `genie run`, `simulate` or `validate`. In `genie bench` it is `--algorithm FILE.xml`.
    """
    check_prefix(prefix)
    size_bytes = quantity("--size", size, parse_size, f"give 1B to {format_size(SIZE_MAX_BYTES)}, such as 64MiB")
    if size_bytes < 0:
        raise UsageError(f"--size {size}: give a number of bytes, such as 64MiB")
    reduction_ns = quantity("--reduction", reduction, parse_duration, "give 0s to 1000s, such as 7us") // 1000
    check_traces_folder(out, prefix)
    with reading(file, "an XML file of MSCCL's"):
        algorithm = load_msccl(str(file))
    workload = msccl_workload(algorithm, size_bytes, reduction_ns)
    with writing(out):
        save(workload, out, prefix, compress)
    read, chunk_bytes = algorithm.file, algorithm.chunk_bytes(size_bytes)
    graph = workload.ranks[0]
    sends = graph.kind == Kind.SEND
    print(
        f"{read.name}: {read.op} of {read.members} ranks in {read.chunks} chunks of {chunk_bytes} B; rank 0 sends "
        f"{int(sends.sum())} messages, {int(graph.size_bytes[sends].sum())} B"
    )
    notes = list(algorithm.notes)
    whole_bytes = chunk_bytes * read.chunks
    if not read.bytes_min <= whole_bytes <= read.bytes_max:
        notes.append(
            f"MSCCL takes this algorithm for {format_size(read.bytes_min) if read.bytes_min else '0B'} to "
            f"{format_size(read.bytes_max)} only"
        )
    if read.protocol != "Simple":
        notes.append(f"protocol {read.protocol}: the flags that it adds to data are not sent")
    _tell(notes, workload, out)
    return 0


def _tell(notes: list[str], workload: Workload, out: Path) -> None:
    for note in notes:
        print(f"note: {one_line(note)}")
    shared = isinstance(workload.ranks, RankViews)
    print(
        f"a trace that {len(workload.ranks)} ranks share in {out}"
        if shared
        else f"{len(workload.ranks)} traces in {out}"
    )
