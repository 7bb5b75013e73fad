"""Data of a verdict, as verdict.json has it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from genie.errors import EXIT_FAILED, EXIT_INCONCLUSIVE, EXIT_OK

if TYPE_CHECKING:
    from genie.verdict.bounds import NotJudged
    from genie.verdict.coverage import Coverage
    from genie.verdict.decompose import Collective, IterationTotals
    from genie.verdict.options import Options

Result = Literal["pass", "fail", "inconclusive"]
EXIT_CODES = {"pass": EXIT_OK, "fail": EXIT_FAILED, "inconclusive": EXIT_INCONCLUSIVE}


@dataclass(frozen=True)
class Suspect:
    """A component that is slower than its peers beyond noise, margin and practical size."""

    kind: str  # host, nic, link, switch or rail
    name: str
    ranks: list[int]
    score: float  # log10 of the e-value: odds against chance, after all corrections
    evidence: str  # in words
    also: list[str]  # names that the data cannot tell from it
    direction: str  # egress, ingress or both; for a link between switches "one way" or both
    slow_down: float  # measured / twin, relative to its peers, minus 1: 1.0 is twice as long
    since_iteration: int
    until_iteration: int | None  # None: to the end of the run
    hits: list[int]  # [iterations in which it is slower than every peer, iterations of the window]
    links: list[str]  # directed links that it consists of, or that its NIC cannot be told from
    fault: str = "rate"  # rate, intermittent, loss, delay, mtu, dscp, ecn, unreachable or congestion
    note: str = ""  # of the file of known faults
    doubt: str = ""  # why it may not be at fault


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
    """Result of `genie diff` for a live run and its twin."""

    result: Result
    summary: str
    action: str
    suspects: list[Suspect]
    cost: Cost | None
    fleet: FleetGate
    noise: Noise
    smallest_detectable: dict[str, float | None]  # fraction, by how long the fault lasts: whole, second_half
    upper_bound: dict[str, float | None]  # component without a suspect -> 95 % upper bound of its slow-down
    coverage: dict[str, Any]
    judged: Coverage  # counts of the headline
    has_traffic: bool  # ranks sent payload to each other
    collectives: list[Collective]
    iterations: list[IterationTotals]
    late: list[dict[str, Any]]  # ranks that the others waited for
    options: Options
    notes: list[str] = field(default_factory=list)  # about the data
    warnings: list[str] = field(default_factory=list)  # of the runs themselves
    little: tuple[str, ...] = ()  # components of `upper_bound` with so little traffic that no test includes them
    not_judged: tuple[NotJudged, ...] = ()  # moved payload, but have no bound
    sent_again: str = ""  # rank that retransmitted more packets than in the twin; "" if none did
    cut_short: str = ""  # why the live run ended early; "" if it did not
    known: list[Suspect] = field(default_factory=list)  # suspects that a file of known faults explains
    given: frozenset[str] = frozenset()  # options of the live run that the next step need not advise

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 4 inconclusive (retry or lengthen the run)."""
        return EXIT_CODES[self.result]

    def line(self) -> str:
        """The result and the headline, one line for a terminal."""
        return f"{self.result.upper()} {self.summary}"

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
