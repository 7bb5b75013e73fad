"""Lowering: templates from an operation, an algorithm and a group; block sizes from a size."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

from genie.collectives import algorithms as a
from genie.collectives.hierarchical import hierarchical_all_reduce
from genie.collectives.pat import on_channel, whole_pat, with_bundles
from genie.collectives.sizes import split, split_table, table
from genie.collectives.template import Template

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

T = TypeVar("T", bound=np.generic)

CHANNELS_MAX = 64  # as in NCCL

# A collective whose share of one member (the block of a ring's step) is smaller takes the algorithm with the fewest
# rounds. The limit is half a packet at the usual MTU of 4096 B, below which a round's fixed cost outweighs its bytes.
LATENCY_BOUND_SHARE_BYTES = 2048


class LoweringError(ValueError):
    """A collective that cannot be lowered; the message names it, the problem and the allowed values."""


@dataclass(frozen=True)
class _Symmetric:
    """All members have the same steps, relative to their positions."""

    build: Callable[[int, bool], a.Steps]  # (members, credit)
    blocks: Callable[[int], int]  # members -> blocks per channel


@dataclass(frozen=True)
class _Placed:
    """A member's steps depend on its position."""

    build: Callable[[int, int, int, bool], a.Steps]  # (members, position, root, credit)
    blocks: Callable[[int], int]


@dataclass(frozen=True)
class _InNodes:
    """A member's steps depend on its position and on the members of each node."""

    build: Callable[[int, int, int, bool], a.Steps]  # (members, position, members of a node, credit)
    blocks: Callable[[int], int]


_Known: TypeAlias = _Symmetric | _Placed | _InNodes


def _per_member(members: int) -> int:
    return members


def _whole(members: int) -> int:
    return 1


def _both_ways(members: int) -> int:
    return 2 * members


_TABLE: dict[str, dict[str, _Known]] = {
    "all_reduce": {
        "ring": _Symmetric(a.ring_all_reduce, _per_member),
        "hierarchical": _InNodes(hierarchical_all_reduce, _per_member),
        "recursive_doubling": _Placed(a.doubling_all_reduce, _whole),
    },
    "reduce": {"ring": _Placed(a.ring_reduce, a.chain_parts), "binomial": _Placed(a.binomial_reduce, _whole)},
    "all_gather": {
        "ring": _Symmetric(a.ring_all_gather, _per_member),
        "pat": _Symmetric(partial(whole_pat, "all_gather"), _per_member),
        "direct": _Symmetric(a.direct_all_gather, _per_member),
    },
    "gather": {"direct": _Placed(a.direct_gather, _per_member)},
    "scatter": {"direct": _Placed(a.direct_scatter, _per_member)},
    "broadcast": {"ring": _Placed(a.ring_broadcast, a.chain_parts), "binomial": _Placed(a.binomial_broadcast, _whole)},
    "all_to_all": {
        "pairwise": _Symmetric(a.pairwise_all_to_all, _both_ways),
        "direct": _Symmetric(a.direct_all_to_all, _both_ways),
    },
    "reduce_scatter": {
        "ring": _Symmetric(a.ring_reduce_scatter, _per_member),
        "pat": _Symmetric(partial(whole_pat, "reduce_scatter"), _per_member),
        "direct": _Symmetric(a.direct_reduce_scatter, _per_member),
    },
    "barrier": {"dissemination": _Symmetric(a.dissemination_barrier, _per_member)},
}

HIERARCHICAL = "hierarchical"  # needs the members of each node

# Operation -> algorithms; the first is for large sizes, the last for small ones.
ALGORITHMS: dict[str, tuple[str, ...]] = {op: tuple(known) for op, known in _TABLE.items()}

_ALWAYS_FIRST = ("all_to_all",)  # its direct form floods the receivers and must be requested


def _find(op: str, algorithm: str) -> _Known:
    known = _TABLE.get(op)
    if known is None:
        raise LoweringError(f"unknown collective {op!r}; known: {', '.join(_TABLE)}")
    if algorithm not in known:
        raise LoweringError(f"{op} has no algorithm {algorithm!r}; known: {', '.join(known)}")
    return known[algorithm]


def _check(op: str, members: int, position: int, channels: int, root: int) -> None:
    if members < 1:
        raise LoweringError(f"{op}: a group of {members} members; it needs at least 1")
    if not (0 <= position < members and 0 <= root < members):
        raise LoweringError(f"{op}: position {position} and root {root} must be in 0..{members - 1}")
    if not 1 <= channels <= CHANNELS_MAX:
        raise LoweringError(f"{op}: {channels} channels; allowed are 1..{CHANNELS_MAX}")


def choose(op: str, members: int, size_bytes: int, requested: str | None = None) -> str:
    """The algorithm for `size_bytes` (convention: genie/workload/graph.py), or the one requested.

    Raises LoweringError for an unknown operation or an algorithm that it does not have.
    """
    if requested is not None:
        _find(op, requested)
        return requested
    known = ALGORITHMS.get(op)
    if known is None:
        raise LoweringError(f"unknown collective {op!r}; known: {', '.join(ALGORITHMS)}")
    if op in _ALWAYS_FIRST:
        return known[0]
    share_bytes = size_bytes if op in ("all_gather", "gather") else size_bytes // max(members, 1)
    return known[-1] if share_bytes < LATENCY_BOUND_SHARE_BYTES else known[0]


def lower(
    op: str,
    algorithm: str,
    members: int,
    position: int,
    channels: int = 1,
    root: int = 0,
    credit: bool = False,
    local: int = 1,
) -> Template:
    """The template of the member at `position`. `local`: members of each node, in order, which hierarchical needs.

    Equal arguments return the same object, as do all positions of a symmetric algorithm. A barrier uses one channel
    whatever `channels` is. Raises LoweringError.
    """
    found = _find(op, algorithm)
    _check(op, members, position, channels, root)
    if op == "barrier":
        channels = 1
    if isinstance(found, _Symmetric):
        position = root = 0
    if not isinstance(found, _InNodes):
        local = 1
    elif local < 1 or members % local:
        raise LoweringError(f"{op}: nodes of {local} members do not make a group of {members}")
    return _lower(op, algorithm, members, position, channels, root, bool(credit), local)


@cache
def _lower(
    op: str, algorithm: str, members: int, position: int, channels: int, root: int, credit: bool, local: int
) -> Template:
    found = _find(op, algorithm)
    symmetric = isinstance(found, _Symmetric)
    blocks = found.blocks(members)
    credit = credit and algorithm not in a.EAGER
    if members == 1:
        steps = a.no_steps()
    elif isinstance(found, _Symmetric):
        steps = found.build(members, credit)
    elif isinstance(found, _InNodes):
        steps = found.build(members, position, local, credit)
    else:
        steps = found.build(members, position, root, credit)
    # Step s of channel c is step s * channels + c, so that a window over the steps covers all channels.
    channel = np.tile(np.arange(channels), len(steps.action))
    deps = np.repeat(steps.deps, channels, axis=0)
    used = deps >= 0
    deps = deps * channels + channel[:, None]
    dep_start = np.concatenate(([0], np.cumsum(used.sum(axis=1))))
    placed = [on_channel(steps, blocks, members, each, channels) for each in range(channels)]
    bundles = tuple(bundle for _, own in placed for bundle in own)
    return Template(
        algorithm=algorithm,
        members=members,
        channels=channels,
        relative=symmetric,
        blocks=blocks * channels + members * len(bundles),
        parts=channels,
        action=column(np.repeat(steps.action, channels), np.uint8),
        peer=column(np.repeat(steps.peer, channels), np.int32),
        block_base=column(np.stack([bases for bases, _ in placed], axis=1).reshape(-1), np.int32),
        block=column(np.repeat(steps.block, channels), np.int32),
        channel=column(channel, np.uint8),
        credit=column(np.full(len(channel), credit), np.uint8),
        dep_start=column(dep_start, np.int32),
        deps=column(deps[used], np.int32),
        empty_messages=op == "barrier",
        bundles=bundles,
    )


def column(values: NDArray[np.integer], kind: type[T]) -> NDArray[T]:
    """A read-only column, because templates are shared."""
    column = np.array(values, dtype=kind)
    column.setflags(write=False)
    return column


def block_sizes(
    op: str,
    algorithm: str,
    members: int,
    position: int,
    size_bytes: int,
    channels: int = 1,
    root: int = 0,
    splits: tuple[ArrayLike, ArrayLike] | None = None,
    local: int = 1,
) -> NDArray[np.int64]:
    """Bytes of each block at `position`: (template.blocks,), for the template that `lower` returns.

    `size_bytes` follows the convention of genie/workload/graph.py. `splits`, for an all-to-all-v, is (bytes to each
    member, bytes from each member) and replaces `size_bytes`. Raises LoweringError.
    """
    found = _find(op, algorithm)
    _check(op, members, position, channels, root)
    if op == "barrier":
        channels = 1
    blocks = found.blocks(members)
    if splits is not None:
        if op != "all_to_all":
            raise LoweringError(f"{op}: split sizes are for all_to_all only")
        try:
            whole = split_table(members, splits)
        except ValueError as error:
            raise LoweringError(str(error)) from None
    else:
        if size_bytes < 0:
            raise LoweringError(f"{op}: size {size_bytes} B; it must not be negative")
        whole = table(op, blocks, members, position, int(size_bytes))
    sizes = np.ascontiguousarray(split(whole, channels).T).reshape(-1)
    return with_bundles(lower(op, algorithm, members, position, channels, root, local=local).bundles, members, sizes)
