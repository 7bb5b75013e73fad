"""From what was observed to what is said: hand-made observations, one thing wrong in each."""

from __future__ import annotations

import errno

import pytest
from check_scenes import (
    ALL_KINDS,
    HOSTS,
    LEAF_OF,
    PATHS,
    Path,
    change,
    facts,
    incast,
    links_of,
    lose,
    seen,
    settings,
)

from genie.check.congestion import why_no_incast
from genie.check.findings import findings_of, unasked
from genie.check.names import Names
from genie.check.rate_findings import reach_note
from genie.check.rate_plans import slow_share_of
from genie.check.settings import (
    OTHER,
    ROCE,
    CheckSettings,
    Flow,
    LinkTest,
    Observed,
    Probed,
    Rated,
    Refusal,
    Trace,
)
from genie.check.stations import stations_of

pytestmark = pytest.mark.live

NAMED = {f"{one}-{other}": f"{one}-{other}" for one in ("leaf0", "leaf1") for other in ("spine0", "spine1")}
NAMED |= {f"{one}-{other}": f"{one}-{other}" for one in ("spine0", "spine1") for other in ("leaf0", "leaf1")}


def said(scene: Observed, asked: CheckSettings | None = None) -> list[tuple[str, str]]:
    return [(each.kind, each.text) for each in findings_of(asked or settings(), scene)]


def only(scene: Observed, kind: str, *words: str, asked: CheckSettings | None = None) -> str:
    """There is one finding, of this kind, with these words."""
    found = said(scene, asked)
    assert [each for each, _ in found] == [kind], found
    for word in words:
        assert word in found[0][1], found
    return found[0][1]


def to_host_3(path: Path) -> bool:
    return path[1] == 3


def over_a_link(path: Path) -> bool:
    return "leaf0-spine1" in links_of(path)


def test_nothing_is_said_of_a_sound_network() -> None:
    assert said(seen()) == []
    assert said(seen(traced=False)) == []


# -- hosts ---------------------------------------------------------------------------------------------------


def test_an_address_that_no_interface_has() -> None:
    scene = seen()
    scene.facts[3] = facts(3, interface="", addresses={"lo": ["127.0.0.1"], "eth1": ["10.9.0.3", "fe80::1"]})
    text = only(scene, "address", "rank 3 (host3, 10.0.3.1)", "have 10.9.0.3 (eth1)", "correct the hosts file")
    assert "127.0.0.1" not in text
    assert "fe80" not in text


def test_an_address_that_another_host_of_the_job_has_instead() -> None:
    scene = seen()
    scene.facts[3] = facts(3, interface="", addresses={})
    scene.facts[5] = facts(5, addresses={"eth0": ["10.0.5.1", "10.0.3.1"]})
    only(scene, "address", "have no address", "10.0.3.1 is on the host of rank 5 (host5, 10.0.5.1)")


def test_an_address_on_two_hosts() -> None:
    scene = seen()
    scene.facts[5] = facts(5, addresses={"eth0": ["10.0.5.1"], "eth1": ["10.0.3.1"]})
    only(scene, "duplicate", "10.0.3.1 is on two hosts", "eth0 of rank 3", "eth1 of rank 5")
    assert stations_of(settings(), scene.facts) == [0, 1, 2, 4, 5, 6, 7]


def test_an_address_that_a_stranger_has_too() -> None:
    scene = seen()
    scene.facts[3] = facts(3, duplicate_owner="02:00:00:00:00:07")
    only(scene, "duplicate", "10.0.3.1 is on two hosts", "a machine with the Ethernet address 02:00:00:00:00:07")


def test_addresses_for_which_nobody_was_asked_are_told() -> None:
    scene = seen()
    assert unasked(scene, Names(settings())) == ""
    scene.facts[3] = facts(3, duplicate_owner=None)
    assert said(scene) == []
    assert "was not made for rank 3 (host3, 10.0.3.1): it needs IPv4" in unasked(scene, Names(settings()))
    scene.facts = [facts(rank, duplicate_owner=None) for rank in range(HOSTS)]
    assert "was not made for any host: " in unasked(scene, Names(settings()))


def test_addresses_that_all_machines_have_are_no_duplicates() -> None:
    scene = seen()
    for rank in range(HOSTS):
        scene.facts[rank] = facts(rank, addresses={"eth0": [f"10.0.{rank}.1"], "docker0": ["172.17.0.1"]})
    assert said(scene) == []


def test_ranks_of_one_host_share_its_address() -> None:
    asked = settings(4, addresses=["10.0.0.1", "10.0.0.1", "10.0.1.1", "10.0.1.1"])
    own = [facts(rank // 2) for rank in range(4)]
    assert stations_of(asked, own) == [0, 2]
    scene = Observed(facts=own, stations=[0, 2], mtu_bytes={0: 4096, 2: 4096}, probed=Probed())
    assert said(scene, asked) == []


@pytest.mark.parametrize(
    ("wrong", "kind", "words"),
    [
        ({"is_up": False}, "interface", "eth0 is down, or has no carrier"),
        ({"roce_port": "is in use"}, "port", "UDP port 4791 is in use: see ss -ulpn"),
        ({"gid": "no RDMA device has a GID of 10.0.3.1"}, "gid", "no RDMA device has a GID"),
        ({"switches_off": ["roce_np priority 3"]}, "congestion", "is off (roce_np priority 3): write 1"),
        ({"mtu_bytes": 1500}, "mtu", "eth0 has an MTU of 1500, and most have 9000: ip link set eth0 mtu 9000"),
    ],
)
def test_what_a_host_says_of_itself(wrong: dict[str, object], kind: str, words: str) -> None:
    scene = seen()
    scene.facts[3] = facts(3, **wrong)
    only(scene, kind, "rank 3 (host3, 10.0.3.1)", words)


# -- what arrives --------------------------------------------------------------------------------------------


def test_a_host_to_which_nothing_comes() -> None:
    scene = seen()
    lose(scene, ALL_KINDS, to_host_3)
    only(scene, "unreachable", "nothing arrives from all others to rank 3 (host3, 10.0.3.1)")


def test_the_port_of_roce_is_dropped_on_the_way_to_a_host() -> None:
    scene = seen()
    lose(scene, tuple(kind for kind in ALL_KINDS if kind != OTHER), to_host_3)
    only(scene, "dropped", "UDP port 4791 is dropped and other ports pass", "to rank 3 (host3")


def test_one_pair() -> None:
    scene = seen()
    lose(scene, ALL_KINDS, lambda path: path[:2] == (2, 3))
    only(scene, "unreachable", "from rank 2 (host2, 10.0.2.1) to rank 3 (host3, 10.0.3.1)")


def test_one_of_several_paths_of_a_pair() -> None:
    scene = seen(traced=False)
    lose(scene, ALL_KINDS, lambda path: path == (2, 6, 1))
    port = settings().probe_ports[1]
    only(scene, "unreachable", f"on 1 of {PATHS} paths, for example by UDP source port {port}")


def test_many_pairs_are_counted() -> None:
    scene = seen(traced=False)
    lose(scene, ALL_KINDS, lambda path: path[2] == 0 and path[0] < 3)
    kinds = [text for _, text in said(scene)]
    assert len(kinds) == 5
    assert kinds[-1].startswith("the same between 17 more pairs of hosts")


def test_everything_is_lost() -> None:
    scene = seen()
    lose(scene, ALL_KINDS, lambda path: True)
    only(scene, "unreachable", "nothing arrives between all hosts")


def test_a_router_that_answers_is_quoted() -> None:
    scene = seen()
    lose(scene, ALL_KINDS, to_host_3)
    scene.probed.refusals = [Refusal(0, 3, 1, "10.0.8.1", 3, 13), Refusal(0, 2, 1, "10.0.9.1", 3, 13)]
    text = only(scene, "unreachable", "(10.0.8.1 answers: prohibited by a filter)")
    assert "10.0.9.1" not in text


def test_what_the_own_kernel_says_is_quoted() -> None:
    scene = seen()
    lose(scene, ALL_KINDS, lambda path: path[0] == 3)
    scene.probed.refusals = [Refusal(3, 1, 0, "", errno.ENETUNREACH)]
    only(scene, "unreachable", "from rank 3", "the sender's own kernel says: Network is unreachable")


def test_a_link_that_drops_the_port_is_known_by_traces_of_another() -> None:
    scene = seen(traced=False)
    lose(scene, ROCE, over_a_link)
    for source, target, path in [(a, b, p) for a in range(8) for b in range(8) for p in range(PATHS) if a != b]:
        links = links_of((source, target, path))
        answered = 1 if over_a_link((source, target, path)) else len(links)  # a drop sends no answer
        scene.probed.traces.append(Trace(source, target, path, links[:answered]))
        if LEAF_OF[source] == 0 and LEAF_OF[target] == 1:
            scene.probed.other_traces.append(Trace(source, target, path, links))
    only(scene, "dropped", "over leaf0-spine1 or spine1-leaf1", asked=settings(link_names=NAMED))


def test_a_router_that_drops_the_port_leaves_the_link_into_it_unseen() -> None:
    scene = seen(traced=False)
    lose(scene, ROCE, over_a_link)
    for source, target, path in [(a, b, p) for a in range(8) for b in range(8) for p in range(PATHS) if a != b]:
        links = links_of((source, target, path))
        answered = 2 if over_a_link((source, target, path)) else len(links)
        scene.probed.traces.append(Trace(source, target, path, links[:answered]))
        if LEAF_OF[source] == 0 and LEAF_OF[target] == 1:
            scene.probed.other_traces.append(Trace(source, target, path, links))
    only(scene, "dropped", "over leaf0-spine1 or spine1-leaf1", asked=settings(link_names=NAMED))


# -- sizes and header bits -----------------------------------------------------------------------------------


def test_a_smaller_mtu_at_a_host() -> None:
    scene = seen()
    lose(scene, (4096, 2048), to_host_3)
    only(scene, "mtu", "packets of path MTU 4096 do not arrive, and of 1024 do", "to rank 3", "to 4160 or more")


def test_a_smaller_mtu_of_a_link_between_switches() -> None:
    scene = seen()
    lose(scene, (4096, 2048), over_a_link)
    scene.probed.refusals = [Refusal(*path, "10.0.8.1", 3, 4, 1500) for path in [(0, 4, 1)]]
    text = only(scene, "mtu", "over leaf0-spine1 or spine1-leaf1", asked=settings(link_names=NAMED))
    assert ("10.0.8.1 answers that 1500 bytes fit" in text) == over_a_link((0, 4, 1))


def test_links_without_names_are_said_by_the_address_at_which_they_end() -> None:
    scene = seen()
    lose(scene, (4096, 2048), over_a_link)
    only(scene, "mtu", "over the link into leaf0-spine1 or the link into spine1-leaf1")


def test_what_does_not_arrive_at_all_is_not_said_again_of_its_size() -> None:
    scene = seen()
    lose(scene, ALL_KINDS, to_host_3)
    assert [kind for kind, _ in said(scene)] == ["unreachable"]


def test_ecn_bits_that_are_cleared() -> None:
    scene = seen()
    change(scene, lambda tos: tos & 0xFC, over_a_link)
    only(scene, "ecn", "ECN bits are cleared over leaf0-spine1 or spine1-leaf1", asked=settings(link_names=NAMED))


def test_ecn_bits_that_are_changed() -> None:
    scene = seen()
    change(scene, lambda tos: tos & 0xFC | 2, to_host_3)
    scene.probed.changed = [each for each in scene.probed.changed if each.sent != each.arrived]
    only(scene, "ecn", "ECN bits are changed from 01 to 10 from all others to rank 3")


def test_marks_are_no_change() -> None:
    scene = seen()
    change(scene, lambda tos: tos | 3, to_host_3)
    assert said(scene) == []


def test_another_dscp() -> None:
    scene = seen()
    change(scene, lambda tos: tos & 3, lambda path: True)
    only(scene, "dscp", "DSCP 26 arrives as 0 between all hosts", "trust DSCP")


def test_two_things_at_once_are_two_findings() -> None:
    scene = seen()
    lose(scene, (4096, 2048), to_host_3)
    change(scene, lambda tos: tos & 0xFC, lambda path: path[0] == 5)
    assert [kind for kind, _ in said(scene)] == ["mtu", "ecn"]


# -- rates and congestion control ----------------------------------------------------------------------------


def slowed(scene: Observed, share: float, *, source: int = -1, target: int = -1) -> None:
    assert scene.rates is not None
    for at, each in enumerate(scene.rates.pairs):
        if source in (each.flow.source, -1) and target in (each.flow.target, -1):
            scene.rates.pairs[at] = Rated(each.flow, each.rate_bps * share)


def test_a_direction_of_a_host_at_half_rate() -> None:
    scene = seen()
    slowed(scene, 0.5, source=3)
    only(scene, "rate", "from rank 3 (host3, 10.0.3.1) to all get 48 Mb/s, 50 % of what hosts reach")


def test_below_the_line_rate_hosts_are_compared_with_each_other_and_a_note_says_so() -> None:
    scene = seen()
    assert scene.rates is not None
    assert reach_note(scene.rates, 100_000_000) == reach_note(scene.rates, 0) == ""
    assert reach_note(scene.rates, 25_000_000_000) == (
        "hosts reach 97 Mb/s of 25Gb/s: rates were compared with each other, and a link that is slow but faster than "
        "that was not seen"
    )
    slowed(scene, 0.7, source=3)
    assert [kind for kind, _ in said(scene)] == ["rate"]
    scene.rates.slow_share = slow_share_of(scene.rates.by_flow, 25_000_000_000)
    assert said(scene) == [], "processors differ so much"
    slowed(scene, 0.7, source=3)
    assert [kind for kind, _ in said(scene)] == ["rate"]
    slowed(scene, 0.0)
    assert reach_note(scene.rates, 100_000_000).startswith("rates were not judged: no flow")


def test_an_incast_that_hosts_cannot_fill_is_not_tried() -> None:
    scene = seen()
    assert why_no_incast(settings(), scene) == ""
    assert why_no_incast(settings(rate_bps=125_000_000), scene) == (
        "hosts reach 97 Mb/s, and do not fill a link of 125Mb/s"
    )


def test_the_best_of_a_hosts_rounds_counts() -> None:
    scene = seen()
    assert scene.rates is not None
    slowed(scene, 0.5, source=3)
    scene.rates.pairs.append(Rated(Flow(3, 0), 95e6))
    scene.rates.pairs = [each for each in scene.rates.pairs if each != Rated(Flow(3, 0), 48.5e6)]
    assert said(scene) == []


def test_a_link_between_switches_at_half_rate() -> None:
    scene = seen()
    assert scene.rates is not None
    first = scene.rates.links[0]
    scene.rates.links[0] = LinkTest(first.links, first.flows, 97e6)
    only(scene, "rate", "2 flows get 97 Mb/s, 50 % of what they reach over others", "leaf0-spine0")


def test_hosts_without_a_line_rate_may_differ_by_more() -> None:
    scene = seen()
    slowed(scene, 0.7, source=3)
    assert scene.rates is not None
    scene.rates.slow_share = slow_share_of({}, 0)
    assert said(scene, settings(rate_bps=0)) == []
    slowed(scene, 0.7, source=3)
    only(scene, "rate", "from rank 3", asked=settings(rate_bps=0))


def test_no_marks_at_all() -> None:
    scene = seen()
    scene.incasts = [incast(rank, marks=0, cnps_sent=0, cnps_received=[0] * 3) for rank in range(HOSTS)]
    only(scene, "congestion", "incasts of 3 to 1 bring no ECN mark", "turn ECN on")


def test_congestion_control_that_is_off_at_one_host() -> None:
    scene = seen()
    assert scene.incasts is not None
    for rank, each in enumerate(scene.incasts):
        if rank == 1:
            scene.incasts[rank] = incast(1, cnps_sent=0, cnps_received=[0] * 3)
        elif 1 in each.senders:
            scene.incasts[rank] = incast(rank, cnps_received=[0 if sender == 1 else 300 for sender in each.senders])
    text = only(scene, "congestion", "congestion control is off at rank 1 (host1, 10.0.1.1)", "no CNP for 600 marked")
    assert "not ECN-capable" in text


def test_packets_whose_bits_are_cleared_on_the_way_say_nothing_of_congestion_control() -> None:
    scene = seen()
    assert scene.incasts is not None
    for rank, each in enumerate(scene.incasts):
        if 1 in each.senders:
            scene.incasts[rank] = incast(rank, cnps_received=[0 if sender == 1 else 300 for sender in each.senders])
    change(scene, lambda tos: tos & 0xFC, lambda path: path[0] == 1)
    only(scene, "ecn", "from rank 1")


def test_a_sender_that_cnps_do_not_slow() -> None:
    scene = seen()
    assert scene.incasts is not None
    for rank, each in enumerate(scene.incasts):
        if 6 in each.senders:
            scene.incasts[rank] = incast(rank, rates_bps=[90e6 if sender == 6 else 5e6 for sender in each.senders])
    only(scene, "congestion", "off at rank 6", "CNPs do not slow it down")


def test_a_sender_that_was_lucky_once_is_not_blamed() -> None:
    scene = seen()
    assert scene.incasts is not None
    scene.incasts[0] = incast(0, cnps_received=[0, 300, 300], rates_bps=[90e6, 5e6, 5e6])
    assert said(scene) == []
