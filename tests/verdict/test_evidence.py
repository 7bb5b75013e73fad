from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from genie.verdict.evidence import (
    chances,
    change_window,
    e_bh,
    e_value,
    lag_correlation,
    payoffs,
    sign_e_value,
    upper_median,
    windows,
)
from genie.verdict.series import Series


def series_of(values: np.ndarray, per_iteration: int = 2) -> Series:
    units, ranks = values.shape
    return Series("egress", list(range(ranks)), np.arange(units) // per_iteration, values)


@pytest.mark.parametrize("members", [1, 2, 3])
def test_chances_are_exact_and_bets_are_fair(members: int) -> None:
    total = 6
    counted = np.zeros(total - members + 1)
    for chosen in combinations(range(total), members):  # every subset of positions (0 is the slowest) is as likely
        counted[max(chosen) - members + 1] += 1
    assert chances(members, total) == pytest.approx(counted / counted.sum())
    for decay in (0.1, 0.5):
        pays = payoffs(members, total, decay)
        assert float(pays @ chances(members, total)) == pytest.approx(1)
        assert pays[0] > 1 > pays[-1]


@pytest.mark.parametrize("iterations", [1, 2, 5, 10, 30, 1000])
def test_prior_weights_of_windows_sum_to_at_most_one(iterations: int) -> None:
    found, weight = windows(iterations, 2)
    assert len(found) == len(weight)
    assert weight.sum() <= 1 + 1e-12
    assert len({(window.first, window.last) for window in found}) == len(found) <= 1000
    assert all(0 <= window.first <= window.last < iterations for window in found)


@pytest.mark.parametrize("noise", ["normal", "cauchy", "drift"])
def test_e_values_are_at_most_one_on_average_without_a_fault(noise: str) -> None:
    rng = np.random.default_rng(7)
    values = []
    for _ in range(1500):
        draw = rng.standard_cauchy((12, 8)) if noise == "cauchy" else rng.standard_normal((12, 8))
        draw = 0.05 * draw + (rng.standard_normal((12, 1)) if noise == "drift" else 0)
        values.append(e_value(series_of(draw), [3], 0.0))
    mean, error = float(np.mean(values)), float(np.std(values) / np.sqrt(len(values)))
    assert mean <= 1 + 3 * error
    assert np.mean(np.array(values) >= 20) <= 1 / 20


def test_a_slow_down_within_the_margin_is_no_evidence() -> None:
    draw = 0.001 * np.random.default_rng(1).standard_normal((20, 8))
    draw[:, 3] += np.log1p(0.015)
    assert e_value(series_of(draw), [3], 0.02) < 1
    draw[:, 3] += np.log1p(0.015)
    assert e_value(series_of(draw), [3], 0.02) > 1e6


def test_a_late_fault_is_evidence_and_dated() -> None:
    draw = 0.03 * np.random.default_rng(2).standard_normal((20, 8))
    draw[10:, 3] += 0.2
    assert e_value(series_of(draw), [3], 0.02) > 320
    assert (
        change_window(draw[:, 3], np.arange(20) // 2).first,
        change_window(draw[:, 3], np.arange(20) // 2).last,
    ) == (5, 9)


def test_no_window_is_found_where_nothing_changes() -> None:
    rng = np.random.default_rng(3)
    iteration = np.arange(20) // 2
    whole = sum(change_window(rng.standard_normal(20), iteration).first == 0 for _ in range(200))
    assert whole >= 180


def test_a_set_of_ranks_is_tested_as_one() -> None:
    draw = 0.03 * np.random.default_rng(4).standard_normal((20, 8))
    draw[:, 4:] += 0.3
    assert e_value(series_of(draw), [4, 5, 6, 7], 0.02) > 1e6
    assert e_value(series_of(draw), [3, 5, 6, 7], 0.02) < 1


def test_e_bh_rejects_the_largest_prefix() -> None:
    assert e_bh(np.array([90.0, 1.0, 45.0, 2.0]), 0.05).tolist() == [True, False, True, False]  # 4/(0.05 k) = 80, 40
    assert e_bh(np.array([79.0, 1.0, 39.0, 2.0]), 0.05).sum() == 0
    assert e_bh(np.zeros(0), 0.05).tolist() == []


def test_upper_bound_of_the_median_covers_it() -> None:
    rng = np.random.default_rng(5)
    covered = np.mean([upper_median(rng.standard_cauchy(11)) >= 0 for _ in range(4000)])
    assert covered >= 0.95 - 0.012
    assert upper_median(np.zeros(4)) == float("inf")  # even the largest of four is above the median only 15 times of 16


def test_sign_e_value_needs_no_peers() -> None:
    iteration = np.arange(12)
    assert sign_e_value(np.full(12, 0.4), 0.2, iteration) > 100
    assert sign_e_value(np.full(12, 0.1), 0.2, iteration) < 1


def test_lag_correlation_is_about_noise_not_about_a_fault() -> None:
    rng = np.random.default_rng(6)
    draw = rng.standard_normal((40, 8))
    draw[20:, 3] += 20
    correlation, error = lag_correlation(series_of(draw))
    assert abs(correlation) < 3 * error
    slow = np.repeat(rng.standard_normal((20, 8)), 2, axis=0)
    assert lag_correlation(series_of(slow))[0] > 0.3
