"""The verdict itself: plain data, as it is written to verdict.json."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from genie.verdict.bounds import NotJudged
    from genie.verdict.carriers import Carrier
    from genie.verdict.coverage import Coverage
    from genie.verdict.decompose import Collective, IterationTotals
    from genie.verdict.options import Options

Result = Literal["pass", "fail", "inconclusive"]
EXIT_CODES = {"pass": 0, "fail": 1, "inconclusive": 4}  # of the command line, as genie/live/launch/endings.py has them


@dataclass(frozen=True)
class Suspect:
    """A component that is slower than its peers beyond noise, margin and practical size."""

    kind: str  # host, nic, link, switch
    name: str
    ranks: list[int]
    score: float  # log10 of the e-value: the odds against chance, after all corrections
    evidence: str  # in words
    also: list[str]  # what the data cannot tell from it
    direction: str  # egress, ingress or both; of a link between switches "one way" or both
    slow_down: float  # measured over the twin, beside its peers: 1.0 is twice as long
    since_iteration: int
    until_iteration: int | None  # None: to the end of the run
    hits: list[int]  # iterations in which it is slower than every peer, of how many
    links: list[str]  # directed links that it is, or that its NIC cannot be told from


@dataclass(frozen=True)
class Cost:
    """Time that the suspects cost an iteration, in their window."""

    iteration_ns: int  # extra, the median
    iteration_without_ns: int
    fraction: float
    carriers: list[Carrier] = field(default_factory=list)  # the collectives that carry it, the most first


@dataclass(frozen=True)
class FleetGate:
    """Everybody against the twin: blames no component."""

    result: Result
    slow_down: float  # median over ranks and units, measured / twin - 1
    tolerance: float
    words: str


@dataclass(frozen=True)
class Noise:
    """Chance, by the run's own repetitions."""

    units: int  # of evidence: iterations times phases
    phases: int
    spread: float  # robust standard deviation of a rank's ln(measured / twin) beside its peers, unit to unit
    tail: float  # 99th percentile of it over the spread; 2.6 for a normal distribution
    lag_correlation: float  # of neighbouring units
    blocked: bool  # neighbours depend on each other, so evidence was taken from every other unit


@dataclass
class Verdict:
    """Result of `genie diff` for a live run and its twin."""

    result: Result
    summary: str
    action: str
    suspects: list[Suspect]
    cost: Cost | None
    fleet: FleetGate
    noise: Noise
    smallest_detectable: dict[str, float | None]  # fraction, by how long the fault lasts: whole, second_half
    upper_bound: dict[str, float | None]  # component without a suspect -> slow-down that it surely does not exceed
    coverage: dict[str, Any]
    judged: Coverage  # what the headline counts of it
    has_traffic: bool  # payload went between ranks
    collectives: list[Collective]
    iterations: list[IterationTotals]
    late: list[dict[str, Any]]  # ranks that others waited for
    options: Options
    notes: list[str] = field(default_factory=list)  # on the data
    warnings: list[str] = field(default_factory=list)  # that the runs made themselves
    little: tuple[str, ...] = ()  # components of `upper_bound` with so little traffic that no test includes them
    not_judged: tuple[NotJudged, ...] = ()  # moved payload, and nothing is known of them
    sent_again: str = ""  # which rank sent packets again that the twin did not; "" when none did
    cut_short: str = ""  # why the live run ended early; "" when it did not

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 4 inconclusive: retry or lengthen."""
        return EXIT_CODES[self.result]

    def line(self) -> str:
        """One line for a terminal."""
        return f"{self.result.upper()} {self.summary}"

    def to_dict(self) -> dict[str, Any]:
        """For verdict.json."""
        return {
            "schema": 1,
            "result": self.result,
            "summary": self.line(),
            "action": self.action,
            "suspects": [asdict(suspect) for suspect in self.suspects],
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
            "options": asdict(self.options),
            "collectives": [item.to_dict() for item in self.collectives],
        }
