"""The explanation of a generated job: parameters, memory, and each collective with the formula of its size."""

from __future__ import annotations

from genie.compute.gpus import Gpu
from genie.generate.memory import memory_of
from genie.generate.parameters import Part, parameters_of
from genie.generate.program import LEGEND
from genie.generate.ranks import GROUP_NAMES
from genie.generate.step import Step
from genie.page.words import amount


def explanation(step: Step, gpu: Gpu) -> list[str]:
    """Return the lines. The workload must have been made: step.workload()."""
    return [*_parameters(step), "", *_memory(step, gpu), "", *_traffic(step)]


def _parameters(step: Step) -> list[str]:
    model = step.training.model
    whole = parameters_of(model)
    layer = whole.layers[-1]
    lines = [f"{whole.total:,} parameters"]
    if whole.prediction:
        lines[0] += f", of which {whole.prediction:,} predict further tokens"
    parts = {
        "embedding": whole.embedding, "positions": whole.positions, "head": whole.head, "final norm": whole.final_norm,
        "attention of a layer": layer.attention + layer.attention_whole, "norms of a layer": layer.norms,
        "dense feed-forward part": layer.dense + layer.dense_whole, "router": layer.router,
        "experts of a layer": layer.experts * (layer.expert + layer.expert_whole), "shared expert": layer.shared,
    }  # fmt: skip
    return [*lines, *(f"  {name:<24}{count:>20,}" for name, count in parts.items() if count)]


def _memory(step: Step, gpu: Gpu) -> list[str]:
    heads = ["stage", "layers", "parameters", "gradients", "optimizer", "activations", "micro-batches", "in all"]
    rows = []
    for rank in range(step.schedule.ranks):
        own = memory_of(step, rank)
        stages = sorted({action.stage for action in step.schedule.actions[rank]})
        layers = sum(len(step.layers_of_stage[stage]) for stage in stages)
        total = sum((part for stage in stages for part in step.parameters_of_stage(stage)), Part())
        rows.append([
            str(rank), str(layers), f"{total.own + total.experts:,}", amount(own.gradients), amount(own.optimizer),
            amount(own.activations), str(own.micro_batches), amount(own.total),
        ])  # fmt: skip
    title = f"Memory of a rank of each pipeline stage, of {gpu.memory_gb:g} GB; buffers and fragmentation left out"
    return [title, *_table(heads, rows)]


def _traffic(step: Step) -> list[str]:
    heads = ["stage", "count", "operation", "group", "bytes", "formula", "stream", "name"]
    rows = []
    for rank, traffic in enumerate(step.traffic):
        for kind, count in traffic.items():
            degrees, domain = step.training.degrees, kind.domain
            group = "" if domain is None else f"{GROUP_NAMES[domain]}{degrees.members(domain)}"
            rows.append([
                str(rank), str(count), kind.op, group, f"{kind.size_bytes:,}", kind.formula, kind.stream.name.lower(),
                kind.name,
            ])  # fmt: skip
    rows = [row for row in rows if row[0] in ("0", "1", str(step.schedule.ranks - 1))]
    shown = "" if step.schedule.ranks <= 3 else f"; stages 2 to {step.schedule.ranks - 2} are like stage 1"
    legend = "; ".join(f"{letter}: {meaning}" for letter, meaning in LEGEND.items())
    return [f"Collectives and sends of a rank of each pipeline stage in a step{shown}", *_table(heads, rows), legend]


def _table(heads: list[str], rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[at]) for row in [heads, *rows]) for at in range(len(heads))]
    return ["  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in [heads, *rows]]  # fmt: skip
