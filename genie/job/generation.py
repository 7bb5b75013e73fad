"""Options of `genie generate`: the model, its parallelism, the step, and compute times."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from genie.compute.gpus import find_gpu, gpus
from genie.compute.roofline import Roofline
from genie.compute.table import MeasuredTimes, TableTimes, read_times
from genie.errors import UsageError
from genie.generate.degrees import Degrees
from genie.generate.pipeline import NAMES
from genie.generate.shipped import shipped
from genie.generate.training import DISPATCHES, EXCHANGES, KERNELS, RECOMPUTES, SEQUENCE_DEFAULT, Training
from genie.generate.training_job import TrainingJob
from genie.job.option import Option, check_choices

PARALLELISM, STEP, COMPUTE = "Parallelism", "Step", "Compute times"


@dataclass(frozen=True)
class ModelOptions:
    """The model."""

    config: Annotated[
        str,
        Option(f"A HuggingFace `config.json`, a folder with one, or a name: {', '.join(shipped())}.", is_argument=True),
    ] = ""
    layers: Annotated[int | None, Option("Number of layers.", STEP, minimum=1, default="that of the model")] = None


@dataclass(frozen=True)
class ParallelOptions:
    """Degrees of parallelism."""

    gpus: Annotated[int | None, Option("Number of GPUs: one rank each. Required.", PARALLELISM, minimum=1)] = None
    tensor: Annotated[int, Option("Ranks of a tensor-parallel group.", PARALLELISM, ("--tp",), 1)] = 1
    context: Annotated[int, Option("Ranks of a context-parallel group.", PARALLELISM, ("--cp",), 1)] = 1
    pipeline: Annotated[int, Option("Number of pipeline stages.", PARALLELISM, ("--pp",), 1)] = 1
    virtual: Annotated[int, Option("Chunks of layers on each pipeline stage.", PARALLELISM, ("--vp",), 1)] = 1
    expert: Annotated[int, Option("Ranks of an expert-parallel group.", PARALLELISM, ("--ep",), 1)] = 1
    expert_tensor: Annotated[int, Option("Ranks that share an expert.", PARALLELISM, ("--etp",), 1)] = 1
    zero: Annotated[
        int | None,
        Option(
            "Stage of ZeRO. 0: all-reduce of gradients. 1: distributed optimizer. 2: gradients are reduced after each "
            "micro-batch. 3: parameters are sharded.",
            PARALLELISM,
            minimum=0,
            maximum=3,
            default="1",
        ),
    ] = None
    fsdp: Annotated[bool, Option("Shard parameters as FSDP2 does.", PARALLELISM)] = False
    hsdp: Annotated[
        int | None,
        Option(
            "With sharded parameters: ranks that share one copy of them.",
            PARALLELISM,
            minimum=1,
            default="all data-parallel ranks",
        ),
    ] = None
    sequence_parallel: Annotated[
        bool,
        Option(
            "Whether tensor-parallel ranks share the tokens outside of matrix products.",
            PARALLELISM,
            ("--sequence-parallel/--no-sequence-parallel",),
        ),
    ] = True
    context_exchange: Annotated[
        str, Option("Exchange of keys and values between context-parallel ranks.", PARALLELISM, choices=EXCHANGES)
    ] = "ring"
    dispatch: Annotated[str, Option("Exchange of tokens with experts.", PARALLELISM, choices=DISPATCHES)] = "all-to-all"

    routing: Annotated[
        str,
        Option(
            "Tokens of each expert: `balanced`, `zipf:EXPONENT`, or a JSON file with a list of numbers for each layer.",
            PARALLELISM,
        ),
    ] = "balanced"
    scale_to: Annotated[
        int | None,
        Option(
            "Make a job of so many ranks that puts the same load on each NIC. It has fewer data-parallel replicas, and "
            "the same other groups and sizes.",
            PARALLELISM,
            minimum=1,
            default="the number of GPUs",
        ),
    ] = None

    def degrees(self) -> Degrees:
        """Return the degrees of the job that is made. Raises UsageError."""
        whole = self.whole_degrees()
        if self.scale_to is None:
            return whole
        replica = whole.ranks // whole.data
        if self.scale_to > whole.ranks or self.scale_to % replica:
            raise UsageError(
                f"--scale-to {self.scale_to}: give a multiple of {replica}, the ranks of a replica ({whole.words()}), "
                f"up to {whole.ranks}"
            )
        return replace(whole, ranks=self.scale_to)

    def whole_degrees(self) -> Degrees:
        """Return the degrees of the job before it is scaled. Raises UsageError."""
        if self.gpus is None:
            raise UsageError("--gpus is missing: give the number of GPUs of the job")
        return Degrees(
            self.gpus, self.tensor, self.context, self.pipeline, self.virtual, self.expert, self.expert_tensor,
            self.hsdp or 0,
        )  # fmt: skip


@dataclass(frozen=True)
class StepOptions:
    """The passes of a step."""

    schedule: Annotated[
        str,
        Option(
            f"Pipeline schedule: {', '.join(NAMES)}, or a CSV file as PyTorch writes it.",
            STEP,
            default="1f1b, with `--vp` interleaved",
        ),
    ] = ""
    sequence: Annotated[
        int | None, Option("Tokens of a sequence.", STEP, minimum=1, default=f"{SEQUENCE_DEFAULT}, or the model's most")
    ] = None
    micro_batch: Annotated[int, Option("Sequences of a micro-batch.", STEP, minimum=1)] = 1
    micro_batches: Annotated[
        int | None,
        Option("Micro-batches of a step.", STEP, minimum=1, default="1, or with `--pp` twice its stages"),
    ] = None
    recompute: Annotated[
        str, Option("Activations that are computed again in the backward pass.", STEP, choices=RECOMPUTES)
    ] = "none"
    kernels: Annotated[
        str,
        Option(
            "`fused`: one kernel for attention. `separate`: a kernel for each of its parts, with the scores in memory, "
            "and for each residual addition.",
            STEP,
            choices=KERNELS,
        ),
    ] = "fused"
    fp8: Annotated[bool, Option("Compute matrix products in FP8.", STEP)] = False
    bf16_gradients: Annotated[bool, Option("Reduce gradients in BF16. Without it: in FP32.", STEP)] = False
    seed: Annotated[int, Option("Seed of what is drawn: the experts that `zipf` prefers.", STEP, minimum=0)] = 1
    vocabulary_multiple: Annotated[
        int,
        Option("Pad the vocabulary to a multiple of this number times `--tp`. Megatron's is 128.", STEP, minimum=1),
    ] = 1


@dataclass(frozen=True)
class ComputeOptions:
    """Compute times."""

    gpu: Annotated[str, Option(f"GPU: {', '.join(gpus())}.", COMPUTE)] = "h100"
    compute: Annotated[
        Path | None,
        Option(
            "CSV file of measured times with the columns gpu,op,shape,dtype,ns. Operators without a row get a fitted "
            "or scaled time, or that of the roofline.",
            COMPUTE,
            default="none",
        ),
    ] = None
    compute_scale: Annotated[float, Option("Factor for all compute times.", COMPUTE)] = 1.0

    def times(self) -> TableTimes:
        """Return the model of compute times. Raises UsageError."""
        roofline = Roofline(find_gpu(self.gpu), self.compute_scale)
        table = MeasuredTimes({}, "") if self.compute is None else read_times(self.compute)
        return TableTimes(table, self.gpu.lower(), roofline)


def training_of(model: ModelOptions, parallel: ParallelOptions, step: StepOptions) -> Training:
    """Return the settings of the step. Raises UsageError."""
    check_choices(parallel)
    check_choices(step)
    if not model.config:
        raise UsageError(f"CONFIG is missing: give a config.json, or one of {', '.join(shipped())}")
    return TrainingJob(
        model=model.config,
        gpus=parallel.degrees().ranks,
        tp=parallel.tensor,
        cp=parallel.context,
        pp=parallel.pipeline,
        vp=parallel.virtual,
        ep=parallel.expert,
        etp=parallel.expert_tensor,
        layers=model.layers,
        schedule=step.schedule,
        sequence=step.sequence,
        micro_batch=step.micro_batch,
        micro_batches=step.micro_batches,
        zero=parallel.zero,
        fsdp=parallel.fsdp,
        hsdp=parallel.hsdp,
        sequence_parallel=parallel.sequence_parallel,
        context_exchange=next(each for each in EXCHANGES if each == parallel.context_exchange),
        dispatch=next(each for each in DISPATCHES if each == parallel.dispatch),
        recompute=next(each for each in RECOMPUTES if each == step.recompute),
        kernels=next(each for each in KERNELS if each == step.kernels),
        routing=parallel.routing,
        routing_seed=step.seed,
        fp8=step.fp8,
        bf16_gradients=step.bf16_gradients,
        vocabulary_multiple=step.vocabulary_multiple,
    ).training()
