"""nccl-tests' flags: those that Genie has, and an error for each that means nothing without GPUs."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from typer.core import TyperCommand

from genie.bench.asked import Asked, Average, Blocking
from genie.bench.collectives import ELEMENT_BYTES, NO_REDUCTION, REDUCTIONS, Operation
from genie.cli.bench.runs import size_from
from genie.errors import UsageError
from genie.job.option import Option

SIZES_MAX = 1000
MINIMUM_BANDWIDTH = "NCCL_TESTS_MIN_BW"  # in the environment, GB/s
ALL = "all"
PANEL = "nccl-tests' flags"


@dataclass(frozen=True)
class NcclTestsOptions:
    """The flags of nccl-tests that mean the same here."""

    minbytes: Annotated[
        str, Option("Smallest size in bytes. K, M and G are powers of 1024.", PANEL, ("-b", "--minbytes"))
    ] = "1K"
    maxbytes: Annotated[
        str, Option("Largest size in bytes. K, M and G are powers of 1024.", PANEL, ("-e", "--maxbytes"))
    ] = "4M"
    stepfactor: Annotated[
        int | None, Option("Factor from one size to the next.", PANEL, ("-f", "--stepfactor"), 2, None, default="2")
    ] = None
    stepbytes: Annotated[
        str | None,
        Option(
            "Difference from one size to the next, instead of a factor.",
            PANEL,
            ("-i", "--stepbytes"),
            default="none",
        ),
    ] = None
    iters: Annotated[int, Option("Number of iterations that are timed.", PANEL, ("-n", "--iters"), 1, 10**6)] = 20
    warmup_iters: Annotated[
        int, Option("Number of warm-up iterations, which are not timed.", PANEL, ("-w", "--warmup_iters"), 0, 10**6)
    ] = 5
    agg_iters: Annotated[
        int,
        Option(
            "Number of operations that start together in one iteration. The table shows the time of one operation.",
            PANEL,
            ("-m", "--agg_iters"),
            1,
            1000,
            default="1",
        ),
    ] = 1
    run_cycles: Annotated[
        int,
        Option(
            "Number of cycles. Each cycle measures all sizes once.",
            PANEL,
            ("-N", "--run_cycles"),
            1,
            10**6,
            default="1",
        ),
    ] = 1
    check: Annotated[
        int,
        Option(
            "Check of the received bytes. `0`: no check. Any other number: the receivers compare every byte of every "
            "operation. The comparison is part of the measured time.",
            PANEL,
            ("-c", "--check"),
            0,
            10**6,
            default="1",
        ),
    ] = 1
    average: Annotated[
        int,
        Option(
            "Time in the table. `0`: time of rank 0. `1`: mean over the ranks. `2`: minimum over the ranks. `3`: "
            "maximum over the ranks.",
            PANEL,
            ("-a", "--average"),
            0,
            3,
            default="1",
        ),
    ] = 1
    blocking: Annotated[
        int,
        Option(
            "Barriers between operations. `0`: no barrier. `1`: a barrier after each operation, inside the measured "
            "time. `2`: no barrier, and the operations of `-m` run one after the other. `3`: a barrier after each "
            "iteration, outside the measured time.",
            PANEL,
            ("-z", "--blocking"),
            0,
            3,
            default="0",
        ),
    ] = 0
    per_iter_timing: Annotated[
        int,
        Option(
            "Four columns with the times of iterations: `i_min`, `i_max`, `i_p99` and `i_cv%`. `0`: no such columns. "
            "`1`: these columns.",
            PANEL,
            ("-I", "--per_iter_timing"),
            0,
            1,
            default="0",
        ),
    ] = 0
    per_iter_skip: Annotated[
        int,
        Option(
            "Number of first iterations that the columns of `-I` leave out.",
            PANEL,
            ("-K", "--per_iter_skip"),
            0,
            10**6,
            default="0",
        ),
    ] = 0
    datatype: Annotated[
        str,
        Option(
            "Element type of nccl-tests, such as float, half, bfloat16 or int8. The column `count` "
            "has the number of elements of this type.",
            PANEL,
            ("-d", "--datatype"),
        ),
    ] = "float"
    op: Annotated[
        str,
        Option(
            "Text of the column `redop`: sum, prod, min, max, avg or mulsum. The option has no other effect, because "
            "the bench reduces nothing.",
            PANEL,
            ("-o", "--op"),
        ),
    ] = "sum"
    root: Annotated[
        str,
        Option(
            "Root of broadcast, reduce, gather and scatter: the number of a rank, or `all` for each rank in turn.",
            PANEL,
            ("-r", "--root"),
        ),
    ] = "0"
    timeout: Annotated[
        float | None,
        Option(
            "Time limit in seconds for each size.",
            PANEL,
            ("-T", "--timeout"),
            0,
            86400,
            default="none",
        ),
    ] = None
    report_timestamps: Annotated[
        int,
        Option(
            "Column with the time at which each line is printed. `0`: no such column. `1`: this column.",
            PANEL,
            ("-S", "--report_timestamps"),
            0,
            1,
            default="0",
        ),
    ] = 0
    output_file: Annotated[
        Path | None,
        Option(
            "File for all results, in version 3 of the JSON of nccl-tests.",
            PANEL,
            ("-J", "--output_file", "--json"),
            default="none",
        ),
    ] = None


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
    """A command that takes the flags above at the value that changes nothing, and refuses other values by name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the other flags as any command does. Raises UsageError."""
        return super().parse_args(ctx, list(without_meaningless(args)))


def without_meaningless(arguments: list[str]) -> Iterator[str]:
    """Yield the arguments without such flags. Raises UsageError for a value that would change something."""
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


def asked_from(given: NcclTestsOptions, *, percentiles: bool = False) -> Asked:
    """Return the sizes and iterations; the number of ranks is not known yet. Raises UsageError."""
    smallest, largest = size_from("-b", given.minbytes), size_from("-e", given.maxbytes)
    if smallest > largest:
        raise UsageError(f"-b {given.minbytes} is more than -e {given.maxbytes}: give the smallest size first")
    if given.stepfactor is not None and given.stepbytes is not None:
        raise UsageError(f"-f {given.stepfactor} and -i {given.stepbytes}: give one of the two")
    step_bytes = None if given.stepbytes is None else size_from("-i", given.stepbytes)
    if step_bytes is not None and (largest - smallest) // step_bytes >= SIZES_MAX:
        span = f"from {given.minbytes} to {given.maxbytes}"
        raise UsageError(f"-i {given.stepbytes}: is more than {SIZES_MAX} sizes {span}: give a larger step")
    if given.per_iter_skip >= given.iters:
        raise UsageError(f"-K {given.per_iter_skip}: leaves none of {given.iters} iterations: give fewer than -n")
    return Asked(
        ranks=0,
        minimum_bytes=smallest,
        maximum_bytes=largest,
        step_factor=None if step_bytes is not None else given.stepfactor or 2,
        step_bytes=step_bytes,
        warmup=given.warmup_iters,
        iterations=given.iters,
        check=given.check,
        aggregated=given.agg_iters,
        cycles=given.run_cycles,
        average=Average(given.average),
        blocking=Blocking(given.blocking),
        per_iteration=bool(given.per_iter_timing),
        skipped=given.per_iter_skip,
        percentiles=percentiles,
        timestamps=bool(given.report_timestamps),
    )


def operations_from(operation: Operation, given: NcclTestsOptions, ranks: int) -> list[Operation]:
    """Return the operations to measure in order: with this type, reduction and root, or with each root."""
    data_type, reduction, root = given.datatype, given.op, given.root
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
    """Return the minimum of NCCL_TESTS_MIN_BW (average bus bandwidth, GB/s); None if not set. Raises UsageError."""
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
