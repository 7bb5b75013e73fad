"""Tests without a noise model: bets on ranks among peers, with any start and end of the fault.

Null hypothesis for a component: within a unit its slow-down, less the margin, is exchangeable with its peers'. Let j be
the number of peers above the lowest of its k members. Under the null, j has probability C(k+j-1, k-1) / C(n, k),
whatever the noise. A bet on j with odds to match then has expectation 1.

Products over independent units are e-values, and so are their averages over bets and windows. This averaging is all the
correction that the search for a window needs. e-BH over all components (Wang & Ramdas 2022) keeps the false discovery
rate under any dependence between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, comb
from typing import TYPE_CHECKING

import numpy as np

from genie.verdict.series import Series, against_peers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

DECAYS = (0.1, 0.3, 0.5)  # ratio of a bet's odds between neighbouring positions among the peers
OUTSIDE_MAX = 0.5  # level outside of a window, as a share of that inside (logarithms of slow-downs)
STAKES = (0.5, 0.9)  # fraction staked on a sign
# Prior odds of a fault during the whole run, one that starts in mid-run, and one that starts and ends in it.
WINDOW_PRIOR = (0.5, 0.35, 0.15)
WINDOW_UNITS_MIN = 4
WINDOW_ITERATIONS_MIN = 3  # a shorter window is as likely a hiccup of a host as a fault
WINDOW_GRID = 40  # number of starts, and of ends, of windows in a long run
LOG_E_MAX = 600.0


@dataclass(frozen=True)
class Window:
    """Iterations [first, last], as indices into the judged ones."""

    first: int
    last: int


def windows(iterations: int, units_per_iteration: int) -> tuple[list[Window], NDArray[np.float64]]:
    """All windows that can be detected, and their prior weights (sum at most 1). Long runs use a coarser grid."""
    shortest = max(WINDOW_ITERATIONS_MIN, ceil(WINDOW_UNITS_MIN / units_per_iteration))
    step = ceil(iterations / WINDOW_GRID)
    starts = range(0, iterations - shortest + 1, step)
    whole = [Window(0, iterations - 1)]
    late = [Window(first, iterations - 1) for first in starts if first]
    ends = range(step - 1, iterations - 1, step)
    inner = [Window(first, last) for first in starts for last in ends if last - first + 1 >= shortest]
    found: list[Window] = []
    weight: list[float] = []
    for kind, prior in zip((whole, late, inner), WINDOW_PRIOR, strict=True):
        found += kind
        weight += [prior / max(1, len(kind))] * len(kind)
    return found, np.array(weight)


def chances(members: int, total: int) -> NDArray[np.float64]:
    """(peers + 1,) probability under the null that j peers are above the lowest of the members."""
    return np.array([comb(members + j - 1, members - 1) / comb(total, members) for j in range(total - members + 1)])


def payoffs(members: int, total: int, decay: float) -> NDArray[np.float64]:
    """(peers + 1,) payoff of a bet by the number of peers above: geometric odds over the null's, expectation 1."""
    odds = decay ** np.arange(total - members + 1, dtype=np.float64)
    result: NDArray[np.float64] = odds / odds.sum() / chances(members, total)
    return result


def margin_of(series: Series, members: Sequence[int], margin: float) -> float:
    """ln(1 + margin), or twice the robust spread of the peers' lasting differences where that is more."""
    chosen = np.isin(np.arange(len(series.members)), list(members))
    typical = np.median(series.relative(), axis=0)
    spread = [np.abs(part - np.median(part)) for part in (typical[chosen], typical[~chosen]) if len(part) >= 3]
    lasting = 2 * 1.4826 * float(np.median(np.concatenate(spread))) if spread else 0.0
    return max(float(np.log1p(margin)), lasting)


def e_value(series: Series, members: Sequence[int], margin: float, stride: int = 1) -> float:
    """Evidence against "the members (columns) are no slower than their peers by more than the margin".

    `stride` 2 averages over every other unit, for series whose neighbouring units depend on each other.
    """
    total = len(series.members)
    chosen = np.isin(np.arange(total), list(members))
    count = int(chosen.sum())
    if not 0 < count < total:
        return 1.0
    lowest = series.values[:, chosen].min(axis=1) - margin_of(series, members, margin)
    above = (series.values[:, ~chosen] >= lowest[:, None]).sum(axis=1)
    which, position = np.unique(series.iteration, return_inverse=True)
    found, weight = windows(len(which), max(1, len(series.iteration) // len(which)))
    first = np.array([window.first for window in found])
    last = np.array([window.last for window in found])
    total_e = 0.0
    for decay in DECAYS:
        gain = np.log(payoffs(count, total, decay))[above]
        for start in range(stride):
            kept = np.where(np.arange(len(gain)) % stride == start, gain, 0.0)
            running = np.concatenate([[0.0], np.cumsum(np.bincount(position, kept, len(which)))])
            total_e += float(weight @ np.exp(np.minimum(running[last + 1] - running[first], LOG_E_MAX)))
    return total_e / (len(DECAYS) * stride)


def sign_e_value(values: NDArray[np.float64], limit: float, iteration: NDArray[np.int64]) -> float:
    """Evidence that the median of independent values, in some window, is above the limit; needs no peers."""
    which, position = np.unique(iteration, return_inverse=True)
    found, weight = windows(len(which), max(1, len(iteration) // len(which)))
    first = np.array([window.first for window in found])
    last = np.array([window.last for window in found])
    total_e = 0.0
    for stake in STAKES:
        gain = np.where(values > limit, np.log1p(stake), np.log1p(-stake))
        running = np.concatenate([[0.0], np.cumsum(np.bincount(position, gain, len(which)))])
        total_e += float(weight @ np.exp(np.minimum(running[last + 1] - running[first], LOG_E_MAX)))
    return total_e / len(STAKES)


def e_bh(e_values: NDArray[np.float64], rate: float) -> NDArray[np.bool_]:
    """Mask of the hypotheses that are rejected at the false discovery rate."""
    count = len(e_values)
    order = np.argsort(-e_values)
    passing = e_values[order] >= count / (rate * np.arange(1, count + 1))
    rejected = np.zeros(count, bool)
    if passing.any():
        rejected[order[: int(np.flatnonzero(passing)[-1]) + 1]] = True
    return rejected


def upper_median(values: NDArray[np.float64], confidence: float = 0.95) -> float:
    """Upper bound of the median by order statistics; infinite with too few values."""
    count = len(values)
    below = np.cumsum([comb(count, k) / 2**count for k in range(count + 1)])
    allowed = np.flatnonzero(below <= 1 - confidence)
    return float(np.sort(values)[count - 1 - int(allowed[-1])]) if len(allowed) else float("inf")


def change_window(values: NDArray[np.float64], iteration: NDArray[np.int64]) -> Window:
    """The window in which the values are raised: least absolute deviations of two levels, against one level.

    Outside of a window the level is at most OUTSIDE_MAX of that inside. A start or end in mid-run pays for the choice
    among windows: in Laplace log likelihood, twice the logarithm of their number.
    """
    which, position = np.unique(iteration, return_inverse=True)
    best = Window(0, len(which) - 1)
    found, _ = windows(len(which), max(1, len(iteration) // len(which)))
    least = _deviation(values) * float(np.exp(-2 * np.log(max(2, len(found))) / len(values)))
    for window in found[1:]:
        inside = (position >= window.first) & (position <= window.last)
        if np.median(values[~inside]) > OUTSIDE_MAX * np.median(values[inside]):
            continue  # slow there too: not since then
        cost = _deviation(values[inside]) + _deviation(values[~inside])
        if cost < least:
            best, least = window, cost
    return best


def _deviation(values: NDArray[np.float64]) -> float:
    return float(np.abs(values - np.median(values)).sum())


def lag_correlation(series: Series) -> tuple[float, float]:
    """Lag-1 correlation of a rank's residuals from unit to unit (median over ranks), and its standard error."""
    residual = series.relative()
    which = np.unique(series.iteration)
    phases = max(1, len(residual) // max(1, len(which)))
    for phase in range(phases):
        residual[phase::phases] -= residual[phase::phases].mean(axis=0)
    if len(residual) < 4:
        return 0.0, 1.0
    power = (residual**2).sum(axis=0)
    each = (residual[1:] * residual[:-1]).sum(axis=0)[power > 0] / power[power > 0]
    if not len(each):
        return 0.0, 1.0
    return float(np.median(each)), float(1.2533 / np.sqrt((len(residual) - 1) * len(each)))


def members_against_peers(series: Series, ranks: Sequence[int]) -> NDArray[np.float64]:
    """(u,) `against_peers`, with members given by rank number."""
    return against_peers(series, [series.column(rank) for rank in ranks])
