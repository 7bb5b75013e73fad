"""JUnit XML of verdicts and comparisons, held against the form that Jenkins and GitLab read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from link_runs import run_pair as link_run_pair
from live_runs import genie
from synthetic_runs import Fault, Noise, run_pair

from genie.record import Run, write_run
from genie.report.junit import Case, cases_of_verdict, junit
from genie.verdict import judge

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
    assert named >= {f"rank {rank} egress" for suspect in verdict.suspects for rank in suspect.ranks}
    assert verdict.line() in "".join(root.itertext())


def test_each_judged_component_has_a_case_of_its_own() -> None:
    verdict = judge(*run_pair(1, Noise(), Fault()))
    root = read(junit("genie", cases_of_verdict(verdict)))
    passed = {case.attrib["name"] for case in root[0].findall("testcase") if len(case) == 0}
    assert {f"rank {rank} {way}" for rank in range(8) for way in ("egress", "ingress")} <= passed


def test_a_suspect_that_may_not_be_at_fault_is_an_error_and_no_failure() -> None:
    verdict = judge(*run_pair(1, Noise(), Fault(5, 0.5)))
    (suspect,) = verdict.suspects
    verdict.suspects[0] = replace(suspect, doubt="traffic of others crosses it")
    root = read(junit("genie", cases_of_verdict(verdict)))
    (case,) = (case for case in root[0].findall("testcase") if case.attrib["name"] == "rank 5 egress")
    assert [child.tag for child in case] == ["error"]
    assert case[0].attrib["message"].endswith("; open: traffic of others crosses it")


def test_a_component_has_one_case_of_the_same_name_whatever_its_answer() -> None:
    def names(fault: float | None) -> set[tuple[str, str]]:
        verdict = judge(*link_run_pair(3, {} if fault is None else {"leaf0->spine1": fault}))
        cases = read(junit("genie", cases_of_verdict(verdict)))[0].findall("testcase")
        every = [(case.attrib["classname"], case.attrib["name"]) for case in cases]
        assert len(every) == len(set(every))
        return {each for each in every if each[0] == "genie.links"}

    assert ("genie.links", "leaf0->spine1") in names(None)
    assert names(0.4) == names(None)


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
