"""Fabrics drawn with everything that they can have: whatever it is, jobs end, and nothing is lost without a trace."""

from __future__ import annotations

from typing import Any

import genie_core
import numpy as np
from drawing import drawn
from hypothesis import assume, given
from hypothesis import strategies as st
from twin_fabrics import GBPS, NS, US, twin_of

from genie.config.congestion import CONTROLS
from genie.config.units import Duration, Rate, Size
from genie.plan.build import build_plan
from genie.workload.graph import Op, Workload
from genie.workload.synthetic import collective
from simtwin.fabric.queues import QueueError
from simtwin.fabric.schema import (
    Domain,
    Dragonfly,
    DualPlane,
    Ecn,
    Fabric,
    FatTree,
    Fault,
    Host,
    LeafSpine,
    Link,
    LoadBalancing,
    Nic,
    Pfc,
    Priority,
    RailOptimized,
    Retry,
    Routing,
    SingleSwitch,
    Switch,
    Torus,
    Transport,
)
from simtwin.fabric.topology import build_network
from simtwin.play.twin import Twin

KIB = 1 << 10

TOPOLOGIES = st.sampled_from(
    [
        SingleSwitch(6),
        LeafSpine(2, 3, 3),
        FatTree(4),
        RailOptimized(servers=2, rails=3, spines=2, domain=Domain(Rate(400 * GBPS), Duration(50 * NS), "switch", True)),
        DualPlane(2, 2, 3),
        Dragonfly(2, 2, 1),
        Torus((2, 3)),
    ]
)


@st.composite
def fabrics(draw: st.DrawFn) -> Fabric:
    """With buffers small enough to lose and to pause, links that are down for a while, and corrupted frames."""
    topology = draw(TOPOLOGIES)
    shared = draw(st.booleans())
    pfc = shared and draw(st.booleans())
    switch: dict[str, Any] = (
        {"shared_buffer": Size(draw(st.sampled_from([150, 300, 600])) * KIB)}
        if shared
        else {"buffer": Size(draw(st.integers(9, 64)) * KIB)}
    )
    burst = draw(st.sampled_from([None, Size(20 * KIB)]))
    retry: Retry | None = None if burst else draw(st.sampled_from([None, "go-back-n"]))
    link = Link(
        Rate(draw(st.sampled_from([25, 100])) * GBPS),
        Duration(draw(st.sampled_from([0, 300, 1000])) * NS),
        burst,
        draw(st.sampled_from([None, 0.01, 0.2])) if retry else draw(st.sampled_from([None, 0.002])),
        retry,
    )
    faults = []
    names = build_network(Fabric(topology=topology, link=link)).link_names
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, 200))
        until = Duration((at + draw(st.integers(1, 150))) * US)
        rate = draw(st.sampled_from([None, Rate(GBPS)]))
        faults.append(Fault(at=Duration(at * US), until=until, link=draw(st.sampled_from(names)), rate=rate))
    return Fabric(
        topology=topology,
        link=link,
        switch=Switch(
            **switch,
            cut_through=draw(st.booleans()),
            trimming=draw(st.booleans()),
            latency=Duration(draw(st.sampled_from([0, 200])) * NS),
        ),
        pfc=Pfc() if pfc else None,
        ecn=draw(st.sampled_from([None, Ecn(minimum=Size(10 * KIB), maximum=Size(40 * KIB), probability=0.3)])),
        priority=draw(
            st.sampled_from([Priority(), Priority(control=6), Priority(control=6, data_weight=4, control_weight=1)])
        ),
        load_balancing=LoadBalancing(
            mode=draw(st.sampled_from(["ecmp", "flowlet", "spray", "round-robin", "adaptive"])),
            flowlet_gap=Duration(5 * US),
        ),
        transport=Transport(
            mtu=1024,
            congestion=draw(st.sampled_from(list(CONTROLS))),  # type: ignore[arg-type]
            recovery=draw(st.sampled_from(["go-back-n", "selective-repeat"])),
            ack_timeout=Duration(400 * US),
            window_packets=draw(st.sampled_from([4, 64])),
            ack_every_packets=draw(st.sampled_from([1, 8])),
        ),
        host=Host(
            packet_latency=Duration(draw(st.sampled_from([0, 500])) * NS),
            message_latency=Duration(draw(st.sampled_from([0, 500])) * NS),
            doorbell_latency=Duration(draw(st.sampled_from([0, 200])) * NS),
            notification_latency=Duration(draw(st.sampled_from([0, 3000])) * NS),
        ),
        nic=draw(
            st.sampled_from(
                [
                    None,
                    Nic(Duration(200 * NS), Duration(50 * NS), Rate(60 * GBPS), Size(2 * KIB)),
                    Nic(message_time=Duration(300 * NS)),
                ]
            )
        ),
        routing=Routing(Duration(draw(st.sampled_from([0, 20])) * US)),
        fault=faults,
    )


def played(twin: Twin, workload: Workload, threads: int) -> genie_core.Simulator:
    plan = build_plan(workload)
    simulator = genie_core.Simulator(twin._native, twin._config, plan.native, twin.host_of_rank, 1, threads=threads)
    simulator.start()
    for _ in range(10_000):
        if not simulator.run(20_000):
            break
    else:
        raise AssertionError("no end")
    return simulator


@drawn(200, 50)
@given(fabrics(), st.sampled_from([Op.ALL_REDUCE, Op.ALL_TO_ALL, Op.BROADCAST]), st.integers(1, 3))
def test_jobs_end_and_nothing_is_lost_without_a_trace(fabric: Fabric, op: Op, threads: int) -> None:
    try:
        twin = twin_of(fabric, ranks=6)
    except QueueError:
        assume(False)
    simulator = played(twin, collective(op, 6, 900_000), threads)
    deadlock = simulator.deadlock()
    if not simulator.done:  # a queue pair may use up its retries, and pauses may wait for each other
        gave_up = [line for line in simulator.problems() if "gave up sending" in line]
        assert gave_up or deadlock, simulator.problems()
        return
    counters = [simulator.counters(rank) for rank in range(6)]
    sent = sum(it["data_sent"] + it["acks_sent"] + it["naks_sent"] + it["cnps_sent"] for it in counters)
    heard = sum(it["data_received"] + it["acks_received"] + it["cnps_received"] for it in counters)
    if not simulator.links()["trimmed"].sum():  # of these the header has come, uncounted
        assert sent == heard + simulator.dropped
    loses = fabric.link is not None and fabric.link.loss is not None and fabric.link.retry is None
    if fabric.pfc and not fabric.fault and not loses and fabric.priority.control == fabric.priority.data:
        assert simulator.dropped == 0
    one = played(twin, collective(op, 6, 900_000), 1)
    assert one.events == simulator.events
    for rank in range(6):
        np.testing.assert_array_equal(one.records(rank)["nodes"]["end_ps"], simulator.records(rank)["nodes"]["end_ps"])
