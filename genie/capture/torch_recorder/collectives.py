"""Collectives and messages of c10d as nodes, with sizes by Chakra's convention (genie/workload/graph.py).

PyTorch has them as operators, under two namespaces: `c10d` with a process group, and `_c10d_functional` with its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FakeWork
from torch.utils._pytree import tree_leaves

from .graph import Graph, Refused
from .script import line_of_script

# Operator -> Genie's operation, and whether its size is that of the inputs or of the outputs.
OPERATIONS = {
    "allreduce_": ("all_reduce", "first"),
    "allreduce_coalesced_": ("all_reduce", "first"),
    "all_reduce": ("all_reduce", "first"),
    "all_reduce_": ("all_reduce", "first"),
    "all_reduce_coalesced": ("all_reduce", "first"),
    "broadcast_": ("broadcast", "first"),
    "broadcast": ("broadcast", "first"),
    "reduce_": ("reduce", "first"),
    "_allgather_base_": ("all_gather", "second"),
    "allgather_": ("all_gather", "second"),
    "allgather_into_tensor_coalesced_": ("all_gather", "second"),
    "all_gather_into_tensor": ("all_gather", "first"),
    "all_gather_into_tensor_out": ("all_gather", "first"),
    "all_gather_into_tensor_coalesced": ("all_gather", "first"),
    "_reduce_scatter_base_": ("reduce_scatter", "second"),
    "reduce_scatter_": ("reduce_scatter", "second"),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter", "second"),
    "reduce_scatter_tensor": ("reduce_scatter", "first"),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter", "first"),
    "alltoall_base_": ("all_to_all", "second"),
    "alltoall_": ("all_to_all", "second"),
    "all_to_all_single": ("all_to_all", "first"),
    "gather_": ("gather", "second"),
    "scatter_": ("scatter", "second"),
    "barrier": ("barrier", "none"),
}
ROOTS = {"broadcast_": 2, "reduce_": 3, "gather_": 3, "scatter_": 3, "broadcast": 1}  # place of the root's position
SPLITS = {"alltoall_base_": (3, 4), "all_to_all_single": (1, 2)}  # places of output and input splits
METHODS = (
    "allreduce", "allreduce_coalesced", "broadcast", "reduce", "_allgather_base", "allgather", "allgather_coalesced",
    "allgather_into_tensor_coalesced", "all_gather_single", "all_gather_single_coalesced", "_reduce_scatter_base",
    "reduce_scatter", "reduce_scatter_tensor_coalesced", "reduce_scatter_single", "reduce_scatter_single_coalesced",
    "alltoall_base", "alltoall", "all_to_all_single", "gather", "scatter", "barrier", "send", "recv",
)  # fmt: skip
_NODES_OF: dict[int, tuple[Any, Sequence[int]]] = {}  # storage or work -> what is kept alive, nodes


def record(graph: Graph, func: Any, args: Any, kwargs: Any, out: Any) -> None:
    """Record a collective, a message, or a wait for one."""
    name = func._schema.name.rpartition("::")[2]
    if name == "wait_tensor":
        for node in _NODES_OF.get(_storage(args[0]), (None, ()))[1]:
            graph.wait_for(node)
        return
    if name in ("send", "recv_", "recv_any_source_"):
        return _message(graph, name, args)
    if name not in OPERATIONS:
        raise Refused(f"{line_of_script()}: {func} is a collective that a capture does not know")
    op, which = OPERATIONS[name]
    group = _group(func, args, kwargs)
    facts: dict[str, Any] = {"size": _size(which, args), "root": 0}
    if name in ROOTS and isinstance(args[ROOTS[name]], int):
        facts["root"] = args[ROOTS[name]]
    if name in SPLITS:
        received, sent = (args[place] for place in SPLITS[name])
        tensor = _tensors(args[0] if which == "first" else args[1])[0]
        each = tensor.element_size() * (tensor.numel() // max(tensor.shape[0], 1)) if tensor.dim() else 1
        if received and sent:
            facts["splits"] = [[int(it) * each for it in sent], [int(it) * each for it in received]]
    node = graph.add_collective(op, group, **facts)
    for tensor in _tensors(out):
        _NODES_OF[_storage(tensor)] = (tensor, (node,))


def _message(graph: Graph, name: str, args: Any) -> None:
    if name == "recv_any_source_":
        raise Refused(f"{line_of_script()}: a receive from any rank has no sender in a graph: name the source")
    tensors, group, peer, tag = args[:4]
    ranks = dist.get_process_group_ranks(_unboxed(group))
    facts = {"size": sum(map(_bytes, tensors)), "peer": ranks[int(peer)], "tag": int(tag)}
    graph.add_collective("send" if name == "send" else "recv", _unboxed(group).group_name, in_order=False, **facts)


def _group(func: Any, args: Any, kwargs: Any) -> str:
    for at, argument in enumerate(func._schema.arguments):
        value = args[at] if at < len(args) else kwargs.get(argument.name)
        if argument.name == "group_name":
            return str(value)
        if argument.name == "process_group":
            return str(_unboxed(value).group_name)
    raise Refused(f"{line_of_script()}: {func} names no group")


def _unboxed(group: Any) -> Any:
    return group if isinstance(group, dist.ProcessGroup) else dist.ProcessGroup.unbox(group)


def _size(which: str, args: Any) -> int:
    if which == "none":
        return 0
    return sum(map(_bytes, _tensors(args[0] if which == "first" else args[1])))


def _tensors(value: Any) -> list[Any]:
    return [each for each in tree_leaves(value) if isinstance(each, torch.Tensor)]


def _bytes(tensor: Any) -> int:
    return int(tensor.numel()) * int(tensor.element_size())


def _storage(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)


def wrap_group_methods(graph: Graph) -> None:
    """Let waits for the work of a collective reach the graph."""
    for name in METHODS:
        if hasattr(dist.ProcessGroup, name):
            setattr(dist.ProcessGroup, name, _with_work(graph, getattr(dist.ProcessGroup, name)))
    start, end = dist.ProcessGroup._start_coalescing, dist.ProcessGroup._end_coalescing
    begun: list[int] = []

    def started(*arguments: Any, **named: Any) -> Any:
        begun[:] = [len(graph.nodes)]
        return start(*arguments, **named)

    def ended(*arguments: Any, **named: Any) -> Any:
        work = end(*arguments, **named)
        return _of_work(graph, work, range(begun[0], len(graph.nodes)))

    dist.ProcessGroup._start_coalescing, dist.ProcessGroup._end_coalescing = started, ended
    for kind in (dist.Work, FakeWork):
        kind.wait = _with_wait(graph, kind.wait)
        kind.synchronize = _with_wait(graph, kind.synchronize)


def _with_wait(graph: Graph, method: Any) -> Any:
    def waited(work: Any, *arguments: Any, **named: Any) -> Any:
        for node in _NODES_OF.get(id(work), (None, ()))[1]:
            graph.wait_for(node)
        return method(work, *arguments, **named)

    return waited


def _with_work(graph: Graph, method: Any) -> Any:
    def called(*arguments: Any, **named: Any) -> Any:
        before = len(graph.nodes)
        return _of_work(graph, method(*arguments, **named), range(before, len(graph.nodes)))

    return called


def _of_work(graph: Graph, work: Any, nodes: range) -> Any:
    """Keep the nodes of a work; without one the backend has waited."""
    if work is None:
        for node in nodes:
            graph.wait_for(node)
    elif nodes:
        _NODES_OF[id(work)] = (work, nodes)
    return work
