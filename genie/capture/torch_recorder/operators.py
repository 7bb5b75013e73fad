"""The mode that sees all operators. Compute becomes nodes with floating-point operations and bytes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from . import collectives
from .graph import Graph, Refused
from .script import line_of_script

aten = torch.ops.aten
NO_WORK = {
    aten.detach, aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty, aten.new_empty_strided, aten.set_,
    aten.resize_, aten.lift_fresh, aten.lift_fresh_copy, aten.is_same_size,
}  # fmt: skip
WRAPPERS = ("DTensor", "AsyncCollectiveTensor")
ATTENTION = "scaled_dot_product"
MATRIX = ("mm", "addmm", "bmm", "baddbmm", "linear", "matmul")


class Operators(TorchDispatchMode):
    """Records each operator with local tensors. Tensors of other kinds, such as DTensor, become local ones first."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(kind.__name__ in WRAPPERS for kind in types):
            return NotImplemented
        name = func.namespace
        if func is aten._local_scalar_dense.default:
            return self._scalar(args[0])
        try:
            out = func(*args, **kwargs)
        except Exception as error:
            if type(error).__name__ in ("DataDependentOutputException", "DynamicOutputShapeException"):
                raise Refused(f"{line_of_script()}: {func} needs values, which a capture has not") from error
            raise
        if self.graph.paused:
            return out
        if name in ("c10d", "_c10d_functional", "_c10d_functional_autograd"):
            collectives.record(self.graph, func, args, kwargs, out)
        elif name not in ("prim", "profiler"):
            self._record(func, args, kwargs, out)
        return out

    def _scalar(self, tensor: Any) -> Any:
        """Return a value for a tensor that the script reads: a loss or a norm that it prints."""
        if not isinstance(tensor, FakeTensor):
            return tensor.item()
        if tensor.dtype.is_floating_point:
            self.graph.note("a number of a tensor that the script reads is taken as 1")
            return 1.0
        raise Refused(f"{line_of_script()}: reads a whole number of a tensor, whose value a capture has not")

    def _record(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        packet = func._overloadpacket
        if packet in NO_WORK:
            return
        inputs = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        outputs = [each for each in tree_leaves(out) if isinstance(each, torch.Tensor)]
        copies = func.namespace == "fsdp" or func._schema.is_mutable
        if not (outputs or copies) or (not copies and _is_view(inputs, outputs)):
            return
        flops = _flops(packet, func, args, kwargs, out)
        facts: dict[str, Any] = {"flops": flops, "bytes": sum(map(_bytes, inputs)) + sum(map(_bytes, outputs))}
        if shape := _shape(str(packet), inputs):
            facts["kind"], facts["shape"] = shape
            facts["dtype"] = str(inputs[0].dtype).removeprefix("torch.")
        self.graph.add_compute(str(packet), **facts)


def _is_view(inputs: list[Any], outputs: list[Any]) -> bool:
    storages: set[int] = {each.untyped_storage()._cdata for each in inputs}
    shared: list[bool] = [each.untyped_storage()._cdata in storages for each in outputs]
    return all(shared)


def _bytes(tensor: Any) -> int:
    size: int = tensor.numel() * tensor.element_size()
    return size


def _flops(packet: Any, func: Any, args: Any, kwargs: Any, out: Any) -> int:
    if ATTENTION in str(packet):
        query, key, value = _queries(str(packet), args)
        batch, heads, queries, dim = query.shape
        causal = 0.5 if _is_causal(func, args, kwargs) else 1.0
        passes = 2.5 if "backward" in str(packet) else 1.0
        flops: float = 2 * passes * causal * batch * heads * queries * key.shape[2] * (dim + value.shape[3])
        return round(flops)
    if packet in flop_registry:
        count: int = flop_registry[packet](*args, **kwargs, out_val=out)
        return count
    return 0


def _queries(name: str, args: Any) -> tuple[Any, Any, Any]:
    first = 1 if "backward" in name else 0  # the gradient comes first
    return args[first], args[first + 1], args[first + 2]


def _is_causal(func: Any, args: Any, kwargs: Any) -> bool:
    for at, argument in enumerate(func._schema.arguments):
        if argument.name == "is_causal":
            return bool(args[at] if at < len(args) else kwargs.get("is_causal", False))
    return False


def _shape(name: str, inputs: list[Any]) -> tuple[str, list[int]] | None:
    """Return the kind and shape of a matrix product or attention, as genie/compute/operators.py has them."""
    plain = name.rpartition(".")[2]
    if ATTENTION in name:
        query, key, value = _queries(name, inputs)
        return "attention", [
            query.shape[0], query.shape[2], key.shape[2], query.shape[1], query.shape[3], value.shape[3],
        ]  # fmt: skip
    if plain not in MATRIX:
        return None
    left, right = [each for each in inputs if each.dim() >= 2][-2:]
    m, k = math.prod(left.shape[:-1]), left.shape[-1]
    n = right.shape[-1]
    if left.dim() == 3 and right.dim() == 3:
        return "grouped-gemm", [left.shape[0], left.shape[1], k, n]
    return "gemm", [m, k, n]
