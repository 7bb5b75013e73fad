"""`genie generate`: the workload of a training job from a model's configuration."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import numpy as np
import typer

from genie.cli.convert.workloads import Compress, Prefix
from genie.cli.convert.writing import Out, check_traces_folder, writing
from genie.cli.groups import flattened
from genie.compute.gpus import Gpu
from genie.generate.degrees import Degrees
from genie.generate.explain import explanation
from genie.generate.memory import memory_of
from genie.generate.step import Step
from genie.invocation import note
from genie.job.generation import ComputeOptions, ModelOptions, ParallelOptions, StepOptions, training_of
from genie.job.warnings import warn
from genie.page.words import duration, percent
from genie.workload.graph import Kind, Workload
from genie.workload.pytorch.convert import check_prefix
from genie.workload.write import save

GENERATE_EXAMPLES = """
Examples:

```text
genie generate llama3-8b --gpus 16 --tp 2 --pp 2 --micro-batches 8 -o traces/llama
genie generate DIR/config.json --gpus 64 --fsdp --sequence 8192 -o traces/mine
genie generate deepseek-v3 --gpus 1024 --pp 16 --ep 64 --recompute full --explain -o traces/v3
genie simulate traces/llama --fabric FABRIC.toml
```
"""


TRACES_MANY = 128


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command("generate", epilog=GENERATE_EXAMPLES)(flattened(generate))


def generate(
    model: ModelOptions,
    parallel: ParallelOptions,
    options: StepOptions,
    compute: ComputeOptions,
    out: Out,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Print parameters, memory, and each collective with the formula of its size."),
    ] = False,
    prefix: Prefix = "workload",
    compress: Compress = False,
) -> int:
    """Generate the workload of a training step from the configuration of a model.

    Each rank gets an execution graph: matrix products, attention and other operators with estimated times, and all
    collectives and messages of the parallelism. Ranks with equal graphs share one trace file; `genie expand` writes one
    for each rank.
    """
    check_prefix(prefix)
    check_traces_folder(out, prefix)
    times = compute.times()
    gpu = times.roofline.gpu
    step = Step(training_of(model, parallel, options), times.timed)
    degrees = step.training.degrees
    if step.training.is_skewed and degrees.pipeline * degrees.expert >= TRACES_MANY:
        note(
            f"--routing makes {degrees.pipeline * degrees.expert} different graphs, as many traces: this takes minutes"
        )
    workload = step.workload(step.training.model.name)
    with writing(out):
        save(workload, out, prefix, compress)
    scaled = _scaling(parallel.whole_degrees(), step.training.degrees)
    print("\n".join([*_summary(step, workload), *scaled, f"{out}: written"]))
    if explain:
        print("\n".join(["", *explanation(step, gpu)]))
    _warn_of_memory(step, gpu)
    return 0


def _summary(step: Step, workload: Workload) -> list[str]:
    training, model = step.training, step.training.model
    graphs = [workload.ranks[rank * training.degrees.stage] for rank in range(training.degrees.pipeline)]
    nodes = [len(graph) for graph in graphs]
    origins = Counter(origin for graph in graphs for origin in graph.origin or () if origin)
    compute_ns = [int(graph.duration_ns[graph.kind == Kind.COMP].sum()) for graph in graphs]
    span = f"{min(nodes):,}" if min(nodes) == max(nodes) else f"{min(nodes):,} to {max(nodes):,}"
    times = duration(min(compute_ns))
    times += "" if len(set(compute_ns)) == 1 else f" to {duration(max(compute_ns))}"
    sources = ", ".join(f"{count:,} {origin}" for origin, count in origins.most_common())
    collectives = int(np.count_nonzero(graphs[0].kind == Kind.COLL))
    return [
        f"{model.name}: {model.layers} layers; {training.degrees.ranks} ranks: {training.degrees.words()}",
        f"a step: {_counted(training.micro_batches, 'micro-batch', 'es')} of {training.micro_batch} x "
        f"{training.sequence} tokens for each of {_counted(training.degrees.data, 'replica')}; schedule "
        f"{step.schedule.name}",
        f"each rank: {span} nodes, compute {times}; {collectives:,} collectives on the first",
        f"compute times of operators, on one rank a stage: {sources}",
    ]


def _scaling(whole: Degrees, made: Degrees) -> list[str]:
    """Say what --scale-to has changed: the load of a ring on a NIC is (d - 1) / d of the data, with d members."""
    if whole == made:
        return []
    lines = [f"scaled from {whole.ranks} to {made.ranks} ranks: replicas {whole.data} to {made.data}"]
    for name, before, after in (
        ("parameters", whole.same_parameters, made.same_parameters),
        ("experts", whole.expert_data, made.expert_data),
    ):
        if before > 1 and (name == "parameters" or made.expert > 1):
            load = (after - 1) / after / ((before - 1) / before)
            lines[0] += (
                f"; {name}: groups of {before} to {after}, whose rings load a NIC with {percent(load)} of before"
            )
    return lines


def _counted(number: int, thing: str, plural: str = "s") -> str:
    return f"{number} {thing}{'' if number == 1 else plural}"


def _warn_of_memory(step: Step, gpu: Gpu) -> None:
    fullest = max(range(step.schedule.ranks), key=lambda rank: memory_of(step, rank).total)
    needed = memory_of(step, fullest).total
    if needed > gpu.memory_gb * 1e9:
        warn(
            f"a rank of pipeline stage {fullest} needs about {needed / 1e9:.0f} GB, and {gpu.label} has "
            f"{gpu.memory_gb:g} GB: give more --tp or --pp, --fsdp, or --recompute full"
        )
