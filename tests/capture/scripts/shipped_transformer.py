"""The training step of examples/transformer/capture.py, without its recording of times."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples" / "transformer"))

from model import Shape, Split, SplitLinear, Text, Transformer

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (4, 2), mesh_dim_names=("data", "tensor"))
shape = Shape()
generator = torch.Generator().manual_seed(2)
model = Transformer(shape, Split(mesh["tensor"].get_group(), generator))
for layer in model.layers:
    fully_shard(layer, mesh=mesh["data"])
fully_shard(model, mesh=mesh["data"])
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=True)
split = {id(module.weight) for module in model.modules() if isinstance(module, SplitLinear)}
text = Text(shape, seed=mesh["data"].get_local_rank())
for _ in range(3):
    batch = text.batch()
    scores = model(batch[:, :-1])
    loss = functional.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten())
    loss.backward()
    gradients = [parameter.grad.to_local() for parameter in model.parameters()]
    weights = [1.0 if id(parameter) in split else 0.5 for parameter in model.parameters()]
    squares = torch.stack(torch._foreach_norm(gradients)).square() * torch.tensor(weights)
    totals = torch.stack([squares.sum(), loss.detach() / 8])
    dist.all_reduce(totals)
    torch._foreach_mul_(gradients, (1.0 / (totals[0].sqrt() + 1e-6)).clamp(max=1.0))
    optimizer.step()
    optimizer.zero_grad()
