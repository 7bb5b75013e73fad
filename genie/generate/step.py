"""A training step of a job: the graph of each pipeline stage, and the workload of all ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from genie.compute.operators import Price, memory
from genie.errors import UsageError
from genie.generate.degrees import Domain, Grid
from genie.generate.layers import Half, Layers
from genie.generate.parameters import LayerParameters, Part, layer_of, matrices_of, norm_of, norms_of
from genie.generate.pipeline import Action, Schedule, read_schedule, schedule_of
from genie.generate.program import Program, Stream, Traffic
from genie.generate.ranks import workload_of
from genie.generate.sharded import ShardedParameters, a_share
from genie.generate.training import BF16_BYTES, FP32_BYTES, Training
from genie.workload.graph import Op, RankGraph, Workload

BUCKET_PARAMETERS = 40_000_000  # of overlapped gradients, at least; and so many for each data-parallel rank:
BUCKET_PARAMETERS_A_RANK = 1_000_000
ADAM_BYTES = 30  # read and written for each parameter: gradient, master copy, two moments, parameter


class Step:
    """A step of a training job."""

    def __init__(self, training: Training, price: Price) -> None:
        self.training, self._price = training, price
        self.schedule = _schedule(training)
        self.rank_of_stage = self.schedule.rank_of_stage()
        ends = {self.rank_of_stage[0], self.rank_of_stage[-1]}
        if training.model.tied and len(ends) == 2 and ends != {0, self.schedule.ranks - 1}:
            raise UsageError(
                f"schedule {self.schedule.name}: ranks {min(ends)} and {max(ends)} play the first and the last stage; "
                "a tied embedding needs the first and the last rank"
            )
        self.traffic: list[Counter[Traffic]] = []  # of each rank of the pipeline, once workload() is made

    @cached_property
    def layers_of_stage(self) -> list[range]:
        """The layers of each stage; the first and the last stage have fewer where they cannot have as many."""
        stages, layers = self.schedule.stages, self.training.model.layers
        counts = [layers // stages] * stages
        first_to_last = [*range(1, stages - 1), 0, stages - 1] if stages > 1 else [0]
        for stage in first_to_last[: layers % stages]:
            counts[stage] += 1
        ends = np.cumsum(counts).tolist()
        return [range(end - count, end) for end, count in zip(ends, counts, strict=True)]

    def parameters_of_layer(self, layer: int) -> Part:
        """Return the parameters of a layer on one rank."""
        found = layer_of(self.training.model, layer)
        degrees = self.training.degrees
        own = _split(found, degrees.tensor)
        experts = found.experts // degrees.expert * (found.expert // degrees.expert_tensor + found.expert_whole)
        whole = found.norms + found.attention_whole + found.dense_whole + found.router
        return Part(own, experts, whole, matrices_of(self.training.model, layer, degrees.tensor))

    def parameters_of_stage(self, stage: int) -> list[Part]:
        """Return the parameters of a stage on one rank, in order: embedding, layers, last norm and head."""
        training, model = self.training, self.training.model
        rows = training.vocabulary // training.degrees.tensor
        table = rows * model.hidden
        parts = []
        if stage == 0:
            tensors = (rows, model.hidden), *([(model.positions, model.hidden)] if model.positions else [])
            parts.append(Part(table + model.positions * model.hidden, tensors=tensors))
        parts += [self.parameters_of_layer(layer) for layer in self.layers_of_stage[stage]]
        if stage == self.schedule.stages - 1:
            norm = norm_of(model)
            tied_here = model.tied and self.rank_of_stage[0] == self.rank_of_stage[-1]
            tensors = *norms_of(model), *([] if tied_here else [(rows, model.hidden)])
            parts.append(Part(norm + (0 if tied_here else table), replicated=norm, tensors=tensors))
            parts += [self.parameters_of_prediction()] * model.prediction_layers
        return parts

    def parameters_of_prediction(self) -> Part:
        """Return the parameters of a layer that predicts one more token: with its projection and its norms."""
        model = self.training.model
        norms = 3 * norm_of(model)
        tensors = ((model.hidden, 2 * model.hidden), *norms_of(model) * 3)
        own = Part(2 * model.hidden**2 + norms, replicated=norms, tensors=tensors)
        return self.parameters_of_layer(model.layers - 1) + own

    def parameters_outside_layers(self, stage: int) -> Part:
        """Return the parameters of a stage's embedding, last norm and head."""
        first, layers = int(stage == 0), len(self.layers_of_stage[stage])
        parts = self.parameters_of_stage(stage)
        return sum([*parts[:first], *parts[first + layers : first + layers + 1]], Part())

    def graph(self, rank: int, expert_place: int = 0) -> tuple[RankGraph, Counter[Traffic]]:
        """Return the graph of a rank of the pipeline, and its collectives and sends.

        Groups are domains, and peers are columns of ranks. `expert_place`: position among expert-parallel ranks.
        """
        own = _RankStep(self, rank, self._price, expert_place)
        return own.graph(), own.program.traffic

    def workload(self, name: str) -> Workload:
        """Return the job of all ranks."""
        degrees = self.training.degrees
        grid = Grid(degrees)
        places = degrees.expert if self.training.is_skewed else 1  # ranks with other tokens are another class
        made = [self.graph(rank, place) for rank in range(self.schedule.ranks) for place in range(places)]
        templates = tuple(graph for graph, _ in made)
        self.traffic = [traffic for _, traffic in made[::places]]
        inside = np.arange(degrees.ranks)
        place_of = inside % degrees.stage // degrees.expert_tensor % degrees.expert if places > 1 else 0
        class_of = (grid.stage_of * places + place_of).astype(np.int32)
        return workload_of(name, grid, templates, class_of)


def _split(layer: LayerParameters, tensor: int) -> int:
    """Return the parameters of a layer on one tensor-parallel rank, without experts."""
    split = (layer.attention + layer.dense + layer.shared) // tensor
    return split + layer.attention_whole + layer.norms + layer.dense_whole + layer.router


def _schedule(training: Training) -> Schedule:
    degrees, name = training.degrees, training.schedule
    if name.endswith(".csv"):
        found = read_schedule(Path(name))
        if found.ranks != degrees.pipeline:
            raise UsageError(f"--schedule {name}: is for {found.ranks} ranks, and --pp is {degrees.pipeline}")
        if found.micro_batches != training.micro_batches:
            raise UsageError(
                f"--schedule {name}: plays {found.micro_batches} micro-batches, and --micro-batches is "
                f"{training.micro_batches}"
            )
        return found
    default = "gpipe" if degrees.pipeline == 1 else "1f1b" if degrees.virtual == 1 else "interleaved"
    return schedule_of(name or default, degrees.pipeline, degrees.virtual, training.micro_batches)


class _RankStep:
    """The step of one rank of the pipeline while its graph is built."""

    def __init__(self, step: Step, rank: int, price: Price, expert_place: int) -> None:
        self.step, self.rank, self.training = step, rank, step.training
        self.program = Program(self.training.degrees, price)
        self.layers = Layers(self.training, self.program, expert_place)
        self._sharded = ShardedParameters(self.training, self.program)
        self.actions: Sequence[Action] = step.schedule.actions[rank]
        self._reductions: list[int | None] = []

    def graph(self) -> RankGraph:
        last_weights = {action.stage: action for action in self.actions if action.what in ("W", "BW")}
        for action in self.actions:
            is_last = action == last_weights[action.stage]
            if action.what == "F":
                self._forward(action)
            else:
                self._backward(action, is_last=is_last)
        self._update()
        return self.program.finish()

    # -- passes ----------------------------------------------------------------------------------------------

    def _forward(self, action: Action) -> None:
        stage, stages = action.stage, self.step.schedule.stages
        self._receive(action, stage - 1, forward=True)
        self.program.wait_for(*self._gather_rest(stage, "forward"))
        if stage == 0:
            self.layers.embedding_forward()
        for layer in self._with_parameters(self.step.layers_of_stage[stage], "forward"):
            self.layers.forward(layer)
        if stage == stages - 1:
            self.layers.head_forward()
            for at in range(self.training.model.prediction_layers):
                self.program.wait_for(*self._gather_prediction(at, "forward"))
                self.layers.prediction_forward(self.training.model.layers - 1)
        self._send(action, stage + 1, forward=True)

    def _backward(self, action: Action, *, is_last: bool) -> None:
        stage, stages = action.stage, self.step.schedule.stages
        half = Half(inputs=action.what != "W", weights=action.what != "B")
        if half.inputs:
            self._receive(action, stage + 1, forward=False)
            if not self._sharded.keeps_rest:
                self.program.wait_for(*self._gather_rest(stage, "backward"))
        if stage == stages - 1:
            for at in reversed(range(self.training.model.prediction_layers)):
                self._backward_of_prediction(at, half)
            self.layers.head_backward(half)
        # A rank's own last part first: gradients are ready in this order.
        parts = self.step.parameters_of_stage(stage)
        bucket = Part()
        reduces = half.weights and (is_last or self.training.sharding == "zero2")
        first = 1 if stage == 0 else 0
        tail = parts[first + len(self.step.layers_of_stage[stage]) :]
        bucket = sum(tail, bucket)
        layers = self.step.layers_of_stage[stage][::-1]
        for layer in self._with_parameters(layers, "backward") if half.inputs else layers:
            self.layers.backward(layer, half)
            if half.weights:
                self._reductions += self._sharded.scatter(self.step.parameters_of_layer(layer), f"layer {layer}")
            bucket += self.step.parameters_of_layer(layer)
            if reduces and self._is_full(bucket):
                self._reduce(bucket, f"gradients from layer {layer}")
                bucket = Part()
        if stage == 0 and half.weights:
            self.layers.embedding_backward()
        if half.weights:
            rest = self.step.parameters_outside_layers(stage)
            self._reductions += self._sharded.scatter(rest, f"embedding and head of stage {stage}")
        bucket = sum(parts[:first], bucket)
        if half.inputs:
            self._send(action, stage - 1, forward=False)
        if reduces:
            self._reduce(bucket, f"gradients of stage {stage}")

    def _backward_of_prediction(self, at: int, half: Half) -> None:
        if half.inputs:
            self.program.wait_for(*self._gather_prediction(at, "backward"))
        self.layers.prediction_backward(self.training.model.layers - 1, half)
        if half.weights:
            part = self.step.parameters_of_prediction()
            self._reductions += self._sharded.scatter(part, f"prediction layer {at}")

    def _receive(self, action: Action, stage: int, *, forward: bool) -> None:
        if 0 <= stage < self.step.schedule.stages and self.step.rank_of_stage[stage] != self.rank:
            what, tag = self._message(action.stage, action.micro_batch, forward=forward)
            column = self.step.rank_of_stage[stage]
            self.program.receive(f"receive {what}", column, self.training.boundary_bytes, tag)

    def _send(self, action: Action, stage: int, *, forward: bool) -> None:
        if 0 <= stage < self.step.schedule.stages and self.step.rank_of_stage[stage] != self.rank:
            what, tag = self._message(stage, action.micro_batch, forward=forward)
            column, program = self.step.rank_of_stage[stage], self.program
            after = [program.last_compute, *program.awaited]
            size_bytes = self.training.boundary_bytes
            program.send(f"send {what}", column, size_bytes, tag, Stream.PIPELINE, "2 T h", after)

    def _message(self, stage: int, micro_batch: int, *, forward: bool) -> tuple[str, int]:
        """Return name and tag of a message to a stage."""
        what = "activations" if forward else "gradients"
        tag = 2 * (micro_batch * self.step.schedule.stages + stage) + (not forward)
        return f"{what} of micro-batch {micro_batch} for stage {stage}", tag

    # -- sharded parameters ----------------------------------------------------------------------------------

    def _with_parameters(self, layers: Sequence[int], what: str) -> Iterator[int]:
        """Yield the layers; sharded parameters of each are gathered while the layer before it computes."""
        coming = self._gather_layer(layers[0], what) if layers else []
        for at, layer in enumerate(layers):
            self.program.wait_for(*coming)
            coming = self._gather_layer(layers[at + 1], what) if at + 1 < len(layers) else []
            yield layer

    def _gather_rest(self, stage: int, what: str) -> list[int | None]:
        rest = self.step.parameters_outside_layers(stage)
        return self._sharded.gather(rest, f"embedding and head of stage {stage}, {what}")

    def _gather_prediction(self, at: int, what: str) -> list[int | None]:
        return self._sharded.gather(self.step.parameters_of_prediction(), f"prediction layer {at}, {what}")

    def _gather_layer(self, layer: int, what: str) -> list[int | None]:
        return self._sharded.gather(self.step.parameters_of_layer(layer), f"layer {layer}, {what}")

    def _members(self, domain: Domain) -> int:
        return self.training.degrees.members(domain)

    # -- the end of a step -----------------------------------------------------------------------------------

    def _is_full(self, bucket: Part) -> bool:
        """Whether a bucket of gradients is reduced at once. Only the first pipeline stage has more than one."""
        data = self.training.degrees.same_parameters
        least = max(BUCKET_PARAMETERS, BUCKET_PARAMETERS_A_RANK * data)
        return self.training.overlap_gradients and self.rank == 0 and bucket.own >= least

    def _reduce(self, part: Part, name: str) -> None:
        """Reduce the gradients of some parameters over the ranks that have the same."""
        training = self.training
        if training.shards_parameters:
            return
        op, verb = (Op.ALL_REDUCE, "add") if training.sharding == "none" else (Op.REDUCE_SCATTER, "scatter")
        for kind, domain, count in (("", Domain.DATA, part.own), ("expert ", Domain.EXPERT_DATA, part.experts)):
            members = self._members(domain)
            size_bytes = training.gradient_bytes * a_share(count, members) * members
            formula = f"{training.gradient_bytes} P"
            self._reductions.append(
                self.program.collective(f"{verb} {kind}{name}", op, domain, size_bytes, Stream.GRADIENTS, formula)
            )

    def _update(self) -> None:
        """Wait for the gradients, add those of replicated parameters, and update the parameters."""
        training, program = self.training, self.program
        model, degrees = training.model, training.degrees
        own_stages = sorted({action.stage for action in self.actions})
        total = sum((part for stage in own_stages for part in self.step.parameters_of_stage(stage)), Part())
        program.wait_for(*self._reductions)
        if training.scatters:
            self._wait(
                "add gradients of replicated parameters",
                Op.ALL_REDUCE,
                Domain.TENSOR,
                FP32_BYTES * total.replicated,
                Stream.TENSOR,
                "4 P",
            )
        ends = {self.step.rank_of_stage[0], self.step.rank_of_stage[-1]}
        if model.tied and len(ends) == 2 and self.rank in ends:
            table = training.vocabulary // degrees.tensor * model.hidden
            held = a_share(table, self._members(Domain.SHARD)) if training.shards_parameters else table
            self._wait(
                "add embedding gradients", Op.ALL_REDUCE, Domain.ENDS, FP32_BYTES * held, Stream.GRADIENTS, "4 P"
            )
        domain = Domain.MODEL if training.sharding == "none" else Domain.WORLD
        self._wait("add gradient norms", Op.ALL_REDUCE, domain, FP32_BYTES, Stream.GRADIENTS, "4")
        is_sharded = training.sharding != "none"
        own = a_share(total.own, self._members(Domain.SHARD if training.shards_parameters else Domain.DATA))
        experts = a_share(total.experts, self._members(Domain.EXPERT_DATA))
        count = own + experts if is_sharded else total.own + total.experts
        program.compute(memory("optimizer", ADAM_BYTES * count))
        if is_sharded and not training.shards_parameters:
            self._wait("gather parameters", Op.ALL_GATHER, Domain.DATA, BF16_BYTES * own, Stream.PARAMETERS, "2 P / d")
            name = "gather expert parameters"
            self._wait(name, Op.ALL_GATHER, Domain.EXPERT_DATA, BF16_BYTES * experts, Stream.PARAMETERS, "2 P / d")

    def _wait(self, name: str, op: Op, domain: Domain, size_bytes: int, stream: Stream, formula: str) -> None:
        self.program.wait_for(self.program.collective(name, op, domain, size_bytes, stream, formula))
