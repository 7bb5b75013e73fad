"""Flow completion times with ECN and DCQCN: a lab's wire beside the twin.

    python benchmarks/congestion.py                      an incast of 7 to 1 and an all-to-all of 8; root
    python benchmarks/congestion.py --runs 1 --cases incast

The lab is hosts/fabrics/lab-8.toml with larger buffers and an [ecn] table. Each run is a `genie validate` with
`--congestion dcqcn`. The ranks play live. The twin plays the same transfers from the measured arrivals, with the
calibrated latency of the hosts. A flow is one transfer of one iteration, from its post to its last acknowledgement. The
flows of an iteration are compared in the order of their times, because marks are drawn at random: another flow wins in
each world. The cases with `-slow` have DCQCN's parameters for a link of 10 Gb/s, scaled to the lab's 100 Mb/s. With the
default ones a step of the increase is nearly half of the lab's rate. Exit code 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from common.arguments import add_json, positive, some_of
from common.validation import fresh, machine
from kinds import FABRIC, MARKING, genie

from genie.record import open_run
from genie.workload.graph import Op
from genie.workload.synthetic import collective
from genie.workload.write import save

HOSTS, ITERATIONS, WARMUP = 8, 10, 2
KINDS = {"incast": (Op.GATHER, 1 << 20), "all-to-all": (Op.ALL_TO_ALL, 8 << 20)}
CASES = ("incast", "all-to-all", "incast-slow", "all-to-all-slow")
SLOW = """
[congestion]
kind = "dcqcn"
cnp_interval = "5ms"
alpha_timer = "5500us"
increase_timer = "5500us"
additive = "400kb/s"
hyper = "4Mb/s"
minimum_rate = "100kb/s"
"""
MEDIAN_MAX, P90_MAX = 0.10, 0.25


def completion_ms(folder: Path, warmup: int) -> np.ndarray:
    """(iterations, flows) completion times, each iteration's in ascending order."""
    run = open_run(folder)
    table = run.transfers.filter(
        (pl.col("iteration") >= warmup) & (pl.col("acked_ns") >= 0) & (pl.col("size_bytes") > 64)
    )
    took = table.with_columns(took=(pl.col("acked_ns") - pl.col("post_ns")) / 1e6).sort("iteration", "took")
    return np.array([part["took"].to_numpy() for part in took.partition_by("iteration", maintain_order=True)])


def one(scratch: Path, case: str, seed: int) -> dict[str, Any]:
    """One run: completion times of both worlds, and their errors."""
    kind, is_slow = case.removesuffix("-slow"), case.endswith("-slow")
    op, size_bytes = KINDS[kind]
    trace, out, fabric = scratch / kind, scratch / "run", scratch / ("slow.toml" if is_slow else "default.toml")
    shutil.rmtree(out, ignore_errors=True)
    if not trace.exists():
        save(collective(op, HOSTS, size_bytes), trace, kind)
    words = ["--algorithm", "all_to_all=pairwise"] if op is Op.ALL_TO_ALL else ["--algorithm", "gather=direct"]
    words += [
        "--congestion",
        "dcqcn",
        "--wire",
        "plain",
        "--probe-time",
        "0",
        "-n",
        str(ITERATIONS),
        "--seed",
        str(seed),
    ]
    done = genie("validate", str(trace), "--lab", str(fabric), "--warmup", str(WARMUP), "-o", str(out), *words)
    if done.returncode not in (0, 1, 4):
        sys.exit(done.stderr.strip())
    live, twin = (completion_ms(out / world, WARMUP) for world in ("live", "twin"))
    errors = np.abs(live / twin - 1)
    marks = [json.loads((out / world / "counters.json").read_text()) for world in ("live", "twin")]
    return {
        "case": case, "seed": seed, "flows": int(live.size), "live_ms": quantiles(live), "twin_ms": quantiles(twin),
        "error": {"median": float(np.median(errors)), "p90": float(np.quantile(errors, 0.9))},
        "of_medians": float(np.median(live) / np.median(twin) - 1),
        "of_p90": float(np.quantile(live, 0.9) / np.quantile(twin, 0.9) - 1),
        "cnps": [sum(rank.get("cnps_received", 0) for rank in each.get("ranks", [])) for each in marks],
        "said": done.stdout.splitlines()[0][:160],
    }  # fmt: skip


def quantiles(times: np.ndarray) -> list[float]:
    """Least, median, 90th percentile and greatest, in ms."""
    return [round(float(np.quantile(times, share)), 3) for share in (0, 0.5, 0.9, 1)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=positive, default=3)
    parser.add_argument("--cases", type=some_of(CASES), default=CASES, help=",".join(CASES))
    add_json(parser)
    arguments = parser.parse_args()
    facts = machine()
    scratch = fresh(Path(tempfile.gettempdir()) / "genie-congestion")
    # Room for the windows of all senders: nothing is lost before the first marks have an effect.
    fabric = FABRIC.read_text().replace('buffer = "1MiB"', 'buffer = "4MiB"')
    (scratch / "default.toml").write_text(fabric + MARKING)
    (scratch / "slow.toml").write_text(fabric + MARKING + SLOW)
    rows = []
    labs = [scratch / name for name in ("default.toml", "slow.toml")]
    for lab in labs:
        built = genie("lab", "up", str(lab))
        if built.returncode != 0:
            sys.exit(built.stderr.strip())
    try:
        for case in arguments.cases:
            for seed in range(1, arguments.runs + 1):
                row = one(scratch, case, seed)
                rows.append(row)
                error = row["error"]
                print(
                    f"{case:10} {seed}: live {row['live_ms']} twin {row['twin_ms']} ms (least, median, p90, greatest); "
                    f"error of a flow: median {error['median']:.1%}, p90 {error['p90']:.1%}; median of all "
                    f"{row['of_medians']:+.1%}, p90 {row['of_p90']:+.1%}; {row['said']}",
                    flush=True,
                )
    finally:
        for lab in labs:
            genie("lab", "down", str(lab))
    missed = [row for row in rows if row["error"]["median"] > MEDIAN_MAX or row["error"]["p90"] > P90_MAX]
    print(f"{len(rows) - len(missed)} of {len(rows)} runs within {MEDIAN_MAX:.0%} (median) and {P90_MAX:.0%} (p90)")
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": facts, "runs": rows}, indent=1) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
