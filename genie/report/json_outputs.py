"""Types of the JSON files that Genie writes, from which `genie schema` makes JSON Schemas.

Files may have more keys than these: a reader ignores the ones that it does not know. The version in `schema` grows when
a key goes or changes its meaning.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

import msgspec

from genie.report.bench_outputs import BenchFile, CheckFile, InspectionFile, PairsFile, PathFile

Outcome = Literal["pass", "fail", "inconclusive"]
Direction = Literal["egress", "ingress", "both", "one way"]


class SuspectFields(TypedDict):
    """A component that a verdict accuses. Slow-downs are fractions: 1.0 is twice the time."""

    kind: Literal["host", "nic", "link", "switch", "rail"]
    name: str
    ranks: list[int]
    score: float
    evidence: str
    also: list[str]
    direction: Direction
    slow_down: float
    since_iteration: int
    until_iteration: int | None
    hits: list[int]
    links: list[str]
    fault: Literal["rate", "intermittent", "loss", "delay", "mtu", "dscp", "ecn", "unreachable", "congestion"]
    note: str
    doubt: str


class CarrierFields(TypedDict):
    """The collectives of an operation in a group, and the time that they add to an iteration."""

    op: str
    group: str
    collectives: int
    seq: int
    size_bytes: int
    extra_ns: int
    share: float


class CostFields(TypedDict):
    """The time that suspects add to an iteration."""

    iteration_ns: int
    iteration_without_ns: int
    fraction: float
    carriers: list[CarrierFields]


class FleetFields(TypedDict):
    """All ranks against the twin."""

    result: Outcome
    slow_down: float
    tolerance: float
    words: str
    iterations: float


class NoiseFields(TypedDict):
    """Chance, estimated from a run's own repetitions."""

    units: int
    phases: int
    spread: float
    tail: float
    lag_correlation: float
    blocked: bool


class PartFields(TypedDict):
    """Judged components of a kind, all of them, and reasons -> names of the others."""

    judged: int
    total: int
    not_judged: NotRequired[dict[str, list[str]]]


class NicsFields(PartFields):
    """Judged NICs; of these, those whose rate the traffic does not use in full."""

    partly_used: list[str]


class LinksFields(PartFields):
    """Judged links between switches, and the links that are not judged, by reason."""

    unsure: list[str]
    slow: list[str]
    not_identifiable: list[str]
    unfilled: list[str]
    same_paths: list[list[str]]
    problem: str


class CoverageFields(TypedDict):
    """Numbers of what was aligned and judged."""

    iterations: int
    collectives: int
    transfers: int
    ranks: int
    components_tested: int
    ranks_judged: dict[str, int]
    follow: bool
    nics: NicsFields
    links: LinksFields
    by_tier: str
    iteration_ns: dict[str, int]
    clock_bound_ns: int


class VerdictFile(TypedDict):
    """verdict.json of `genie validate` and `genie diff`."""

    schema: str
    result: Outcome
    summary: str
    action: str
    suspects: list[SuspectFields]
    known: list[SuspectFields]
    cost: CostFields | None
    fleet: FleetFields
    noise: NoiseFields
    smallest_detectable: dict[str, float | None]
    upper_bound: dict[str, float | None]
    little_traffic: list[str]
    not_judged: list[dict[str, Any]]
    coverage: CoverageFields
    iterations: list[dict[str, float]]
    late: list[dict[str, int]]
    notes: list[str]
    warnings: list[str]
    options: dict[str, Any]
    collectives: list[dict[str, Any]]
    runs: dict[str, str]


class ChangeFields(TypedDict):
    """A time in two runs."""

    before_ns: float
    after_ns: float
    fraction: float
    noise: float
    iterations: list[int]


class CollectiveChangeFields(TypedDict):
    """A collective in two runs."""

    op: str
    group: str
    seq: int
    size_bytes: int
    name: str
    change: ChangeFields


class GroupChangeFields(TypedDict):
    """The collectives of a group in two runs, added up."""

    group: str
    collectives: int
    change: ChangeFields


class ComparisonFields(TypedDict):
    """Two runs."""

    result: Literal["same", "slower", "faster", "inconclusive"]
    summary: str
    before: str
    after: str
    iteration: ChangeFields
    fleet: float
    suspects: list[SuspectFields]
    coverage: str
    collectives: list[CollectiveChangeFields]
    groups: list[GroupChangeFields]
    upper_bound: dict[str, float | None]
    notes: list[str]


class ComparisonFile(TypedDict):
    """compare.json of `genie compare`."""

    schema: str
    comparisons: list[ComparisonFields]


class EntryFields(TypedDict):
    """A run of the archive."""

    folder: str
    command: str
    recorded_at: str
    workload: str
    fabric: str
    ranks: int
    iterations: int
    iteration_ns: int
    result: str
    job: str
    problem: str
    change: float | None


class ArchiveFile(TypedDict):
    """The file of `genie runs --json`."""

    schema: str
    runs: list[EntryFields]


class RunFields(TypedDict):
    """The fields that run.json of a live run and of a simulation have in common."""

    schema: str
    complete: bool
    recorded_at: str
    commit: str | None
    versions: dict[str, str]
    native: str
    kernel: str
    cores: int
    load: list[float]
    command: str
    workload: str
    ranks: int
    iterations: int
    warmup: int
    seed: int
    lowering: dict[str, Any] | None
    warnings: list[str]
    hosts: list[dict[str, Any]]


class LiveRunFile(RunFields):
    """run.json of a live run."""

    world: Literal["live"]
    transport: str
    problem: str | None
    rate_bps: int
    dilation: int
    clock_bound_ns: list[int]
    clock_offset_ns: list[int]
    faults: dict[str, list[Any]]
    settings: dict[str, Any]


class EpisodeFields(TypedDict):
    """Parts of a job that were played apart: how often one stood for packets, and how many different ones.

    `played`: data packets of these plays.
    `need_one_thread`: whether nothing but several threads is known to prevent them.
    """

    replayed: int
    distinct: int
    played: NotRequired[int]
    need_one_thread: NotRequired[bool]


class EstimateFields(TypedDict):
    """Skips of --skip-error. `error`, `apart`: largest bounds of a mean rate and of a message's end; null: none."""

    skips: int
    packets: int
    confidence: float
    error: float
    apart: float | None
    messages: list[dict[str, Any]]


class SkipFields(TypedDict):
    """Parts of a simulation at level packet+skip that were skipped, and why others were not."""

    share: float
    packets: int
    time_ns: int
    jumps: int
    periods: int
    snapshots: int
    episodes: EpisodeFields
    estimates: NotRequired[EstimateFields]
    reasons: list[str]
    difference: NotRequired[str]


class TwinRunFile(RunFields):
    """run.json of a simulation."""

    world: Literal["twin"]
    level: str
    threads: int
    follow: bool
    fabric: str
    load_balancing: str
    events: int
    wall_s: float
    error_bound: float | None
    skip: NotRequired[SkipFields]


class CountersFile(TypedDict):
    """counters.json of a run: of ranks and devices in a live run, of links in a simulation."""

    schema: str
    ranks: NotRequired[list[dict[str, int]]]
    devices: NotRequired[list[dict[str, Any]]]
    warnings: NotRequired[list[Any]]
    dropped: NotRequired[int]
    links: NotRequired[list[dict[str, Any]]]


class LimitFields(TypedDict):
    """Collectives of one operation, group and size: their median time, their limit, and the parts of their mean time.

    The parts go from the first member's start to the last end; null where they are not known.
    """

    op: str
    group: str
    members: int
    size_bytes: int
    count: int
    time_ns: int
    limit: Literal["waiting", "wire", "NVLink", "server links", "GPU steps"] | None
    waiting_ns: int | None
    wire_ns: int | None
    server_links_ns: int | None
    gpu_steps_ns: int | None


class LimitsFile(TypedDict):
    """limits.json of a simulation: the limits of its collectives."""

    schema: str
    collectives: list[LimitFields]


class FaultFields(TypedDict):
    """A fault that probes have located."""

    kind: Literal["loss", "delay", "mtu", "dscp", "ecn", "unreachable", "congestion"]
    words: str
    links: list[str]
    ranks: list[int]
    size: float
    paths: int


class PathRateFields(TypedDict):
    """Flows over some links, and their rates."""

    links: list[str]
    flows: list[dict[str, int]]
    expected_bps: float
    rates_bps: list[float]
    others: list[str]
    beside: list[str]
    hops_ns: list[int]
    trains_ns: list[list[int]]


class WaitsFields(TypedDict):
    """Waits of small datagrams over a link while the job is silent, and beside it, in ns."""

    link: str
    waits_ns: list[int]
    beside_ns: list[int]


class ProbeFile(TypedDict):
    """run.json of the probes after a run."""

    schema: str
    world: Literal["live"]
    probe: Literal[True]
    settings: dict[str, Any]
    tests: list[PathRateFields]
    faults: list[FaultFields]
    paths: int
    host_links: dict[str, list[Any]]
    crossed: list[str]
    observed: dict[str, Any]
    latencies: list[dict[str, int]]
    waits: list[WaitsFields]
    unwatched: list[str]
    counters: list[dict[str, int]]


class LabFile(TypedDict):
    """lab.json of a run in a lab."""

    schema: str
    name: str
    fabric: str
    nodes: dict[str, Literal["host", "switch"]]
    addresses: dict[str, list[str]]
    links: dict[str, dict[str, Any]]
    faults: dict[str, str]
    cannot: list[str]


OUTPUTS: dict[str, type] = {
    "verdict": VerdictFile,
    "comparison": ComparisonFile,
    "archive": ArchiveFile,
    "live": LiveRunFile,
    "twin": TwinRunFile,
    "counters": CountersFile,
    "limits": LimitsFile,
    "probe": ProbeFile,
    "check": CheckFile,
    "bench": BenchFile,
    "pairs": PairsFile,
    "path": PathFile,
    "inspection": InspectionFile,
    "lab": LabFile,
}


def json_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of an output. Raises KeyError."""
    schema = msgspec.json.schema(OUTPUTS[name])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"genie {name}", **schema}
