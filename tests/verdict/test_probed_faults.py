"""Suspects from probes: kinds of fault, whole switches, paths that are slow at times, and faults that are known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from genie.config import known_faults as configured
from genie.config.known_faults import check_components, load_known
from genie.config.strict_toml import SettingsError
from genie.errors import UsageError
from genie.verdict.known import KnownFault, explanation_of
from genie.verdict.model import Suspect
from genie.verdict.probed.faults import ProbedFault, fault_suspects, whole_switches
from genie.verdict.probed.probes import Probes, probes_of, queue_often_at, suspects_from, with_probed_suspects

HOST_LINKS = {"host3->leaf0": ("egress", 3), "leaf0->host3": ("ingress", 3)}
BETWEEN = [f"{one}->{other}" for leaf in ("leaf0", "leaf1") for spine in ("spine0", "spine1")
           for one, other in ((leaf, spine), (spine, leaf))]  # fmt: skip


def fault(kind: str, *links: str, ranks: tuple[int, ...] = (), words: str = "loses 1 % of its packets") -> ProbedFault:
    return ProbedFault(kind, words, links, ranks, 0.01, 7)


def test_two_directions_of_a_cable_are_one_suspect_and_links_that_look_alike_are_named() -> None:
    both, one = fault_suspects(
        [
            fault("loss", "leaf0->spine1", "spine1->leaf1"),
            fault("loss", "spine1->leaf0"),
            fault("mtu", "leaf1->spine0"),
        ],
        HOST_LINKS,
    )
    assert (both.name, both.kind, both.fault, both.direction) == ("leaf0-spine1", "link", "loss", "both")
    assert both.evidence == (
        "link leaf0-spine1 loses 1 % of its packets in both directions in probes after the run; on 14 paths"
    )
    assert both.also == ["spine1->leaf1"]
    assert (one.name, one.direction, one.links) == ("leaf1->spine0", "one way", ["leaf1->spine0"])


def test_places_of_hosts_paths_and_the_whole_network() -> None:
    found = fault_suspects(
        [
            fault("loss", "host3->leaf0", ranks=(3,)), fault("congestion", ranks=(5,), words="does not slow down"),
            fault("loss", ranks=(1, 2)), fault("congestion", words="marks packets"),
        ],
        HOST_LINKS,
    )  # fmt: skip
    assert [each.kind for each in found] == ["nic", "host", "link", "switch"]
    assert found[0].evidence.startswith("rank 3: its NIC or link (host3->leaf0) loses 1 %")
    assert found[1].evidence.startswith("rank 5: its host does not slow down in probes")
    assert found[2].evidence.startswith("the path from rank 1 to rank 2 loses")
    assert found[3].evidence.startswith("no switch marks packets")
    assert [each.name for each in found[1:]] == [
        "the host of rank 5", "the path from rank 1 to rank 2", "the ECN settings of the switches",
    ]  # fmt: skip


def test_figures_of_two_directions_are_each_said_with_their_link() -> None:
    there, back = (fault("loss", link, words=f"loses {share} %") for link, share in (("a->b", 1), ("b->a", 2)))
    (cable,) = fault_suspects([there, back], HOST_LINKS)
    assert cable.evidence.startswith("link a-b loses 1 % on a->b, and loses 2 % on b->a in probes after the run")


def suspect(name: str, slow_down: float = 1.0, kind: str = "link", what: str = "rate", **more: Any) -> Suspect:
    base = Suspect(
        kind, name, [], 1.0, f"{kind} {name} is slow", [], "one way", slow_down, 0, None, [5, 5], [name], what
    )
    return replace(base, **more)


def test_the_same_fault_on_all_cables_of_a_switch_is_the_switch() -> None:
    slow = [suspect("leaf0->spine1"), suspect("leaf1->spine1", 0.9)]
    (whole,) = whole_switches(slow, BETWEEN)
    assert (whole.kind, whole.name, whole.links) == ("switch", "spine1", ["leaf0->spine1", "leaf1->spine1"])
    assert whole.evidence.startswith("switch spine1, all 2 cables: link leaf0->spine1 is slow")
    assert whole_switches(slow[:1], BETWEEN) == slow[:1]
    mixed = [slow[0], suspect("leaf1->spine1", what="loss")]
    assert whole_switches(mixed, BETWEEN) == mixed
    unlike = [suspect("leaf0->spine1", 3.0), suspect("leaf1->spine1", 0.2)]
    assert whole_switches(unlike, BETWEEN) == unlike
    others = [suspect("leaf2->spine0"), *slow]
    assert {each.name for each in whole_switches(others, [*BETWEEN, "leaf2->spine0"])} == {"spine1", "leaf2->spine0"}


PATHS = (("leaf0->spine0", "spine0->leaf1"), ("leaf0->spine1", "spine1->leaf1"), ("leaf1->spine0", "spine0->leaf0"))


def probed(slow: dict[int, list[int]], rounds: int = 30, **more: Any) -> Probes:
    """Three paths; `slow`: path -> rounds in which it has 0.4 of its rate."""
    tests = [
        {
            "links": list(links), "flows": [0, 1], "expected_bps": 2e8,
            "rates_bps": [2e8 * (0.4 if number in slow.get(at, ()) else 0.98) for number in range(rounds)], **more,
        }
        for at, links in enumerate(PATHS)
    ]  # fmt: skip
    return probes_of({"tests": tests, "crossed": BETWEEN})


def test_a_path_that_is_slow_at_times_is_a_suspect_and_does_not_pass() -> None:
    probes = probed({1: [3, 4, 11, 12, 20, 28]})
    assert [path.at_times for path in probes.paths] == [False, True, False]
    assert not {"leaf0->spine1", "spine1->leaf1"} & probes.passed(0.1).keys()
    (found,) = suspects_from(probes, 0.1)
    assert (found.fault, found.name, found.also) == ("intermittent", "leaf0->spine1", ["spine1->leaf1"])
    assert "is slow at times: 80 Mb/s of 200 Mb/s in 6 of 30 probes after the run" in found.evidence
    assert found.slow_down == pytest.approx(0.98 / 0.4 - 1)


@pytest.mark.parametrize(
    "slow",
    [{1: [3, 9]}, {0: [1, 2, 3, 7], 1: [5, 6, 8, 9], 2: [11, 12, 13, 19]}, {1: list(range(30))}],
    ids=["twice", "every path", "always"],
)
def test_what_chance_explains_is_not_slow_at_times(slow: dict[int, list[int]]) -> None:
    assert not any(path.at_times for path in probed(slow).paths)


def test_the_queue_of_a_path_that_is_slow_at_times_is_where_most_trains_found_it() -> None:
    links = ["host2->leaf0", "leaf0->spine1", "spine1->leaf1", "leaf1->host6"]
    none, first, second = [10_000, 20_000, 30_000], [10_000, 9_000_000, 9_010_000], [10_000, 20_000, 9_000_000]
    assert queue_often_at(links, [none, first, none, first, first]) == "leaf0->spine1"
    assert queue_often_at(links, [none, first]) == "", "once is no majority"
    assert queue_often_at(links, [first, first, second, second]) == ""
    assert queue_often_at(links, []) == ""
    short = [10_000, 4_000_000, 4_010_000]
    assert queue_often_at(links, [short, second, short, short, second]) == "spine1->leaf1", "the fast path has a queue"


def test_a_slow_path_beside_a_lossy_link_is_not_named_twice() -> None:
    probes = replace(probed({1: list(range(30))}), faults=(fault("loss", "leaf0->spine1"),))
    assert [each.fault for each in suspects_from(probes, 0.1)] == ["loss"]


def test_victims_of_a_lossy_link_are_not_accused_and_a_second_large_fault_is() -> None:
    lossy = fault_suspects([fault("loss", "leaf0->spine1")], HOST_LINKS)
    small, large = suspect("rank 2", 0.15, links=[]), suspect("rank 3", 1.0, links=[])
    assert [each.name for each in with_probed_suspects([small, large], lossy)] == ["leaf0->spine1", "rank 3"]


def test_a_host_without_congestion_control_is_a_suspect_although_no_link_is() -> None:
    probed = fault_suspects([fault("congestion", ranks=(5,), words="does not slow down")], HOST_LINKS)
    assert [each.fault for each in with_probed_suspects([], probed)] == ["congestion"]


KNOWN = """
[[known]]
component = "spine1-leaf0"
note = "OPS-12"
[[known]]
component = "rank 3"
fault = "loss"
"""


def test_known_faults(tmp_path: Path) -> None:
    path = tmp_path / "known.toml"
    path.write_text(KNOWN)
    read = load_known(path)
    check_components(read, path, ["leaf0", "spine1"], ["leaf0->spine1", "spine1->leaf0"], 4)
    known = [KnownFault(each.component, each.fault, each.note) for each in read]
    one = explanation_of(suspect("leaf0->spine1"), known)
    assert one is not None
    assert one.note == "OPS-12"
    cable = suspect("leaf0-spine1", links=["leaf0->spine1", "spine1->leaf0"])
    assert explanation_of(cable, known) == one
    assert explanation_of(suspect("leaf1->spine1"), known) is None
    nic = suspect("host3/nic0", kind="nic", ranks=[3], links=["host3->leaf0"])
    assert explanation_of(nic, known) is None, "another fault than the known one"
    assert explanation_of(replace(nic, fault="loss"), known) is not None


def test_a_known_switch_explains_its_cables() -> None:
    known = [KnownFault("spine1")]
    whole = suspect("spine1", kind="switch", links=["leaf0->spine1", "leaf1->spine1"])
    assert explanation_of(whole, known) is not None
    assert explanation_of(suspect("leaf0->spine1"), known) is not None
    assert explanation_of(suspect("leaf0->spine0"), known) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[known]]\nnote = 'x'\n", "known.toml:1: known[0].component is missing"),
        ("[[known]]\ncomponent = 'a'\nfault = 'odd'\n", "known.toml:3: known[0].fault"),
        ("[[known]]\ncomponent = 'a'\nnte = ''\n", "known.toml:3: known[0].nte is an unknown key"),
        ("", "known.toml:1: known"),
    ],
)
def test_a_wrong_file_is_said_with_its_line(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "known.toml"
    path.write_text(text)
    with pytest.raises(SettingsError) as wrong:
        load_known(path)
    assert says in str(wrong.value)


def test_a_component_that_the_fabric_lacks(tmp_path: Path) -> None:
    known = [configured.KnownFault(component="spine7")]
    with pytest.raises(UsageError, match="number 1: 'spine7' is no component of this fabric"):
        check_components(known, tmp_path / "known.toml", ["spine1"], ["leaf0->spine1"], 4)
