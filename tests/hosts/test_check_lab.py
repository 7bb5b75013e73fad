"""genie check in a lab: nothing in a clean one, and each of eight faults where it is."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live_runs import genie

from genie.lab import Lab, down, names_of, parse_change, up

pytestmark = [pytest.mark.live, pytest.mark.extended]

BENCHMARKS = Path(__file__).resolve().parent.parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def faults() -> Iterator[Any]:
    """The benchmark's faults, which are these tests' too."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        from common import first_aid_faults

        yield first_aid_faults
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def first_aid(faults: Any) -> Any:
    """The benchmark, which judges faults with clean labs beside them."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import first_aid

        return first_aid
    finally:
        sys.path.remove(str(BENCHMARKS))


MTU = {"kind": "mtu", "text": "over host1->leaf0: raise the MTU"}
RATE = {"kind": "rate", "text": "from rank 3 is slow"}


@pytest.mark.parametrize(
    ("code", "findings", "right"), [(1, [MTU], True), (1, [MTU, RATE], False), (1, [RATE], False), (0, [], False)]
)
def test_the_benchmark_wants_the_fault_and_nothing_beside_it(
    first_aid: Any, faults: Any, code: int, findings: list[dict[str, str]], right: bool
) -> None:
    put = faults.Put("host1->leaf0", ("mtu",), ("host1->leaf0",))
    row = first_aid.judged("small-mtu", put, code, 1.0, findings)
    assert (row.is_right, row.others) == (right, len([each for each in findings if each is not MTU]))


@pytest.fixture
def fabric(as_root: None, tmp_path: Path, faults: Any) -> Iterator[Path]:
    path = tmp_path / "first-aid.toml"
    path.write_text(faults.FABRIC)
    yield path
    for name in names_of(path):
        down(name)


def checked(fabric: Path, *more: str) -> tuple[int, list[dict[str, str]]]:
    """Exit code and findings."""
    report = fabric.parent / "check.json"
    report.unlink(missing_ok=True)
    ended = genie("check", "--lab", str(fabric), "--json", str(report), *more, limit_s=120)
    assert report.exists(), ended
    found = json.loads(report.read_bytes())["findings"]
    assert len(ended.stdout.splitlines()) == len(found) + 1, ended
    assert ended.left == [], ended
    return ended.code, found


def found_in(lab: Lab, faults: Any, name: str, fabric: Path, seed: int, *more: str) -> None:
    """A fault is found where it was put, and nothing else is."""
    put = faults.FAULTS[name](lab, random.Random(seed), fabric.parent)
    code, found = checked(fabric, *put.options, *more)
    assert code == 1
    assert len(found) == 1, (put, found)
    assert found[0]["kind"] in put.kinds
    assert any(word in found[0]["text"] for word in put.names), (put, found)


QUICK = ("small-mtu", "wrong-address", "dropped-4791", "ecn-cleared", "duplicate", "loss")


@pytest.mark.parametrize("name", QUICK)
def test_quick_checks_find_what_is_wrong_with_paths(name: str, fabric: Path, faults: Any) -> None:
    found_in(up(fabric)[0], faults, name, fabric, 3, "--quick")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["half-rate", "control-off"])
def test_rates_and_congestion_control(name: str, fabric: Path, faults: Any) -> None:
    found_in(up(fabric)[0], faults, name, fabric, 5)


@pytest.mark.parametrize(
    ("fault", "names"), [("host3-leaf0 loss=5%", "between rank 3 "), ("leaf0-spine1 loss=1%", "leaf0->spine1")]
)
def test_losses_are_one_finding_and_no_rate_beside_it(fault: str, names: str, fabric: Path) -> None:
    code, found = checked(fabric, "--lab-fault", fault)
    assert (code, [each["kind"] for each in found]) == (1, ["loss"]), found
    assert names in found[0]["text"]


@pytest.mark.slow
def test_a_link_between_switches_at_half_rate(fabric: Path, faults: Any) -> None:
    lab, _ = up(fabric)
    lab.set([parse_change("leaf1->spine0 rate=50%", lab.plan.links)])
    code, found = checked(fabric)
    assert code == 1
    assert [each["kind"] for each in found] == ["rate"]
    assert "leaf1->spine0" in found[0]["text"]


@pytest.mark.parametrize("link", ["leaf1->spine0", "spine1->leaf0"])
def test_faults_of_links_between_switches_are_told_as_theirs(link: str, fabric: Path, faults: Any) -> None:
    lab, _ = up(fabric)
    faults.rule_at_the_end(lab, link, "ip ecn set not-ect")
    faults.rule_at_the_end(lab, link, "udp dport 4791 ip length > 1500 drop")
    code, found = checked(fabric, "--quick")
    assert code == 1
    assert sorted(each["kind"] for each in found) == ["ecn", "mtu"]
    assert all(link in each["text"] for each in found), found


def test_nothing_is_found_in_a_clean_lab(fabric: Path) -> None:
    assert checked(fabric) == (0, [])


UNEQUAL = """name = "unequal"
[topology]
kind = "explicit"
host = [{ name = "a" }, { name = "b" }, { name = "c" }]
switch = [{ name = "s" }, { name = "t" }]
link = [
  { a = "a", b = "s", rate = "100Mb/s" },
  { a = "a", b = "t", rate = "100Mb/s" },
  { a = "b", b = "s", rate = "100Mb/s" },
  { a = "c", b = "s", rate = "100Mb/s" },
  { a = "s", b = "t", rate = "100Mb/s" },
]
"""


def test_hosts_may_have_unequal_numbers_of_cables(fabric: Path) -> None:
    fabric.write_text(UNEQUAL)
    code, found = checked(fabric, "--quick")
    assert (code, found) == (0, [])
