"""Means of flows that fluctuate, and their errors, from packets counted in batches. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95  # that the errors of all flows of a simulation are within their bounds
BATCHES_LEAST = 8  # that a mean is taken of
CORRELATION_MAX = 0.4  # of a batch with the next
ALLOWED_CHANGE = 0.1  # between halves, of the rate that congestion control allows: a smaller one is noise

Array = NDArray[Any]


@dataclass(frozen=True)
class Batches:
    """Packets of flows in batches that depend little on each other.

    `packets`, `allowed`: (batches, flows); the latter in bits, as congestion control has allowed them.
    `inflation`: how much more a sum of packets varies than if batches were independent.
    """

    packets: Array
    allowed: Array
    batch_ps: int
    inflation: float


@dataclass(frozen=True)
class Pool:
    """Flows that are alike, and what is known of their packets in a batch.

    `deviation`: of independent batches that vary as much in the long run; `stretch`: that of these batches to it.
    `error`: of the mean, a share of it. `drift`: of the mean, or of the allowed rate, from one half of the batches to
    the other, a share of it.
    """

    flows: Array
    mean: float
    deviation: float
    stretch: float
    error: float
    drift: float

    def error_after(self, reach: float) -> float:
        """Return the error of the mean over a time `reach` times as long as the batches, as a share of it.

        Rates that have drifted may drift on as fast.
        """
        return self.error + self.drift * (1 + reach)

    def reach_within(self, error: float) -> float:
        """Return for how long, in times of the batches, the error stays within a share of the mean; below 0: never."""
        if self.drift == 0 and self.error <= error:
            return math.inf
        return (error - self.error) / max(self.drift, 1e-12) - 1


def independent_batches(counted: Array, batch_ps: int) -> Batches | None:
    """Return the shortest batches that depend little on each other; None where too few of them are left.

    `counted`: (batches of `batch_ps`, 2, flows): packets, and bits that were allowed.
    """
    together = 1
    while (count := len(counted) // together) >= BATCHES_LEAST:
        rows = counted[len(counted) - count * together :].reshape(count, together, 2, -1).sum(axis=1)
        correlation = correlation_of(rows[:, 0])
        if correlation <= CORRELATION_MAX:
            return Batches(rows[:, 0], rows[:, 1], batch_ps * together, inflation_of(correlation))
        together += max(1, together // 4)
    return None


def correlation_of(rows: Array) -> float:
    """Return the correlation of rows with the next, over all columns; a short row of batches hides some of it."""
    deviations = rows - rows.mean(axis=0)
    squares = float((deviations**2).sum())
    if squares == 0:
        return 0.0
    seen = float((deviations[1:] * deviations[:-1]).sum()) / squares
    return seen + (1 + 4 * seen) / len(rows)


def change_of(series: Array) -> float:
    """Return the distance between the means of a series' two halves."""
    half = len(series) // 2
    return abs(float(series[:half].mean() - series[-half:].mean()))


def inflation_of(correlation: float) -> float:
    """Return how much more a sum of correlated batches varies (first-order autoregression)."""
    bounded = min(max(correlation, 0.0), 0.8)
    return (1 + bounded) / (1 - bounded)


def t_quantile(share: float, freedom: int) -> float:
    """Return a quantile of Student's distribution (Cornish-Fisher expansion: within 0.5 % from 7 degrees on)."""
    z = NormalDist().inv_cdf(share)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )


def pools_of(batches: Batches, classes: Array, miss: float = 1 - CONFIDENCE) -> list[Pool] | str:
    """Return the flows by class; a text says why the rates are not steady.

    `miss`: the chance that the mean of one of the pools is further off than its error.
    """
    rows, pools = batches.packets, []
    count = len(rows)
    numbers = np.unique(classes)
    quantile = t_quantile(1 - miss / 2 / len(numbers), count - 1)
    for number in numbers:
        flows = np.flatnonzero(classes == number)
        own = rows[:, flows]
        pooled = own.mean(axis=1)
        mean = float(pooled.mean())
        if mean == 0:
            return "a flow stands still"
        standard_error = math.sqrt(float(pooled.var(ddof=1)) / count * inflation_of(correlation_of(pooled[:, None])))
        drift = change_of(pooled) / mean
        if drift > 4 * standard_error / mean:
            return "rates rise or fall"
        allowed = batches.allowed[:, flows].mean(axis=1)
        if change_of(allowed) > max(ALLOWED_CHANGE * float(allowed.mean()), 4 * allowed.std(ddof=1) / math.sqrt(count)):
            return "congestion control still raises or lowers rates"
        steps = np.diff(allowed)
        if steps.any() and ((steps >= 0).all() or (steps <= 0).all()):
            return "congestion control still raises or lowers rates"
        # Packets follow what is allowed, and do so by whole packets: a slow change shows there first.
        drift += 4 / (count * mean)
        if (level := float(allowed.mean())) > 0:
            drift = max(drift, change_of(allowed) / level)
        variance = float(own.var(axis=0, ddof=1).mean())
        in_the_long_run = variance * batches.inflation
        if len(flows) > 1:
            # Means of flows that are alike differ by their noise alone, which slow changes are part of.
            between = float(own.mean(axis=0).var(ddof=1)) * count
            if between > in_the_long_run * (1 + 3.5 * math.sqrt(2 / (len(flows) - 1))):
                return "flows on alike paths keep unlike rates"
            in_the_long_run = max(in_the_long_run, between)
        stretch = math.sqrt(in_the_long_run / variance) if variance > 0 else 1.0
        deviation = math.sqrt(in_the_long_run)
        error = quantile * standard_error / mean + 1 / (count * mean)
        pools.append(Pool(flows, mean, deviation, stretch, error, drift))
    return pools


def drawn_noise(batches: Batches, pools: list[Pool], random: np.random.Generator) -> Array:
    """Return noise of each flow, (flows,), as that of one batch; flows of a pool change places batch by batch.

    What the flows of a batch have together stays: where they share a link, one has what another has not.
    """
    deviations = batches.packets - batches.packets.mean(axis=0)
    noise = np.zeros(deviations.shape[1])
    for row in deviations:
        weight = random.standard_normal()
        for pool in pools:
            noise[pool.flows] += weight * pool.stretch * row[random.permutation(pool.flows)]
    return noise / math.sqrt(len(deviations) - 1)


def longest(mean: Array, noise: Array, room: Array) -> float:
    """Return for how many batches all flows have room: `mean` x batches + `noise` x their root, at most `room`."""
    root = (-noise + np.sqrt(noise**2 + 4 * mean * np.maximum(room, 0))) / (2 * mean)
    return float((root**2).min())
