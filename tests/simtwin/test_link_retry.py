"""Links that corrupt frames, and link-level retry, which replays them (go-back-N on one cable)."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import msgspec
import pytest
from twin_fabrics import GBPS, NS, US, NativeRun, crowded, incast, run_native, single_switch, transmission_ps, twin_of

from genie.config.units import Duration, Rate
from genie.plan.lowering import Lowering
from genie.workload.graph import Op
from genie.workload.synthetic import collective, point_to_point
from simtwin.fabric.reading import FabricError, parse_fabric
from simtwin.fabric.schema import (
    Downlink,
    Explicit,
    Fabric,
    LeafSpine,
    Link,
    NamedHost,
    NamedLink,
    NamedSwitch,
    SingleSwitch,
    Switch,
    Transport,
)
from simtwin.fabric.topology import build_network
from simtwin.play.twin import Loss, Twin

PACKET = 4096
FULL_BYTES = 38 + 20 + 8 + 12 + 4 + PACKET  # of a packet in the middle of a message
TIME, PSN, OPCODE, LOST = 0, 4, 3, 7
ACKNOWLEDGE = 0x11


def narrow_middle(rate_bps: int, delay_ps: int, loss: float, retry: Any = None, **transport: Any) -> Fabric:
    """Two hosts, two switches; the cable between these is the bottleneck, and corrupts frames in both directions."""
    fast = Rate(4 * rate_bps)
    links = [
        NamedLink("a", "s1", rate=fast),
        NamedLink("s1", "s2", rate=Rate(rate_bps), delay=Duration(delay_ps), loss=loss, retry=retry),
        NamedLink("s2", "b", rate=fast),
    ]
    topology = Explicit(
        host=[NamedHost("a"), NamedHost("b")], switch=[NamedSwitch("s1"), NamedSwitch("s2")], link=links
    )
    given = {"window_packets": 60000, "ack_timeout": Duration(10**12), **transport}
    return Fabric(topology=topology, transport=Transport(**given))


def received_ps(run: NativeRun) -> int:
    return int(run.records[1]["nodes"]["end_ps"].max())


def of_link(fabric: Fabric, run: NativeRun, name: str, counter: str) -> int:
    return int(run.links[counter][build_network(fabric).link_names.index(name)])


def troubles(run: NativeRun) -> dict[str, int]:
    """Return the counters that move when a transport notices a loss."""
    names = ("retransmitted", "naks_sent", "naks_received", "timeouts", "refused")
    return {name: sum(it[name] for it in run.counters) for name in names}


# The closed form of go-back-N


@pytest.mark.parametrize("loss", [0.001, 0.01, 0.1, 0.5])
@pytest.mark.parametrize(("rate_gbps", "delay_ns"), [(100, 0), (100, 500), (400, 50), (400, 2000)])
def test_throughput_of_a_saturated_link_is_that_of_go_back_n(loss: float, rate_gbps: int, delay_ns: int) -> None:
    """With W frames in a round trip, a frame's own time included, it is (1 - p) / (1 - p + p W) of the rate.

    A frame is sent 1 / (1 - p) times on average, and each time but the last takes W frames (Bertsekas and Gallager,
    Data Networks, 2.4). The number of replays is negative binomial.
    """
    rate_bps, delay_ps, packets = rate_gbps * GBPS, delay_ns * NS, 2000
    workload = point_to_point(0, 1, packets * PACKET)
    fabric = narrow_middle(rate_bps, delay_ps, loss, "go-back-n")
    lossy = run_native(twin_of(fabric), workload)
    clean = run_native(twin_of(narrow_middle(rate_bps, delay_ps, 0.0)), workload)
    frame_ps = transmission_ps(FULL_BYTES, rate_bps)
    replays = of_link(fabric, lossy, "s1->s2", "replays")
    # The first frame is 16 B longer, and the last one 4 B.
    assert received_ps(lossy) - received_ps(clean) == pytest.approx(
        replays * (frame_ps + 2 * delay_ps), abs=20 * transmission_ps(16, rate_bps)
    )
    mean, deviation = packets * loss / (1 - loss), (packets * loss) ** 0.5 / (1 - loss)
    assert abs(replays - mean) < 4 * deviation
    window = 1 + 2 * delay_ps / frame_ps
    expected = (1 - loss) / (1 - loss + loss * window)
    # The share of the rate, of the time in which the link is busy.
    share = packets * frame_ps / (packets * frame_ps + received_ps(lossy) - received_ps(clean))
    assert share == pytest.approx(expected, abs=4 * deviation * window / packets * expected)
    assert lossy.dropped == 0
    assert not any(troubles(lossy).values())


def test_without_retry_a_link_loses_as_many_frames_as_it_corrupts() -> None:
    packets, loss = 4000, 0.02
    fabric = narrow_middle(100 * GBPS, 500 * NS, loss, recovery="selective-repeat", reordering_packets=1)
    run = run_native(twin_of(fabric), point_to_point(0, 1, packets * PACKET))
    sent, lost = (of_link(fabric, run, "s1->s2", name) for name in ("packets", "dropped"))
    assert sent == run.data_packets
    assert abs(lost - sent * loss) < 4 * (sent * loss * (1 - loss)) ** 0.5
    assert of_link(fabric, run, "s1->s2", "dropped_bytes") >= lost * FULL_BYTES
    assert of_link(fabric, run, "s1->s2", "replays") == 0
    assert troubles(run)["retransmitted"] >= lost
    others = [name for name in build_network(fabric).link_names if {"s1", "s2"} != set(name.split("->"))]
    assert not any(of_link(fabric, run, name, "dropped") for name in others)


# The timeline of planned losses


@pytest.mark.parametrize("cut_through", [False, True])
@pytest.mark.parametrize("corrupted", [(3,), (0,), (19,), (3, 4), (7, 8, 9)])
def test_a_replay_costs_its_frame_and_the_cables_round_trip(corrupted: tuple[int, ...], cut_through: bool) -> None:
    """A corrupted frame ends, its NACK comes back by the cable, the frame starts again, and the others follow."""
    rate_bps, delay_ps, packets = 100 * GBPS, 500 * NS, 20
    fabric = msgspec.structs.replace(
        single_switch(2, rate_bps),
        link=Link(Rate(rate_bps), Duration(delay_ps), retry="go-back-n"),
        switch=Switch(latency=Duration(300 * NS), cut_through=cut_through),
    )
    workload, losses = point_to_point(0, 1, packets * PACKET), [Loss(0, 1, numbers=corrupted)]
    result = twin_of(fabric).play(workload, losses=losses, keep_trace=True)
    sizes = [FULL_BYTES + 16, *[FULL_BYTES] * (packets - 2), FULL_BYTES + 4]  # RETH; immediate
    takes = [size * 80 for size in sizes]  # 8 bits at 100 Gb/s are 80 ps
    # By hand: until a frame's first sending ends, and until the port has it over.
    held = [time + (time + 2 * delay_ps if at in corrupted else 0) for at, time in enumerate(takes)]
    over = list(accumulate(held))
    first_sending = [end - own + time for end, own, time in zip(over, held, takes, strict=True)]
    data = [entry for entry in result.traces[0] if entry[OPCODE] != ACKNOWLEDGE]
    assert [entry[PSN] for entry in data] == list(range(packets))
    assert [entry[TIME] for entry in data] == first_sending
    assert not any(entry[LOST] for entry in data)
    # The switch has a frame, or its header, 500 ns of the cable and 300 ns of its own later, and sends it on.
    free = 0
    for end, time in zip(over, takes, strict=True):
        read_ps = 64 * 80 if cut_through else time
        free = max(free, end - time + read_ps + delay_ps + 300 * NS) + time
    assert received_ps(run_native(twin_of(fabric), workload, losses=losses)) == free + delay_ps
    assert result.transfers["last_ns"].to_list() == [(free + delay_ps) // 1000]
    assert result.counters["links"]["replays"] == [len(corrupted), 0, 0, 0]
    assert result.counters["dropped"] == 0
    assert result.transfers["retransmits"].to_list() == [0]


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_frame_that_waits_starts_when_the_one_before_is_over(seed: int) -> None:
    """Four packets reach a switch's port at once; each replay there holds all that are behind it."""
    rate, delay_ps, frame_ps = Rate(100 * GBPS), 500 * NS, (FULL_BYTES + 20) * 80
    links = [NamedLink(f"h{at}", "s", rate=rate) for at in range(4)]
    links.append(NamedLink("s", "h4", rate=rate, delay=Duration(delay_ps), loss=0.3, retry="go-back-n"))
    topology = Explicit(host=[NamedHost(f"h{at}") for at in range(5)], switch=[NamedSwitch("s")], link=links)
    fabric = Fabric(topology=topology)
    run = run_native(twin_of(fabric, seed=seed), incast(4, PACKET))
    replays = of_link(fabric, run, "s->h4", "replays")
    end_ps = int(run.records[4]["nodes"]["end_ps"].max())
    assert end_ps == frame_ps + 4 * frame_ps + replays * (frame_ps + 2 * delay_ps) + delay_ps


# The transport sees nothing


@pytest.mark.parametrize("recovery", ["go-back-n", "selective-repeat"])
def test_retry_spares_the_transport_its_own(recovery: Any) -> None:
    workload, ends = point_to_point(0, 1, 2000 * PACKET), {}
    for retry in (None, "go-back-n"):
        fabric = narrow_middle(100 * GBPS, 1000 * NS, 0.005, retry, recovery=recovery, window_packets=256)
        run = run_native(twin_of(fabric), workload)
        ends[retry] = received_ps(run)
        if retry is None:
            assert troubles(run)["retransmitted"] >= run.dropped > 0
            assert run.data_packets > 2000
        else:
            assert not any(troubles(run).values())
            assert run.dropped == 0
            assert run.data_packets == 2000
            assert sum(run.links["replays"]) > 0
    assert ends["go-back-n"] < ends[None]


def test_frames_of_a_flow_keep_their_order() -> None:
    """Without room for any reordering every frame is the next that its receiver expects."""
    fabric = narrow_middle(100 * GBPS, 500 * NS, 0.3, "go-back-n", reordering_packets=0)
    run = run_native(twin_of(fabric), point_to_point(0, 1, 500 * PACKET))
    assert not any(troubles(run).values())
    assert run.counters[1]["data_received"] == 500


@pytest.mark.parametrize("loss", [0.05, 0.4])
def test_pauses_lose_nothing_while_frames_are_replayed(loss: float) -> None:
    """A pause frame does not wait for a replay, so that the headroom is as large as without retry."""
    fabric = msgspec.structs.replace(
        crowded(SingleSwitch(hosts=9)),
        link=Link(Rate(100 * GBPS), Duration(US // 2), loss=loss, retry="go-back-n"),
        downlink=Downlink(Rate(60 * GBPS)),
        congestion=None,
    )
    direct = Lowering(algorithms={"all_to_all": "direct"})
    run = run_native(twin_of(fabric), collective(Op.ALL_TO_ALL, 9, 4 << 20), direct)
    assert sum(run.links["pauses"]) > 100
    assert sum(run.links["replays"]) > 100
    assert run.dropped == 0
    assert not any(troubles(run).values())


def test_a_class_of_links_has_errors_of_its_own() -> None:
    spine_link = Link(Rate(100 * GBPS), Duration(500 * NS), loss=0.05, retry="go-back-n")
    fabric = Fabric(
        topology=LeafSpine(leaves=2, spines=2, hosts_per_leaf=2, spine_link=spine_link),
        link=Link(Rate(100 * GBPS), Duration(500 * NS)),
    )
    run = run_native(twin_of(fabric), collective(Op.ALL_TO_ALL, 4, 1 << 20))
    by_name = {name: of_link(fabric, run, name, "replays") for name in build_network(fabric).link_names}
    assert sum(by_name.values()) > 0
    assert not any(replays for name, replays in by_name.items() if "host" in name)


# Files


HEAD = '[topology]\nkind = "single-switch"\nhosts = 2\n[link]\nrate = "100Gb/s"\ndelay = "1us"\n'


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("loss = 0.6", "link.loss = 0.6: give a number from 0 to 0.5"),
        ("loss = -1e-9", "link.loss = -1e-09: give a number from 0 to 0.5"),
        ("loss = nan", "link.loss = nan: give a number from 0 to 0.5"),
        ('retry = "selective"', "link.retry = 'selective': give"),
        ('retry = "go-back-n"\nburst = "1MB"', 'link.retry = "go-back-n", and host0->switch has a token bucket'),
    ],
)
def test_impossible_errors_of_links_are_refused(lines: str, words: str) -> None:
    with pytest.raises(FabricError) as refused:
        parse_fabric(HEAD + lines)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    assert refused.value.code == 2


@pytest.mark.parametrize("level", ["flow", "analytic"])
def test_other_levels_name_the_losses_that_they_leave_out(level: str, capsys: pytest.CaptureFixture[str]) -> None:
    fabric = parse_fabric(HEAD + "loss = 1e-6\n")
    run = Twin(fabric, build_network(fabric), range(2), level=level).play(point_to_point(0, 1, 1 << 20))
    assert f"level {level} loses and replays no frames: loss of [link] has no effect" in capsys.readouterr().err
    assert not any(run.counters["links"]["replays"])


def test_a_cable_may_differ_from_the_others() -> None:
    text = (
        '[topology]\nkind = "explicit"\nhost = [{name = "a"}, {name = "b"}]\nswitch = [{name = "s"}]\n'
        'link = [{a = "a", b = "s", loss = 0, retry = "none"}, {a = "b", b = "s", delay = "2us"}]\n'
        '[link]\nrate = "100Gb/s"\ndelay = "1us"\nloss = 1e-6\nretry = "go-back-n"\n'
    )
    network = build_network(parse_fabric(text))
    assert network.loss.tolist() == [0, 0, 1e-6, 1e-6]
    assert network.retry_ps.tolist() == [-1, -1, 4 * US, 4 * US]
