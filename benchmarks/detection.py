"""False alarms and recall of the verdict: many short runs, seeds fixed beforehand, intervals printed.

    python benchmarks/detection.py --runs 100                 clean, one NIC at 50 %, one NIC at 80 %
    python benchmarks/detection.py --runs 40 --busy           the same with one core kept busy by another program

Every run counts: the first complete batch is the result.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common.arguments import add_json, positive, some_of
from common.validation import Job, dlrm, fresh, machine

from chakra_schemas.errors import TraceError
from genie.live.settings import Faults, RateFault
from genie.workload.graph import WorkloadError
from genie.workload.load import load

SEED = 20270401
CONDITIONS = {"clean": None, "nic-50": 0.5, "nic-80": 0.8}
ITERATIONS, WARMUP = 10, 2
RATE = "200Mb/s"


def interval(hits: int, runs: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's 95 % interval of a proportion."""
    share, square = hits / runs, z * z
    middle = (share + square / (2 * runs)) / (1 + square / runs)
    half = z / (1 + square / runs) * math.sqrt(share * (1 - share) / runs + square / (4 * runs * runs))
    return max(middle - half, 0.0), min(middle + half, 1.0)


def one(job: Job, condition: str, number: int) -> dict[str, Any]:
    """One run: the injected fault and the verdict."""
    factor = CONDITIONS[condition]
    rank = random.Random(f"{SEED}/{condition}/{number}").randrange(job.workload.world_size)
    faults = Faults() if factor is None else Faults(rate=[RateFault(rank=rank, factor=factor)])
    verdict = job.validate(iterations=ITERATIONS, warmup=WARMUP, faults=faults, seed=SEED + number)
    first = verdict.suspects[0].ranks if verdict.suspects else ()
    accused = verdict.result == "fail"
    right = not accused if factor is None else accused and list(first) == [rank]
    return {"condition": condition, "number": number, "rank": rank if factor else None, "result": verdict.result,
            "first": list(first), "right": right, "line": verdict.line()}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=positive, default=100, help="of each condition")
    parser.add_argument(
        "--conditions", type=some_of(tuple(CONDITIONS)), default=tuple(CONDITIONS), help=",".join(CONDITIONS)
    )
    parser.add_argument("--workload", type=Path, help="default: the DLRM trace of the shared test data")
    parser.add_argument("--busy", action="store_true", help="keep one core busy by another program meanwhile")
    add_json(parser)
    arguments = parser.parse_args()
    if arguments.workload:
        try:
            load(arguments.workload, ranks=())
        except (TraceError, WorkloadError) as wrong:
            parser.error(f"argument --workload: {wrong}")
    facts = machine()
    scratch = fresh(Path(tempfile.gettempdir()) / "genie-detection")
    job = Job(arguments.workload or dlrm(scratch), RATE, scratch)
    busy = (
        subprocess.Popen(["taskset", "-c", "0", sys.executable, "-c", "while True: pass"]) if arguments.busy else None
    )
    rows: list[dict[str, Any]] = []
    began = time.monotonic()
    try:
        calibration = job.calibrate()
        print(f"packet latency {calibration.packet_latency_ns} ns, spread {calibration.packet_latency_spread_ns} ns")
        for condition in arguments.conditions:
            for number in range(arguments.runs):
                row = one(job, condition, number)
                rows.append(row)
                if not row["right"]:
                    print(f"  {condition} {number}: rank {row['rank']}: {row['line']}", flush=True)
            mine = [row for row in rows if row["condition"] == condition]
            right = sum(row["right"] for row in mine)
            low, high = interval(right, len(mine))
            what = "no false alarm" if condition == "clean" else "right rank first"
            print(f"{condition:8} {right}/{len(mine)} {what} (95 % interval {low:.1%} to {high:.1%})", flush=True)
    finally:
        if busy:
            busy.kill()
            busy.wait()
    print(f"{(time.monotonic() - began) / max(len(rows), 1):.1f} s a run; busy core: {'yes' if busy else 'no'}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": facts, "busy": bool(busy), "runs": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
