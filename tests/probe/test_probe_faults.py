"""Faults that probes locate: delays from least latencies, losses, sizes, header bits; and links told apart by TTLs."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from genie.check.blame import Layout
from genie.check.probes import tos_of
from genie.check.settings import (
    ECT0,
    ROCE,
    Changed,
    CheckSettings,
    Facts,
    Flow,
    Incast,
    Latency,
    Lost,
    Observed,
    Probed,
    Tally,
    Trace,
)
from genie.probe.delays import clocks_ahead_ns, delays_of, late_flows
from genie.probe.faults import Fault, faults_of, host_links_of
from genie.probe.latencies import with_later
from genie.probe.split import TtlProbes, quoted_tos

PORTS = 4
HOSTS = 8


def links_of(source: int, target: int, port: int) -> tuple[str, ...]:
    """Links on two leaves with two spines and eight hosts."""
    one, other = source // 4, target // 4
    ends = (f"host{source}->leaf{one}", f"leaf{other}->host{target}")
    spine = (source + target + port) % 2
    return ends if one == other else (ends[0], f"leaf{one}->spine{spine}", f"spine{spine}->leaf{other}", ends[1])


PATHS = {
    Flow(source, target, port): links_of(source, target, port)
    for source in range(HOSTS) for target in range(HOSTS) if source != target for port in range(PORTS)
}  # fmt: skip
LINKS = sorted({link for links in PATHS.values() for link in links})
# The address at which a link ends is the link's name with an @.
TRACES = [Trace(flow.source, flow.target, flow.path, [f"@{link}" for link in links]) for flow, links in PATHS.items()]
NAMES = {f"@{link}": link for link in LINKS}
LAYOUT = Layout(range(HOSTS), PORTS, {(each.source, each.target, each.path): each.hops for each in TRACES})
ONE_CLOCK = dict.fromkeys(range(HOSTS), "here")
SETTINGS = CheckSettings(
    workload="", out="", ranks=HOSTS, addresses=[f"10.0.{rank}.1" for rank in range(HOSTS)], ports=[None] * HOSTS,
    host_names=[f"host{rank}" for rank in range(HOSTS)], rate_bps=10**8, iterations=1, warmup=0, seed=1, mtu=4096,
    paths=PORTS, traffic_class=104,
)  # fmt: skip


def latencies(slow: dict[str, int], draw: Any, ahead: dict[int, int] | None = None) -> list[Latency]:
    """Latencies with up to 20 us of noise. `slow`: link -> its delay in ns. `ahead`: of ranks' clocks."""
    clock = ahead or {}
    return [
        Latency(
            *(flow.source, flow.target, flow.path),
            ns=5000 * len(links)
            + draw.randrange(20_000)
            + sum(slow.get(link, 0) for link in links)
            + clock.get(flow.target, 0)
            - clock.get(flow.source, 0),
        )
        for flow, links in PATHS.items()
    ]


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.sampled_from(LINKS), st.integers(150_000, 10**8), st.randoms(use_true_random=False))
def test_a_link_that_delays_is_among_those_named_and_its_delay_is_right(link: str, delay_ns: int, draw: Any) -> None:
    (found,) = delays_of(latencies({link: delay_ns}, draw), PATHS, LAYOUT, NAMES, ONE_CLOCK)
    assert link in found.links
    alike = {each for each in LINKS if all((each in links) == (link in links) for links in PATHS.values())}
    assert set(found.links) == alike, "only links on the same paths"
    assert abs(found.delay_ns - delay_ns) < 40_000


@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.randoms(use_true_random=False))
def test_noise_alone_is_no_delay(draw: Any) -> None:
    assert delays_of(latencies({}, draw), PATHS, LAYOUT, NAMES, ONE_CLOCK) == []


@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.sampled_from(LINKS), st.randoms(use_true_random=False))
def test_a_delay_that_is_gone_when_asked_again_is_none(link: str, draw: Any) -> None:
    before = latencies({link: 20_000_000}, draw)
    late = late_flows(before, PATHS, ONE_CLOCK)
    assert set(late) == {flow for flow, links in PATHS.items() if link in links}
    stays = {flow: [20_100_000, 20_050_000] for flow in late}
    (found,) = delays_of(with_later(before, stays), PATHS, LAYOUT, NAMES, ONE_CLOCK)
    assert link in found.links
    goes = {flow: [25_000_000, 40_000] for flow in late}
    assert delays_of(with_later(before, goes), PATHS, LAYOUT, NAMES, ONE_CLOCK) == []
    assert with_later(before, {flow: [] for flow in late}) == before, "nothing arrived: the first result counts"


def test_both_directions_of_a_cable_are_two_delays() -> None:
    class Still:
        def randrange(self, _: int) -> int:
            return 0

    found = delays_of(
        latencies({"leaf0->spine1": 300_000, "spine1->leaf0": 300_000}, Still()), PATHS, LAYOUT, NAMES, ONE_CLOCK
    )
    assert sorted(link for each in found for link in each.links if "0->s" in link or "1->leaf0" in link) == [
        "leaf0->spine1", "spine1->leaf0",
    ]  # fmt: skip


@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.lists(st.integers(-(10**9), 10**9), min_size=HOSTS, max_size=HOSTS), st.randoms(use_true_random=False))
def test_clocks_of_other_machines_accuse_no_host(ahead: list[int], draw: Any) -> None:
    clocks = {rank: f"machine {rank}" for rank in range(HOSTS)}
    off = dict(enumerate(ahead))
    assert delays_of(latencies({}, draw, off), PATHS, LAYOUT, NAMES, clocks) == []
    (found,) = delays_of(latencies({"leaf0->spine1": 500_000}, draw, off), PATHS, LAYOUT, NAMES, clocks)
    assert "leaf0->spine1" in found.links
    (own,) = delays_of(latencies({"host3->leaf0": 500_000}, draw, off), PATHS, LAYOUT, NAMES, clocks)
    assert set(own.links) == {"host3->leaf0", "leaf0->host3"}, "their clocks hide the direction"
    assert abs(own.delay_ns - 500_000) < 60_000
    assert clocks_ahead_ns(latencies({}, draw, off), ONE_CLOCK) == {}


def seen(**more: Any) -> Observed:
    probed = Probed(traces=list(TRACES), **{key: more.pop(key) for key in ("lost", "changed") if key in more})
    facts = [Facts(machine=f"boot {rank}", addresses={}) for rank in range(HOSTS)]
    return Observed(facts=facts, stations=list(range(HOSTS)), probed=probed, **more)


def crossing(link: str) -> list[Flow]:
    return [flow for flow, links in PATHS.items() if link in links]


def test_each_kind_of_fault_has_its_place() -> None:
    down, up = "leaf1->host6", "host2->leaf0"
    sent = tos_of(SETTINGS, ECT0)
    found = faults_of(
        SETTINGS,
        seen(
            lost=[Lost(flow.source, flow.target, flow.path, 4096) for flow in crossing(down)],
            changed=[Changed(flow.source, flow.target, flow.path, sent, 8 << 2) for flow in crossing(up)],
            tallies=[
                Tally(source, target, 40, [2 if up in links_of(source, target, port) else 0 for port in range(PORTS)])
                for source in range(HOSTS) for target in range(HOSTS) if source != target
            ],
            incasts=[
                Incast(receiver=0, senders=[1, 2], marks=90, cnps_sent=0, cnps_received=[0, 0], rates_bps=[1, 1]),
                Incast(receiver=1, senders=[0, 2], marks=90, cnps_sent=9, cnps_received=[3, 3], rates_bps=[1, 1]),
            ],
        ),
        PATHS,
        [],
    )  # fmt: skip
    by_kind = {each.kind: each for each in found}
    assert (by_kind["mtu"].links, by_kind["mtu"].ranks, by_kind["mtu"].size) == ([down], [6], 4096)
    assert (by_kind["dscp"].links, by_kind["dscp"].ranks) == ([up], [2])
    assert by_kind["dscp"].words == "changes DSCP 26 to 8"
    assert by_kind["ecn"].words == "clears the ECN bits of packets"
    assert (by_kind["loss"].links, by_kind["loss"].ranks, by_kind["loss"].size) == ([up], [2], 0.05)
    assert by_kind["loss"].words == "loses 5 % of its packets (56 of 1,120)"
    assert (by_kind["congestion"].links, by_kind["congestion"].ranks) == ([], [0])
    assert set(by_kind) == {"mtu", "dscp", "ecn", "loss", "congestion"}


def test_large_packets_lost_on_single_paths_show_no_mtu() -> None:
    lost = [Lost(flow.source, flow.target, flow.path, 4096) for flow in list(PATHS)[5::37]]
    assert faults_of(SETTINGS, seen(lost=lost), PATHS, []) == [], "other paths over each of their links pass them"
    untraced = Observed(facts=[Facts(machine="boot", addresses={})] * HOSTS, stations=list(range(HOSTS)),
                        probed=Probed(lost=lost))  # fmt: skip
    assert {each.kind for each in faults_of(SETTINGS, untraced, {}, [])} == {"mtu"}, "their links are not known"


def test_a_link_that_passes_nothing_and_switches_that_mark_nothing() -> None:
    gone = [Lost(flow.source, flow.target, flow.path, ROCE) for flow in crossing("leaf0->host1")]
    silent = Incast(receiver=0, senders=[1, 2], cnps_received=[0, 0], rates_bps=[1.0, 1.0])
    found = faults_of(SETTINGS, seen(lost=gone, incasts=[silent]), PATHS, [])
    assert [(each.kind, each.links, each.ranks) for each in found] == [
        ("unreachable", ["leaf0->host1"], [1]), ("congestion", [], []),
    ]  # fmt: skip


def test_a_sound_network_has_no_faults() -> None:
    pairs = [(source, target) for source in range(HOSTS) for target in range(HOSTS) if source != target]
    assert faults_of(SETTINGS, seen(tallies=[Tally(*pair, 40, [0] * PORTS) for pair in pairs]), PATHS, []) == []
    assert host_links_of(PATHS)["leaf1->host6"] == ("ingress", 6)
    assert host_links_of(PATHS)["host2->leaf0"] == ("egress", 2)


class FakeProber:
    """A path whose link number `faulty` (from 0) loses, delays or cuts packets; answers take another way back."""

    def __init__(self, kind: str, faulty: int) -> None:
        self.kind, self.faulty, self.waiting, self.number = kind, faulty, list[Any](), 0

    def open(self, ports: list[int]) -> set[int]:
        return set(ports)

    def send(self, to: tuple[str, int], payload: bytes, ttl: int, tos: int = 0) -> bool:
        import time
        from types import SimpleNamespace

        from genie.live.paths.probe import PROBE

        _, _, _, trial = PROBE.unpack_from(payload)
        self.number += 1
        crosses = ttl > self.faulty
        if crosses and (
            (self.kind == "loss" and self.number % 50 == 0)
            or (self.kind == "mtu" and len(payload) > 2000)
            or self.kind == "silent"
        ):
            return True
        late_ns = 400_000 if crosses and self.kind == "delay" else 0
        self.waiting.append(SimpleNamespace(ttl=ttl, trial=trial, time_ns=time.time_ns() + 30_000 + late_ns))
        return True

    def hear(self, limit_s: float) -> list[Any]:
        found, self.waiting = self.waiting, []
        return found


def test_a_ttl_that_ends_behind_the_link_shows_its_fault() -> None:
    sizes = {"loss": 0.02, "delay": 400_000.0, "mtu": 4096.0}
    for kind, size in sizes.items():
        for faulty in (1, 2):
            prober: Any = FakeProber(kind, faulty)
            probes = TtlProbes(prober, "10.0.0.1", ("10.0.4.1", 50000), 106)
            fault = Fault(kind, "", ["leaf0->spine1", "spine1->leaf1"], size=size)
            assert probes.first_faulty(fault, [1, 2]) == faulty - 1, (kind, faulty)


def test_nothing_is_decided_where_the_way_before_shows_the_fault_or_routers_are_silent() -> None:
    fault = Fault("loss", "", ["a->b", "b->c"], size=0.02)
    for prober in (FakeProber("loss", 0), FakeProber("silent", 1)):
        probes = TtlProbes(prober, "10.0.0.1", ("10.0.4.1", 50000), 106)  # type: ignore[arg-type]
        assert probes.first_faulty(fault, [1, 2]) == -1


def test_the_header_that_an_answer_quotes() -> None:
    inner = struct.pack("!BBHHHBBH4s4sHH", 0x45, 0x68, 60, 1, 0, 1, 17, 0, bytes(4), bytes([10, 0, 4, 1]), 50000, 4791)
    outer = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 80, 1, 0, 64, 1, 0, bytes([10, 0, 8, 1]), bytes(4))
    exceeded = struct.pack("!BBHI", 11, 0, 0, 0)
    to = ("10.0.4.1", 50000)
    assert quoted_tos(outer + exceeded + inner, to) == 0x68
    assert quoted_tos(outer + exceeded + inner, ("10.0.4.1", 50001)) is None
    assert quoted_tos(outer + exceeded + inner, ("10.0.5.1", 50000)) is None
    assert quoted_tos(outer + struct.pack("!BBHI", 3, 3, 0, 0) + inner, to) is None
    for cut in range(len(outer + exceeded + inner)):
        assert quoted_tos((outer + exceeded + inner)[:cut], to) in (None, 0x68)
