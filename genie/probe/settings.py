"""Settings of a link probe, the same on all of its ranks, and its measurements."""

from __future__ import annotations

from msgspec import Struct, field

from genie.check.settings import CheckSettings, Flow
from genie.record import PROBE, launch_mark


class LinkProbeSettings(CheckSettings, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Settings of one probe. Names of links are those of the fabric."""

    schema: str = launch_mark(PROBE)
    targets: list[str] = field(default_factory=list)  # links to measure
    slow_ranks: list[int] = field(default_factory=list)  # their flows would show the rate of their own NICs
    suspected: list[str] = field(default_factory=list)  # links that the run accuses: watched for traffic of others
    flows: dict[str, int] = field(default_factory=dict)  # link -> flows at once that fill it; else 1
    budget_s: float = 20.0  # for all measurements
    incasts: bool = False  # test whether congestion control reacts


class PathRate(Struct, frozen=True):
    """Flows that share some links, and their total rate each time that they were measured."""

    links: list[str]  # that the flows fill: between switches, or of the two hosts
    flows: list[Flow]
    expected_bps: float  # payload rate of the flows on the idle fabric
    rates_bps: list[float]
    # Of a slow path: the links of a further flow through it. While the flows above ran, each router on its way answered
    # after this time. The link at which the time grows has the queue.
    beside: list[str] = []
    hops_ns: list[int] = []
    # Of a path that is slow at times: the same, each time that the routers were asked.
    trains_ns: list[list[int]] = []
    full_ns: int = 0  # answers that take longer come from behind a slow link's queue
    others: list[str] = []  # links that some flow crosses and none fills
    back: list[list[str]] = []  # of each flow: the links that its acknowledgements cross
