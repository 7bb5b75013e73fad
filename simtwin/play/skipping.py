"""Skipped parts of a simulation at level `packet+skip`, and their comparison with level `packet`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import genie_core
import numpy as np

from simtwin.play.batch_means import CONFIDENCE
from simtwin.play.estimating import Estimator

if TYPE_CHECKING:
    import polars as pl

    from simtwin.play.twin import Simulation

NO_RECURRENCE = "no period was found that could be skipped"


@dataclass(frozen=True)
class Skipped:
    """The parts of a simulation that were skipped, over all iterations.

    `packets`: data packets that were not played. `replayed`: episodes, of which `distinct` ones were played.
    `estimated`: packets of estimated skips, which `packets` counts too. `errors`: of the messages that these moved.
    `has_bound`: whether all ends have a bound. `played_apart`: data packets of the plays of episodes. `reasons`: why an
    iteration, or all of it, was played packet by packet, and why no episodes were played apart.
    `episodes_need_one_thread`: whether nothing but several threads is known to prevent episodes.
    """

    jumps: int = 0
    periods: int = 0
    packets: int = 0
    time_ps: int = 0
    snapshots: int = 0
    replayed: int = 0
    distinct: int = 0
    played_apart: int = 0
    estimates: int = 0
    estimated: int = 0
    errors: tuple[dict[str, Any], ...] = ()
    has_bound: bool = True
    reasons: tuple[str, ...] = ()
    episodes_need_one_thread: bool = False

    def plus(self, skips: IterationSkips, iteration: int) -> Skipped:
        """Return the sum with one more iteration."""
        report, episodes, estimator = skips.recurrence.report, skips.episodes, skips.estimator
        apart = {"replayed": 0, "distinct": 0, "packets": 0, "played": 0} if episodes is None else episodes.report
        estimates = 0 if estimator is None else estimator.skips
        estimated = 0 if estimator is None else estimator.packets
        errors = () if estimator is None else ({"iteration": iteration, **asdict(it)} for it in estimator.errors)
        return Skipped(
            self.jumps + report["jumps"],
            self.periods + report["periods"],
            self.packets + report["packets"] + max(apart["packets"] - apart["played"], 0) + estimated,
            self.time_ps + report["time_ps"] + (0 if estimator is None else estimator.time_ps),
            self.snapshots + report["snapshots"],
            self.replayed + apart["replayed"],
            self.distinct + apart["distinct"],
            self.played_apart + apart["played"],
            self.estimates + estimates,
            self.estimated + estimated,
            (*self.errors, *errors),
            self.has_bound and (estimator is None or estimator.has_bound),
            tuple(dict.fromkeys([*self.reasons, *skips.reasons])),
            self.episodes_need_one_thread or skips.episodes_need_one_thread,
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
            "episodes": {
                "replayed": self.replayed,
                "distinct": self.distinct,
                "played": self.played_apart,
                "need_one_thread": self.episodes_need_one_thread,
            },
            **({"estimates": self._estimates()} if self.estimates else {}),
            "reasons": list(self.reasons),
        }

    def _estimates(self) -> dict[str, Any]:
        """Return the facts of estimated skips.

        `error`: the largest of a mean rate. `apart`: of a message's end, as a share of the message's time; None where
        an end has no bound.
        """
        return {
            "skips": self.estimates,
            "packets": self.estimated,
            "confidence": CONFIDENCE,
            "error": _rounded_up(max(it["error"] for it in self.errors)),
            "apart": _rounded_up(max(it["apart"] for it in self.errors)) if self.has_bound else None,
            "messages": [
                {**it, "error": _rounded_up(it["error"]), "apart": it["apart"] and _rounded_up(it["apart"])}
                for it in self.errors
            ],
        }


def _rounded_up(share: float) -> float:
    """Return a bound with six digits, no smaller than it is."""
    return math.ceil(share * 1e6) / 1e6


class IterationSkips:
    """The parts that skip packets of one iteration, and what each found.

    `episodes`: None where none are to be played, for the reason `no_episodes`. `error`: of an estimated mean rate; 0:
    nothing is estimated. `stop`: as a watch has it; plays apart that take long call it too.
    """

    def __init__(
        self,
        episodes: genie_core.Episodes | None,
        no_episodes: str,
        error: float,
        seed: int,
        stop: Callable[[], str | None] | None = None,
    ) -> None:
        self.episodes, self._no_episodes, self._error, self._seed = episodes, no_episodes, error, seed
        self._told: list[str] = []
        if episodes is not None and stop is not None:
            episodes.stop_when(_noting(stop, self._told))
        self._simulator: genie_core.Simulator | None = None
        self._recurrence: genie_core.Recurrence | None = None
        self.estimator: Estimator | None = None

    def attach(self, simulator: genie_core.Simulator) -> Callable[..., bool]:
        """Return the driver of a simulator that has not started, which takes the place of the simulator's run()."""
        self._simulator, self._recurrence = simulator, genie_core.Recurrence(simulator)
        if self.episodes is not None:
            self.episodes.attach(simulator)
        if not self._error:
            return self.recurrence.run
        self.estimator = Estimator(simulator, self.recurrence, self._error, self._seed)
        return self.estimator.run

    @property
    def told(self) -> str:
        """The reason to stop that a play apart was told, which has ended the run; "" for none."""
        is_interrupted = self.episodes is not None and self.episodes.is_interrupted
        return self._told[0] if is_interrupted else ""

    @property
    def recurrence(self) -> genie_core.Recurrence:
        """The recurrence of the latest simulator."""
        assert self._recurrence is not None
        return self._recurrence

    def begins_again(self, is_stopped: bool) -> bool:
        """Return, after a run, whether the iteration must begin again in a new simulator."""
        if self.episodes is None or self._simulator is None:
            return False
        if is_stopped:
            self.episodes.stop()
        return not is_stopped and bool(self.episodes.begins_again(self._simulator, self.recurrence.report["packets"]))

    @property
    def may_gain_by_episodes(self) -> bool:
        """Whether another iteration may gain by episodes: in this one their plays have not cost too many packets."""
        if self.episodes is None or self.episodes.report["is_too_costly"]:
            return False
        report = self.episodes.report
        return bool(self.episodes.unusable) or report["packets"] > report["played"] or not report["played"]

    @property
    def episodes_need_one_thread(self) -> bool:
        """Whether nothing but several threads is known to prevent episodes."""
        return self.episodes is not None and bool(self.episodes.report["needs_one_thread"])

    @property
    def reasons(self) -> list[str]:
        """The reasons why nothing was skipped, or nothing in one of the ways, one line each."""
        estimates = 0 if self.estimator is None else self.estimator.skips
        played = 0 if self.episodes is None else self.episodes.report["played"]
        gained = 0 if self.episodes is None else self.episodes.report["packets"] - played
        skips = self.recurrence.report["jumps"] + max(gained, 0) + estimates
        found = [self.recurrence.unfoldable or ("" if skips else NO_RECURRENCE)]
        if self.estimator is not None:
            found += ["" if estimates else f"no estimate: {self.estimator.reason}"]
        why = self._no_episodes if self.episodes is None else self.episodes.unusable
        if why:
            found += [f"no episodes: {why}"]
        elif played and gained <= 0:
            found += ["episodes: their plays have cost at least as many packets as they replaced"]
        if self.episodes is not None and not why:
            refused = dict.fromkeys(self.episodes.report["reasons"])
            found += [f"some collectives were not played apart: {cause}" for cause in refused]
        return list(filter(None, found))


def _noting(stop: Callable[[], str | None], told: list[str]) -> Callable[[], bool]:
    """Return whether to stop, as a function that notes the reason. It has no reference to the skips, nor to episodes.

    The core's objects are not found by the garbage collector, so that a circle of references would keep them.
    """

    def is_asked() -> bool:
        if reason := stop():
            told.append(reason)
        return bool(told)

    return is_asked


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
