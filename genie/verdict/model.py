"""Data of a verdict, as verdict.json has it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from genie.errors import EXIT_FAILED, EXIT_INCONCLUSIVE, EXIT_OK
from genie.page.words import duration, percent, times

if TYPE_CHECKING:
    from collections.abc import Iterator

    from genie.figures import Fact, Figure
    from genie.verdict.bounds import NotJudged
    from genie.verdict.coverage import Coverage
    from genie.verdict.decompose import Collective, IterationTotals
    from genie.verdict.options import Options

Result = Literal["pass", "fail", "inconclusive"]
SLOW = ("rate", "intermittent")  # kinds of fault that have a slow-down
SUSPECTS_MAX, BOUNDS_MAX = 5, 16  # rows of a notebook's table; bars of its figure
EXIT_CODES = {"pass": EXIT_OK, "fail": EXIT_FAILED, "inconclusive": EXIT_INCONCLUSIVE}


@dataclass(frozen=True)
class Suspect:
    """A component that is slower than its peers beyond noise, margin and practical size.

    kind: host, nic, link, switch or rail.
    name: of the component.
    ranks: the ranks at it.
    score: log10 of the e-value: odds against chance, after all corrections.
    evidence: in words.
    also: names of components that the data cannot tell from it.
    direction: egress, ingress or both; for a link between switches "one way" or both.
    slow_down: measured / twin, relative to its peers, minus 1: 1.0 is twice as long.
    since_iteration: number of the first slow iteration, from 0.
    until_iteration: number of the last one; None: to the end of the run.
    hits: the number of iterations in which it is slower than every peer, and the number of the window's iterations.
    links: directed links that it consists of, or that its NIC cannot be told from.
    fault: rate, intermittent, loss, delay, mtu, dscp, ecn, unreachable or congestion.
    note: of the file of known faults.
    doubt: the reason why it may not be at fault.
    """

    kind: str
    name: str
    ranks: list[int]
    score: float
    evidence: str
    also: list[str]
    direction: str
    slow_down: float
    since_iteration: int
    until_iteration: int | None
    hits: list[int]
    links: list[str]
    fault: str = "rate"
    note: str = ""
    doubt: str = ""

    def extent(self) -> str:
        """The slow-down in words, or the kind of a fault that is no slow-down."""
        return f"{percent(self.slow_down)} slower" if self.fault in SLOW else self.fault


@dataclass(frozen=True)
class Carrier:
    """The collectives of one operation in one group, and the time that they add to an iteration."""

    op: str
    group: str
    collectives: int  # in an iteration
    seq: int  # of the first one
    size_bytes: int  # of all of them
    extra_ns: int  # mean over iterations: means add up, and medians do not
    share: float  # of an iteration's cost


@dataclass(frozen=True)
class Cost:
    """Time that the suspects add to an iteration, in the first suspect's window."""

    iteration_ns: int  # extra time, median
    iteration_without_ns: int
    fraction: float
    carriers: list[Carrier] = field(default_factory=list)  # collectives that carry it, largest part first


@dataclass(frozen=True)
class FleetGate:
    """All ranks against the twin; accuses no component."""

    result: Result
    slow_down: float  # median over ranks and units, measured / twin - 1
    tolerance: float
    words: str
    iterations: float = 0.0  # slow-down of the time with a collective on the wire, median over iterations


@dataclass(frozen=True)
class Noise:
    """Chance, estimated from the run's own repetitions."""

    units: int  # units of evidence: iterations times phases
    phases: int
    spread: float  # robust standard deviation of a rank's ln(measured / twin) relative to its peers, from unit to unit
    tail: float  # 99th percentile over the spread; 2.6 for a normal distribution
    lag_correlation: float  # correlation of neighbouring units
    blocked: bool  # neighbouring units depend on each other, so evidence uses every other unit


@dataclass
class Verdict:
    """Result of `genie diff` for a live run and its twin, as `genie.diff` returns it.

    result: pass, fail or inconclusive.
    summary: the headline, without the result.
    action: the next step.
    suspects: the components that are slower than their peers, the surest first.
    cost: time in ns that the suspects add to an iteration; None where it is not judged.
    fleet: all ranks together against the twin.
    noise: the change from one repetition to the next, as the run itself shows it.
    smallest_detectable: duration of a fault -> the least slow-down of a NIC that would be seen, as a fraction.
    upper_bound: component without a suspect -> 95 % upper bound of its slow-down, as a fraction; None: too few units.
    coverage: counts of what was compared, by name.
    judged: counts of the NICs and links that were judged, and the names of the others, each with its reason.
    has_traffic: whether ranks sent payload to each other.
    collectives: wait, wire and excess of each collective in ns.
    iterations: time of each iteration in ns.
    late: the ranks that others waited for.
    options: the thresholds of this verdict.
    notes: remarks about the data.
    warnings: of the two runs.
    little: the components of `upper_bound` that moved too little for a test.
    slow: the components of `upper_bound` that were measured slower than their peers, but not beyond doubt.
    not_judged: the directions of NICs that moved payload and have no bound.
    sent_again: the rank that retransmitted more packets than in the twin; "" if none did.
    cut_short: the reason of the live run's early end; "" if it ended as planned.
    known: suspects that a file of known faults explains.
    given: the options of the live run that the next step need not advise.
    """

    result: Result
    summary: str
    action: str
    suspects: list[Suspect]
    cost: Cost | None
    fleet: FleetGate
    noise: Noise
    smallest_detectable: dict[str, float | None]
    upper_bound: dict[str, float | None]
    coverage: dict[str, Any]
    judged: Coverage
    has_traffic: bool
    collectives: list[Collective]
    iterations: list[IterationTotals]
    late: list[dict[str, Any]]
    options: Options
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    little: tuple[str, ...] = ()
    slow: tuple[str, ...] = ()
    not_judged: tuple[NotJudged, ...] = ()
    sent_again: str = ""
    cut_short: str = ""
    known: list[Suspect] = field(default_factory=list)
    given: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"<Verdict {self.line()}>"

    def _repr_html_(self) -> str:
        from genie.figures import headline

        return headline(f"Verdict: {self.result.upper()}", list(self._facts()))

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 4 inconclusive (retry or lengthen the run)."""
        return EXIT_CODES[self.result]

    def line(self) -> str:
        """The result and the headline, one line for a terminal."""
        return f"{self.result.upper()} {self.summary}"

    def slow_down_figure(self) -> Figure:
        """Draw the slow-down of each suspect, and the upper bounds of the other components that were judged.

        Bars are fractions of the twin's time in percent, relative to a component's peers: 100 % is twice as long.
        Components that were not judged are named below the bars.
        """
        from genie.figures import Bar, bars
        from genie.figures.figure import GREY, ORANGE

        accused = [
            Bar(it.name, max(it.slow_down, 0.0) if it.fault in SLOW else 0.0, it.extent(), ORANGE)
            for it in self.suspects
        ]
        bounds = [
            Bar(name, max(bound, 0.0), f"at most {percent(max(bound, 0.0))}", GREY, is_bound=True)
            for name, bound in sorted(self.upper_bound.items(), key=lambda it: (-(it[1] or 0.0), it[0]))
            if bound is not None
        ]
        shown = [*accused, *bounds[:BOUNDS_MAX]]
        limit = self.options.practical
        left = f"; {len(bounds) - BOUNDS_MAX} smaller bounds not shown" if len(bounds) > BOUNDS_MAX else ""
        mark = f"dotted line: {percent(limit)}, the smallest slow-down that matters"
        beside = f"{mark}{left}; not judged: {self._open() or 'none'}"
        title = "Slow-down of suspects, and 95 % upper bounds of other components"
        return bars(title, shown, full=2 * limit, limit=limit, beside=beside)

    def to_dict(self) -> dict[str, Any]:
        """Content of verdict.json."""
        return {
            "schema": 1,
            "result": self.result,
            "summary": self.line(),
            "action": self.action,
            "suspects": [asdict(suspect) for suspect in self.suspects],
            "known": [asdict(suspect) for suspect in self.known],
            "cost": asdict(self.cost) if self.cost else None,
            "fleet": asdict(self.fleet),
            "noise": asdict(self.noise),
            "smallest_detectable": self.smallest_detectable,
            "upper_bound": self.upper_bound,
            "little_traffic": list(self.little),
            "not_judged": [item.to_dict() for item in self.not_judged],
            "coverage": self.coverage,
            "iterations": [{**asdict(item), "busbw_ratio": item.ratio} for item in self.iterations],
            "late": self.late,
            "notes": self.notes,
            "warnings": self.warnings,
            "options": {key: value for key, value in asdict(self.options).items() if key != "known"},
            "collectives": [item.to_dict() for item in self.collectives],
        }

    def _facts(self) -> Iterator[Fact]:
        """Yield the headline facts of a notebook's table."""
        yield "Result", self.summary
        yield "Next step", self.action
        for suspect in self.suspects[:SUSPECTS_MAX]:
            open_words = f"; open: {suspect.doubt}" if suspect.doubt else ""
            yield suspect.name, suspect.extent(), f"{suspect.evidence}{open_words}"
        if len(self.suspects) > SUSPECTS_MAX:
            yield "More suspects", str(len(self.suspects) - SUSPECTS_MAX), "in .suspects"
        if self.known:
            yield "Known faults", str(len(self.known)), "in .known; they fail no run"
        yield "Judged", self.judged.words()
        yield "Not judged", self._open() or "none"
        if self.cost is not None:
            more = f"{percent(self.cost.fraction)} more than {duration(self.cost.iteration_without_ns)}"
            yield "Cost of an iteration", duration(self.cost.iteration_ns), more
        elif self.suspects:
            yield "Cost of an iteration", "not judged"
        yield (
            "Smallest slow-down seen",
            percent(self.smallest_detectable.get("whole")),
            "of a NIC that sends, all the time",
        )
        yield (
            "Whole fleet",
            times(self.fleet.slow_down),
            f"relative to the twin; the gate is {times(self.fleet.tolerance)}",
        )
        if self.warnings or self.notes:
            yield "Warnings", str(len(self.warnings) + len(self.notes)), "in .warnings and .notes"

    def _open(self) -> str:
        """The components that were not judged, each with its reason."""
        parts = [self.judged.nics, *([self.judged.links] if self.judged.links else [])]
        return "; ".join(reasons for part in parts if (reasons := part.reasons()))
