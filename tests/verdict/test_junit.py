"""JUnit XML of verdicts and comparisons, held against the form that Jenkins and GitLab read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import polars as pl
import pytest
from link_runs import run_pair as link_run_pair
from live_runs import genie
from synthetic_runs import Fault, Noise, run_pair

from genie.check.findings import KINDS
from genie.record import Run, write_run
from genie.report.junit import (
    Case,
    cases_of_check,
    cases_of_comparisons,
    cases_of_dead_run,
    cases_of_verdict,
    junit,
)
from genie.verdict import judge
from genie.verdict.history.comparison import compare

STATES = {"failure": "failures", "error": "errors", "skipped": "skipped"}


def read(text: str) -> ElementTree.Element:
    """Parse a file, and hold its elements, attributes and counts against the form."""
    root = ElementTree.fromstring(text)
    assert root.tag == "testsuites"
    (suite,) = root
    cases = suite.findall("testcase")
    assert {child.tag for child in suite} <= {"properties", "testcase", "system-out"}
    for holder in (root, suite):
        assert int(holder.attrib["tests"]) == len(cases)
        assert float(holder.attrib["time"]) >= 0
        for state, name in STATES.items():
            assert int(holder.attrib[name]) == sum(case.find(state) is not None for case in cases)
    for case in cases:
        assert set(case.attrib) == {"classname", "name", "time"}
        assert len(case) <= 1
        assert all(child.tag in STATES and set(child.attrib) == {"message"} for child in case)
    return root


@pytest.mark.parametrize("fault", [Fault(), Fault(5, 0.5), Fault(fleet=0.5)], ids=["none", "a NIC", "the fleet"])
def test_a_verdict(fault: Fault) -> None:
    verdict = judge(*run_pair(1, Noise(), fault))
    root = read(junit("genie", cases_of_verdict(verdict), verdict.line()))
    cases = root[0].findall("testcase")
    assert [child.tag for child in cases[0]] == ([] if fault == Fault() else ["failure"])
    named = {case.attrib["name"] for case in cases if case.find("failure") is not None}
    assert named >= {f"rank {rank}" for suspect in verdict.suspects for rank in suspect.ranks}
    assert verdict.line() in "".join(root.itertext())


def test_each_judged_component_has_a_case_of_its_own() -> None:
    verdict = judge(*run_pair(1, Noise(), Fault()))
    root = read(junit("genie", cases_of_verdict(verdict)))
    passed = {case.attrib["name"] for case in root[0].findall("testcase") if len(case) == 0}
    assert {f"rank {rank}" for rank in range(8)} <= passed


def test_a_suspect_that_may_not_be_at_fault_is_an_error_and_no_failure() -> None:
    verdict = judge(*run_pair(1, Noise(), Fault(5, 0.5)))
    (suspect,) = verdict.suspects
    verdict.suspects[0] = replace(suspect, doubt="traffic of others crosses it")
    root = read(junit("genie", cases_of_verdict(verdict)))
    (case,) = (case for case in root[0].findall("testcase") if case.attrib["name"] == "rank 5")
    assert [child.tag for child in case] == ["error"]
    assert case[0].attrib["message"].endswith("; open: traffic of others crosses it")


def names_of(cases: Sequence[Case]) -> set[tuple[str, str]]:
    found = read(junit("genie", cases))[0].findall("testcase")
    every = [(case.attrib["classname"], case.attrib["name"]) for case in found]
    assert len(every) == len(set(every))
    return set(every)


def test_a_component_has_one_case_of_the_same_name_whatever_its_answer() -> None:
    clean, *others = (
        link_run_pair(3, slow) for slow in ({}, {"leaf0->spine1": 0.4}, {"leaf0->spine1": 0.4, "spine1->leaf0": 0.4})
    )
    names = names_of(cases_of_verdict(judge(*clean)))
    assert {("genie.links", "leaf0->spine1"), ("genie.NICs", "rank 7")} <= names
    assert len(names) == 1 + 8 + 8
    for runs in others:
        assert names_of(cases_of_verdict(judge(*runs))) == names
    ends = pl.col("src").is_in([0, 7]) | pl.col("dst").is_in([0, 7])
    silent = [replace(run, transfers=run.transfers.filter(~ends)) for run in clean]
    verdict = judge(*silent)
    assert "rank 7" in verdict.judged.nics.not_judged["no payload sent or received"]
    assert names_of(cases_of_verdict(verdict)) == names


@pytest.mark.parametrize("kind", ["nic", "host", "rail", "switch"])
def test_suspects_with_ranks_are_the_nics_of_these(kind: str) -> None:
    verdict = judge(*run_pair(1, Noise(), Fault(5, 0.5)))
    names = names_of(cases_of_verdict(verdict))
    links = ["host4->switch0"] if kind in ("nic", "rail") else []
    verdict.suspects[0] = replace(verdict.suspects[0], kind=kind, name="odd", ranks=[4, 5], links=links)
    cases = cases_of_verdict(verdict)
    assert names_of(cases) == names
    assert [case.name for case in cases[1:] if case.state == "failure"] == ["rank 4", "rank 5"]


def test_what_looks_the_same_as_a_nic_is_no_case_of_its_own() -> None:
    """Its cable and its port count with it, and a path is no link."""
    verdict = judge(*run_pair(1, Noise(), Fault(5, 0.5)))
    names = names_of(cases_of_verdict(verdict))
    also = ["link host5->switch0", "its port on switch0", "the path from rank 5 to rank 4"]
    verdict.suspects[0] = replace(verdict.suspects[0], also=also)
    assert names_of(cases_of_verdict(verdict)) == names
    links = judge(*link_run_pair(3, {"leaf0->spine1": 0.4}))
    links.suspects[0] = replace(links.suspects[0], also=["leaf1->spine0"])
    states = {case.name: case.state for case in cases_of_verdict(links)}
    assert (states["leaf0->spine1"], states["leaf1->spine0"]) == ("failure", "error")


def test_tiers_keep_their_names_too() -> None:
    def tiers(slow: dict[str, float]) -> list[tuple[str, str]]:
        live, twin = link_run_pair(8, slow)
        verdict = judge(replace(live, paths=None), twin)
        return [(case.name, case.state) for case in cases_of_verdict(verdict) if case.group == "links"]

    assert tiers({}) == [("links 1-2", "passed")]
    assert tiers({"leaf0->spine0": 0.4}) == [("links 1-2", "skipped")]


def test_runs_that_are_compared_have_the_same_names_whatever_their_folders() -> None:
    def cases(seed: int, fault: Fault, folder: str) -> list[Case]:
        before, after = run_pair(1, Noise(), Fault())[0], run_pair(seed, Noise(), fault)[0]
        return cases_of_comparisons([compare(before, replace(after, path=Path(folder)))])

    same, slower = cases(2, Fault(), "monday"), cases(3, Fault(5, 0.5), "tuesday")
    assert names_of(same) == names_of(slower)
    assert {case.state for case in same} == {"passed"}
    failed = [(case.group, case.name) for case in slower if case.state == "failure"]
    assert failed == [("run 2", "no slower than before"), ("run 2.NICs", "rank 5")]


def test_a_check_has_a_case_for_each_kind_of_finding() -> None:
    report = {"findings": [], "observed": {"rates": None, "incasts": []}, "took_s": 1.5}
    clean = cases_of_check(report, KINDS)
    findings = [{"kind": "mtu", "text": "one"}, {"kind": "mtu", "text": "two"}]
    found = cases_of_check({**report, "findings": findings}, KINDS)
    assert names_of(clean) == names_of(found)
    assert [case.name for case in clean if case.state != "passed"] == ["rate"]
    assert [(case.name, case.text) for case in found if case.state == "failure"] == [
        ("check", "findings: 2"), ("mtu", "one; two"),
    ]  # fmt: skip


def test_a_live_run_that_died_fails_the_case_of_its_verdict() -> None:
    suspect = judge(*run_pair(1, Noise(), Fault(5, 0.5))).suspects[0]
    cases = cases_of_dead_run([suspect])
    assert [(case.group, case.name, case.state) for case in cases] == [
        ("verdict", "the network plays as the twin does", "failure"), ("NICs", "rank 5", "failure"),
    ]  # fmt: skip


def test_components_that_are_not_judged_are_skipped() -> None:
    verdict = judge(*run_pair(1, Noise(), Fault(), iterations=1, warmup=0))
    assert verdict.result == "inconclusive"
    root = read(junit("genie", cases_of_verdict(verdict)))
    assert root.attrib["errors"] == "1"
    assert verdict.judged.nics.judged == 0
    assert int(root.attrib["skipped"]) == verdict.judged.nics.total


def test_text_of_any_kind_is_escaped() -> None:
    nasty = 'a <b> & "c" \x00\x1b[31m \ud800 ]]>'
    root = read(junit("genie", [Case("nic", nasty, "failure", nasty)], nasty))
    assert "<b>" in root[0].findall("testcase")[0].attrib["name"]


def saved(run: Run, path: Path) -> str:
    write_run(path, run.info, run.timeline, run.transfers, run.counters)
    return str(path)


def test_commands_write_it(tmp_path: Path) -> None:
    live, twin = run_pair(1, Noise(), Fault())
    slow = run_pair(2, Noise(), Fault(5, 0.5))[0]
    played, simulated, later = (
        saved(run, tmp_path / name) for run, name in ((live, "live"), (twin, "twin"), (slow, "slow"))
    )
    out = tmp_path / "result.xml"
    assert genie("diff", played, simulated, "--junit", str(out)).code == 0
    assert read(out.read_text()).attrib["failures"] == "0"
    assert genie("compare", played, later, "--junit", str(out)).code == 1
    assert int(read(out.read_text()).attrib["failures"]) >= 2
    own = tmp_path / "own.xml"
    own.write_text("<mine/>")
    for given, words in ((own, "is not a file that Genie wrote"), (tmp_path / "result.txt", "must end in .xml")):
        ended = genie("diff", played, simulated, "--junit", str(given))
        assert ended.code == 2
        assert words in ended.stderr
    assert own.read_text() == "<mine/>"
