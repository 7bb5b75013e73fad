"""A job of many GPUs out of one GPU's step: data, tensor and pipeline parallelism."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from genie.compute.operators import Timed
from genie.errors import UsageError
from genie.extrapolate.buckets import Bucket, buckets_of
from genie.extrapolate.step import Stage, TracedOperator
from genie.extrapolate.tensor_parallel import SPLIT, Role, roles_of
from genie.extrapolate.times import Times
from genie.generate.degrees import Degrees, Domain, Grid
from genie.generate.pipeline import Action, Schedule
from genie.generate.program import Program, Stream
from genie.generate.ranks import workload_of
from genie.workload.graph import Op, RankGraph, Workload

COUNTER_BYTES = 8  # a batch norm's count of steps


@dataclass(frozen=True)
class Job:
    """The job. `batch`: samples of a replica in a step. Raises UsageError where it cannot be."""

    times: Times
    degrees: Degrees
    batch: int
    schedule: Schedule

    def __post_init__(self) -> None:
        if self.batch % self.schedule.micro_batches:
            raise UsageError(f"--batch {self.batch} is not a multiple of --micro-batches {self.schedule.micro_batches}")
        if len(self.forward) < self.schedule.stages:
            raise UsageError(
                f"--pp {self.degrees.pipeline}: the trace has {len(self.forward)} forward operators: give fewer stages"
            )

    @property
    def operators(self) -> tuple[TracedOperator, ...]:
        return self.times.step.operators

    @cached_property
    def forward(self) -> list[int]:
        """Places of the forward operators."""
        return [at for at, each in enumerate(self.operators) if each.stage is Stage.FORWARD]

    @cached_property
    def roles(self) -> dict[int, Role]:
        """The tensor-parallel role of each forward operator."""
        return roles_of(self.times.step, self.degrees.tensor)

    @cached_property
    def stage_of(self) -> dict[int, int]:
        """The pipeline stage of each forward operator: stages take the same time, as nearly as operators allow."""
        cost = dict.fromkeys(self.forward, 0.0)
        for at, each in enumerate(self.operators):
            owner = each.forward if each.stage is Stage.BACKWARD else at
            if owner in cost:
                cost[owner] += self.time_ns(at, "F" if each.stage is Stage.FORWARD else "BW")
        total, stages = sum(cost.values()), self.schedule.stages
        found: dict[int, int] = {}
        stage, spent = 0, 0.0
        for number, at in enumerate(self.forward):
            left = len(self.forward) - number
            late = spent + cost[at] / 2 >= total * (stage + 1) / stages
            if (
                stage < stages - 1
                and number
                and (late or left <= stages - 1 - stage)
                and found[self.forward[number - 1]] == stage
            ):
                stage += 1
            found[at] = stage
            spent += cost[at]
        return found

    @property
    def micro_batch(self) -> int:
        return self.batch // self.schedule.micro_batches

    def time_ns(self, at: int, what: str) -> float:
        """Return the time of an operator in one pass of a rank. what: F, BW, B (gradients of inputs) or W."""
        each = self.operators[at]
        time_ns = self.times.at(at, self.micro_batch)
        owner = each.forward if each.stage is Stage.BACKWARD else at
        if self.roles.get(owner, Role.WHOLE).is_split:
            fixed_ns = min(time_ns, self.times.shortest_ns)
            time_ns = fixed_ns + (time_ns - fixed_ns) / self.degrees.tensor
        if what in ("B", "W"):  # a layer's backward pass is two products of the same size
            has_weights = bool(each.parameters) and self.operators[each.forward].kind in SPLIT
            time_ns *= 0.5 if has_weights else 1.0 if what == "B" else 0.0
        return time_ns

    def timed(self, at: int, what: str, share: float = 1.0) -> Timed:
        """Return the time of a share of an operator, with its origin; `what` as in `time_ns`."""
        duration_ns = round(self.time_ns(at, what) * share)
        if duration_ns == self.operators[at].time_ns:
            return Timed(duration_ns, "measured")
        return Timed(duration_ns, self.times.origin)

    def parameter_bytes(self, at: int) -> list[int]:
        """Return the bytes of a forward operator's parameters on one rank."""
        role = self.roles[at]
        share = self.degrees.tensor if role.is_split else 1
        own = [tensor.size_bytes // share for tensor in self.operators[at].parameters]
        if role is Role.ROW:  # the bias of a row layer is whole
            own[1:] = [tensor.size_bytes for tensor in self.operators[at].parameters[1:]]
        return own

    def activation_bytes(self, size_bytes: int) -> int:
        """Return the bytes of an activation for one micro-batch."""
        return max(1, round(size_bytes * self.micro_batch / self.times.step.batch))

    def out_bytes(self, at: int) -> int:
        """Return the bytes of a forward operator's output in the trace: where it has none, the next one's input."""
        if self.operators[at].outputs:
            return self.operators[at].outputs[0].size_bytes
        after = next((each for each in self.operators[at + 1 :] if each.stage is Stage.FORWARD and each.inputs), None)
        return after.inputs[0].size_bytes if after is not None else 0

    @cached_property
    def crossing_bytes(self) -> list[int]:
        """For each stage, the bytes of the tensors that stages below it compute and it or later ones use."""
        return [self._crossing_bytes(stage) for stage in range(self.schedule.stages)]

    def _crossing_bytes(self, stage: int) -> int:
        made: dict[int, int] = {}
        used: set[int] = set()
        for at in self.forward:
            each = self.operators[at]
            if self.stage_of[at] < stage:
                made |= {tensor.number: tensor.size_bytes for tensor in each.outputs if tensor.number >= 0}
            else:
                used |= {tensor.number for tensor in each.inputs}
        crossing = sum(size_bytes for number, size_bytes in made.items() if number in used)
        if crossing:
            return crossing
        first = next(
            self.operators[at] for at in self.forward if self.stage_of[at] >= stage and self.operators[at].inputs
        )
        return first.inputs[0].size_bytes

    def buckets(self, stage: int) -> list[Bucket]:
        """Return the buckets of a stage's gradients."""
        own: list[tuple[int, int]] = []
        for at, each in enumerate(self.operators):
            if each.stage is Stage.BACKWARD and each.parameters and self.stage_of.get(each.forward) == stage:
                own += [(at, size_bytes) for size_bytes in reversed(self.parameter_bytes(each.forward))]
        return buckets_of(own)

    def workload(self, name: str) -> Workload:
        """Return the job of all ranks."""
        grid = Grid(self.degrees)
        templates = tuple(_RankStep(self, rank).graph() for rank in range(self.degrees.pipeline))
        return workload_of(name, grid, templates, grid.stage_of.astype(np.int32))


class _RankStep:
    """The step of one rank of the pipeline while its graph is built."""

    def __init__(self, job: Job, rank: int) -> None:
        self.job, self.rank = job, rank
        self.program = Program(job.degrees, lambda operator: Timed(0, ""))
        self.rank_of_stage = job.schedule.rank_of_stage()
        self.reductions: list[int | None] = []

    def graph(self) -> RankGraph:
        actions = self.job.schedule.actions[self.rank]
        self._share_buffers({action.stage for action in actions})
        last_weights = {action.stage: action for action in actions if action.what in ("W", "BW")}
        for action in actions:
            if action.what == "F":
                self._forward(action)
            else:
                self._backward(action, is_last=action == last_weights[action.stage])
        self._update({action.stage for action in actions})
        return self.program.finish()

    def _share_buffers(self, stages: set[int]) -> None:
        """Broadcast the statistics of batch norms, as DistributedDataParallel does before each forward pass."""
        job = self.job
        norms = [job.operators[at] for at in job.forward if job.stage_of[at] in stages and job.operators[at].buffers]
        size_bytes = sum(tensor.size_bytes for each in norms for tensor in each.buffers)
        for what, size in (("statistics", size_bytes), ("counts", COUNTER_BYTES * len(norms))):
            if size:
                self.program.wait_for(
                    self.program.collective(
                        f"broadcast {what}", Op.BROADCAST, Domain.DATA, size, Stream.PARAMETERS, "buffers"
                    )
                )

    def _forward(self, action: Action) -> None:
        job, program = self.job, self.program
        self._receive(action, action.stage - 1, forward=True)
        for at in job.forward:
            if job.stage_of[at] != action.stage:
                continue
            program.compute_for(job.operators[at].name, job.timed(at, "F"))
            role, out_bytes = job.roles[at], job.activation_bytes(job.out_bytes(at))
            if role is Role.ROW:
                self._tensor("add outputs", Op.ALL_REDUCE, out_bytes)
            elif role is Role.GATHER:
                self._tensor("gather outputs", Op.ALL_GATHER, -(-out_bytes // job.degrees.tensor))
        self._send(action, action.stage + 1, forward=True)

    def _backward(self, action: Action, *, is_last: bool) -> None:
        job, program = self.job, self.program
        if action.what != "W":
            self._receive(action, action.stage + 1, forward=False)
        pending = job.buckets(action.stage) if is_last else []
        first = next((at for at in job.forward if job.roles[at] in (Role.COLUMN, Role.GATHER)), -1)
        for at, each in enumerate(job.operators):
            if each.stage is not Stage.BACKWARD or job.stage_of.get(each.forward, -1) != action.stage:
                continue
            node = program.compute_for(each.name, job.timed(at, action.what))
            splits = job.roles[each.forward] in (Role.COLUMN, Role.GATHER) and each.parameters
            if splits and action.what != "W" and each.forward != first:
                size_bytes = job.activation_bytes(job.operators[each.forward].inputs[0].size_bytes)
                self._tensor("add gradients of inputs", Op.ALL_REDUCE, size_bytes)
            while pending and pending[0].ready <= at:
                bucket = pending.pop(0)
                self.reductions.append(
                    program.collective(
                        f"add gradients ({bucket.size_bytes} bytes)", Op.ALL_REDUCE, Domain.DATA, bucket.size_bytes,
                        Stream.GRADIENTS, "bucket", after=[node],
                    )
                )  # fmt: skip
        if action.what != "W":
            self._send(action, action.stage - 1, forward=False)

    def _update(self, stages: set[int]) -> None:
        job = self.job
        self.program.wait_for(*self.reductions)
        own = sum(sum(job.parameter_bytes(at)) for at in job.forward if job.stage_of[at] in stages)
        share = own / max(job.times.step.parameter_bytes, 1)
        for at, each in enumerate(job.operators):
            if each.stage is Stage.UPDATE:
                self.program.compute_for(each.name, job.timed(at, "F", share))

    def _tensor(self, name: str, op: Op, size_bytes: int) -> None:
        node = self.program.collective(name, op, Domain.TENSOR, size_bytes, Stream.TENSOR, "activation")
        self.program.wait_for(node)

    def _receive(self, action: Action, stage: int, *, forward: bool) -> None:
        if self._is_elsewhere(stage):
            size_bytes, name, tag = self._message(action, max(stage, action.stage), action.stage, forward=forward)
            self.program.receive(f"receive {name}", self.rank_of_stage[stage], size_bytes, tag)

    def _send(self, action: Action, stage: int, *, forward: bool) -> None:
        if self._is_elsewhere(stage):
            size_bytes, name, tag = self._message(action, max(stage, action.stage), stage, forward=forward)
            after: Iterable[int] = [self.program.last_compute, *self.program.awaited]
            self.program.send(
                f"send {name}", self.rank_of_stage[stage], size_bytes, tag, Stream.PIPELINE, "activation", after
            )

    def _is_elsewhere(self, stage: int) -> bool:
        return 0 <= stage < self.job.schedule.stages and self.rank_of_stage[stage] != self.rank

    def _message(self, action: Action, cut: int, to: int, *, forward: bool) -> tuple[int, str, int]:
        """Return size, name and tag of a message across a cut below stage `cut`, to stage `to`."""
        what = "activations" if forward else "gradients"
        size_bytes = self.job.activation_bytes(self.job.crossing_bytes[cut])
        tag = 2 * (action.micro_batch * self.job.schedule.stages + to) + (not forward)
        return size_bytes, f"{what} of micro-batch {action.micro_batch} for stage {to}", tag
