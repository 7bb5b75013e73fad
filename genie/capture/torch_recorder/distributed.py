"""A job of N ranks in one process: groups are made, recorded, and never joined."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed import device_mesh
from torch.distributed import distributed_c10d as c10d
from torch.testing._internal.distributed.fake_pg import FakeStore

from . import collectives
from .devices import on_cpu
from .graph import Graph, Refused
from .script import line_of_script

BACKEND = "fake"
OBJECTS = (
    "all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list", "send_object_list",
    "recv_object_list",
)  # fmt: skip


def pretend(graph: Graph, rank: int, world: int) -> None:
    """Answer torch.distributed: one process group backend that does nothing, and groups that the graph keeps."""
    init = dist.init_process_group

    def init_process_group(*_: Any, **named: Any) -> None:
        with unset_fake_temporarily():
            init(backend=BACKEND, store=FakeStore(), rank=rank, world_size=world)
        name = c10d._get_default_group().group_name
        graph.groups.append({"name": name, "ranks": list(range(world)), "description": "world"})

    dist.init_process_group = c10d.init_process_group = device_mesh.init_process_group = init_process_group
    make = c10d._new_group_with_tag

    @functools.wraps(make)
    def new_group(ranks: Any = None, timeout: Any = None, backend: Any = None, *arguments: Any, **named: Any) -> Any:
        del backend
        named.pop("device_id", None)
        with unset_fake_temporarily():
            group = make(ranks, timeout, BACKEND, *arguments, **named)
        members = sorted(range(world) if ranks is None else map(int, ranks))
        is_member = isinstance(group, dist.ProcessGroup)
        graph.groups.append({
            "name": group.group_name if is_member else "", "ranks": members,
            "description": str(named.get("group_desc") or ""),
        })  # fmt: skip
        return group

    c10d._new_group_with_tag = new_group
    _wrap_mesh()
    for name in OBJECTS:
        plain = getattr(dist, name)
        refusing = _refusing(plain, name)
        setattr(dist, name, refusing)
        setattr(c10d, name, refusing)
    dist.is_nccl_available = lambda: True
    collectives.wrap_group_methods(graph)


def _refusing(function: Any, name: str) -> Any:
    @functools.wraps(function)
    def called(*arguments: Any, **named: Any) -> Any:
        if dist.get_world_size() == 1:
            return function(*arguments, **named)
        source = named.get("src", arguments[1] if len(arguments) > 1 else 0)
        if name == "broadcast_object_list" and source == dist.get_rank():
            return None  # the source keeps its objects
        raise Refused(
            f"{line_of_script()}: {name} exchanges objects between ranks, which a capture of one rank has not; in a "
            "pipeline give each stage its input and output shapes"
        )

    return called


def _wrap_mesh() -> None:
    """Meshes are made of real tensors, on the CPU."""
    plain = device_mesh.DeviceMesh.__init__

    @functools.wraps(plain)
    def made(self: Any, device_type: str, *arguments: Any, **named: Any) -> None:
        with unset_fake_temporarily():
            plain(self, on_cpu(device_type), *arguments, **named)

    device_mesh.DeviceMesh.__init__ = made
    make = device_mesh.init_device_mesh

    @functools.wraps(make)
    def init_device_mesh(device_type: str, *arguments: Any, **named: Any) -> Any:
        with unset_fake_temporarily():
            return make(on_cpu(device_type), *arguments, **named)

    device_mesh.init_device_mesh = dist.init_device_mesh = init_device_mesh
    torch.distributed.device_mesh.init_device_mesh = init_device_mesh


def pause_shape_rules(graph: Graph) -> None:
    """DTensor computes shapes of whole tensors by operators of their own, which no rank runs."""
    from torch.distributed.tensor._sharding_prop import ShardingPropagator

    for name in ("_propagate_tensor_meta_non_cached", "_propagate_tensor_meta"):
        plain = getattr(ShardingPropagator, name, None)
        if plain is None:
            continue

        def paused(*arguments: Any, plain: Any = plain, **named: Any) -> Any:
            graph.paused += 1
            try:
                return plain(*arguments, **named)
            finally:
                graph.paused -= 1

        setattr(ShardingPropagator, name, paused)
