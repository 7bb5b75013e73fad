"""`genie extrapolate`: one GPU's trace of a training step as a job of many GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from genie.cli.convert.workloads import Compress, Prefix
from genie.cli.convert.writing import Out, check_traces_folder, writing
from genie.compute.gpus import Gpu, find_gpu, gpus
from genie.errors import UsageError
from genie.extrapolate.job import Job
from genie.extrapolate.read import read_step
from genie.extrapolate.step import Stage, TracedStep
from genie.extrapolate.times import Times, gpu_named, same_model
from genie.generate.degrees import RANKS_MAX, Degrees
from genie.generate.pipeline import schedule_of
from genie.page.words import amount, duration, percent
from genie.workload.graph import Kind, Op, Workload
from genie.workload.pytorch.convert import check_prefix
from genie.workload.write import save

EXTRAPOLATE_EXAMPLES = """
Examples:

```text
genie extrapolate vgg13.json --batch 256 --dp 64 -o traces/vgg
genie extrapolate vgg13.json --tp 4 --pp 2 --micro-batches 8 -o traces/vgg
genie extrapolate batch128/ batch512.json --batch 1024 --gpu h200 -o traces/vgg
genie simulate traces/vgg --fabric FABRIC.toml
```
"""
SCHEDULES = ("gpipe", "1f1b", "zero-bubble")
BATCH_MAX = 1 << 24


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command("extrapolate", epilog=EXTRAPOLATE_EXAMPLES)(extrapolate)


def extrapolate(
    traces: Annotated[
        list[Path],
        typer.Argument(
            metavar="TRACE...",
            help="Kineto trace of a training step on one GPU, with shapes, or a folder with TrioSim's tables. Several "
            "traces of one model, with different batches: the first one leads, and all give the times.",
            show_default=False,
        ),
    ],
    out: Out,
    batch: Annotated[
        int | None,
        typer.Option(min=1, max=BATCH_MAX, help="Samples of a replica in a step.  [default: those of the trace]"),
    ] = None,
    data: Annotated[int, typer.Option("--dp", min=1, max=RANKS_MAX, help="Data-parallel replicas.")] = 1,
    tensor: Annotated[int, typer.Option("--tp", min=1, max=RANKS_MAX, help="Tensor-parallel ranks.")] = 1,
    pipeline: Annotated[int, typer.Option("--pp", min=1, max=RANKS_MAX, help="Pipeline stages.")] = 1,
    micro_batches: Annotated[
        int | None,
        typer.Option(
            min=1, max=BATCH_MAX, help="Micro-batches of a step.  [default: 1, and 2 for each stage of a pipeline]"
        ),
    ] = None,
    schedule: Annotated[str, typer.Option(help=f"Pipeline schedule: {', '.join(SCHEDULES)}.")] = "1f1b",
    gpu: Annotated[
        str | None, typer.Option(help=f"Another GPU: {', '.join(gpus())}.  [default: that of the trace]")
    ] = None,
    trace_gpu: Annotated[
        str | None, typer.Option(help="GPU of the trace, for `--gpu`.  [default: as the trace says]")
    ] = None,
    prefix: Prefix = "workload",
    compress: Compress = False,
) -> int:
    """Extrapolate one GPU's trace of a training step to a job of many GPUs.

    Operators keep their measured times, which follow the batch except for the part of weights. Gradients are reduced in
    the buckets of PyTorch's DistributedDataParallel. All ranks share one trace, or those of a pipeline stage do.
    """
    check_prefix(prefix)
    check_traces_folder(out, prefix)
    steps = same_model([read_step(path) for path in traces])
    source, target = _gpus(steps[0], gpu, trace_gpu)
    times = Times(steps, target, source)
    degrees = Degrees(data * tensor * pipeline, tensor, 1, pipeline)
    if schedule not in SCHEDULES:
        raise UsageError(f"--schedule {schedule}: give one of {', '.join(SCHEDULES)}")
    count = micro_batches or (2 * pipeline if pipeline > 1 else 1)
    samples = batch or steps[0].batch
    job = Job(times, degrees, samples, schedule_of(schedule if pipeline > 1 else "gpipe", pipeline, 1, count))
    workload = job.workload(traces[0].name.partition(".")[0])
    with writing(out):
        save(workload, out, prefix, compress, "genie extrapolate")
    print("\n".join([*_of_trace(steps), *_of_times(times, samples), *_of_job(job, workload), f"{out}: written"]))
    return 0


def _gpus(step: TracedStep, gpu: str | None, trace_gpu: str | None) -> tuple[Gpu | None, Gpu | None]:
    """Return the GPUs of the trace and of the job; None for the trace's own. Raises UsageError."""
    if gpu is None:
        if trace_gpu is not None:
            raise UsageError("--trace-gpu: has a meaning with --gpu only: give both")
        return None, None
    target, known = find_gpu(gpu), trace_gpu or gpu_named(step.gpu)
    if known is None:
        named = f"is of {step.gpu!r}" if step.gpu else "does not name its GPU"
        raise UsageError(f"{step.path}: {named}: give --trace-gpu, one of {', '.join(gpus())}")
    if known not in gpus():
        raise UsageError(f"--trace-gpu {known}: is not known: give one of {', '.join(gpus())}")
    return find_gpu(known), target


def _of_trace(steps: tuple[TracedStep, ...]) -> list[str]:
    lines = []
    for step in steps:
        parts = ", ".join(f"{stage.value} {duration(step.time_ns(stage))}" for stage in Stage)
        lines.append(
            f"{step.path.name}: {len(step.operators)} operators, batch {step.batch}, "
            f"{amount(step.parameter_bytes)} of parameters; {duration(step.time_ns())} of kernels: {parts}"
        )
    return lines


def _of_times(times: Times, batch: int) -> list[str]:
    step = times.step
    if batch == step.batch and times.target is None and len(times.traces) == 1:
        return []
    head = f"kernels of a step with batch {batch} on one GPU: {duration(round(times.total_ns(batch)))}"
    if len(times.traces) > 1:
        errors = times.errors()
        known = (
            f"leaving out one trace at a time misses its total by {percent(max(map(abs, errors)))} at most"
            if errors
            else "its error cannot be told from two traces"
        )
        how = f"a line for each operator through {len(times.traces)} batches; {known}"
    else:
        constant_ns = sum(times.constant_ns(each) for each in step.operators)
        how = (
            f"{duration(round(constant_ns))} of the trace do not follow the batch (optimizer, weights, starts of "
            "kernels); the error cannot be told from one trace"
        )
    lines = [head, how]
    if times.target is not None and times.source is not None:
        lines.append(f"from {times.source.label} to {times.target.label} by their data sheets: not measured")
    return lines


def _of_job(job: Job, workload: Workload) -> list[str]:
    degrees = job.degrees
    counts = {}
    graph = workload.ranks[0]
    for op in sorted(set(graph.op[graph.kind == Kind.COLL].tolist())):
        of_op = graph.op == op
        counts[Op(op).name.lower()] = f"{int(np.count_nonzero(of_op))} of {amount(int(graph.size_bytes[of_op].sum()))}"
    words = ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"
    lines = [f"{degrees.ranks} ranks: {degrees.words()}; collectives of rank 0: {words}"]
    if degrees.data > 1:
        sizes = [amount(bucket.size_bytes) for bucket in job.buckets(0)]
        lines.append(f"buckets of gradients{' of stage 0' if degrees.pipeline > 1 else ''}: {', '.join(sizes)}")
    if degrees.pipeline > 1:
        cuts = [amount(job.activation_bytes(job.crossing_bytes[stage])) for stage in range(1, job.schedule.stages)]
        lines.append(f"tensors between stages, of a micro-batch: {', '.join(cuts)}")
    return lines
