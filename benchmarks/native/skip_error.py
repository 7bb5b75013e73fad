"""Estimated skips beside level `packet`: `python benchmarks/native/skip_error.py [--seeds N] [--control NAME]`.

16 hosts send 1 GB each to one host at 100 Gb/s through a switch that marks (`--size`: of each message). Each seed is
played at level `packet`, and with skips as by `--skip-error 1%`. `within`: the share of seeds in which all 16 messages
end as near to level packet as their bounds say. Seconds are of the simulator, on one core. Exit code 1 when fewer than
93 % of the seeds are within, or the median is less than 5 times as fast.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import genie_core
import numpy as np
from numpy.typing import NDArray

from genie.config.congestion import CONTROLS
from genie.config.units import Duration, Rate, Size
from genie.plan.build import build_plan
from genie.workload.flows import Flow, workload_of
from simtwin.fabric.schema import Ecn, Fabric, Link, Pfc, Priority, SingleSwitch, Switch
from simtwin.fabric.topology import build_network
from simtwin.play.estimating import Estimator
from simtwin.play.twin import Twin

sys.path.insert(0, str(Path(__file__).parents[1]))
from common.arguments import add_json

SENDERS, KIB, MIB = 16, 1 << 10, 1 << 20
LEAST_WITHIN, LEAST_TIMES = 0.93, 5.0


def incast(control: str, seed: int, size_bytes: int) -> genie_core.Simulator:
    """Return the simulator of an incast of equal messages, before its start."""
    return incast_of(control, seed, [Flow(rank, 0, size_bytes) for rank in range(1, SENDERS + 1)])


def incast_of(control: str, seed: int, flows: Sequence[Flow]) -> genie_core.Simulator:
    """Return the simulator of any flows between as many hosts, before its start."""
    fabric = Fabric(
        topology=SingleSwitch(hosts=SENDERS + 1),
        link=Link(Rate(100 * 10**9), Duration(10**6)),
        congestion=CONTROLS[control](),
        switch=Switch(shared_buffer=Size(32 * MIB)),
        ecn=Ecn(minimum=Size(100 * KIB), maximum=Size(400 * KIB), probability=0.2),
        pfc=Pfc(),
        priority=Priority(data=3, control=6),
    )
    twin = Twin(fabric, build_network(fabric), list(range(SENDERS + 1)), seed=seed)
    simulator = twin.simulator(build_plan(workload_of("incast", SENDERS + 1, flows)))
    assert isinstance(simulator, genie_core.Simulator)
    return simulator


def play(control: str, seed: int, size_bytes: int, error: float) -> tuple[float, NDArray[Any], Estimator | None]:
    """Play an incast; its seconds, the ends of its messages in ms, and what was estimated."""
    simulator = incast(control, seed, size_bytes)
    recurrence = genie_core.Recurrence(simulator)
    estimator = Estimator(simulator, recurrence, error, seed) if error else None
    run = simulator.run if estimator is None else estimator.run
    began = time.perf_counter()
    simulator.start()
    while run(200_000):
        pass
    seconds = time.perf_counter() - began
    assert simulator.done, simulator.problems()
    acked_ps = [simulator.records(rank)["sends"]["acked_ps"][0] for rank in range(1, SENDERS + 1)]
    return seconds, np.array(acked_ps) / 1e9, estimator


def compare(control: str, seed: int, size_bytes: int, error: float) -> dict[str, Any]:
    """Play a seed in both ways; what came of it."""
    played_s, played, _ = play(control, seed, size_bytes, 0.0)
    skipped_s, skipped, estimator = play(control, seed, size_bytes, error)
    assert estimator is not None
    apart = np.zeros(SENDERS)
    for each in estimator.errors:
        apart[each.rank - 1] = np.nan if each.apart is None else each.apart  # no end is within none
    errors = abs(skipped / played - 1)
    return {
        "seed": seed,
        "packet_s": played_s,
        "skip_s": skipped_s,
        "played_ms": played.tolist(),
        "skipped_ms": skipped.tolist(),
        "skips": estimator.skips,
        "packets": estimator.packets,
        "rate_bound": max((each.error for each in estimator.errors), default=0.0),
        "bound": float(apart.max()),
        "error": float(errors.max()),
        "last_error": float(abs(skipped.max() / played.max() - 1)),
        "is_within": bool((errors <= apart + 1e-12).all()),
        "reason": estimator.reason,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=1, help="first seed")
    parser.add_argument("--control", choices=sorted(CONTROLS), default="dcqcn")
    parser.add_argument("--size", type=int, default=10**9, metavar="BYTES")
    parser.add_argument("--error", type=float, default=0.01, help="the error of mean rates that is allowed")
    add_json(parser)
    given = parser.parse_args()
    rows = [compare(given.control, given.first + at, given.size, given.error) for at in range(given.seeds)]
    times = [row["packet_s"] / row["skip_s"] for row in rows]
    within = float(np.mean([row["is_within"] for row in rows]))
    played, skipped = np.array([row["played_ms"] for row in rows]), np.array([row["skipped_ms"] for row in rows])
    packets = SENDERS * -(-given.size // 4096)
    found = {
        "control": given.control,
        "times": median(times),
        "least_times": min(times),
        "skipped": median(row["packets"] for row in rows) / packets,
        "within": within,
        "rate_bound": median(row["rate_bound"] for row in rows),
        "bound": median(row["bound"] for row in rows),
        "median_error": float(np.median(abs(skipped / played - 1))),
        "error": max(row["error"] for row in rows),
        "last_error": max(row["last_error"] for row in rows),
        "mean_ms": [float(played.mean()), float(skipped.mean())],
        "deviation_ms": [float(played.std()), float(skipped.std())],
        "last_ms": [float(played.max(axis=1).mean()), float(skipped.max(axis=1).mean())],
    }
    print(f"{given.control}: {given.seeds} seeds, {found['skipped']:.1%} of {packets} packets skipped")
    print(f"  {found['times']:.1f} times as fast as level packet (median; least {found['least_times']:.1f})")
    print(f"  all ends within their bounds in {within:.0%} of the seeds (bounds {found['bound']:.1%} in the median)")
    print(f"  bound of mean rates {found['rate_bound']:.2%} in the median")
    print(f"  error of an end {found['median_error']:.2%} in the median, {found['error']:.1%} at most")
    print(f"  error of the last end {found['last_error']:.2%} at most")
    for name, key in (("mean", "mean_ms"), ("standard deviation", "deviation_ms"), ("last, mean", "last_ms")):
        print(f"  ends, {name}: {found[key][0]:.2f} ms played, {found[key][1]:.2f} ms with skips")
    if given.json:
        given.json.write_text(json.dumps({"summary": found, "seeds": rows}, indent=1) + "\n")
    return 0 if within >= LEAST_WITHIN and found["times"] >= LEAST_TIMES else 1


if __name__ == "__main__":
    sys.exit(main())
