"""DistributedDataParallel by its rule of buckets: its own reducer needs the data of gradients.

Buckets hold parameters in the reverse of their order, and after the first step in the order in which gradients became
ready. The first bucket has 1 MiB, the others `bucket_cap_mb` (PyTorch's DDP design note and reducer.cpp).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.distributed import distributed_c10d as c10d

from .graph import Graph

FIRST_BYTES = 1 << 20
MIB = 1 << 20


def replacement(graph: Graph) -> type[nn.Module]:
    """Return a class in the place of DistributedDataParallel."""

    class DistributedDataParallel(nn.Module):
        def __init__(
            self, module: nn.Module, *_: Any, process_group: Any = None, bucket_cap_mb: float | None = None,
            broadcast_buffers: bool = True, **__: Any,
        ) -> None:  # fmt: skip
            super().__init__()
            self.module = module
            self.group = process_group or c10d._get_default_group()
            self.cap = int((25 if bucket_cap_mb is None else bucket_cap_mb) * MIB)
            self.sends_buffers = broadcast_buffers
            self.syncs = True
            self.own = [each for each in module.parameters() if each.requires_grad]
            self.buckets = _buckets(self.own[::-1], self.cap)
            self.order: list[nn.Parameter] = []
            for each in self.own:
                each.register_post_accumulate_grad_hook(self._ready)

        def forward(self, *arguments: Any, **named: Any) -> Any:
            buffers = [each for each in self.module.buffers() if each.numel()]
            if self.sends_buffers and buffers and self.training and torch.is_grad_enabled():
                for same in _by_type(buffers):
                    size = sum(each.numel() * each.element_size() for each in same)
                    graph.wait_for(graph.add_collective("broadcast", self.group.group_name, size=size, root=0))
            return self.module(*arguments, **named)

        def _ready(self, parameter: nn.Parameter) -> None:
            if not self.syncs:
                return
            self.order.append(parameter)
            done = {id(each) for each in self.order}
            for bucket in self.buckets:
                if bucket["node"] < 0 and all(id(each) in done for each in bucket["parameters"]):
                    bucket["node"] = graph.add_collective(
                        "all_reduce", self.group.group_name, size=bucket["size"], root=0
                    )
            if len(self.order) == len(self.own):
                for bucket in self.buckets:
                    graph.wait_for(bucket["node"])
                self.buckets = _buckets(self.order, self.cap)
                self.order = []

        @contextmanager
        def no_sync(self) -> Iterator[None]:
            before, self.syncs = self.syncs, False
            try:
                yield
            finally:
                self.syncs = before

    return DistributedDataParallel


def _buckets(parameters: list[nn.Parameter], cap_bytes: int) -> list[dict[str, Any]]:
    """Return buckets; one ends with the parameter by which it reaches its limit."""
    found: list[dict[str, Any]] = []
    for kind in dict.fromkeys(each.dtype for each in parameters):
        limit, own, size = FIRST_BYTES, [], 0
        for each in parameters:
            if each.dtype != kind:
                continue
            own.append(each)
            size += each.numel() * each.element_size()
            if size >= limit:
                found.append({"parameters": own, "size": size, "node": -1})
                limit, own, size = cap_bytes, [], 0
        if own:
            found.append({"parameters": own, "size": size, "node": -1})
    return found


def _by_type(tensors: list[Any]) -> list[list[Any]]:
    kinds: dict[Any, list[Any]] = {}
    for each in tensors:
        kinds.setdefault(each.dtype, []).append(each)
    return list(kinds.values())
