"""Published step times as training jobs: what each publication states, and what it leaves open."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.published import tables
from genie.generate.training_job import TrainingJob

Cells = dict[str, str]
TRAINING, BRIDGE = "training.md", "training-megatron-bridge.md"
TITAN_SEQUENCE, TITAN_BATCH = 8192, 2
CORE_SEQUENCE, CORE_VOCABULARY, CORE_REPLICAS = 4096, 131_072, 48


@dataclass(frozen=True)
class Row:
    """A measured step time, and the job that stands for it. `efficiency`: a table of fitted factors; "": none."""

    name: str
    publication: str
    measured_s: float
    job: TrainingJob
    open: str
    efficiency: str = ""


@dataclass(frozen=True)
class LeftOut:
    """A published row that `genie generate` and `genie simulate --gpu` cannot express."""

    name: str
    reason: str


class Source:
    """The files of the publications, and a folder for the configurations of their models."""

    def __init__(self, folder: Path, configurations: Path) -> None:
        self._folder, self._configurations = folder, configurations

    def text(self, file: str) -> str:
        return (self._folder / file).read_text(encoding="utf-8")

    def rows(self, file: str, heading: str) -> Iterator[Cells]:
        """Yield the rows of the table under a heading, by column."""
        for found, names, rows in tables(self.text(file)):
            if found.startswith(heading):
                yield from (dict(zip(names, cells, strict=True)) for cells in rows)

    def gpt(self, layers: int, hidden: int, heads: int, positions: int, vocabulary: int, *, tied: bool = True) -> str:
        """Return the path of a GPT's configuration."""
        path = self._configurations / f"gpt-{layers}-{hidden}-{heads}-{vocabulary}.json"
        values: dict[str, Any] = {
            "model_type": "gpt2", "n_layer": layers, "n_embd": hidden, "n_head": heads, "n_positions": positions,
            "vocab_size": vocabulary, "tie_word_embeddings": tied,
        }  # fmt: skip
        path.write_text(json.dumps(values), encoding="utf-8")
        return str(path)


# Megatron-LM of 2021 and 2022: no fused attention, all-reduces of gradients, one micro-batch after another.
MEGATRON_2022: dict[str, Any] = {"sequence": 2048, "kernels": "separate", "zero": 0, "gpu": "a100"}


def korthikanti(source: Source) -> Iterator[Row | LeftOut]:
    """Korthikanti et al. 2022, table 5. The heads of its models are those of its table 3."""
    shapes = {"22B": (48, 6144, 64), "MT-NLG 530B": (105, 20480, 128)}
    ways: dict[str, dict[str, Any]] = {
        "full recompute": {"recompute": "full", "sequence_parallel": False},
        "sequence parallel + selective": {"recompute": "selective"},
    }
    for cells in source.rows(TRAINING, "Korthikanti"):
        name = next(each for each in shapes if cells["model"].startswith(each))
        gpus, tensor, pipeline, chunks, micro_batch, batch = (
            int(cells[each]) for each in ("GPUs", "TP", "PP", "v", "mb", "GB")
        )
        for way, more in ways.items():
            job = TrainingJob(
                model=source.gpt(*shapes[name], 2048, 51_200), gpus=gpus, tp=tensor, pp=pipeline, vp=chunks,
                micro_batch=micro_batch, micro_batches=batch // micro_batch, **MEGATRON_2022, **more,
            )  # fmt: skip
            scattered = pipeline > 1 and "sequence_parallel" in more
            yield Row(
                f"{name} {gpus} GPUs {way}", "korthikanti", float(cells[f"{way} s"]), job,
                "scattered sends between stages (played whole)" if scattered else "",
            )  # fmt: skip


# Micro-batch and chunks a stage by parameters, in billions: neither is published, so both ends of what fits are played.
NARAYANAN_WAYS: dict[str, tuple[tuple[int, int], ...]] = {
    "1.7": ((1, 1), (8, 1)), "7.5": ((1, 1), (4, 1)), "39.1": ((1, 1), (4, 2)), "145.6": ((1, 1), (2, 2)),
    "529.6": ((1, 1), (1, 3)),
}  # fmt: skip


def narayanan(source: Source) -> Iterator[Row | LeftOut]:
    """Narayanan et al. 2021, table 1."""
    for cells in source.rows(TRAINING, "Narayanan"):
        layers, hidden, heads, tensor, pipeline, gpus, batch = (
            int(cells[each]) for each in ("layers", "hidden", "heads", "TP", "PP", "GPUs", "GB")
        )
        size = cells["params B"]
        own = batch * tensor * pipeline // gpus
        for micro_batch, chunks in NARAYANAN_WAYS[size]:
            job = TrainingJob(
                model=source.gpt(layers, hidden, heads, 2048, 51_200), gpus=gpus, tp=tensor, pp=pipeline, vp=chunks,
                micro_batch=micro_batch, micro_batches=own // micro_batch, recompute="full", sequence_parallel=False,
                **MEGATRON_2022,
            )  # fmt: skip
            yield Row(
                f"{size}B {gpus} GPUs, mb {micro_batch} v {chunks}", "narayanan", float(cells["step s"]), job,
                "micro-batch, v, overlap of gradients (on the first stage), scattered sends (whole)",
            )  # fmt: skip


CORE_WAYS: dict[str, tuple[tuple[int, int], ...]] = {
    "1.7B": ((1, 1), (4, 1)), "16B": ((1, 1), (4, 1)), "70B": ((1, 1), (1, 7)), "177B": ((1, 1), (1, 4)),
}  # fmt: skip


def megatron_core(source: Source) -> Iterator[Row | LeftOut]:
    """Megatron-Core r0.8, weak scaling. Step times follow from its formula of a model's operations."""
    for cells in source.rows(TRAINING, "Megatron-Core"):
        heads, hidden, layers, tensor, pipeline, gpus, batch = (
            int(cells[each]) for each in ("heads", "hidden", "layers", "TP", "PP", "GPUs", "GB")
        )
        more = CORE_SEQUENCE / (6 * hidden) + CORE_VOCABULARY / (12 * layers * hidden)  # attention and logits
        per_token = 72 * layers * hidden**2 * (1 + more)
        step_s = batch * CORE_SEQUENCE * per_token / (float(cells["TFLOP/s/GPU"]) * 1e12 * gpus)
        for micro_batch, chunks in CORE_WAYS[cells["params"]]:
            job = TrainingJob(
                model=source.gpt(layers, hidden, heads, CORE_SEQUENCE, CORE_VOCABULARY, tied=False), gpus=gpus,
                tp=tensor, pp=pipeline, vp=chunks, sequence=CORE_SEQUENCE, micro_batch=micro_batch,
                micro_batches=batch // CORE_REPLICAS // micro_batch, gpu="h100",
            )  # fmt: skip
            yield Row(
                f"{cells['params']} {gpus} GPUs, mb {micro_batch} v {chunks}", "megatron-core", step_s, job,
                "micro-batch, v, recompute (none), formula of operations, overlap of TP (of gradients alone)",
            )  # fmt: skip


def torchtitan(source: Source) -> Iterator[Row | LeftOut]:
    """The Llama 3 8B of torchtitan, FSDP over all GPUs."""
    text = source.text(TRAINING).split("## torchtitan")[1]
    for gpus, *rates in re.findall(r"(\d+) GPUs (\d+) / (\d+) / (\d+)", text):
        for mode, rate in zip(("eager", "compile", "fp8"), rates, strict=True):
            job = TrainingJob(
                model="llama3-8b", gpus=int(gpus), fsdp=True, micro_batch=TITAN_BATCH, micro_batches=1,
                sequence=TITAN_SEQUENCE, recompute="selective", fp8=mode == "fp8", gpu="h100",
            )  # fmt: skip
            yield Row(
                f"torchtitan 8B {gpus} GPUs {mode}", "torchtitan", TITAN_BATCH * TITAN_SEQUENCE / int(rate), job,
                "selective recompute (attention), network between servers", f"torchtitan-{mode}",
            )  # fmt: skip


BRIDGE_MODELS = {
    "LLAMA3_8B": "llama3-8b", "LLAMA3_70B": "llama3-70b", "LLAMA3.1_405B": "llama3-405b",
    "DeepSeekV3": "deepseek-v3", "GPT OSS 120B": "gpt-oss-120b", "Qwen3_30B_a3B": "qwen3-30b-a3b",
}  # fmt: skip
BRIDGE_VARIANT = re.compile(r" \((w/o MTP|w/ MTP|dropless)\)$")
BRIDGE_GPUS = {"DGX-H100": "h100", "DGX-B200": "b200"}
BRIDGE_PRECISIONS = {"BF16": False, "FP8": True, "FP8-CS": True}


def bridge(source: Source) -> Iterator[Row | LeftOut]:
    """Megatron-Bridge's performance summaries."""
    for cells in source.rows(BRIDGE, "Megatron-Bridge"):
        words = *(cells[each] for each in ("rel", "Model", "#-GPUs", "System", "Precision")), "GB", cells["GBS"]
        name = " ".join(filter(None, words))
        if reason := _cannot(cells):
            yield LeftOut(name, reason)
            continue
        gpus, tensor, pipeline, context = (int(cells[each]) for each in ("#-GPUs", "TP", "PP", "CP"))
        chunks, experts = (1 if cells[each] == "n/a" else int(cells[each]) for each in ("VP", "EP"))
        micro_batch = int(cells["MBS"])
        replicas = gpus // (tensor * pipeline * context)
        job = TrainingJob(
            model=BRIDGE_MODELS[BRIDGE_VARIANT.sub("", cells["Model"])], gpus=gpus, tp=tensor, pp=pipeline, cp=context,
            vp=chunks if pipeline > 1 else 1, ep=experts, fsdp=int(cells["FSDP"]) > 1,
            sequence=int(cells["Sequence Length"]), micro_batch=micro_batch,
            micro_batches=int(cells["GBS"]) // (replicas * micro_batch), fp8=BRIDGE_PRECISIONS[cells["Precision"]],
            gpu=BRIDGE_GPUS[cells["System"]],
        )  # fmt: skip
        more = ", dispatch (all-to-all)" if experts > 1 else ""
        yield Row(
            name, "bridge", float(cells["step_s"]), job,
            f"recompute (none), overlaps (of gradients alone), casts to FP8 (none), network{more}",
        )  # fmt: skip


def _cannot(cells: Cells) -> str:
    """Return why a row cannot be expressed; "" if it can."""
    if "tokendrop" in cells["Model"]:
        return "tokens are dropped"
    if BRIDGE_VARIANT.sub("", cells["Model"]) not in BRIDGE_MODELS:
        return "the model is none of genie generate"
    if cells["System"].startswith("DGX-GB"):
        return "NVLink domains of 72 GPUs are not played"
    if cells["System"] not in BRIDGE_GPUS:
        return "NCCL's constants of the GPU are not known"
    if not cells["Precision"]:
        return "the precision is not stated"
    if cells["Precision"] not in BRIDGE_PRECISIONS:
        return "the precision is no data type of genie generate"
    return "" if re.fullmatch(r"[0-9.]+", cells["step_s"]) else "two measurements in one row"


_READERS: dict[str, Callable[[Source], Iterator[Row | LeftOut]]] = {
    "korthikanti": korthikanti, "torchtitan": torchtitan, "narayanan": narayanan, "megatron-core": megatron_core,
    "bridge": bridge,
}  # fmt: skip
PUBLICATIONS = tuple(_READERS)


def rows_of(data: Path, configurations: Path, publications: tuple[str, ...]) -> tuple[list[Row], list[LeftOut]]:
    """Return the rows of some publications, and those that cannot be expressed. `configurations`: an empty folder."""
    source = Source(data, configurations)
    found = [each for name in publications for each in _READERS[name](source)]
    return [each for each in found if isinstance(each, Row)], [each for each in found if isinstance(each, LeftOut)]


if __name__ == "__main__":
    print(f"{__doc__}\nNot a benchmark: run one that uses them.")
