"""Options of fabrics that are drawn beside a case of `skip_cases` or `episode_cases`."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, get_args, get_type_hints

from msgspec import structs

from common.skip_cases import GBPS, KIB, MIB, NS, US, SkipCase
from genie.config.units import Duration, Rate, Size
from simtwin.fabric.schema import (
    Dragonfly,
    DualPlane,
    Fabric,
    LeafSpine,
    Link,
    LoadBalancing,
    RailOptimized,
    Topology,
    Torus,
)

BALANCINGS = [LoadBalancing(mode=mode) for mode in get_args(get_type_hints(LoadBalancing)["mode"]) if mode != "ecmp"]
SPINE_LINK = Link(Rate(200 * GBPS), Duration(300 * NS))


def with_options(case: SkipCase, seed: int) -> SkipCase:
    """Return the case with options of its fabric drawn anew; the same for the same seed.

    Half of the cases have other transports and switches alone, and so may recur and have episodes.
    """
    draw = random.Random(f"options {seed}")
    fabric, drawn = case.fabric, []
    topology = _drawn_topology(fabric.topology, case.workload.world_size, draw)
    if topology != fabric.topology:
        drawn.append(type(topology).__name__)
        fabric = structs.replace(fabric, topology=topology, fault=[])  # a fault names a link
    transport: dict[str, Any] = {
        "mtu": draw.choice([512, 1024, 4096, 4096]),
        "window_packets": draw.choice([None, None, 16, 64, 200]),
        "ack_every_packets": draw.choice([1, 3, 16, None]),
        "recovery": draw.choice(["go-back-n", "go-back-n", "selective-repeat"]),
        "ack_timeout": draw.choice([None, None, Duration(100 * US), Duration(2000 * US)]),
    }
    drawn += [f"{name} {value}" for name, value in transport.items()]
    fabric = structs.replace(fabric, transport=structs.replace(fabric.transport, **transport))
    switch: dict[str, Any] = {"latency": Duration(draw.choice([0, 0, 300 * NS]))}
    if fabric.pfc is None and draw.random() < 0.3:
        switch["buffer"] = Size(draw.choice([100, 500, 2000]) * KIB)
    fabric = structs.replace(fabric, switch=structs.replace(fabric.switch, **switch))
    if draw.random() < 0.5:
        fabric = _with_rare_options(fabric, draw, drawn)
    memory_bytes = draw.choice([1 << 30, 1 << 30, 0, 300_000, 3 * MIB])
    drawn += [f"{name} {value}" for name, value in switch.items()]
    name = f"{case.name}; options: {', '.join(drawn)}, memory {memory_bytes}"
    return replace(case, name=name, fabric=fabric, memory_bytes=memory_bytes)


def _drawn_topology(topology: Topology, ranks: int, draw: random.Random) -> Topology:
    """Draw another topology with a host for each rank, or other links of the same, in two of five cases."""
    half = -(-ranks // 2)
    others: list[Topology] = [
        Torus(size=(2, half)),
        DualPlane(leaves=half, spines=2, hosts_per_leaf=2),
        Dragonfly(routers=2, hosts_per_router=-(-ranks // 6), global_links=1),
    ]
    other, is_other, is_slow = draw.choice(others), draw.random() < 0.2, draw.random() < 0.25
    if is_other:
        return other
    if is_slow and isinstance(topology, LeafSpine | RailOptimized):
        return structs.replace(topology, spine_link=SPINE_LINK)
    return topology


def _with_rare_options(fabric: Fabric, draw: random.Random, drawn: list[str]) -> Fabric:
    """Draw one or two options that keep a state of their own, or draw at random."""
    for option in draw.sample(["balancing", "retry", "burst", "loss", "cut-through", "trimming", "weights"], 2):
        if option == "balancing":
            balancing = draw.choice(BALANCINGS)
            drawn.append(balancing.mode)
            fabric = structs.replace(fabric, load_balancing=balancing)
        elif option in ("retry", "burst", "loss"):
            value: Any = {"retry": "go-back-n", "burst": Size(100 * KIB), "loss": draw.choice([1e-5, 1e-3])}[option]
            drawn.append(f"{option} {value}")
            assert fabric.link is not None
            fabric = structs.replace(fabric, link=structs.replace(fabric.link, **{option: value}))
        elif option == "cut-through":
            drawn.append(option)
            fabric = structs.replace(fabric, switch=structs.replace(fabric.switch, cut_through=True))
        elif option == "trimming" and fabric.pfc is None:
            drawn.append(option)
            switch = structs.replace(fabric.switch, trimming=True, buffer=Size(100 * KIB))
            fabric = structs.replace(fabric, switch=switch)
        elif option == "weights":
            drawn.append(option)
            priority = structs.replace(fabric.priority, control=4, data_weight=draw.choice([1, 4]), control_weight=1)
            fabric = structs.replace(fabric, priority=priority)
    return fabric
