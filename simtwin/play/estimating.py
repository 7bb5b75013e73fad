"""Estimated skips (`--skip-error`): flows whose rates fluctuate about a mean are moved on by an estimate.

Between two events of messages the packets of all flows are counted in batches. Flows on alike paths are pooled. Where
their mean rates are known well enough, the simulation is moved to a later time. Each flow moves by its mean and by
noise like that of its batches, so that seeds keep their spread. See ARCHITECTURE.md, "Estimated skips".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

import genie_core
import numpy as np

from simtwin.play.batch_means import (
    BATCHES_LEAST,
    CONFIDENCE,
    Array,
    drawn_noise,
    independent_batches,
    longest,
    pools_of,
)
from simtwin.play.series import NEVER_PS

FIRST_BATCH_PS, LONGEST_FIRST_BATCH_PS = 100 * 10**6, 5 * 10**9
BATCHES_MAX = 128  # then two become one
SETTLING = 0.25  # the share of batches that is left out: rates settle
PATIENCE = 150_000  # events from the beginning of messages on, in which an exact skip is looked for first
SKIP_LEAST, MOVED_LEAST = 4.0, 0.02  # batches, and the share of messages, below which a skip gains too little
REACH_MAX = 10.0  # how often skips last as long as what was observed: slower changes than that are not seen
RESERVE = 1 / 8  # of a batch, which is played before a message ends


@dataclass(frozen=True)
class FlowError:
    """The errors of a message that skips have caused.

    `error`: bound of the error of its mean rate, a share of it. `apart`: bound of the distance of its end from level
    `packet` with the same seed, a share of the message's time. The noise of the rate counts twice. None: no bound.
    """

    rank: int
    peer: int
    error: float
    apart: float | None


@dataclass(frozen=True)
class _Seen:
    """A message that is the first on its queue pair, from a look at `since_ps` on; its number among those that were."""

    end_psn: int
    number: int
    since_ps: int


@dataclass(frozen=True)
class _Skip:
    """A skip by so many batches. Arrays are (flows,).

    `packets`: by which the flows move. `mean`, `deviation`: of the packets of a batch. `error`: of the mean, a share of
    it. `slack`: batches for which a message may go on after the first has ended.
    """

    count: float
    batch_ps: int
    packets: Array
    mean: Array
    deviation: Array
    error: Array
    slack: Array
    quantile: float


@dataclass(frozen=True)
class _Moved:
    """A message that skips have moved.

    `variance`: of the noise that was skipped, and `slack`: what may be left when others end, as shares of its packets.
    """

    error: FlowError
    variance: float
    slack: float


class Estimator:
    """Skips of a simulation by estimates; run() takes the place of the simulator's own.

    `error`: the largest error of a flow's mean rate that a skip may cause, as a share. `reason`: why the latest look
    led to no skip.
    """

    def __init__(
        self, simulator: genie_core.Simulator, recurrence: genie_core.Recurrence, error: float, seed: int
    ) -> None:
        self._simulator, self._recurrence, self._error = simulator, recurrence, error
        self._steady = genie_core.SteadyFlows(simulator)
        self._random = np.random.default_rng(seed)
        self._first_ps = FIRST_BATCH_PS
        self._key: Array | None = None
        self._messages: dict[int, _Seen] = {}  # by queue pair
        self._moved: dict[tuple[int, int], _Moved] = {}  # by queue pair and number of the message
        self._packets_of_first = 0  # data packets of all until the messages of the first skip end, if no others begin
        self.skips = self.packets = self.time_ps = 0
        self.unusable: str = self._steady.unusable
        self.reason = self.unusable or "no message lasted long enough for an estimate"
        self._jumps = self._patient_until = 0
        self._begin(0, None)

    def run(self, events: int, until_ps: int = NEVER_PS) -> bool:
        """Run the simulator as its own run() does; events that are skipped do not count."""
        if self.unusable:
            return bool(self._recurrence.run(events, until_ps))
        last = self._simulator.events + events
        while (left := last - self._simulator.events) > 0:
            if (patience := self._patience()) > 0:
                if self._recurrence.run(min(left, patience), until_ps):
                    continue
                return False
            stop_ps = min(max(self._next_ps, self._simulator.now_ps + 1), until_ps)
            if self._recurrence.run(left, stop_ps):
                continue
            if self._simulator.over or stop_ps < self._next_ps:
                return False
            self._look(stop_ps, until_ps)
            if stop_ps == until_ps:
                return False
        return True

    def _patience(self) -> int:
        """Return the events to play before batches are counted, as an exact skip may come: stops would shorten it."""
        if self._recurrence.unfoldable:
            return 0
        if (jumps := self._recurrence.report["jumps"]) != self._jumps:
            self._jumps, self._patient_until = jumps, self._simulator.events + PATIENCE
        return int(self._patient_until - self._simulator.events)

    @property
    def errors(self) -> list[FlowError]:
        """The errors of all messages that a skip has moved."""
        return [it.error for it in self._moved.values()]

    @property
    def has_bound(self) -> bool:
        """Whether all ends have a bound: of the messages that were moved, and as no others began after a skip."""
        is_bounded = all(error.apart is not None for error in self.errors)
        return is_bounded and (not self.skips or self._simulator.data_packets <= self._packets_of_first)

    def _begin(self, now_ps: int, flows: dict[str, Array] | None) -> None:
        """Begin to count: messages have begun or ended, or the network has changed."""
        self._batches: list[Array] = []
        self._batch_ps = self._first_ps
        self._next_try = math.ceil(BATCHES_LEAST / (1 - SETTLING))
        self._classes: Array | None = None
        self._flows = flows
        self._change_ps = self._steady.next_change_ps
        self._observed_ps = self._skipped_ps = 0
        self._next_ps = now_ps + self._batch_ps
        self._steady.forget_counts()
        if flows is None:
            return
        for queue_pair, end in zip(flows["queue_pair"].tolist(), flows["end_psn"].tolist(), strict=True):
            known = self._messages.get(queue_pair)
            if known is None or known.end_psn != end:
                self._messages[queue_pair] = _Seen(end, 1 if known is None else known.number + 1, now_ps)

    def _look(self, now_ps: int, until_ps: int) -> None:
        flows = self._steady.flows(now_ps)
        key = np.stack([flows["queue_pair"], flows["messages"], flows["end_psn"]])
        is_same = self._key is not None and np.array_equal(key, self._key)
        if not is_same or self._flows is None or self._steady.next_change_ps != self._change_ps:
            is_short = len(self._batches) < BATCHES_LEAST
            self._first_ps = min(2 * self._first_ps, LONGEST_FIRST_BATCH_PS) if is_short else FIRST_BATCH_PS
            self._key = key
            self._lose_bounds(flows)
            return self._begin(now_ps, flows)
        self._next_ps = now_ps + self._batch_ps
        if key.shape[1] == 0:
            return None
        sent = self._flows["left"] - flows["left"]
        self._batches.append(np.stack([sent, flows["allowed_bps"] * (self._batch_ps / 10**12)]))
        self._flows = flows
        self._observed_ps += self._batch_ps
        if len(self._batches) == BATCHES_MAX:
            self._batches = [one + other for one, other in zip(self._batches[::2], self._batches[1::2], strict=True)]
            self._batch_ps *= 2
            self._next_try = len(self._batches)
            self._next_ps = now_ps + self._batch_ps
        if len(self._batches) >= self._next_try:
            self._next_try = len(self._batches) * 6 // 5 + 1
            reason = self._tried(now_ps, until_ps, flows)
            if reason:
                self.reason = reason
                self._steady.count(now_ps, now_ps - int((1 - SETTLING) * len(self._batches) * self._batch_ps))
        return None

    def _lose_bounds(self, flows: dict[str, Array]) -> None:
        """Others begin or end: a message with more to send than noise explains goes on at a rate that is not known."""
        for at, queue_pair in enumerate(flows["queue_pair"].tolist()):
            seen = self._messages.get(queue_pair)
            if seen is None or seen.end_psn != flows["end_psn"][at]:
                continue
            key = (queue_pair, seen.number)
            moved = self._moved.get(key)
            if moved is not None and flows["left"][at] > moved.slack * flows["packets"][at]:
                self._moved[key] = replace(moved, error=replace(moved.error, apart=None))

    def _tried(self, now_ps: int, until_ps: int, flows: dict[str, Array]) -> str:
        """Move the simulation; return "", or the reason why it stays."""
        skip = self._planned(now_ps, until_ps, flows)
        if isinstance(skip, str):
            return skip
        moved = self._with_errors(now_ps, flows, skip)
        worst = max(each.error.error for each in moved.values())
        if worst > self._error:
            return f"mean rates were known to {100 * worst:.2g} % only"
        by_ps = int(skip.count * skip.batch_ps)
        packets_of_first = self._simulator.data_packets + int(flows["left"].sum())
        if not self._steady.advance(now_ps, by_ps, flows["queue_pair"].tolist(), skip.packets.tolist()):
            return "its state cannot be moved"
        if not self.skips:
            self._packets_of_first = packets_of_first
        self._moved |= moved
        self.skips += 1
        self.packets += int(skip.packets.sum())
        self.time_ps += by_ps
        self._skipped_ps += by_ps
        self._recurrence.forget()
        self._flows = self._steady.flows(now_ps + by_ps)
        self._next_ps = now_ps + by_ps + self._batch_ps
        self._steady.count(now_ps + by_ps, now_ps + by_ps)
        return ""

    def _planned(self, now_ps: int, until_ps: int, flows: dict[str, Array]) -> _Skip | str:
        """Return the longest skip that the flows allow, or the reason why there is none."""
        settled = np.array(self._batches[int(len(self._batches) * SETTLING) :], float)
        batches = independent_batches(settled, self._batch_ps)
        if batches is None:
            return "rates change too slowly for an estimate"
        if self._classes is None:
            self._classes = np.array(self._steady.classes(flows["queue_pair"].tolist()))
        # The chance of an error beyond its bound halves from skip to skip, and so is bounded for all together.
        miss = (1 - CONFIDENCE) / 2 ** (self.skips + 1)
        pools = pools_of(batches, self._classes, miss)
        if isinstance(pools, str):
            return pools
        mean, deviation, error = (np.zeros(len(self._classes)) for _ in range(3))
        for pool in pools:
            mean[pool.flows], deviation[pool.flows] = pool.mean, pool.deviation
        quantile = NormalDist().inv_cdf(1 - miss / 2 / len(mean))
        # How long after the first of them messages end that began together, and are alike but for noise: in batches.
        slack = 1 + 2 * quantile * np.sqrt(flows["packets"] / mean) * deviation / mean
        rest = flows["left"] / mean
        if (rest - rest.min() > slack).any():
            return "messages end at unlike times, and rates change at each end"
        noise = drawn_noise(batches, pools, self._random)
        room = flows["left"] - np.ceil(mean * RESERVE)
        end_ps = min(self._steady.horizon_ps, until_ps)
        reach_ps = REACH_MAX * self._observed_ps - self._skipped_ps
        reach = min(pool.reach_within(self._error) for pool in pools)
        if reach <= 0:
            worst = max(pool.error_after(0.0) for pool in pools)
            return f"mean rates were known to {100 * worst:.2g} % only"
        count = min(
            longest(mean, noise, room),
            min(end_ps - now_ps - 1, reach_ps) / batches.batch_ps,
            reach * len(batches.packets),
        )
        if count < max(SKIP_LEAST, MOVED_LEAST * float((flows["packets"] / mean).min())):
            return "messages or samples would end an estimate before it was worth while"
        for pool in pools:
            error[pool.flows] = pool.error_after(count / len(batches.packets))
        packets = np.clip(np.floor(mean * count + noise * math.sqrt(count)), 0, room).astype(np.int64)
        return _Skip(count, batches.batch_ps, packets, mean, deviation, error, slack, quantile)

    def _with_errors(self, now_ps: int, flows: dict[str, Array], skip: _Skip) -> dict[tuple[int, int], _Moved]:
        """Return the flows' messages with their errors after a skip.

        A message that has begun after an earlier skip has no bound, as its beginning has none.
        """
        found, size = {}, flows["packets"]
        rest = np.maximum(flows["left"] - skip.packets, 0) / skip.mean  # batches: their noise differs as well
        of_batch = (skip.deviation / size) ** 2
        for at, queue_pair in enumerate(flows["queue_pair"].tolist()):
            seen = self._messages[queue_pair]
            before = self._moved.get((queue_pair, seen.number))
            error, variance = float(skip.error[at] * skip.packets[at] / size[at]), float(of_batch[at] * skip.count)
            is_bounded = self.skips == 0 if before is None else before.error.apart is not None
            if before is not None:
                error, variance = error + before.error.error, variance + before.variance
            apart = error + skip.quantile * math.sqrt(2 * (variance + float(of_batch[at] * rest[at])))
            # A message that was faster before would take longer at its mean rate than it does.
            takes = (now_ps - seen.since_ps) / skip.batch_ps + skip.count + float(rest[at])
            apart *= max(float(size[at] / skip.mean[at]) / takes, 1.0)
            flow = FlowError(int(flows["rank"][at]), int(flows["peer"][at]), error, apart if is_bounded else None)
            found[queue_pair, seen.number] = _Moved(flow, variance, float(skip.slack[at] * skip.mean[at] / size[at]))
        return found
