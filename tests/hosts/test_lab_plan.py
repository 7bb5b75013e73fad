"""The plan of a lab: addresses, routes, buckets, and the fabric as built. Nothing is run."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path

import pytest
from lab_fabrics import leaf_spine

from genie.lab import LabError, Plan, parse_change, plan_of
from genie.lab.commands import POLICY, RPS_MASK, bucket, cables, filters, interfaces, marks, routes, sysctls, without
from genie.lab.faults import Fault, changed
from genie.lab.marker import Port, program
from simtwin.fabric.reading import load_fabric, parse_fabric, to_toml
from simtwin.fabric.routing import shortest_path_routes
from simtwin.fabric.schema import Frame
from simtwin.fabric.topology import build_network

pytestmark = pytest.mark.live

SAMPLES = Path(__file__).resolve().parent.parent.parent / "hosts" / "fabrics"
LINK = '[link]\nrate = "100Mb/s"\n'
KINDS = {
    "single-switch": 'kind = "single-switch"\nhosts = 3',
    "leaf-spine": 'kind = "leaf-spine"\nleaves = 3\nspines = 2\nhosts_per_leaf = 2',
    "fat-tree": 'kind = "fat-tree"\nk = 4',
    "rails": 'kind = "rail-optimized"\nservers = 3\nrails = 2\nspines = 2\ndomain = {rate = "1Gb/s", pxn = true}',
    "dual-plane": 'kind = "dual-plane"\nleaves = 2\nspines = 2\nhosts_per_leaf = 2',
    "dragonfly": 'kind = "dragonfly"\nrouters = 3\nhosts_per_router = 1\nglobal_links = 1',
    "torus": 'kind = "torus"\nsize = [3, 3]',
}


def planned(text: str) -> Plan:
    return plan_of(parse_fabric(text))


@pytest.fixture(scope="module")
def small() -> Plan:
    return planned(leaf_spine())


def test_a_host_has_the_upper_address_of_its_cable(small: Plan) -> None:
    assert [small.addresses[f"host{h}"] for h in range(4)] == [[f"10.0.{h}.1"] for h in range(4)]
    assert small.addresses["leaf1"] == ["10.0.2.0", "10.0.3.0", "10.0.6.0", "10.0.7.0"]
    assert small.addresses["spine1"] == ["10.0.5.1", "10.0.7.1"]
    ends = [address for own in small.addresses.values() for address in own]
    assert len(set(ends)) == len(ends) == len(small.links)


def test_a_host_of_two_planes_has_two_addresses() -> None:
    plan = planned(f"[topology]\n{KINDS['dual-plane']}\n{LINK}")
    assert plan.addresses["host1"] == ["10.0.1.1", "10.0.9.1"]
    # From every port: both addresses by both planes.
    assert [len(ways) for ways in plan.next_hops()[0].values()] == [2] * 6


def test_routes_are_the_twins(small: Plan) -> None:
    leaf0 = small.nodes.index("leaf0")
    both = "nexthop via 10.0.4.1 dev cable4 onlink nexthop via 10.0.5.1 dev cable5 onlink"
    assert routes(small)[leaf0] == [
        "route replace 10.0.0.1/32 dev cable0 scope link",
        "route replace 10.0.1.1/32 dev cable1 scope link",
        *(f"route replace 10.0.{host}.1/32 {both}" for host in (2, 3)),
    ]
    assert routes(small)[0] == [f"route replace 10.0.{h}.1/32 via 10.0.0.0 dev cable0 onlink" for h in (1, 2, 3)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_host_reaches_every_address(kind: str) -> None:
    plan = planned(f"[topology]\n{KINDS[kind]}\n{LINK}")
    hops = plan.next_hops()
    for source, target in permutations(range(plan.hosts), 2):
        for address in plan.addresses[plan.nodes[target]]:
            reached, steps = {source}, 0
            while reached != {target}:
                reached = {way.target for node in reached for way in hops[node][address]} - {target} or {target}
                steps += 1
                assert steps < len(plan.nodes), "in circles"


@pytest.mark.parametrize("kind", KINDS)
def test_the_fabric_as_built_is_the_same_network(kind: str) -> None:
    fabric = parse_fabric(f"[topology]\n{KINDS[kind]}\n{LINK}")
    own, plan = build_network(fabric), plan_of(fabric)
    assert parse_fabric(to_toml(plan.fabric)) == plan.fabric
    built = plan.network
    assert (built.node_names, built.link_names) == (own.node_names, own.link_names)
    assert (built.rate_bps == own.rate_bps).all()
    mine, theirs = shortest_path_routes(built), shortest_path_routes(own)
    assert mine.groups == theirs.groups
    for group in range(mine.groups):
        assert (mine.hops.to(group) == theirs.hops.to(group)).all()
    assert (mine.last_hops == theirs.last_hops).all()


def test_buckets_are_in_the_fabric_as_built(small: Plan) -> None:
    by_name = {link.name: link for link in small.links}
    number = {name: at for at, name in enumerate(small.network.link_names)}
    # A soft NIC keeps its line rate: the bucket behind it is never empty.
    assert small.network.burst_bytes[number["host0->leaf0"]] == 0
    for name in ("leaf0->host0", "leaf0->spine1", "spine1->leaf0"):
        assert small.network.burst_bytes[number[name]] == by_name[name].burst_bytes == 2 * (4096 + 64 + 38)
        assert small.network.buffer_bytes[number[name]] == by_name[name].queue_bytes == 256 * 1024
    line = "qdisc replace dev cable5 root tbf rate 40000000bit burst 8396b limit 262144b overhead 24"
    assert bucket(by_name["leaf0->spine1"], Fault()) == line
    assert bucket(by_name["leaf0->spine1"], Fault(rate_bps=10**6)) == line.replace("40000000bit", "1000000bit")


def test_a_bucket_of_the_file_s_size() -> None:
    text = leaf_spine().replace('[link]\nrate = "20000000b/s"', '[link]\nrate = "20000000b/s"\nburst = "16KiB"')
    link = next(link for link in planned(text).links if link.name == "leaf0->host1")
    assert link.burst_bytes == 16384


def test_a_rate_above_the_file_s_has_a_bucket_that_reaches_it() -> None:
    plan = planned(leaf_spine(more='[ecn]\nminimum = "16KiB"\nmaximum = "64KiB"\n'))
    link = next(link for link in plan.links if link.name == "leaf0->spine1")
    for rate_bps, burst_bytes in ((10**9, 10**9 // 8 * 250 // 10**6), (41 * 10**6, 8396), (10**6, 8396)):
        faults = {link.name: Fault(rate_bps=rate_bps)}
        assert f" rate {rate_bps}bit burst {burst_bytes}b " in bucket(link, faults[link.name])
        ports = [Port(**json.loads(line)) for line in marks(plan, link.source, faults)]
        assert [port.burst_bytes for port in ports if port.device == link.device] == [burst_bytes]


def test_nodes_are_set_up(small: Plan) -> None:
    leaf0 = small.nodes.index("leaf0")
    assert sysctls(small, 0)["net/ipv4/ip_forward"] == "0"
    assert sysctls(small, leaf0)["net/ipv4/ip_forward"] == "1"
    seeds = {sysctls(small, node)["net/ipv4/fib_multipath_hash_seed"] for node in range(len(small.nodes))}
    assert len(seeds) == len(small.nodes)
    assert (sysctls(small, leaf0)[POLICY], sysctls(small, leaf0, has_fields=False)[POLICY]) == ("3", "1")
    assert [sysctls(small, node, (3, 40))[RPS_MASK] for node in range(3)] == ["8", "100,00000000", "8"]
    assert interfaces(small, 0) == [
        "link set lo up",
        "addr add 10.0.0.1/31 dev cable0",
        "link set cable0 up",
        "neigh replace 10.0.0.0 lladdr 02:00:0a:01:00:00 dev cable0 nud permanent",
    ]
    assert cables(small)[0] == (
        "link add name cable0 address 02:00:0a:00:00:00 mtu 9000 netns /proc/self/fd/100 type veth "
        "peer name cable0 address 02:00:0a:01:00:00 mtu 9000 netns /proc/self/fd/104"
    )


def test_routes_around_a_link_that_is_down(small: Plan) -> None:
    faults = changed({}, [parse_change("leaf0-spine1 down", small.links)], small.links)
    down = frozenset(faults)
    assert down == {"leaf0->spine1", "spine1->leaf0"}
    leaf0 = small.nodes.index("leaf0")
    assert routes(small, down)[leaf0][2:] == [
        f"route replace 10.0.{host}.1/32 via 10.0.4.1 dev cable4 onlink" for host in (2, 3)
    ]
    # The only way to a host: nothing leads there any more, and nothing is replaced.
    cut = routes(small, frozenset({"leaf0->host0", "host0->leaf0"}))
    assert not any("10.0.0.1/32" in line for line in cut[leaf0])


def test_filters_are_where_packets_arrive(small: Plan) -> None:
    wrong = "leaf0->spine1 loss=1% ecn=50% mtu=1500"
    faults = changed({}, [parse_change(wrong, small.links)], small.links)
    spine1 = small.nodes.index("spine1")
    rules = [line.strip() for line in filters(small, spine1, faults).splitlines() if "iifname" in line]
    assert rules == [
        'iifname "cable5" ip length > 1500 counter drop',
        'iifname "cable5" numgen random mod 1000000 < 10000 counter drop',
        'iifname "cable5" ip ecn { ect0, ect1 } numgen random mod 1000000 < 500000 counter ip ecn set ce',
    ]
    assert all("iifname" not in filters(small, node, faults) for node in range(len(small.nodes)) if node != spine1)
    assert "iifname" not in filters(small, spine1, {})


def test_switches_mark_and_hosts_do_not() -> None:
    plan = planned(leaf_spine(more='[ecn]\nminimum = "16KiB"\nmaximum = "64KiB"\nprobability = 0.5\n'))
    assert marks(plan, 0, {}) == []
    lines = marks(plan, plan.nodes.index("spine0"), {"spine0->leaf0": Fault(rate_bps=10**6)})
    assert len(lines) == 2
    assert '"rate_bps": 1000000, "burst_bytes": 8396, "queue_bytes": 262144' in lines[0]
    assert '"minimum_bytes": 16384, "maximum_bytes": 65536, "probability": 0.5' in lines[1]
    without = plan_of(parse_fabric(to_toml(plan.fabric)), marks=False)
    assert without.fabric.ecn is None
    assert any("only root" in sentence for sentence in without.built.cannot)


def test_a_port_without_a_rate_has_no_queue_to_mark_by() -> None:
    plan = planned(leaf_spine(1, 2, more='[downlink]\nrate = "unlimited"\n[ecn]\nminimum = "2KiB"\nmaximum = "9KiB"\n'))
    switch = plan.nodes.index("leaf0")
    ports = [Port(**json.loads(line)) for line in marks(plan, switch, {"leaf0->host0": Fault(rate_bps=10**6)})]
    assert [(port.device, port.rate_bps, port.burst_bytes) for port in ports][:2] == [
        ("cable0", 10**6, 2 * 9014),
        ("cable1", 0, 2 * 9014),
    ]
    assert len(program(ports[0], 3)) > 8 * 50
    assert len(program(ports[1], 3)) == 8 * 2, "it lets all pass"


def test_what_other_simulators_frames_and_hosts_have_is_said_and_left_out() -> None:
    text = leaf_spine(more='[host]\npacket_latency = "1us"\ndoorbell_latency = "2us"\nnotification_latency = "3us"\n')
    text += '[frame]\noverhead_bytes = 38\npayload = "1000B"\ndata_header = "48B"\ncontrol = "60B"\n'
    text += 'pause = "31B"\ntime_unit = "1ns"\n'
    plan = planned(text)
    assert plan.built.cannot == (
        "[host] doorbell_latency, notification_latency: left out, hosts take the time that this machine takes.",
        "[frame] payload, data_header, control, pause, time_unit: left out, frames are RoCEv2's.",
    )
    assert plan.fabric.frame == Frame(overhead_bytes=38)
    assert int(plan.fabric.host.packet_latency) == 10**6


def test_what_a_kernel_lacks_is_said_where_it_matters() -> None:
    (sentence,) = without(["net/ipv4/fib_multipath_hash_seed", "net/ipv6/conf/all/disable_ipv6"])
    assert sentence.startswith("This kernel has no setting net.ipv4.fib_multipath_hash_seed: a flow's path is another")


def test_what_a_lab_cannot_do_is_said() -> None:
    said = " ".join(plan_of(load_fabric(SAMPLES / "leaf-spine.toml")).built.cannot)
    assert "no delay" in said
    assert "Links of 50Gb/s are faster than most machines forward" in said
    text = leaf_spine().replace('buffer = "256KiB"', 'shared_buffer = "9MiB"\ncut_through = true\ntrimming = true')
    text += '[pfc]\n[priority]\ncontrol = 6\n[load_balancing]\nmode = "spray"\n'
    text += '[[fault]]\nat = "1ms"\nlink = "leaf0->spine1"\n'
    text = text.replace("[link]\n", "[link]\nloss = 1e-6\n")
    plan = planned(text)
    said = " ".join(plan.built.cannot)
    for words in ("1MiB", "priority flow control", "cut-through", "trimmed", "no priorities", '"spray"', "[[fault]]"):
        assert words in said
    assert "Links lose no frames" in said
    assert plan.links[1].queue_bytes == 2**20  # alpha / (1 + alpha) of 9 MiB
    assert planned(leaf_spine()).built.cannot == ()


def test_fabrics_that_no_machine_holds() -> None:
    with pytest.raises(LabError, match="128 hosts are too many for a lab: give a fabric of at most 64"):
        plan_of(load_fabric(SAMPLES / "fat-tree-lossless.toml"))
    with pytest.raises(LabError, match="264 cables are too many for a lab"):
        planned(leaf_spine(8, 8, spines=25))
