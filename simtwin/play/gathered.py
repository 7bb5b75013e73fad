"""Tables and counters of a simulation, gathered over its iterations."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import genie_core

from genie.plan.build import Plan
from genie.plan.tables import Records, join_transfers, receives_of, sends_of, timeline_of
from genie.workload.graph import Workload
from simtwin.play.skipping import IterationSkips, Skipped

if TYPE_CHECKING:
    import polars as pl

    from simtwin.play.twin import Simulator

LINK_COUNTERS = (
    "packets", "size_bytes", "dropped", "dropped_bytes", "marked", "trimmed", "replays", "pauses", "paused_ps",
    "queue_bytes", "longest_queue_bytes",
)  # fmt: skip


class Gathered:
    """The tables and counters of the iterations that were played so far.

    `links`: the number of links of the network. `communication_only`: whether the timeline leaves out compute and
    memory nodes. `no_episodes`: the reason why later iterations play no episodes; "" where they may.
    """

    def __init__(self, workload: Workload, links: int, *, communication_only: bool, no_episodes: str) -> None:
        self.counters: dict[str, Any] = {"events": 0, "data_packets": 0, "dropped": 0, "wall_s": 0.0}
        self.counters["links"] = {name: [0] * links for name in LINK_COUNTERS}
        self.traces: list[list[tuple[Any, ...]]] = []  # per iteration, if requested
        self.recorded: list[int] | None = None  # ranks in the tables; None: all
        self.skipped: Skipped | None = None  # None: nothing was to be skipped
        self.no_episodes = no_episodes
        self._workload, self._links, self._communication_only = workload, links, communication_only
        self._timelines: list[pl.DataFrame] = []
        self._sends: list[pl.DataFrame] = []
        self._receives: list[pl.DataFrame] = []

    def add(self, simulator: Simulator, plan: Plan, iteration: int, wall_s: float, *, keeps_trace: bool) -> None:
        """Add an iteration from its simulator, which has ended or stopped. `wall_s`: real seconds of its play."""
        self.counters["wall_s"] += wall_s
        self._count(simulator)
        for rank in plan.ranks if self.recorded is None else self.recorded:
            self._add_rank(rank, simulator.records(rank), iteration)
        if keeps_trace and isinstance(simulator, genie_core.Simulator):
            self.traces.append(simulator.trace())

    def add_skips(self, skips: IterationSkips, iteration: int) -> None:
        """Add the skips of an iteration. After one in which episodes gained nothing, later ones play none."""
        self.skipped = (self.skipped or Skipped()).plus(skips, iteration)
        if not self.no_episodes and not skips.may_gain_by_episodes:
            self.no_episodes = f"they gained nothing in iteration {iteration}"

    @property
    def rows(self) -> int:
        """The number of rows of the timeline."""
        return sum(map(len, self._timelines))

    def tables(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the timeline and the transfers, of one iteration at least."""
        import polars as pl

        transfers = join_transfers(self._workload, pl.concat(self._sends), pl.concat(self._receives))
        return pl.concat(self._timelines), transfers

    def _add_rank(self, rank: int, records: Records, iteration: int) -> None:
        import polars as pl

        graph = self._workload.ranks[rank]
        timeline = timeline_of(self._workload, graph, records, iteration)
        if self._communication_only:
            timeline = timeline.filter(pl.col("kind").is_in(["coll", "send", "recv"]))
        self._timelines.append(timeline)
        self._sends.append(sends_of(graph, records, iteration, {}))
        self._receives.append(receives_of(graph, records, iteration))

    def _count(self, simulator: Simulator) -> None:
        """Add an iteration's counters to the totals."""
        counters = self.counters
        counters["events"] += simulator.events
        if self.recorded is not None and not isinstance(simulator, genie_core.FlowSimulator):
            counters["last_end_ps"] = max(counters.get("last_end_ps", 0), int(simulator.ends_ps().max()))
        if isinstance(simulator, genie_core.AnalyticSimulator):
            return
        counters["data_packets"] += simulator.data_packets
        if isinstance(simulator, genie_core.Simulator):
            counters["dropped"] += simulator.dropped
        for name, values in simulator.links().items():
            over_iterations = max if name in ("queue_bytes", "longest_queue_bytes") else operator.add
            counters["links"][name] = [
                over_iterations(old, int(new))
                for old, new in zip(counters["links"][name], values[: self._links], strict=True)
            ]
