"""A lab that is up: who reaches whom, at which rate, by which ways, and what faults do."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_fabrics import HOST_RATE_BPS, SPINE_RATE_BPS, carried, leaf_spine, send, written

from genie.lab import Lab, parse_change, up_for
from genie.lab.commands import RPS_MASK

pytestmark = pytest.mark.exclusive

WIRE_BYTES = 28 + 38  # IP, UDP and [frame] overhead_bytes
BURSTS = 5  # where the machine stalls the sender of one, the queue empties meanwhile
ECN = '[ecn]\nminimum = "16KiB"\nmaximum = "16KiB"\n'


@pytest.fixture(scope="module")
def lab(as_root: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with up_for(written(tmp_path_factory.mktemp("lab"), leaf_spine())) as built:
        yield built


def rate_bps(lab: Lab, source: str, target: str, size: int = 1000) -> float:
    """Return the rate of a path, whole frames counted: the maximum of a few tries.

    A receiver without a core is late, and no bucket gives more than its rate.
    """

    def once() -> float:
        found = send(lab, source, target, size=size, count=HOST_RATE_BPS // (8 * (size + WIRE_BYTES)) * 6 // 10)
        return float(found["payload"]) / size * (size + WIRE_BYTES) * 8 / found["took_s"]

    return max(once() for _ in range(4))


def test_every_host_reaches_every_other(lab: Lab) -> None:
    for source, target in itertools.permutations(lab.plan.nodes[: lab.plan.hosts], 2):
        # Patient: on a busy machine the sender may take seconds to start.
        assert send(lab, source, target, count=3, patience_s=15)["packets"] == 3


def test_one_core_takes_what_arrives_at_a_node_so_that_packets_stay_in_order(lab: Lab) -> None:
    if RPS_MASK in lab.state.missing_settings:
        pytest.skip("this kernel cannot (Linux before 6.3)")
    show = "mount -t sysfs none /sys && cat /sys/class/net/cable*/queues/rx-*/rps_cpus"
    for name in lab.plan.nodes:
        line = ["unshare", "--mount", *lab.inside(name, "sh", "-c", show)]
        masks = subprocess.run(line, capture_output=True, text=True, check=True, timeout=120).stdout.split()
        assert len(set(masks)) == 1, name
        assert int(masks[0].replace(",", ""), 16).bit_count() == 1, name


@pytest.mark.extended
@pytest.mark.parametrize("size", [500, 4100])
def test_a_link_has_its_rate_whatever_the_size_of_frames(lab: Lab, size: int) -> None:
    assert rate_bps(lab, "host0", "host3", size) == pytest.approx(HOST_RATE_BPS, rel=0.04)


@pytest.mark.extended
def test_source_ports_use_both_spines_and_a_port_keeps_to_one(lab: Lab) -> None:
    used = []
    for port in range(7000, 7012):
        before = [carried(lab, f"leaf0->spine{spine}") for spine in range(2)]
        assert send(lab, "host0", "host2", count=20, source_port=port, patience_s=1.0)["packets"] == 20
        grown = [carried(lab, f"leaf0->spine{spine}") - was for spine, was in enumerate(before)]
        assert sorted(grown)[0] == 0
        used.append(grown.index(max(grown)))
    assert set(used) == {0, 1}


@pytest.mark.extended
def test_a_rate_is_changed_while_it_runs(lab: Lab) -> None:
    with lab.faults_injected([parse_change("host1->leaf0 rate=40%", lab.plan.links)]):
        assert lab.faults["host1->leaf0"].words() == "rate 8Mb/s"
        assert rate_bps(lab, "host1", "host0") == pytest.approx(0.4 * HOST_RATE_BPS, rel=0.04)
        assert rate_bps(lab, "host0", "host1") == pytest.approx(HOST_RATE_BPS, rel=0.04)
    assert lab.faults == {}
    assert rate_bps(lab, "host1", "host0") == pytest.approx(HOST_RATE_BPS, rel=0.04)


def test_loss(lab: Lab) -> None:
    with lab.faults_injected([parse_change("host0-leaf0 loss=25%", lab.plan.links)]):
        came = send(lab, "host0", "host1", size=100, count=2000)["packets"]
    assert 1380 < came < 1620


def test_a_delay_holds_every_packet_of_one_direction(lab: Lab) -> None:
    plain = [send(lab, *ends, size=100, count=50, pause_s=0.001) for ends in (("host0", "host1"), ("host1", "host0"))]
    with lab.faults_injected([parse_change("host0->leaf0 delay=3ms", lab.plan.links)]):
        slow, back = (
            send(lab, *ends, size=100, count=50, pause_s=0.001) for ends in (("host0", "host1"), ("host1", "host0"))
        )
        whole = send(lab, "host0", "host1", size=4000, count=200)
        assert lab.state.forwarders["host0->leaf0"].delay_ns == 3_000_000
    assert (slow["packets"], back["packets"], whole["packets"]) == (50, 50, 200)
    assert 2_900_000 < slow["least_ns"] - plain[0]["least_ns"] < 4_500_000
    assert back["least_ns"] - plain[1]["least_ns"] < 1_000_000
    assert slow["overtaken"] == 0
    assert not lab.state.forwarders
    after = send(lab, "host0", "host1", size=100, count=50, pause_s=0.001)
    assert after["packets"] == 50
    assert after["least_ns"] - plain[0]["least_ns"] < 1_000_000


def test_a_delayed_link_keeps_its_rate_and_its_other_faults(lab: Lab) -> None:
    with lab.faults_injected([parse_change("host0->leaf0 delay=1ms loss=25%", lab.plan.links)]):
        came = send(lab, "host0", "host1", size=100, count=2000)["packets"]
    assert 1380 < came < 1620, "lost once, and not once more after the delay"


def test_reordered_packets_are_overtaken_and_not_lost(lab: Lab) -> None:
    with lab.faults_injected([parse_change("leaf0->host1 reorder=5%", lab.plan.links)]):
        came = send(lab, "host0", "host1", size=100, count=1000)
    assert came["packets"] == 1000
    assert 15 < came["overtaken"] < 120


def test_dscp_is_rewritten_and_the_ecn_bits_stay(lab: Lab) -> None:
    with lab.faults_injected([parse_change("leaf0->host1 dscp=8", lab.plan.links)]):
        assert send(lab, "host0", "host1", count=20, tos=26 << 2 | 3) | {"took_s": 0, "least_ns": 0} == {
            "packets": 20, "marks": 20, "payload": 19000, "took_s": 0, "least_ns": 0, "overtaken": 0, "dscp": [8],
        }  # fmt: skip
        assert send(lab, "host1", "host0", count=20, tos=26 << 2)["dscp"] == [26]


def test_a_timetable_of_a_fault(lab: Lab) -> None:
    change = parse_change("host0->leaf0 loss=100% period=400ms on=50%", lab.plan.links)
    with lab.faults_injected([change]):
        came = send(lab, "host0", "host1", size=100, count=400, pause_s=0.01, patience_s=3.0)["packets"]
    assert 80 < came < 320, "some came, some not"
    assert lab.faults == {}
    assert send(lab, "host0", "host1", count=20)["packets"] == 20


def test_marks_on_packets_that_can_have_them(lab: Lab) -> None:
    with lab.faults_injected([parse_change("leaf0->host1 ecn=25%", lab.plan.links)]):
        capable = send(lab, "host0", "host1", size=100, count=2000, tos=2)
        other = send(lab, "host0", "host1", size=100, count=200)
    assert 380 < capable["marks"] < 620
    assert other["marks"] == 0
    assert capable["packets"] == 2000


def test_a_smaller_mtu_swallows_large_packets(lab: Lab) -> None:
    with lab.faults_injected([parse_change("leaf0->host1 mtu=1500", lab.plan.links)]):
        assert send(lab, "host0", "host1", size=1472, count=10)["packets"] == 10
        assert send(lab, "host0", "host1", size=1473, count=10)["packets"] == 0
        assert send(lab, "host1", "host0", size=1473, count=10)["packets"] == 10


def test_paths_go_around_a_link_that_is_down(lab: Lab) -> None:
    with lab.faults_injected([parse_change("leaf1-spine0 down", lab.plan.links)]):
        before = carried(lab, "leaf0->spine0")
        for port in range(7000, 7008):
            assert send(lab, "host0", "host2", count=5, source_port=port)["packets"] == 5
        assert carried(lab, "leaf0->spine0") == before
    with lab.faults_injected([parse_change("host0->leaf0 down", lab.plan.links)]):
        assert send(lab, "host0", "host1", count=5, patience_s=0.5)["packets"] == 0
        assert send(lab, "host1", "host0", count=5)["packets"] == 5
    assert send(lab, "host0", "host1", count=5)["packets"] == 5


def test_a_port_that_is_given_a_rate_marks_until_it_is_taken_away(as_root: None, tmp_path: Path) -> None:
    text = leaf_spine(1, 2, more='[ecn]\nminimum = "2KiB"\nmaximum = "2KiB"\n[downlink]\nrate = "unlimited"\n')
    with up_for(written(tmp_path, text.replace(f"{HOST_RATE_BPS}b/s", "unlimited"))) as lab:

        def marked() -> int:
            return int(send(lab, "host0", "host1", count=50, tos=2)["marks"])

        assert marked() == 0
        with lab.faults_injected([parse_change("leaf0->host1 rate=8Mb/s", lab.plan.links)]):
            assert any(marked() > 10 for _ in range(BURSTS))
        assert marked() == 0


def test_a_busy_port_marks_before_it_drops(as_root: None, tmp_path: Path) -> None:
    text = leaf_spine(1, 3, more=ECN).replace(f'rate = "{HOST_RATE_BPS}b/s"', 'rate = "unlimited"')
    text += f'[downlink]\nrate = "{HOST_RATE_BPS}b/s"\n'
    assert SPINE_RATE_BPS != HOST_RATE_BPS
    with up_for(written(tmp_path, text)) as lab:
        alone = send(lab, "host0", "host1", count=200, tos=2, pause_s=0.001)  # 9 Mb/s
        crowded = [send(lab, "host0", "host1", count=100, tos=2) for _ in range(BURSTS)]  # 100 kB at once
    assert (alone["packets"], alone["marks"]) == (200, 0)
    assert [each["packets"] for each in crowded] == [100] * BURSTS
    assert 40 < max(each["marks"] for each in crowded) < 90


def test_switches_of_a_fat_tree_choose_paths_independently(as_root: None, tmp_path: Path) -> None:
    text = 'name = "tree"\n[topology]\nkind = "fat-tree"\nk = 4\n[link]\nrate = "20Mb/s"\n'
    with up_for(written(tmp_path, text)) as tree:
        links = [f"aggregation{number // 2}->core{number}" for number in range(4)]
        before = {link: carried(tree, link) for link in links}
        for port in range(7000, 7048):
            send(tree, "host0", "host8", count=2, source_port=port)
        idle = [link for link in links if carried(tree, link) == before[link]]
        assert idle == [], "flows of 48 ports leave these links idle"
