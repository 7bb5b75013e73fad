"""Generated flows: sizes as their distribution has them, arrivals as a Poisson process has them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genie.plan.build import build_plan
from genie.workload.flows import WEB_SEARCH, Flow, Sizes, incast, poisson, workload_of
from genie.workload.graph import Kind, Workload, WorkloadError

POINTS = st.lists(
    st.tuples(st.integers(1, 10**9), st.floats(0, 1)), min_size=1, max_size=6, unique_by=lambda point: point[0]
)


def starts_ns(workload: Workload, rank: int) -> list[int]:
    graph = workload.ranks[rank]
    return graph.duration_ns[graph.kind == Kind.COMP].tolist()


@given(POINTS)
def test_sizes_are_those_of_the_distribution(points: list[tuple[int, float]]) -> None:
    sizes, shares = sorted(size for size, _ in points), sorted(share for _, share in points)
    distribution = Sizes(tuple(zip(sizes, [*shares[:-1], 1.0], strict=True)))
    at = (np.arange(20_000) + 0.5) / 20_000
    drawn = distribution.drawn(at)
    assert (np.diff(drawn) >= 0).all()
    assert drawn.min() >= 1
    assert drawn.max() <= sizes[-1]
    # Linear between points: the mean of evenly spaced shares is the integral.
    assert drawn.mean() == pytest.approx(distribution.mean_bytes, rel=1e-2, abs=1 + sizes[-1] / 10_000)


def test_web_searches_are_mice_and_elephants() -> None:
    assert WEB_SEARCH.mean_bytes == pytest.approx(1.71e6, rel=0.01)
    assert WEB_SEARCH.drawn(np.array([0.53]))[0] == 80_000


@pytest.mark.parametrize("points", [(), ((5, 1.0), (3, 1.0)), ((1, 0.5),), ((1, 0.7), (2, 0.6), (3, 1.0)), ((0, 1.0),)])
def test_what_is_no_distribution(points: tuple[tuple[int, float], ...]) -> None:
    with pytest.raises(WorkloadError, match="distribution of sizes"):
        Sizes(points)


def test_arrivals_are_a_poisson_process() -> None:
    """Gaps are exponential: their mean is their deviation, and 1/e of them are longer than the mean."""
    workload = poisson(4, 10**10, 0.5, 200_000_000, Sizes(((10_000, 1.0),)), seed=2)
    expected_ns = 10_000 * 8 / 10 / 0.5
    for rank in range(4):
        starts = np.array(starts_ns(workload, rank))
        assert starts.max() < 200_000_000
        gaps = np.diff(starts)
        assert gaps.mean() == pytest.approx(expected_ns, rel=0.05)
        assert gaps.std() == pytest.approx(expected_ns, rel=0.05)
        assert (gaps > expected_ns).mean() == pytest.approx(np.exp(-1), abs=0.02)
        peers = workload.ranks[rank].peer[workload.ranks[rank].kind == Kind.SEND]
        counts = np.bincount(peers, minlength=4)
        assert counts[rank] == 0
        assert np.delete(counts, rank).min() > 0.9 * len(peers) / 3


def test_a_seed_means_the_same_for_ever() -> None:
    """The same flows with every version of NumPy, because rows of sweeps are kept by their seed."""
    graph = poisson(3, 10**9, 0.5, 100_000_000, WEB_SEARCH, seed=7).ranks[1]
    sends = graph.kind == Kind.SEND
    starts = graph.duration_ns[graph.kind == Kind.COMP]
    first = list(zip(starts.tolist(), graph.peer[sends].tolist(), graph.size_bytes[sends].tolist(), strict=True))
    assert first[:3] == [(40256513, 0, 17820), (45028850, 0, 73476)]


def test_flows_become_messages() -> None:
    workload = workload_of("two", 3, [Flow(0, 2, 100, 50), Flow(0, 1, 200)])
    assert [len(workload.ranks[rank]) for rank in range(3)] == [3, 1, 1]
    assert len(list(build_plan(workload).ranks)) == 3
    with pytest.raises(WorkloadError, match="flow 0 from 1 to 1: give two of 3 ranks"):
        workload_of("one", 3, [Flow(1, 1, 5)])
    with pytest.raises(WorkloadError, match="about 1250000000 flows: give a shorter duration"):
        poisson(2, 10**12, 1.0, 10**10, Sizes(((2000, 1.0),)))
    with pytest.raises(WorkloadError, match="incast: senders = 3: give 1 to 2"):
        incast(3, 10, senders=3)
