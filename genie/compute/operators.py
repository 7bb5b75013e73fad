"""Compute operators of a training step: their shapes, floating-point operations and memory traffic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["gemm", "grouped-gemm", "attention", "memory"]


@dataclass(frozen=True)
class Operator:
    """An operator of one rank.

    shape: of a gemm (m, k, n), of a grouped gemm (groups, m, k, n), of attention (batch, queries, keys, heads, query
    dimension, value dimension); of others none.
    """

    name: str
    kind: Kind
    shape: tuple[int, ...] = ()
    flops: int = 0
    moved_bytes: int = 0
    dtype: str = "bf16"


class Timed(NamedTuple):
    """The time of an operator, and where it comes from: `measured`, `roofline`, `scaled from h100`."""

    duration_ns: int
    origin: str


Price = Callable[[Operator], Timed]


def gemm(name: str, m: int, k: int, n: int, dtype: str = "bf16", out_bytes: int = 2) -> Operator:
    """A product of an m x k and a k x n matrix."""
    width = 1 if dtype == "fp8" else 2
    return Operator(name, "gemm", (m, k, n), 2 * m * k * n, width * (m * k + k * n) + out_bytes * m * n, dtype)


def grouped_gemm(name: str, groups: int, m: int, k: int, n: int, dtype: str = "bf16") -> Operator:
    """Products of `groups` pairs of matrices, of m x k and k x n each."""
    width = 1 if dtype == "fp8" else 2
    moved = groups * (width * (m * k + k * n) + 2 * m * n)
    return Operator(name, "grouped-gemm", (groups, m, k, n), 2 * groups * m * k * n, moved, dtype)


def attention(
    name: str, batch: int, queries: int, keys: int, heads: int, query_dim: int, value_dim: int, passes: float = 1.0
) -> Operator:
    """Causal attention of `queries` on average half of the `keys`; `passes`: 2.5 for the backward pass."""
    flops = round(passes * batch * queries * keys * heads * (query_dim + value_dim))
    moved = round(2 * passes * batch * heads * (queries * (query_dim + value_dim) + keys * (query_dim + value_dim)))
    return Operator(name, "attention", (batch, queries, keys, heads, query_dim, value_dim), flops, moved)


def memory(name: str, moved_bytes: int, flops: int = 0) -> Operator:
    """An operator whose time is that of its memory traffic: norms, activations, the optimizer."""
    return Operator(name, "memory", (), flops, moved_bytes)
