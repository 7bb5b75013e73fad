"""Small synthetic workloads for tests, benchmarks and `genie bench`."""

from __future__ import annotations

from collections.abc import Sequence

from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, RankGraph, Workload

GROUP_NAME = "0"


def collective(op: Op, ranks: int | Sequence[int], size_bytes: int, count: int = 1, compute_ns: int = 0) -> Workload:
    """`count` collectives of one group, each after the previous one and `compute_ns` of compute (0: none).

    ranks: the world's size, or the group's members (other ranks up to the highest have no nodes).
    size_bytes: by the convention of `graph.py`. The root, where there is one, is the group's first member.
    """
    members = tuple(range(ranks)) if isinstance(ranks, int) else tuple(sorted(ranks))
    world_size = members[-1] + 1
    graphs: dict[int, RankGraph] = {}
    workload = Workload(
        f"{op.name.lower()}-{len(members)}x{size_bytes}", world_size, [Group(GROUP_NAME, members)], graphs
    )
    if len(members) < world_size:
        workload.groups = [Group(GROUP_NAME, tuple(range(world_size))), Group("1", members)]
    group = len(workload.groups) - 1
    for rank in range(world_size):
        builder = RankBuilder(rank)
        last: tuple[int, ...] = ()
        for index in range(count if rank in members else 0):
            if compute_ns > 0:
                last = (builder.add(len(builder), f"compute {index}", Kind.COMP, last, duration_ns=compute_ns),)
            name = f"{op.name.lower()} {index}"
            size = 0 if op is Op.BARRIER else size_bytes
            last = (builder.add(len(builder), name, Kind.COLL, last, size_bytes=size, op=op, group=group),)
        graphs[rank], _ = builder.finish()
    return workload


def collectives(ops: Sequence[Op], ranks: int, sizes_bytes: Sequence[int]) -> Workload:
    """Each operation at each size, in one group of all ranks, each after the previous one.

    sizes_bytes: by the convention of `graph.py`.
    """
    names = "-".join(op.name.lower() for op in ops)
    graphs: dict[int, RankGraph] = {}
    workload = Workload(f"{names}-{ranks}", ranks, [Group(GROUP_NAME, tuple(range(ranks)))], graphs)
    for rank in range(ranks):
        builder = RankBuilder(rank)
        last: tuple[int, ...] = ()
        for op in ops:
            for size_bytes in sizes_bytes:
                size = 0 if op is Op.BARRIER else size_bytes
                last = (builder.add(len(builder), op.name.lower(), Kind.COLL, last, size_bytes=size, op=op, group=0),)
        graphs[rank], _ = builder.finish()
    return workload


def point_to_point(source: int, destination: int, size_bytes: int, count: int = 1) -> Workload:
    """`count` messages from one rank to another, each after the previous one."""
    world_size = max(source, destination) + 1
    graphs: dict[int, RankGraph] = {}
    workload = Workload(f"send-{source}-{destination}x{size_bytes}", world_size, [], graphs)
    workload.groups = [Group(GROUP_NAME, tuple(range(world_size)))]
    for rank in range(world_size):
        builder = RankBuilder(rank)
        for index in range(count if rank in (source, destination) else 0):
            kind, peer = (Kind.SEND, destination) if rank == source else (Kind.RECV, source)
            deps = (index - 1,) if index else ()
            builder.add(index, f"{kind.name.lower()} {index}", kind, deps, size_bytes=size_bytes, peer=peer, tag=index)
        graphs[rank], _ = builder.finish()
    return workload


def chain(node_count: int, collective_every: int = 10, ranks: int = 1, size_bytes: int = 1 << 20) -> Workload:
    """A long trace like a training step's: a chain of kernels of 5 to 54 µs, with a collective in every tenth place."""
    graphs: dict[int, RankGraph] = {}
    workload = Workload(f"chain-{node_count}", ranks, [Group(GROUP_NAME, tuple(range(ranks)))], graphs)
    for rank in range(ranks):
        builder = RankBuilder(rank)
        for index in range(node_count):
            deps = tuple(range(max(index - 2, 0), index))
            if index % collective_every == collective_every - 1:
                name = f"all_reduce {index}"
                builder.add(
                    index, name, Kind.COLL, deps, size_bytes=size_bytes, op=Op.ALL_REDUCE, group=0, stream=20
                )  # fmt: skip
            else:
                name = f"kernel {index % 997}"
                builder.add(
                    index, name, Kind.COMP, deps, duration_ns=5_000 + index * 7 % 50_000, stream=7
                )  # fmt: skip
        graphs[rank], _ = builder.finish()
    return workload
