"""Drawn jobs with many collectives and messages, of which level `packet+skip` plays parts apart."""

from __future__ import annotations

import random

from common.skip_cases import GBPS, KIB, MIB, NS, US, SkipCase, drawn_gpus
from genie.collectives.nccl.shape import NcclShape
from genie.config.congestion import Dcqcn, NoControl
from genie.config.units import Duration, Rate, Size
from genie.plan.lowering import Lowering
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, RankGraph, Workload
from simtwin.fabric.schema import (
    Domain,
    Ecn,
    Fabric,
    FatTree,
    LeafSpine,
    Link,
    Pfc,
    Priority,
    RailOptimized,
    SingleSwitch,
    Switch,
    Topology,
    Transport,
)

OPERATIONS = (Op.ALL_REDUCE, Op.REDUCE_SCATTER, Op.ALL_GATHER, Op.ALL_TO_ALL, Op.BROADCAST)
ROOTED = (Op.REDUCE, Op.GATHER, Op.SCATTER)


def draw_job(seed: int, size_factor: int = 1, kind: str = "job") -> SkipCase:
    """Draw a job; the same for the same seed.

    `size_factor`: multiplies all sizes. `kind`: "job"; "buckets", of which many are ready at once and wait for their
    ranks' slots; "stages", which end one after the other. The stages of a "pipeline" send messages to each other, too.
    """
    draw = random.Random(seed)
    topologies: list[tuple[Topology, int, int]] = [
        (SingleSwitch(hosts=8), 4, 2),
        (LeafSpine(leaves=4, spines=2, hosts_per_leaf=2), 4, 2),
        (FatTree(k=4), 4, 4),
        (RailOptimized(servers=4, rails=2, spines=2, domain=Domain(Rate(1600 * GBPS), Duration(25 * NS))), 4, 2),
        (RailOptimized(servers=6, rails=4, spines=2, domain=Domain(Rate(2880 * GBPS), Duration(25 * NS))), 6, 4),
    ]
    if kind == "pipeline":
        topologies = [
            (LeafSpine(leaves=8, spines=2, hosts_per_leaf=2), 8, 2),
            (FatTree(k=4), 8, 2),
            (RailOptimized(servers=8, rails=2, spines=2, domain=Domain(Rate(1600 * GBPS), Duration(25 * NS))), 8, 2),
        ]
    topology, servers, server = draw.choice(topologies)
    control = draw.choice([Dcqcn, NoControl])
    has_pfc = draw.random() < 0.5
    fabric = Fabric(
        topology=topology,
        link=Link(Rate(draw.choice([100, 400]) * GBPS), Duration(draw.choice([200 * NS, 500 * NS, 2 * US]))),
        transport=Transport(ack_every_packets=draw.choice([1, 16])),
        congestion=control(),
        switch=Switch(shared_buffer=Size(draw.choice([6, 64]) * MIB) if has_pfc else None),
        ecn=Ecn(minimum=Size(draw.choice([40, 4000]) * KIB), maximum=Size(8000 * KIB), probability=0.3),
        pfc=Pfc() if has_pfc else None,
        priority=Priority(data=3, control=draw.choice([3, 6])),
    )
    is_nccl = draw.random() < 0.7
    make = {"job": _job, "buckets": _bucket_job, "stages": _stage_job, "pipeline": _pipeline_job}[kind]
    workload = make(draw, servers, server, size_factor, OPERATIONS if is_nccl else OPERATIONS + ROOTED)
    if is_nccl:
        gpus = drawn_gpus(seed)
        shape = NcclShape(ranks_per_node=server, buffer_bytes=draw.choice([256 * KIB, 1 * MIB]), server=gpus)
        lowering, wire = Lowering(nccl=shape), "nccl" if gpus is None else f"nccl on {gpus.gpu}"
    else:
        credit, channels = draw.choice([True, False]), draw.choice([1, 2])
        lowering, wire = Lowering(channels=channels, credit=credit), f"plain, {channels} channels, credit {credit}"
    name = (
        f"{kind} {seed}: {servers} x {server} ranks on {type(topology).__name__}, {wire}, {control.__name__}, "
        f"pfc {has_pfc}, {len(workload.ranks[0])} nodes"
    )
    beside = "GPUs" if lowering.nccl is not None and lowering.nccl.server is not None else ""
    return SkipCase(name, fabric, workload, lowering, 1, (), beside)


def _groups(servers: int, server: int) -> list[Group]:
    ranks = servers * server
    groups = [Group(f"in{at}", tuple(range(at * server, (at + 1) * server))) for at in range(servers)]
    groups += [Group(f"across{at}", tuple(range(at, ranks, server))) for at in range(server)]
    return [*groups, Group("all", tuple(range(ranks)))]


def _job(draw: random.Random, servers: int, server: int, size_factor: int, operations: tuple[Op, ...]) -> Workload:
    """Steps of all ranks: compute, a collective in each server or across servers or among all, or messages."""
    ranks, groups = servers * server, _groups(servers, server)
    even = draw.random() < 0.6  # all ranks compute for as long
    steps = [
        (
            draw.choice(["in", "across", "across", "messages", "all"]),
            draw.choice(operations),
            draw.choice([16, 64, 256, 1024, 4096]) * KIB * size_factor // 16 * 16,
            draw.choice([0, 2_000, 20_000, 200_000]),
            draw.random() < 0.25,  # it does not wait for the step before
            draw.randrange(1, ranks),
        )
        for _ in range(draw.randrange(3, 9))
    ] * draw.choice([1, 2, 3])
    graphs: dict[int, RankGraph] = {}
    for rank in range(ranks):
        builder = RankBuilder(rank)
        last: tuple[int, ...] = ()
        number = 0
        before: tuple[int, ...] = ()
        for place, (where, op, size_bytes, compute_ns, is_beside, shift) in enumerate(steps):
            own_ns = (
                compute_ns if even else compute_ns + random.Random(place * 1000 + rank).randrange(compute_ns // 4 + 1)
            )
            after = before if is_beside else last
            before = last
            if own_ns > 0:
                after = (builder.add(number, "compute", Kind.COMP, after, duration_ns=own_ns),)
                number += 1
            if where == "messages":
                ends = [
                    builder.add(number, "send", Kind.SEND, after, size_bytes=size_bytes, peer=(rank + shift) % ranks,
                                tag=place),
                    builder.add(number + 1, "recv", Kind.RECV, after, size_bytes=size_bytes,
                                peer=(rank - shift) % ranks, tag=place),
                ]  # fmt: skip
                number += 2
                last = tuple(ends)
                continue
            group = {"in": rank // server, "across": servers + rank % server, "all": servers + server}[where]
            members = len(groups[group].ranks)
            size = size_bytes // members * members
            if op in (Op.ALL_GATHER, Op.GATHER):
                size //= members
            last = (builder.add(number, "collective", Kind.COLL, after, size_bytes=size, op=op, group=group),)
            number += 1
        graphs[rank], _ = builder.finish()
    return Workload("drawn", ranks, groups, graphs)


def _bucket_job(
    draw: random.Random, servers: int, server: int, size_factor: int, operations: tuple[Op, ...]
) -> Workload:
    """Steps of computes, of which each makes a bucket for a collective; the next step waits for all of these."""
    ranks, groups = servers * server, _groups(servers, server)
    uneven_ns = draw.choice([0, 0, 3_000])
    steps = []
    for _ in range(draw.randrange(1, 4)):
        places = [draw.choice(["across", "across", "across", "in", "all"]) for _ in range(draw.randrange(1, 3))]
        kinds = [(at, draw.choice(operations), draw.choice([64, 256, 1024]) * KIB * size_factor) for at in places]
        few = draw.random() < 0.7  # of a few kinds
        buckets = [
            (*(kinds[0] if few else draw.choice(kinds)), draw.choice([0, 0, 500, 5_000, 50_000]))
            for _ in range(draw.randrange(2, 12))
        ]
        order = list(range(len(buckets)))
        if uneven_ns == 0 and draw.random() < 0.5:
            draw.shuffle(order)  # some that are ready later come first
        steps.append((buckets, order))
    graphs: dict[int, RankGraph] = {}
    for rank in range(ranks):
        builder = RankBuilder(rank)
        skew = random.Random(rank)
        after: tuple[int, ...] = ()
        number = 0
        for buckets, order in steps:
            computed: list[tuple[int, ...]] = []
            for *_, compute_ns in buckets:
                before = computed[-1] if computed else after
                if compute_ns > 0:
                    own_ns = compute_ns + skew.randrange(uneven_ns + 1)
                    before = (builder.add(number, "compute", Kind.COMP, before, duration_ns=own_ns),)
                    number += 1
                computed.append(before)
            after = computed[-1]
            for place in order:
                where, op, size_bytes, _ = buckets[place]
                group = {"in": rank // server, "across": servers + rank % server, "all": servers + server}[where]
                members = len(groups[group].ranks)
                size = size_bytes // members // members * members
                own = builder.add(number, "collective", Kind.COLL, computed[place], size_bytes=size, op=op, group=group)
                after = (*after, own)
                number += 1
        graphs[rank], _ = builder.finish()
    return Workload("drawn", ranks, groups, graphs)


def _stage_job(
    draw: random.Random, servers: int, server: int, size_factor: int, operations: tuple[Op, ...]
) -> Workload:
    """Pipeline stages that reduce their buckets for unlike times; small collectives of all; then a gather by stage."""
    ranks, rails = servers * server, range(server)
    stages = draw.choice([2, 3]) if servers == 6 else 2
    per_stage = ranks // stages
    groups = _groups(servers, server)
    first_of_stages, first_of_ends = len(groups), len(groups) + stages * server
    for stage in range(stages):
        groups += [
            Group(f"stage{stage} {rail}", tuple(range(stage * per_stage + rail, (stage + 1) * per_stage, server)))
            for rail in rails
        ]
    groups += [Group(f"ends{at}", (at, ranks - per_stage + at)) for at in range(per_stage)]
    steps = []
    for _ in range(draw.choice([1, 1, 2])):
        largest = draw.choice([64, 256, 1024]) * KIB * size_factor
        buckets = [
            [(largest // draw.choice([1, 1, 1, 4]), draw.choice([0, 0, 2_000, 20_000])) for _ in range(count)]
            for count in (draw.choice([1, 1, 4, 8]) for _ in range(stages))
        ]
        waits_ns = [draw.choice([0, 5_000, 100_000]) for _ in range(stages)]
        small = draw.choice([4, 4, 4 * KIB, 256 * KIB])
        steps.append((buckets, waits_ns, draw.random() < 0.7, draw.random() < 0.3, small, draw.choice(operations)))
    steps *= draw.choice([1, 2, 4])
    graphs: dict[int, RankGraph] = {}
    for rank in range(ranks):
        builder = RankBuilder(rank)
        stage, rail = rank // per_stage, rank % server
        last: tuple[int, ...] = ()
        number = 0
        for buckets, waits_ns, has_inner, has_ends, small, op in steps:
            collectives = [(size // per_stage * per_stage, op, first_of_stages + stage * server + rail, compute_ns)
                           for size, compute_ns in buckets[stage]]  # fmt: skip
            if has_inner:
                collectives.append((64 * KIB, Op.ALL_REDUCE, rank // server, 0))
            if has_ends and stage in (0, stages - 1):
                collectives.append((1 << 20, Op.ALL_REDUCE, first_of_ends + rank % per_stage, 0))
            collectives.append((small, Op.ALL_REDUCE, servers + server, 0))
            collectives.append((1 << 20, Op.ALL_GATHER, first_of_stages + stage * server + rail, 1_000))
            for at, (size, own_op, group, compute_ns) in enumerate(collectives):
                wait_ns = compute_ns + (waits_ns[stage] if at == 0 else 0)
                after = last
                if wait_ns > 0:
                    after = (builder.add(number, "compute", Kind.COMP, after, duration_ns=wait_ns),)
                    number += 1
                last = (builder.add(number, "collective", Kind.COLL, after, size_bytes=size, op=own_op, group=group),)
                number += 1
        graphs[rank], _ = builder.finish()
    return Workload("drawn", ranks, groups, graphs)


def _pipeline_job(
    draw: random.Random, servers: int, server: int, size_factor: int, operations: tuple[Op, ...]
) -> Workload:
    """Backward passes of a pipeline of four stages; reductions by stage; small collectives of all; gathers."""
    ranks, stages = servers * server, 4
    per_stage = ranks // stages
    groups = _groups(servers, server)
    first_of_stages = len(groups)
    groups += [
        Group(f"stage{stage} {rail}", tuple(range(stage * per_stage + rail, (stage + 1) * per_stage, server)))
        for stage in range(stages)
        for rail in range(server)
    ]
    compute_ns = draw.choice([5_000, 20_000, 100_000])
    message = draw.choice([64, 256]) * KIB * size_factor
    buckets = [
        (draw.choice([64, 1024, 4096]) * KIB * size_factor, draw.choice([0, 2_000, 20_000]), draw.choice(operations))
        for _ in range(draw.choice([1, 1, 2, 5]))
    ]
    batches, steps, small = draw.choice([1, 1, 3]), draw.choice([1, 2]), draw.choice([4, 4 * KIB])
    graphs: dict[int, RankGraph] = {}
    for rank in range(ranks):
        builder = RankBuilder(rank)
        stage, rail = rank // per_stage, rank % server
        own_group = first_of_stages + stage * server + rail
        last: tuple[int, ...] = ()
        number = 0
        for step in range(steps):
            for batch in range(batches):
                tag = step * batches + batch
                if stage < stages - 1:
                    last = (builder.add(number, "recv", Kind.RECV, last, size_bytes=message, peer=rank + per_stage,
                                        tag=tag),)  # fmt: skip
                    number += 1
                last = (builder.add(number, "compute", Kind.COMP, last, duration_ns=compute_ns),)
                number += 1
                if stage > 0:
                    builder.add(number, "send", Kind.SEND, last, size_bytes=message, peer=rank - per_stage, tag=tag)
                    number += 1
            collectives = [(own_group, *bucket) for bucket in buckets]
            collectives.append((servers + server, small, 0, Op.ALL_REDUCE))
            collectives.append((own_group, 1 << 20, 1_000, Op.ALL_GATHER))
            for group, size, wait_ns, op in collectives:
                if wait_ns > 0:
                    last = (builder.add(number, "compute", Kind.COMP, last, duration_ns=wait_ns),)
                    number += 1
                last = (builder.add(number, "collective", Kind.COLL, last, size_bytes=size, op=op, group=group),)
                number += 1
        graphs[rank], _ = builder.finish()
    return Workload("drawn", ranks, groups, graphs)
