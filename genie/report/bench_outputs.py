"""Types of the JSON files of checks, benches and inspections: see json_outputs.py."""

from __future__ import annotations

from typing import Any, Literal, TypedDict


class FindingFields(TypedDict):
    """A fault that a check has found."""

    kind: str
    text: str


class CheckFile(TypedDict):
    """The file of `genie check --json`, and run.json of a check."""

    schema: str
    hosts: int
    pairs: int
    rounds: int
    took_s: float
    notes: list[str]
    findings: list[FindingFields]
    observed: dict[str, Any]


class BenchTimesFields(TypedDict):
    """Time and bandwidths of a size, as nccl-tests gives them: us and GB/s."""

    time: float
    alg_bw: float
    bus_bw: float
    nwrong: int | None


class BenchResultFields(TypedDict):
    """A size of a bench."""

    size: int
    count: int
    type: str
    redop: str
    root: str
    out_of_place: BenchTimesFields
    out_of_place_per_iter: dict[str, Any]
    in_place: None
    actual_iterations: int
    experiment_name: str


class BenchFile(TypedDict):
    """The file of `genie bench -J`: version 3 of the JSON of nccl-tests, and Genie's own fields under `genie`."""

    schema: str
    version: Literal[3]
    start_time: str
    end_time: str
    args: list[str]
    env: list[str]
    nccl_version: None
    config: dict[str, Any]
    results: list[BenchResultFields]
    out_of_bounds: dict[str, Any]
    average_bus_bandwidth: dict[str, Any]
    errors: list[str]
    genie: dict[str, Any]


class PairsFile(TypedDict):
    """The file of `genie bench pairs --json`: a row for each sender, null where nothing was measured."""

    schema: str
    bench: Literal["pairs"]
    world: Literal["live", "twin"]
    ranks: int
    hosts: list[str]
    rounds: int
    size_bytes: int
    messages: int
    small_bytes: int
    small_messages: int
    both_ways: bool
    alone: bool
    bytes_per_s: list[list[float | None]]
    latency_us: list[list[float | None]]
    latency_99_us: list[list[float | None]]
    best_bytes_per_s: float
    slow_share: float
    slow: list[dict[str, float]]
    wrong_bytes: int | None
    retransmitted: int | None
    run: dict[str, Any]


class PathFile(TypedDict):
    """The file of `genie bench pingpong --json` and `genie bench write --json`, and their run.json."""

    schema: str
    world: Literal["live", "twin"]
    bench: Literal["pingpong", "write"]
    transport: str
    mtu_bytes: int
    ranks: list[dict[str, Any]]
    settings: dict[str, Any]
    lines: list[dict[str, Any]]


class TrafficFields(TypedDict):
    """All nodes of one operation in one group, or all sends, or all receives."""

    op: str
    group: str | None
    members: int
    count: int
    size_bytes: int


class InspectionFile(TypedDict):
    """The output of `genie inspect --json`, without a mark."""

    name: str
    world_size: int
    ranks: list[int]
    groups: int
    nodes: dict[str, int]
    dependencies: int
    traffic: list[TrafficFields]
    durations: list[dict[str, Any]]
    critical_path: dict[str, Any]
    lints: list[dict[str, Any]]
    notes: list[str]
    ok: bool
