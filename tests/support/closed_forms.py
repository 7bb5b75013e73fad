"""Bytes of a rank in a training step, by closed forms: written from the published formulas, and not from the generator.

Sources: Megatron-LM's tensor, sequence, context and expert parallelism (Korthikanti et al. 2022), ZeRO (Rajbhandari et
al. 2020), FSDP2, DeepSpeed-Ulysses, DeepEP. The settings are data; no property or function of the generator is used.
All-gather: one rank's input. Reduce-scatter and all-reduce: the whole buffer. All-to-all: a rank's whole input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

from genie.generate.degrees import Degrees
from genie.generate.model import Model
from genie.generate.training import Training

Bytes = Counter[tuple[str, str]]  # (operation, kind of group) -> bytes
AG, RS, AR, A2A = "all_gather", "reduce_scatter", "all_reduce", "all_to_all"


@dataclass(frozen=True)
class Count:
    """Parameters of a rank. `dense`: without experts; `same`: of these, those that all tensor-parallel ranks have.

    rows: (rows, columns) of each parameter without experts, in no order; FSDP2 shards rows.
    """

    dense: int = 0
    experts: int = 0
    same: int = 0
    rows: tuple[tuple[int, int], ...] = ()

    def __add__(self, other: Count) -> Count:
        same, rows = self.same + other.same, self.rows + other.rows
        return Count(self.dense + other.dense, self.experts + other.experts, same, rows)


class ClosedForms:
    """Closed forms of a job."""

    def __init__(self, training: Training, sent_to: Sequence[Sequence[int]] = ()) -> None:
        """`sent_to`: tokens that a rank sends to each expert-parallel rank, by layer with experts; (): evenly."""
        self.job, self.sent_to = training, sent_to
        self.model: Model = training.model
        self.degrees: Degrees = training.degrees
        degrees = training.degrees
        self.t, self.c, self.p = degrees.tensor, degrees.context, degrees.pipeline
        self.e, self.x = degrees.expert, degrees.expert_tensor
        self.d = degrees.ranks // (self.t * self.p)  # ranks with the same parameters
        self.edp = degrees.ranks // (self.p * self.e * self.x)
        self.is_sequence_parallel = training.sequence_parallel and self.t > 1
        self.all_tokens = training.micro_batch * training.sequence // self.c
        self.tokens = self.all_tokens // self.t if self.is_sequence_parallel else self.all_tokens
        unit = training.vocabulary_multiple * self.t
        self.table = -(-self.model.vocabulary // unit) * unit // self.t * self.model.hidden
        self.m = training.micro_batches
        self.chunks = degrees.virtual
        self.stages = self.p * self.chunks

    # -- places ----------------------------------------------------------------------------------------------

    def stages_of(self, rank: int) -> list[int]:
        """Stages of a rank of the pipeline: one after the other round the ranks, or there and back (DualPipe-V)."""
        if self.job.schedule == "dualpipe-v":
            return [rank, 2 * self.p - 1 - rank]
        return [rank + chunk * self.p for chunk in range(self.chunks)]

    def layers_of(self, stage: int) -> list[int]:
        """Layers in equal parts; what remains goes to the stages from the second on, to the first and the last last."""
        order = [*range(1, self.stages - 1), 0, self.stages - 1] if self.stages > 1 else [0]
        more = set(order[: self.model.layers % self.stages])
        counts = [self.model.layers // self.stages + (at in more) for at in range(self.stages)]
        return list(range(sum(counts[:stage]), sum(counts[: stage + 1])))

    def has_experts(self, layer: int) -> bool:
        own = self.model.experts
        return own is not None and layer >= own.first_layer and (layer - own.first_layer) % own.every == 0

    # -- parameters ------------------------------------------------------------------------------------------

    def layer_count(self, layer: int) -> Count:
        """Parameters of a layer on a rank."""
        model, own = self.model, self.model.attention
        h, norm = model.hidden, model.hidden * (2 if model.norm == "layer" else 1)
        if latent := own.latent:
            q, kv, rope, nope, v = (
                latent.query_rank, latent.key_value_rank, latent.rotary_dim, latent.plain_dim, latent.value_dim
            )  # fmt: skip
            split = own.heads * ((q or h) * (nope + rope) + kv * (nope + v) + v * h)
            whole = (h * q + q if q else 0) + h * (kv + rope) + kv
        else:
            d, width = own.head_dim, (own.heads + 2 * own.key_value_heads) * own.head_dim
            split = h * width + own.heads * d * h + own.input_bias * width + own.sinks * own.heads
            whole = own.output_bias * h + own.head_norm * 2 * d
        whole += 2 * norm
        matrices, inputs = (3, 2) if model.gated else (2, 1)
        if not self.has_experts(layer):
            split += matrices * h * model.width + model.bias * inputs * model.width
            whole += model.bias * h
            return Count(split // self.t + whole, 0, whole, self.layer_rows(layer))
        experts = model.experts
        assert experts is not None
        whole += experts.count * (h + experts.router_bias)
        split += matrices * h * experts.shared_width + experts.shared_gate * h
        one = (matrices * h * experts.width + experts.bias * inputs * experts.width) // self.x + experts.bias * h
        return Count(split // self.t + whole, experts.count // self.e * one, whole, self.layer_rows(layer))

    def layer_rows(self, layer: int) -> tuple[tuple[int, int], ...]:
        """Rows (outputs) and columns (inputs) of a layer's parameters. Split layers have a part of one or the other."""
        model, own, t = self.model, self.model.attention, self.t
        h, norm = model.hidden, [(model.hidden, 1)] * (4 if model.norm == "layer" else 2)
        if latent := own.latent:
            inner = own.heads * (latent.plain_dim + latent.rotary_dim) // t
            q = latent.query_rank
            rows = [(q, h), (q, 1), (inner, q)] if q else [(inner, h)]
            kv = latent.key_value_rank
            rows += [(kv + latent.rotary_dim, h), (kv, 1), (own.heads * (latent.plain_dim + latent.value_dim) // t, kv)]
            rows += [(h, own.heads * latent.value_dim // t)]
        else:
            d = own.head_dim
            q, kv = own.heads * d // t, own.key_value_heads * d // t
            rows = [(q, h), (kv, h), (kv, h), (h, q)]
            rows += [(q, 1), (kv, 1), (kv, 1)] * own.input_bias + [(h, 1)] * own.output_bias
            rows += [(d, 1), (d, 1)] * own.head_norm + [(own.heads // t, 1)] * own.sinks
        experts = model.experts if self.has_experts(layer) else None
        width = (model.width if experts is None else experts.shared_width) // t
        if width:
            rows += [(width, h)] * (2 if model.gated else 1) + [(h, width)]
        if experts is None:
            rows += ([(width, 1)] * (2 if model.gated else 1) + [(h, 1)]) * model.bias
        else:
            rows += [(experts.count, h)] + [(experts.count, 1)] * experts.router_bias
            rows += [(1, h // t)] * experts.shared_gate
        return (*rows, *norm)

    def prediction_count(self) -> Count:
        """Parameters of a layer that predicts one more token: projection, three norms, and a layer."""
        h = self.model.hidden
        norms = 3 * h * (2 if self.model.norm == "layer" else 1)
        rows = (h, 2 * h), *[(h, 1)] * (norms // h)
        return self.layer_count(self.model.layers - 1) + Count(2 * h * h + norms, 0, norms, rows)

    def parts_of(self, stage: int) -> tuple[Count, list[Count], list[Count]]:
        """Parameters of a stage: embedding; layers; last norm with head, and layers of further tokens."""
        model, first, last = self.model, Count(), []
        if stage == 0:
            rows = (self.table // model.hidden, model.hidden), (model.positions, model.hidden)
            first = Count(self.table + model.positions * model.hidden, rows=rows)
        if stage == self.stages - 1:
            norm = model.hidden * (2 if model.norm == "layer" else 1)
            shared = model.tied and 0 in self.stages_of_rank_of(stage)
            rows = (
                *[(model.hidden, 1)] * (norm // model.hidden),
                (0 if shared else self.table // model.hidden, model.hidden),
            )
            last = [Count(norm + (0 if shared else self.table), 0, norm, rows)]
            last += [self.prediction_count()] * model.prediction_layers
        return first, [self.layer_count(layer) for layer in self.layers_of(stage)], last

    def stages_of_rank_of(self, stage: int) -> list[int]:
        """Stages of the rank that plays this one."""
        return next(own for own in map(self.stages_of, range(self.p)) if stage in own)

    # -- passes of one micro-batch ---------------------------------------------------------------------------

    def column(self, width: int, *, forward: bool) -> Bytes:
        """A layer whose output is split, with an input of so many columns."""
        if self.t == 1:
            return Counter()
        if not self.is_sequence_parallel:
            return Counter({} if forward else {(AR, "tp"): 2 * self.all_tokens * width})
        gathered = {(AG, "tp"): 2 * self.tokens * width}
        return Counter(gathered if forward else gathered | {(RS, "tp"): 2 * self.all_tokens * width})

    def row(self, *, forward: bool) -> Bytes:
        """A layer whose input is split, with an output of hidden width."""
        if self.t == 1 or not (self.is_sequence_parallel or forward):
            return Counter()
        if not self.is_sequence_parallel:
            return Counter({(AR, "tp"): 2 * self.all_tokens * self.model.hidden})
        if forward:
            return Counter({(RS, "tp"): 2 * self.all_tokens * self.model.hidden})
        return Counter({(AG, "tp"): 2 * self.tokens * self.model.hidden})

    def core(self, *, forward: bool) -> Bytes:
        """Attention's exchange between context-parallel ranks."""
        if self.c == 1:
            return Counter()
        own, latent = self.model.attention, self.model.attention.latent
        heads = own.heads // self.t
        key_values = heads if latent else max(1, own.key_value_heads // self.t)
        query = latent.plain_dim + latent.rotary_dim if latent else own.head_dim
        value = latent.value_dim if latent else own.head_dim
        pair = 2 * self.all_tokens * key_values * (query + value)
        if self.job.context_exchange == "ring":
            return Counter({("send", ""): (1 if forward else 2) * (self.c - 1) * pair})
        if self.job.context_exchange == "all-gather":
            return Counter({(AG, "cp"): pair} if forward else {(AG, "cp"): pair, (RS, "cp"): self.c * pair})
        return Counter({(A2A, "cp"): pair + 2 * self.all_tokens * heads * (query + value)})

    def attention(self, *, forward: bool) -> Bytes:
        """Projections and exchange of a layer's attention."""
        latent = self.model.attention.latent
        widths = [self.model.hidden]
        if latent:
            widths = [latent.query_rank or self.model.hidden, latent.key_value_rank + latent.rotary_dim]
        found = self.core(forward=forward) + self.row(forward=forward)
        for width in widths:
            found += self.column(width, forward=forward)
        return found

    def mixture(self, layer: int, place: int, *, forward: bool) -> Bytes:
        """Exchange of tokens with experts, for the rank at this place of its expert-parallel group."""
        experts, h, t = self.model.experts, self.model.hidden, self.tokens
        assert experts is not None
        found: Bytes = Counter()
        both = self.e * self.x
        if experts.shared_width:
            found += self.column(h, forward=forward) + self.row(forward=forward)
        if self.job.dispatch == "all-gather":
            if both == 1:
                return found
            if forward:
                return found + Counter(
                    {(AG, "tokens"): 2 * t * h + 5 * t * experts.count, (RS, "tokens"): 2 * t * h * both}
                )
            return found + Counter(
                {(AG, "tokens"): 2 * t * h, (RS, "tokens"): both * (2 * t * h + 4 * t * experts.count)}
            )
        copies, weights = float(t * experts.per_token), t * experts.per_token
        if self.job.dispatch == "deepep":
            missed = comb(experts.count - experts.count // self.e, experts.per_token) / comb(
                experts.count, experts.per_token
            )
            copies = t * (self.e * (1 - missed))
            weights = round(copies)
        elif forward and both > 1:
            found[AG, "tokens"] += 8 * experts.count
        if self.e > 1 and self.sent_to:
            rows = self.sent_to
            arrived = self.e * rows[(layer - experts.first_layer) // experts.every % len(rows)][place]
            # Forward: copies and weights go, results of what arrived go back. Backward: the other way round.
            going, coming = (weights, arrived)
            found[A2A, "ep"] += 2 * h * (going + coming) + 4 * (going if forward else coming)
        elif self.e > 1:
            there = 2 * h * copies
            if forward and self.job.fp8 and self.job.dispatch == "deepep":
                there *= (1 + 4 / 128) / 2
            found[A2A, "ep"] += round(there) + round(2 * h * copies) + 4 * weights
        if self.x > 1:
            received = 2 * t * experts.per_token * h
            found += Counter({(AG, "etp"): received, (RS, "etp"): self.x * received})
        return found

    def layer(self, layer: int, place: int, *, forward: bool) -> Bytes:
        """A layer's pass; the backward pass with what is computed again."""
        if self.has_experts(layer):
            found = self.mixture(layer, place, forward=forward)
        else:
            found = self.column(self.model.hidden, forward=forward) + self.row(forward=forward)
        found += self.attention(forward=forward)
        if not forward and self.job.recompute == "full":
            found += self.layer(layer, place, forward=True)
        if not forward and self.job.recompute == "selective":
            found += self.core(forward=True)
        return found

    def embedding(self) -> Bytes:
        """Embedding, forward and backward."""
        if self.t == 1:
            return Counter()
        a = 2 * self.all_tokens * self.model.hidden
        if not self.is_sequence_parallel:
            return Counter({(AR, "tp"): a})
        return Counter({(AR if self.model.positions else RS, "tp"): a}) + Counter({(AG, "tp"): a // self.t})

    def head(self) -> Bytes:
        """Logits and loss, forward and backward."""
        h = self.model.hidden
        loss = Counter({(AR, "tp"): 3 * 4 * self.all_tokens} if self.t > 1 else {})
        return self.column(h, forward=True) + self.column(h, forward=False) + loss

    def messages(self, stage: int) -> int:
        """Messages of one micro-batch that a stage sends."""
        here = self.stages_of_rank_of(stage)
        return sum(0 <= other < self.stages and other not in here for other in (stage - 1, stage + 1))

    # -- a step ----------------------------------------------------------------------------------------------

    def bytes_of(self, rank: int, place: int = 0) -> dict[tuple[str, str], int]:
        """Bytes of a rank of the pipeline in a step, at this place of its expert-parallel group."""
        found: Bytes = Counter()
        for stage in self.stages_of(rank):
            for _ in range(self.m):
                found += self.micro_batch(stage, place)
            found += self.sharded(stage) if self.job.sharding in ("zero3", "fsdp") else self.reduced(stage, rank)
        found += self.end(rank)
        return {key: size for key, size in found.items() if size}

    def micro_batch(self, stage: int, place: int) -> Bytes:
        """Both passes of one micro-batch through a stage."""
        found: Bytes = Counter({("send", ""): self.messages(stage) * 2 * self.tokens * self.model.hidden})
        for layer in self.layers_of(stage):
            found += self.layer(layer, place, forward=True) + self.layer(layer, place, forward=False)
        if stage == 0:
            found += self.embedding()
        if stage == self.stages - 1:
            found += self.head()
            last = self.model.layers - 1
            for _ in range(self.model.prediction_layers):
                found += self.embedding() + self.head()
                found += self.layer(last, place, forward=True) + self.layer(last, place, forward=False)
        return found

    def grouped(self, op: str, element_bytes: int, part: Count, *, sharded: bool = False) -> Bytes:
        """A collective of parameters or gradients over the ranks that have them, padded to equal shares."""
        shard = self.degrees.shard or self.d
        found: Bytes = Counter()
        for count, members, group in (
            (part.dense, shard if sharded else self.d, "shard" if sharded else "dp"), (part.experts, self.edp, "edp")
        ):  # fmt: skip
            share = -(-count // members) * element_bytes
            if sharded and group == "shard" and self.job.sharding == "fsdp":
                share = sum(-(-rows // members) * columns for rows, columns in part.rows) * element_bytes
            if members > 1:
                found[op, group] += share if op == AG else share * members
            if sharded and group == "shard" and op == RS and self.d > shard:
                found[AR, "replica"] += share
        return found

    def sharded(self, stage: int) -> Bytes:
        """ZeRO-3 and FSDP2: for each micro-batch, gathers of both passes, and a scatter of gradients.

        FSDP2 keeps what is outside of layers between the passes.
        """
        gradient = 2 if self.job.gradient_bytes == 2 else 4
        first, layers, last = self.parts_of(stage)
        rest = sum(last[:1], first)
        found: Bytes = Counter()
        for unit in [rest, *layers, *last[1:]]:
            gathers = 1 if unit is rest and self.job.sharding == "fsdp" else 2
            for _ in range(gathers):
                found += self.grouped(AG, 2, unit, sharded=True)
            found += self.grouped(RS, gradient, unit, sharded=True)
        return Counter({key: self.m * size for key, size in found.items()})

    def reduced(self, stage: int, rank: int) -> Bytes:
        """Gradients, in buckets of whole layers: on the first pipeline rank of max(40 M, d x 1 M) elements or more."""
        first, layers, last = self.parts_of(stage)
        op, found = AR if self.job.sharding == "none" else RS, Counter[tuple[str, str]]()
        least = max(40_000_000, 1_000_000 * self.d)
        bucket = sum(last, Count())
        for part in reversed(layers):
            bucket += part
            if rank == 0 and self.job.overlap_gradients and bucket.dense >= least:
                found += self.grouped(op, self.job.gradient_bytes, bucket)
                bucket = Count()
        found += self.grouped(op, self.job.gradient_bytes, bucket + first)
        times = self.m if self.job.sharding == "zero2" else 1
        return Counter({key: times * size for key, size in found.items()})

    def end(self, rank: int) -> Bytes:
        """Replicated gradients, a tied embedding, the gradient's norm, and the gather of parameters."""
        parts = [self.parts_of(stage) for stage in self.stages_of(rank)]
        whole = sum((sum([*layers, *last], first) for first, layers, last in parts), Count())
        is_sharded = self.job.sharding in ("zero3", "fsdp")
        found: Bytes = Counter()
        if self.is_sequence_parallel:
            found[AR, "tp"] += 4 * whole.same
        ends = {at for at in range(self.p) if {0, self.stages - 1} & set(self.stages_of(at))}
        if self.model.tied and len(ends) == 2 and rank in ends:
            held = -(-self.table // (self.degrees.shard or self.d)) if is_sharded else self.table
            found[AR, "ends"] += 4 * held
        if self.job.sharding == "none":
            found[AR, "mp"] += 4 if self.t * self.p > 1 else 0
        else:
            found[AR, "world"] += 4 if self.degrees.ranks > 1 else 0
            found += Counter() if is_sharded else self.grouped(AG, 2, whole)
        return found
