"""Results as JUnit XML, for pipelines: a test case for each component that was to be judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from xml.etree import ElementTree

from genie.inputs.printable import printable
from genie.record import JUNIT_KIND, mark, replace_own

if TYPE_CHECKING:
    from genie.verdict.history.comparison import Comparison
    from genie.verdict.model import Suspect, Verdict

State = Literal["passed", "failure", "error", "skipped"]
NICS, LINKS = "NICs", "links"  # groups of test cases
OF_NICS = ("nic", "host", "rail")  # kinds of suspects that are NICs, or are told from nothing else by their NICs
VERDICT_CASE = ("verdict", "the network plays as the twin does")
NOT_SLOWER = "no slower than before"
BASELINE = "baseline"
COMPARED: dict[str, State] = {"slower": "failure", "inconclusive": "error"}  # the other results pass
NOT_ALWAYS = {"rate": "rates", "congestion": "incasts"}  # kind of finding -> its observations, which a check may lack


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
        ElementTree.SubElement(part, "system-out").text = "\n".join(map(printable, line.splitlines()))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def cases_of_verdict(verdict: Verdict) -> list[Case]:
    """A case for the verdict, and for each component: accused, open, known, judged or not judged.

    A component has the same name in every run, so that pipelines show its history.
    """
    took_s = sum(each.span_ns for each in verdict.iterations) / 1e9
    state: State = {"pass": "passed", "fail": "failure", "inconclusive": "error"}[verdict.result]  # type: ignore[assignment]
    return [Case(*VERDICT_CASE, state, verdict.line(), took_s), *_components(verdict)]


def cases_of_dead_run(suspects: Iterable[Suspect]) -> list[Case]:
    """A case for the verdict on a live run that died, and for each component that probes accuse."""
    cases = [Case(*place, *_answer(each)) for each in suspects for place in _places(each)]
    return [Case(*VERDICT_CASE, "failure", "the live run died"), *cases]


def _components(verdict: Verdict, prefix: str = "", accused: State | None = None) -> list[Case]:
    """Return a case for each component. `accused`: the state of suspects in place of their own."""
    found: dict[tuple[str, str], Case] = {}  # each component once, by its first answer

    def add(place: tuple[str, str], state: State, text: str) -> None:
        found.setdefault(place, Case(prefix + place[0], place[1], state, text))

    part = verdict.judged.links
    links = set() if part is None else {*part.names, *(name for names in part.not_judged.values() for name in names)}
    for each in verdict.suspects:
        state, text = _answer(each)
        for place in _places(each):
            add(place, accused or state, text)
        for name in links.intersection(each.also):
            add((LINKS, name), accused or "error", f"would look the same as {each.name}")
    for each in verdict.known:
        for place in _places(each):
            add(place, "skipped", f"a known fault: {each.evidence}")
    judged = verdict.judged
    for group, part in ((NICS, judged.nics), (LINKS, judged.links)):
        for why, names in part.not_judged.items() if part is not None else ():
            for name in names:
                add((group, name), "skipped", f"not judged: {why}")
        for name in part.names if part is not None else ():
            add((group, name), "passed", "")
    return list(found.values())


def _answer(suspect: Suspect) -> tuple[State, str]:
    if suspect.doubt:
        return "error", f"{suspect.evidence}; open: {suspect.doubt}"
    return "failure", suspect.evidence


def _places(suspect: Suspect) -> list[tuple[str, str]]:
    """Return group and name of each case of a suspect: its parts pass under the same names."""
    if suspect.ranks and (suspect.kind in OF_NICS or (suspect.kind == "switch" and not suspect.links)):
        return [(NICS, f"rank {rank}") for rank in suspect.ranks]
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


def cases_of_comparisons(found: Sequence[Comparison], names: Sequence[str] = ()) -> list[Case]:
    """A case for each later run, and for each component of it. `names`: of the runs; those of folders change."""
    cases = []
    for name, each in zip(names or [f"run {number}" for number in range(2, len(found) + 2)], found, strict=True):
        state = COMPARED.get(each.result, "passed")
        cases.append(Case(name, NOT_SLOWER, state, each.line(), each.iteration.after_ns / 1e9))
        cases += _components(each.verdict, f"{name}.", None if state == "failure" else state)
    return cases


def cases_of_check(report: Mapping[str, Any], kinds: Sequence[str]) -> list[Case]:
    """A case for the check, and for each kind of finding. `report`: the object of `genie check --json`."""
    found: dict[str, list[str]] = {kind: [] for kind in kinds}
    for each in report["findings"]:
        found[each["kind"]].append(each["text"])
    observed = report["observed"]
    left_out = {kind for kind, key in NOT_ALWAYS.items() if observed[key] is None}
    count = len(report["findings"])
    cases = [Case("check", "check", "failure" if count else "passed", f"findings: {count}", report["took_s"])]
    for kind, texts in found.items():
        state: State = "failure" if texts else "skipped" if kind in left_out else "passed"
        cases.append(Case("check", kind, state, "; ".join(texts) or "not tested"))
    return cases
