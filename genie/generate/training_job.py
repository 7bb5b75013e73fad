"""A training job by its options: those of `genie generate`, which are also the keys of a sweep's `[base.job]`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, structs

from genie.compute.gpus import find_gpu
from genie.compute.roofline import Roofline
from genie.generate.degrees import RANKS_MAX, Degrees
from genie.generate.routing import routing_of
from genie.generate.shipped import find_model, shipped
from genie.generate.training import (
    SIZE_MAX,
    ContextExchange,
    Dispatch,
    Kernels,
    Recompute,
    Training,
    default_micro_batches,
    default_sequence,
    sharding_of,
)

Degree = Annotated[int, Meta(ge=1, le=RANKS_MAX)]
Number = Annotated[int, Meta(ge=1, le=SIZE_MAX)]


class TrainingJob(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A training step of a model on so many GPUs, one rank each. Compute times are those of the roofline of `gpu`."""

    model: str  # a shipped model, or the path of a config.json
    gpus: Degree
    tp: Degree = 1
    cp: Degree = 1
    pp: Degree = 1
    vp: Degree = 1
    ep: Degree = 1
    etp: Degree = 1
    layers: Number | None = None  # those of the model when absent
    schedule: str = ""
    sequence: Number | None = None
    micro_batch: Number = 1
    micro_batches: Number | None = None
    zero: Annotated[int, Meta(ge=0, le=3)] | None = None
    fsdp: bool = False
    hsdp: Degree | None = None
    sequence_parallel: bool = True
    context_exchange: ContextExchange = "ring"
    dispatch: Dispatch = "all-to-all"
    recompute: Recompute = "none"
    kernels: Kernels = "fused"
    routing: str = "balanced"
    routing_seed: Annotated[int, Meta(ge=0, le=2**62)] = 1
    fp8: bool = False
    bf16_gradients: bool = False
    vocabulary_multiple: Number = 1
    gpu: str = "h100"
    compute_scale: float = 1.0

    def below(self, folder: Path) -> TrainingJob:
        """Return the job with the paths of files below a folder, the one of a sweep's file."""
        model = self.model if self.model in shipped() else str(folder / self.model)
        schedule = str(folder / self.schedule) if self.schedule.endswith(".csv") else self.schedule
        routing = str(folder / self.routing) if self.routing.endswith(".json") else self.routing
        return structs.replace(self, model=model, schedule=schedule, routing=routing)

    def training(self) -> Training:
        """Return the settings of the step. Raises UsageError for a job that cannot be."""
        model = find_model(self.model)
        if self.layers is not None:
            model = replace(model, layers=self.layers)
        degrees = Degrees(self.gpus, self.tp, self.cp, self.pp, self.vp, self.ep, self.etp, self.hsdp or 0)
        return Training(
            model=model,
            degrees=degrees,
            sequence=self.sequence or default_sequence(model),
            micro_batch=self.micro_batch,
            micro_batches=self.micro_batches or default_micro_batches(degrees),
            schedule=self.schedule,
            sequence_parallel=self.sequence_parallel,
            sharding=sharding_of(self.zero, fsdp=self.fsdp),
            recompute=self.recompute,
            kernels=self.kernels,
            context_exchange=self.context_exchange,
            dispatch=self.dispatch,
            fp8=self.fp8,
            gradient_bytes=2 if self.bf16_gradients else 4,
            routing=routing_of(self.routing, self.routing_seed, model.experts.count if model.experts else 0),
            vocabulary_multiple=self.vocabulary_multiple,
        )

    def roofline(self) -> Roofline:
        """Return the compute times. Raises UsageError."""
        return Roofline(find_gpu(self.gpu), self.compute_scale)
