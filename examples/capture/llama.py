"""Train a Llama of plain PyTorch: tensor parallelism by DTensor in each server, FSDP2 over the servers.

torchrun --nproc-per-node 8 llama.py --tp 8                     on GPUs
genie capture --world 1024 -o traces/llama -- llama.py --tp 8   on a CPU, without data
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tp", type=int, default=1, help="ranks of a tensor-parallel group")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--intermediate", type=int, default=8192)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--sequence", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=10)
    return parser.parse_args()


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, (x.shape[-1],), self.weight, 1e-5)


class Attention(nn.Module):
    def __init__(self, given: argparse.Namespace) -> None:
        super().__init__()
        self.width = given.hidden // given.heads
        kv = given.kv_heads * self.width
        self.query = nn.Linear(given.hidden, given.hidden, bias=False)
        self.key = nn.Linear(given.hidden, kv, bias=False)
        self.value = nn.Linear(given.hidden, kv, bias=False)
        self.output = nn.Linear(given.hidden, given.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, sequence, _ = x.shape
        query, key, value = (
            part(x).view(batch, sequence, -1, self.width).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        return self.output(y.transpose(1, 2).reshape(batch, sequence, -1))


class FeedForward(nn.Module):
    def __init__(self, given: argparse.Namespace) -> None:
        super().__init__()
        self.gate = nn.Linear(given.hidden, given.intermediate, bias=False)
        self.up = nn.Linear(given.hidden, given.intermediate, bias=False)
        self.down = nn.Linear(given.intermediate, given.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    def __init__(self, given: argparse.Namespace) -> None:
        super().__init__()
        self.attention_norm, self.feed_forward_norm = Norm(given.hidden), Norm(given.hidden)
        self.attention, self.feed_forward = Attention(given), FeedForward(given)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


class Llama(nn.Module):
    def __init__(self, given: argparse.Namespace) -> None:
        super().__init__()
        self.embedding = nn.Embedding(given.vocabulary, given.hidden)
        self.layers = nn.ModuleList(Layer(given) for _ in range(given.layers))
        self.norm = Norm(given.hidden)
        self.head = nn.Linear(given.hidden, given.vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def split(model: Llama, mesh: DeviceMesh) -> None:
    """Split the products of each layer, the embedding and the head over the ranks of a server."""
    whole = {"input_layouts": (Replicate(),), "desired_input_layouts": (Replicate(),)}
    parallelize_module(
        model,
        mesh,
        {
            "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate()),
            "head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
        },
    )
    for layer in model.layers:
        plan = {
            "attention": PrepareModuleInput(**whole),
            "attention.query": ColwiseParallel(),
            "attention.key": ColwiseParallel(),
            "attention.value": ColwiseParallel(),
            "attention.output": RowwiseParallel(),
            "feed_forward": PrepareModuleInput(**whole),
            "feed_forward.gate": ColwiseParallel(),
            "feed_forward.up": ColwiseParallel(),
            "feed_forward.down": RowwiseParallel(),
        }
        parallelize_module(layer, mesh, plan)


def main() -> None:
    given = options()
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    mesh = init_device_mesh("cuda", (dist.get_world_size() // given.tp, given.tp), mesh_dim_names=("dp", "tp"))
    with torch.device("cuda"):
        model = Llama(given)
    if given.tp > 1:
        split(model, mesh["tp"])
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh["dp"], mp_policy=policy)
    fully_shard(model, mesh=mesh["dp"], mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(given.steps):
        text = torch.randint(given.vocabulary, (1, given.sequence + 1), device="cuda")
        scores = model(text[:, :-1])
        if given.tp > 1:
            with loss_parallel():
                loss = functional.cross_entropy(scores.flatten(0, 1).float(), text[:, 1:].flatten())
                loss.backward()
        else:
            loss = functional.cross_entropy(scores.flatten(0, 1).float(), text[:, 1:].flatten())
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
