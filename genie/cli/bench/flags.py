"""nccl-tests' flags: what each means here, and one line for each that means nothing without GPUs."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from genie.bench.asked import Asked
from genie.bench.collectives import ELEMENT_BYTES, NO_REDUCTION, REDUCTIONS, Operation
from genie.cli.bench.runs import size_from
from genie.job.resolve import UsageError

SIZES_MAX = 1000
MINIMUM_BANDWIDTH = "NCCL_TESTS_MIN_BW"  # in the environment, GB/s
ALL = "all"
PANEL = "nccl-tests' flags"


def _flag(*names: str, text: str) -> typer.models.OptionInfo:
    return typer.Option(*names, help=text, rich_help_panel=PANEL)  # type: ignore[no-any-return]


Minimum = Annotated[str, _flag("-b", "--minbytes", text="Smallest size; K, M and G are 1024s.")]
Maximum = Annotated[str, _flag("-e", "--maxbytes", text="Largest size.")]
Factor = Annotated[
    int | None,
    typer.Option("-f", "--stepfactor", min=2, help="From one size to the next.  [default: 2]", rich_help_panel=PANEL),
]
Step = Annotated[str | None, _flag("-i", "--stepbytes", text="Or: this much from one size to the next.")]
Iterations = Annotated[
    int, typer.Option("-n", "--iters", min=1, max=10**6, help="Iterations that are timed.", rich_help_panel=PANEL)
]
WarmUp = Annotated[
    int,
    typer.Option(
        "-w", "--warmup_iters", min=0, max=10**6, help="Iterations before them that are not.", rich_help_panel=PANEL
    ),
]
Aggregated = Annotated[
    int,
    typer.Option(
        "-m",
        "--agg_iters",
        min=1,
        max=1000,
        help="Operations that start together in each iteration; times are of one.",
        rich_help_panel=PANEL,
    ),
]
Cycles = Annotated[
    int, typer.Option("-N", "--run_cycles", min=1, max=10**6, help="All sizes so often.", rich_help_panel=PANEL)
]
Check = Annotated[
    int,
    typer.Option(
        "-c",
        "--check",
        min=0,
        max=10**6,
        help="0: no check; else receivers compare every byte of every operation, which takes time.",
        rich_help_panel=PANEL,
    ),
]
Averaged = Annotated[
    int,
    typer.Option(
        "-a",
        "--average",
        min=0,
        max=3,
        help="The time that counts: 0 rank 0's, 1 the mean of all ranks', 2 the least, 3 the most.",
        rich_help_panel=PANEL,
    ),
]
Blocked = Annotated[
    int,
    typer.Option(
        "-z",
        "--blocking",
        min=0,
        max=3,
        help="0: each rank goes on by itself; 1: barrier after each operation; 2: no barrier, and operations of -m one "
        "after another; 3: barrier after each iteration, not timed.",
        rich_help_panel=PANEL,
    ),
]
PerIteration = Annotated[
    int,
    typer.Option(
        "-I", "--per_iter_timing", min=0, max=1, help="1: columns of what iterations took.", rich_help_panel=PANEL
    ),
]
Skipped = Annotated[
    int,
    typer.Option(
        "-K", "--per_iter_skip", min=0, max=10**6, help="Leave so many first ones out of them.", rich_help_panel=PANEL
    ),
]
DataType = Annotated[str, _flag("-d", "--datatype", text="float, half, bfloat16, int8, ...: what counts count.")]
Reduction = Annotated[
    str, _flag("-o", "--op", text="sum, prod, min, max, avg or mulsum: a name, as nothing is reduced.")
]
Root = Annotated[str, _flag("-r", "--root", text="Root of broadcast, reduce, gather and scatter, or all.")]
Timeout = Annotated[
    float | None,
    typer.Option(
        "-T", "--timeout", min=0, max=86400, help="Seconds that one size may take.", rich_help_panel=PANEL
    ),
]  # fmt: skip
Timestamps = Annotated[
    int, typer.Option("-S", "--report_timestamps", min=0, max=1, help="1: when each line was.", rich_help_panel=PANEL)
]
AsJson = Annotated[
    Path | None,
    _flag("-J", "--output_file", "--json", text="Write all figures here, as nccl-tests' JSON of version 3."),
]

# Flags that mean nothing without GPUs: their long name, the value that changes nothing, and why another is refused.
_ONE_DEVICE = "a rank has one device: give the number of ranks by --ranks"
_NO_GPU = "there is no GPU here"
MEANINGLESS: dict[str, tuple[str, int, str]] = {
    "-t": ("--nthreads", 1, _ONE_DEVICE),
    "-g": ("--ngpus", 1, _ONE_DEVICE),
    "-p": ("--parallel_init", 0, "no NCCL communicator is made"),
    "-y": ("--stream_null", 0, f"CUDA's streams: {_NO_GPU}"),
    "-G": ("--cudagraph", 0, f"CUDA graphs: {_NO_GPU}"),
    "-C": ("--report_cputime", 0, f"times are those of the network: {_NO_GPU} that a CPU could wait for"),
    "-R": ("--local_register", 0, f"registered GPU memory: {_NO_GPU}"),
    "-x": ("--cta_policy", 0, f"NCCL's kernels: {_NO_GPU}"),
    "-D": ("--device_implementation", 0, f"NCCL's kernels: {_NO_GPU}"),
    "-V": ("--device_cta_count", 16, f"NCCL's kernels: {_NO_GPU}"),
    "-M": ("--memory", 0, f"GPU memory: {_NO_GPU}"),
    "-u": ("--unalign", 0, f"GPU buffers: {_NO_GPU}"),
}
_SHORT_OF = {long: short for short, (long, _, _) in MEANINGLESS.items()}
_GIVEN = re.compile(r"(?:(-[a-zA-Z])(.+)?|(--[a-z_]+)(?:=(.*))?)", re.DOTALL)


class NcclTestsCommand(TyperCommand):
    """A command that takes those flags at the value that changes nothing, and refuses others by name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The others', as any command's. Raises UsageError."""
        return super().parse_args(ctx, list(without_meaningless(args)))


def without_meaningless(arguments: list[str]) -> Iterator[str]:
    """The arguments without such flags. Raises UsageError for a value that would have to change something."""
    rest = iter(arguments)
    for argument in rest:
        match = _GIVEN.fullmatch(argument)
        short = None if match is None else match[1] if match[1] in MEANINGLESS else _SHORT_OF.get(match[3] or "")
        if match is None or short is None:
            yield argument
            continue
        name, (_, neutral, why) = match[1] or match[3], MEANINGLESS[short]
        value = match[2] or match[4] or next(rest, "")
        if value.strip() != str(neutral):
            raise UsageError(f"{name} {value}: {why}; leave it out")


def asked_from(
    minimum: str, maximum: str, factor: int | None, step: str | None, iterations: int, skipped: int
) -> Asked:
    """Sizes and iterations; of ranks that are not known yet. Raises UsageError."""
    smallest, largest = size_from("-b", minimum), size_from("-e", maximum)
    if smallest > largest:
        raise UsageError(f"-b {minimum} is more than -e {maximum}: give the smallest size first")
    if factor is not None and step is not None:
        raise UsageError(f"-f {factor} and -i {step}: give one of the two")
    step_bytes = None if step is None else size_from("-i", step)
    if step_bytes is not None and (largest - smallest) // step_bytes >= SIZES_MAX:
        raise UsageError(f"-i {step}: is more than {SIZES_MAX} sizes from {minimum} to {maximum}: give a larger step")
    if skipped >= iterations:
        raise UsageError(f"-K {skipped}: leaves none of {iterations} iterations: give fewer than -n")
    return Asked(
        ranks=0,
        minimum_bytes=smallest,
        maximum_bytes=largest,
        step_factor=None if step is not None else factor or 2,
        step_bytes=step_bytes,
        warmup=0,
        iterations=iterations,
        check=0,
        skipped=skipped,
    )


def operations_from(operation: Operation, data_type: str, reduction: str, root: str, ranks: int) -> list[Operation]:
    """What is measured one after another: the operation with this type, reduction and root, or with each root."""
    if data_type not in ELEMENT_BYTES:
        raise UsageError(f"-d {data_type}: must be one of {', '.join(ELEMENT_BYTES)}")
    if reduction not in REDUCTIONS:
        raise UsageError(f"-o {reduction}: must be one of {', '.join(REDUCTIONS)}; --out is the folder of the runs")
    redop = operation.redop if operation.redop == NO_REDUCTION else reduction
    varied = replace(operation, data_type=data_type, redop=redop)
    if operation.root < 0:
        return [varied]
    if root in (ALL, "-1"):
        return [replace(varied, root=each) for each in range(ranks)]
    if not root.isdecimal() or int(root) >= ranks:
        raise UsageError(f"-r {root}: must be a rank in 0..{ranks - 1}, or all")
    return [replace(varied, root=int(root))]


def minimum_bandwidth() -> float | None:
    """What NCCL_TESTS_MIN_BW asks of the average bus bandwidth, GB/s; None when it is not set. Raises UsageError."""
    text = os.environ.get(MINIMUM_BANDWIDTH, "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise UsageError(f"{MINIMUM_BANDWIDTH}={text}: give GB/s, such as 48.5")
    return value
