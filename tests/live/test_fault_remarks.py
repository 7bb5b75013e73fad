"""Faults that cannot change anything, by the run's settings and by its records."""

from __future__ import annotations

import polars as pl
import pytest

from genie.live.fault_warnings import faults_without_effect, missed_faults
from genie.live.settings import CongestionFault, DelayFault, Faults, LossFault, RateFault, RunSettings
from genie.record.schemas import PATHS_SCHEMA

pytestmark = pytest.mark.live


def settings(faults: Faults, **more: object) -> RunSettings:
    """Four ranks, ten iterations after two of warm-up."""
    plain = {"workload": "w", "out": "o", "ranks": 4, "addresses": [], "ports": [], "host_names": []}
    return RunSettings(**{**plain, "iterations": 10, "warmup": 2, "faults": faults, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (RateFault(1, 0.5), ""),
        (RateFault(1, 0.5, 11), ""),
        (RateFault(1, 0.5, 12), "from_iteration = 12 lies beyond the run, which plays iterations 0 to 11"),
        (RateFault(1, 0.5, 0, 3), ""),
        (RateFault(1, 0.5, 0, 2), "acts in warm-up only, which is not judged: it ends at until_iteration = 2"),
        (RateFault(1, 1.0), "has no effect: factor is 1"),
    ],
)
def test_rates(fault: RateFault, words: str) -> None:
    said = faults_without_effect(settings(Faults(rate=[fault])))
    assert [words in line for line in said] == ([True] if words else [])


def test_other_tables() -> None:
    faults = Faults(
        loss=[LossFault(1, 100, 1), LossFault(1, 100, 2)],
        delay=[DelayFault(2, 2, 10.0), DelayFault(2, 3, 0.0), DelayFault(2, 1, 5.0)],
        congestion=[CongestionFault(3, False)],
    )
    assert faults_without_effect(settings(faults)) == [
        "fault [[loss]] of rank 1 has no effect: a rank sends nothing to itself",
        "fault [[delay]] of rank 2 has no effect: a rank sends nothing to itself",
        "fault [[delay]] of rank 2 has no effect: delay_us is 0",
        "fault [[congestion]] of rank 3 has no effect: no congestion control is on (--congestion)",
    ]
    assert faults_without_effect(settings(Faults(congestion=faults.congestion), congestion={"kind": "dcqcn"})) == []


def test_what_the_traffic_did_not_meet() -> None:
    transfers = pl.DataFrame({"src": [0, 1, 2], "dst": [1, 2, 0]})
    faults = Faults(
        rate=[RateFault(0, 0.5), RateFault(3, 0.5)], loss=[LossFault(1, 9)], delay=[DelayFault(0, 1, 1.0),
                                                                                    DelayFault(0, 2, 1.0)],
    )  # fmt: skip
    lab = {"faults": {"a->b": "rate 40Mb/s", "b->a": "rate 40Mb/s"}}
    paths = pl.DataFrame([(0, 1, 50000, 0, "a->b", None)], schema=PATHS_SCHEMA, orient="row")
    said = [
        "fault [[rate]] of rank 3 has no effect: it sends no payload",
        "fault [[delay]] of rank 0 has no effect: it sends rank 2 no payload",
    ]
    assert missed_faults(settings(faults, lab=lab), transfers, None, ()) == said
    assert missed_faults(settings(faults, lab=lab), transfers, paths, ()) == [
        *said,
        "lab fault b->a (rate 40Mb/s): the payload of no rank crosses this link",
    ]


def test_a_loss_that_lost_nothing() -> None:
    transfers = pl.DataFrame({"src": [0, 1, 2], "dst": [1, 2, 0]})
    faults = Faults(loss=[LossFault(0, 1000), LossFault(1, 1000, 2), LossFault(2, 9), LossFault(3, 9)])
    counters = [{"injected_losses": 0}, {"injected_losses": 0}, {"injected_losses": 3}, None]
    words = "has no effect: it sent too few packets for one in 1000 to be lost"
    assert missed_faults(settings(faults), transfers, None, counters) == [
        "fault [[loss]] of rank 3 has no effect: it sends no payload",
        f"fault [[loss]] of rank 0 {words}",
        f"fault [[loss]] of rank 1 {words}",
    ]
