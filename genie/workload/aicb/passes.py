"""Passes over a model's layers, in SimAI's order (aliyun/SimAI, astra-sim/workload/Workload.cc).

Forward through all layers: each computes and then communicates. Backward from the last layer: the input gradient, its
communication, the weight gradient, and its communication in the background. Only the same layer's forward pass of the
next iteration, and the end, wait for the latter. A layer that initiates recomputation first replays the forward pass
from the nearest checkpoint before it.
"""

from __future__ import annotations

from genie.workload.aicb.build import SerialRank
from genie.workload.aicb.layers import MICRO, RECOMPUTING, Communication, Layer, LayerFile
from genie.workload.aicb.parallel import Domain
from genie.workload.graph import WorkloadError


def play_layers(file: LayerFile, rank: SerialRank, passes: int = 1) -> None:
    """Play a workload on a rank, `passes` iterations in a row. Raises WorkloadError for checkpoints that do not fit."""
    if file.policy == MICRO:
        _play_rows(file, rank, passes)
        return
    again = _recomputed(file) if file.policy == RECOMPUTING else {}
    gradients: list[int | None] = [None] * len(file.layers)
    for _ in range(passes):
        for at, layer in enumerate(file.layers):
            rank.wait_for(gradients[at])
            _forward(layer, rank)
        for at in range(len(file.layers) - 1, -1, -1):
            layer = file.layers[at]
            for earlier in again.get(at, ()):
                _forward(file.layers[earlier], rank)
            rank.compute(f"{layer.name} input gradient", layer.input_gradient.compute_ns)
            _wait(layer, rank, rank.communicate(f"{layer.name} input gradient", layer.input_gradient.communication))
            rank.compute(f"{layer.name} weight gradient", layer.weight_gradient.compute_ns)
            gradients[at] = rank.communicate(
                f"{layer.name} weight gradient", layer.weight_gradient.communication, background=True
            )


def _forward(layer: Layer, rank: SerialRank) -> None:
    rank.compute(f"{layer.name} forward", layer.forward.compute_ns)
    _wait(layer, rank, rank.communicate(f"{layer.name} forward", layer.forward.communication))


def _wait(layer: Layer, rank: SerialRank, node: int | None) -> None:
    if node is not None:
        rank.delay(layer.update_ns)


def _recomputed(file: LayerFile) -> dict[int, range]:
    """Layer -> the layers whose forward pass is replayed before its backward pass."""
    found = {}
    for layer in sorted(set(file.initiates)):
        start = max((at for at in file.checkpoints if at < layer), default=None)
        if start is None:
            raise WorkloadError(
                f"{file.where}:1: checkpoint_initiates has layer {layer}, and no checkpoint is before it"
            )
        found[layer] = range(start, layer)
    return found


def _play_rows(file: LayerFile, rank: SerialRank, passes: int) -> None:
    """Play a microbenchmark: only the rows' last communications among all ranks, one after another."""
    for layer in file.layers * passes:
        for phase in (layer.forward, layer.input_gradient):
            if phase.communication is not None:
                rank.warnings["communications of forward passes and input gradients left out: MICRO has none"] += 1
        what = layer.weight_gradient.communication
        if what is not None:
            what = Communication(what.op, Domain.ALL, what.size_bytes)
        _wait(layer, rank, rank.communicate(layer.name, what))
