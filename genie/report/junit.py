"""Results as JUnit XML, for pipelines: a test case for each component that was to be judged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from xml.etree import ElementTree

from genie.inputs.printable import printable
from genie.record import JUNIT_KIND, mark, replace_own

if TYPE_CHECKING:
    from genie.verdict.history.comparison import Comparison
    from genie.verdict.model import Verdict

State = Literal["passed", "failure", "error", "skipped"]


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
    """A case for the verdict, for each suspect, for the parts that were judged, and for each part that was not."""
    took_s = sum(each.span_ns for each in verdict.iterations) / 1e9
    state: State = {"pass": "passed", "fail": "failure", "inconclusive": "error"}[verdict.result]  # type: ignore[assignment]
    cases = [Case("verdict", "the network plays as the twin does", state, verdict.line(), took_s)]
    cases += [Case(suspect.kind, suspect.name, "failure", suspect.evidence) for suspect in verdict.suspects]
    for part in filter(None, (verdict.judged.nics, verdict.judged.links)):
        group = part.name.replace(" ", "-")
        counts = f"{part.judged} of {part.total} judged"
        cases.append(Case(group, part.name, "passed" if part.judged else "skipped", counts))
        cases += [
            Case(group, name, "skipped", f"not judged: {why}")
            for why, names in part.not_judged.items()
            for name in names
        ]
    return cases


def cases_of_comparisons(found: Iterable[Comparison]) -> list[Case]:
    """A case for each run, and for each component of it that became slower."""
    cases = []
    for each in found:
        state: State = {"slower": "failure", "inconclusive": "error"}.get(each.result, "passed")  # type: ignore[assignment]
        cases.append(Case("run", each.after, state, each.line(), each.iteration.after_ns / 1e9))
        cases += [Case("run", f"{each.after}: {it.name}", "failure", it.evidence) for it in each.suspects]
    return cases
