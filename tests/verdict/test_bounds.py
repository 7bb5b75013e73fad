"""Claims of a pass: none about a NIC that was not judged."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from synthetic_runs import Noise, run_pair

from genie.record import Run
from genie.verdict import Options, Verdict, judge

QUIET = Noise(message_cv=0.01, latency_ns=5_000)
SMALL = pl.col("size_bytes") < 100_000  # the all-to-alls' messages
LIGHT = (pl.col("src") != 7) | SMALL  # rank 7 sends in all-to-alls only: 2 % of what the others send


def kept(keep: pl.Expr, seed: int, noise: Noise) -> tuple[Run, Run]:
    """A clean run and its twin with some of their transfers."""
    live, twin = (replace(run, transfers=run.transfers.filter(keep)) for run in run_pair(seed, noise))
    return live, twin


def small(keep: pl.Expr) -> Verdict:
    return judge(*kept(SMALL & keep, 30, QUIET))


@pytest.mark.parametrize("factor", [1.25, 1.5])
def test_no_pass_for_a_slow_rank_of_little_traffic(factor: float) -> None:
    for seed in range(4):
        live, twin = kept(LIGHT, 20 + seed, QUIET)
        busy = pl.when(pl.col("src") == 7).then(pl.col("busy_ns") * factor).otherwise(pl.col("busy_ns"))
        live.transfers = live.transfers.with_columns(busy.cast(pl.Int64).alias("busy_ns"))
        verdict = judge(live, twin)
        assert (verdict.result, verdict.exit_code) == ("inconclusive", 4), verdict.line()
        assert "too little traffic to be sure: rank 7 egress may be up to" in verdict.summary
        assert verdict.upper_bound["rank 7 egress"] == pytest.approx(factor - 1, abs=0.1)


def test_a_rank_of_little_traffic_passes_by_its_own_bound() -> None:
    for seed in range(4):
        verdict = judge(*kept(LIGHT, 20 + seed, QUIET))
        assert verdict.result == "pass", verdict.line()
        assert verdict.little == ("rank 7 egress", "rank 0 ingress")  # the ring's next rank receives little
        assert verdict.summary.startswith("8 of 8 NICs judged: none is slower")
        assert all(verdict.upper_bound[name] < 0.1 for name in verdict.little)  # type: ignore[operator]


def test_a_direction_that_has_no_peers_is_named_and_is_no_pass_unless_asked_for() -> None:
    runs = kept(SMALL & ((pl.col("dst") == 0) | ((pl.col("src") == 0) & (pl.col("dst") == 1))), 30, QUIET)
    verdict = judge(*runs)
    assert verdict.result == "inconclusive", verdict.line()
    assert verdict.summary.startswith(
        "6 of 8 NICs (6 in the one direction that they use) judged; not judged: rank 0 ingress, rank 1 ingress "
        "(no peers); "
    )
    enough = judge(*runs, Options(require_coverage="none"))
    assert enough.result == "pass", enough.line()
    assert "no judged one is slower than its peers by 10 % or more, the others may be" in enough.summary
    assert [(item["rank"], item["direction"]) for item in verdict.to_dict()["not_judged"]] == [
        (0, "ingress"),
        (1, "ingress"),
    ]


def test_no_pass_for_a_nic_that_is_judged_in_no_direction() -> None:
    verdict = small(pl.col("dst") == 0)
    assert verdict.result == "inconclusive"
    assert "; not judged: rank 0 ingress (no peers)" in verdict.summary
    assert "peers that move as much" in verdict.action


def test_a_direction_without_payload_is_no_question() -> None:
    verdict = small((pl.col("src") < 4) & (pl.col("dst") >= 4))
    assert verdict.result == "pass", verdict.line()
    assert verdict.not_judged == ()
    assert verdict.summary.startswith("8 of 8 NICs (8 in the one direction that they use) judged: none is slower")
    assert "nothing to judge, because they receive no payload: ranks 0, 1, 2, 3" in verdict.notes


def test_sizes_that_no_peer_moves_are_not_passed_over() -> None:
    def alone(run: Run) -> Run:
        """Rank 7 sends and receives one big message of its own a time, and nothing else."""
        ours = (pl.col("src") == 7) | (pl.col("dst") == 7)
        lone = ours & (pl.col("seq") == 0) & (pl.col("src") + pl.col("dst") == 7)
        other = run.transfers.filter(~ours)
        single = run.transfers.filter(lone).with_columns(
            pl.lit(None, pl.String).alias("group"),
            pl.lit(None, pl.Int32).alias("seq"),
            pl.lit(40, pl.Int64).alias("size_bytes"),
        )
        return replace(run, transfers=pl.concat([other, single]))

    live, twin = run_pair(32, QUIET)
    verdict = judge(alone(live), alone(twin))
    assert verdict.result == "inconclusive"
    assert "rank 7 egress, rank 7 ingress (no peer moves messages like its own)" in verdict.summary


def test_traffic_without_a_partner_in_the_twin_is_not_passed_over() -> None:
    live, twin = run_pair(31, QUIET)
    twin.transfers = twin.transfers.filter((pl.col("src") != 3) & (pl.col("dst") != 3))
    verdict = judge(live, twin)
    assert verdict.result == "inconclusive"
    assert "rank 3 egress, rank 3 ingress (none of its transfers can be compared with the twin's)" in verdict.summary


def test_too_few_transfers_of_a_rank_are_no_bound() -> None:
    once = pl.col("iteration") < 5
    live, twin = kept(LIGHT & ((pl.col("src") != 7) | (once & (pl.col("seq") == 0))), 33, QUIET)
    verdict = judge(live, twin)
    assert verdict.result == "inconclusive"
    assert "not judged: rank 7 egress (too little traffic beside the others)" in verdict.summary
