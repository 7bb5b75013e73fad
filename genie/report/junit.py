"""Results as JUnit XML, for pipelines: a test case for each component that was to be judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from xml.etree import ElementTree

from genie.inputs.printable import printable
from genie.page.words import percent
from genie.record import JUNIT_KIND, mark, replace_own

if TYPE_CHECKING:
    from genie.verdict.history.comparison import Comparison
    from genie.verdict.model import Suspect, Verdict

State = Literal["passed", "failure", "error", "skipped"]
NICS, LINKS = "NICs", "links"  # groups of test cases
DIRECTIONS = ("egress", "ingress")


@dataclass(frozen=True)
class Case:
    """A test case: a component or a question, with its answer."""

    group: str
    name: str
    state: State = "passed"
    text: str = ""  # why it did not pass, in one line
    time_s: float = 0.0


def write_junit(path: Path, suite: str, cases: Sequence[Case], line: str = "") -> None:
    """Write the file, replacing another file of this kind only. `line`: the result in words. Raises RecordError."""
    replace_own(path, junit(suite, cases, line), JUNIT_KIND)


def junit(suite: str, cases: Sequence[Case], line: str = "") -> str:
    """The cases as JUnit XML, in the form that Jenkins and GitLab read."""
    counts = {state: sum(case.state == state for case in cases) for state in ("failure", "error", "skipped")}
    totals = {
        "tests": str(len(cases)),
        "failures": str(counts["failure"]),
        "errors": str(counts["error"]),
        "skipped": str(counts["skipped"]),
        "time": f"{sum(case.time_s for case in cases):.3f}",
    }
    root = ElementTree.Element("testsuites", {"name": suite, **totals})
    part = ElementTree.SubElement(root, "testsuite", {"name": suite, **totals})
    properties = ElementTree.SubElement(part, "properties")
    ElementTree.SubElement(properties, "property", {"name": "schema", "value": mark(JUNIT_KIND)})
    for case in cases:
        facts = {"classname": f"{suite}.{case.group}", "name": printable(case.name), "time": f"{case.time_s:.3f}"}
        element = ElementTree.SubElement(part, "testcase", facts)
        if case.state != "passed":
            ElementTree.SubElement(element, case.state, {"message": printable(case.text)}).text = printable(case.text)
    if line:
        ElementTree.SubElement(part, "system-out").text = printable(line)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def cases_of_verdict(verdict: Verdict) -> list[Case]:
    """A case for the verdict, and for each component: accused, open, known, judged or not judged."""
    took_s = sum(each.span_ns for each in verdict.iterations) / 1e9
    state: State = {"pass": "passed", "fail": "failure", "inconclusive": "error"}[verdict.result]  # type: ignore[assignment]
    cases = [Case("verdict", "the network plays as the twin does", state, verdict.line(), took_s)]
    found: dict[tuple[str, str], Case] = {}  # each component once, by its first answer

    def add(place: tuple[str, str], state: State, text: str) -> None:
        found.setdefault(place, Case(*place, state, text))

    for each in verdict.suspects:
        text = f"{each.evidence}; open: {each.doubt}" if each.doubt else each.evidence
        for place in _places(each):
            add(place, "error" if each.doubt else "failure", text)
        for name in each.also:
            if "->" in name:
                add((LINKS, name), "error", f"would look the same as {each.name}")
    for each in verdict.known:
        for place in _places(each):
            add(place, "skipped", f"a known fault: {each.evidence}")
    for name, bound in verdict.upper_bound.items():
        if bound is not None and bound < verdict.options.practical:
            place = (LINKS, name.removeprefix("link ")) if name.startswith("link ") else (NICS, name)
            add(place, "passed", f"at most {percent(bound)} slower than its peers")
    for part in filter(None, (verdict.judged.nics, verdict.judged.links)):
        for why, names in part.not_judged.items():
            for name in names:
                add((NICS if part is verdict.judged.nics else LINKS, name), "skipped", f"not judged: {why}")
    return [*cases, *found.values()]


def _places(suspect: Suspect) -> list[tuple[str, str]]:
    """Return group and name of each case of a suspect: its parts pass under the same names."""
    if suspect.kind in ("nic", "host") and suspect.ranks:
        ways = (suspect.direction,) if suspect.direction in DIRECTIONS else DIRECTIONS
        return [(NICS, f"rank {rank} {way}") for rank in suspect.ranks for way in ways]
    return [(LINKS, link) for link in suspect.links] or [(suspect.kind, suspect.name)]


def cases_of_bench(report: Mapping[str, Any] | None, errors: Sequence[str]) -> list[Case]:
    """A case for each size that was measured, for the minimum of the bandwidth, and for each error.

    `report`: the object of `genie bench -J`, None if no size was measured.
    """
    cases: list[Case] = []
    if report is not None:
        ours = report["genie"]
        slower = {
            (each["size_bytes"], each["root"]): each
            for each in (ours.get("baseline") or {}).get("sizes", [])
            if each["slower"]
        }
        for result in report["results"]:
            times, wrong = result["out_of_place"], int(result["out_of_place"]["nwrong"] or 0)
            root = f", root {result['root']}" if result["root"] != "-1" else ""
            change = slower.get((result["size"], result["root"]))
            text = f"{wrong} bytes are not what was sent" if wrong else ""
            if change is not None and not wrong:
                text = f"{100 * change['fraction']:+.0f} %: {change['before_us']:.1f} to {change['after_us']:.1f} us"
            name = f"{result['size']} bytes{root}"  # the same in every run, so that pipelines show its history
            cases.append(
                Case(str(ours["collective"]), name, "failure" if text else "passed", text, times["time"] / 1e6)
            )
        average = report["average_bus_bandwidth"]
        if average["okay"] != "unchecked":
            text = f"{average['bandwidth']:.4g} GB/s"
            state: State = "passed" if average["okay"] == "true" else "failure"
            cases.append(Case("bandwidth", "average bus bandwidth", state, text))
    return [*cases, *(Case("bench", "bench", "error", text) for text in errors)]


def cases_of_comparisons(found: Iterable[Comparison]) -> list[Case]:
    """A case for each run, and for each component of it that became slower."""
    cases = []
    for each in found:
        state: State = {"slower": "failure", "inconclusive": "error"}.get(each.result, "passed")  # type: ignore[assignment]
        cases.append(Case("run", each.after, state, each.line(), each.iteration.after_ns / 1e9))
        cases += [Case("run", f"{each.after}: {it.name}", "failure", it.evidence) for it in each.suspects]
    return cases
