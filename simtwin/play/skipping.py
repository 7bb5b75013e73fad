"""Skipped parts of a simulation at level `packet+skip`, and their comparison with level `packet`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import genie_core
import numpy as np

if TYPE_CHECKING:
    import polars as pl

    from simtwin.play.twin import Simulation

NO_RECURRENCE = "no period was found that could be skipped"


@dataclass(frozen=True)
class Skipped:
    """The parts of a simulation that were skipped, over all iterations.

    `packets`: data packets that were not played. `replayed`: episodes, of which `distinct` ones were played.
    `reasons`: why an iteration, or all of it, was played packet by packet, and why no episodes were played apart.
    """

    jumps: int = 0
    periods: int = 0
    packets: int = 0
    time_ps: int = 0
    snapshots: int = 0
    replayed: int = 0
    distinct: int = 0
    reasons: tuple[str, ...] = ()

    def plus(self, recurrence: genie_core.Recurrence, episodes: genie_core.Episodes | None) -> Skipped:
        """Return the sum with one more iteration."""
        report = recurrence.report
        apart = {"replayed": 0, "distinct": 0, "packets": 0, "played": 0} if episodes is None else episodes.report
        skips = report["jumps"] > 0 or apart["replayed"] > 0
        reason = recurrence.unfoldable or ("" if skips else NO_RECURRENCE)
        reasons = [reason, "" if episodes is None or not episodes.unusable else f"no episodes: {episodes.unusable}"]
        return Skipped(
            self.jumps + report["jumps"],
            self.periods + report["periods"],
            self.packets + report["packets"] + max(apart["packets"] - apart["played"], 0),
            self.time_ps + report["time_ps"],
            self.snapshots + report["snapshots"],
            self.replayed + apart["replayed"],
            self.distinct + apart["distinct"],
            tuple(dict.fromkeys([*self.reasons, *filter(None, reasons)])),
        )

    def facts(self, data_packets: int) -> dict[str, Any]:
        """Return the facts for run.json. `data_packets`: of the simulation, those that were skipped included."""
        return {
            "share": round(self.packets / data_packets, 6) if data_packets else 0.0,
            "packets": self.packets,
            "time_ns": self.time_ps // 1000,
            "jumps": self.jumps,
            "periods": self.periods,
            "snapshots": self.snapshots,
            "episodes": {"replayed": self.replayed, "distinct": self.distinct},
            "reasons": list(self.reasons),
        }


def first_difference(played: Simulation, skipped: Simulation) -> str:
    """Return the first difference between a simulation and the same with skips, as text; "" for none."""
    for name, one, other in (
        ("timeline", played.timeline, skipped.timeline),
        ("transfers", played.transfers, skipped.transfers),
    ):
        if difference := _of_tables(one, other):
            return f"{name}: {difference}"
    for name in ("data_packets", "dropped"):
        if played.counters[name] != skipped.counters[name]:
            return f"{name}: {played.counters[name]} played, {skipped.counters[name]} with skips"
    for name, values in played.counters["links"].items():
        for link, (one, other) in enumerate(zip(values, skipped.counters["links"][name], strict=True)):
            if one != other:
                return f"link {link}, {name}: {one} played, {other} with skips"
    return ""


def _of_tables(played: pl.DataFrame, skipped: pl.DataFrame) -> str:
    if played.equals(skipped):
        return ""
    if played.height != skipped.height:
        return f"{played.height} rows played, {skipped.height} with skips"
    for name in played.columns:
        same = np.asarray(played[name].eq_missing(skipped[name]))
        if not same.all():
            row = int(same.argmin())
            return f"row {row}, {name}: {played[name][row]} played, {skipped[name][row]} with skips"
    return "the columns differ"
