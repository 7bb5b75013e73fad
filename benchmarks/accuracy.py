"""Accuracy of the twin: |excess| / wire by operation and size, given only fabric and calibration.

python benchmarks/accuracy.py                 DLRM and the collectives, at dilation 1 and 10
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from common.arguments import add_json, list_of, positive, some_of, whole
from common.validation import Job, dlrm, fresh, machine

from genie.verdict import Verdict
from genie.workload.graph import Op
from genie.workload.synthetic import collective
from genie.workload.write import save

RATE = "200Mb/s"
SIZES_BYTES = [1 << power for power in range(16, 23)]  # 64 KiB to 4 MiB: the whole operation's buffer
OPS = (Op.ALL_REDUCE, Op.ALL_GATHER, Op.ALL_TO_ALL)
KIB = 1024
CASES = ("dlrm", "collectives")
DILATION_MAX = 1000


def size_class(size_bytes: int) -> str:
    """The size classes of the targets."""
    return ">= 64 KiB" if size_bytes >= 64 * KIB else "8 to 64 KiB" if size_bytes >= 8 * KIB else "< 8 KiB"


def collect(verdict: Verdict, into: dict[tuple[str, str], list[float]]) -> None:
    """Add |excess| / wire of every judged collective."""
    for entry in verdict.to_dict()["collectives"]:
        ratio = abs(entry["excess_ns"]) / entry["wire_ns"]
        for op in (entry["op"], "all"):
            into[(size_class(entry["size_bytes"]), op)].append(ratio)


def rows_of(name: str, dilation: int, ratios: dict[tuple[str, str], list[float]]) -> list[dict[str, Any]]:
    return [
        {
            "case": name,
            "dilation": dilation,
            "size": size,
            "op": op,
            "collectives": len(values),
            "median": float(np.median(values)),
            "p90": float(np.percentile(values, 90)),
        }
        for (size, op), values in sorted(ratios.items())
    ]


def show(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        print(
            f"{row['case']:12} K={row['dilation']:<3} {row['size']:12} {row['op']:12} {row['collectives']:5} "
            f"median {row['median']:7.2%}  p90 {row['p90']:7.2%}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=positive, default=10, help="(10)")
    dilations = list_of(whole(1, DILATION_MAX))
    parser.add_argument("--dilations", type=dilations, default=(1, 10), help=f"some of 1 to {DILATION_MAX} (1,10)")
    parser.add_argument("--cases", type=some_of(CASES), default=CASES, help=",".join(CASES))
    add_json(parser)
    arguments = parser.parse_args()
    scratch = fresh(Path(tempfile.gettempdir()) / "genie-accuracy")
    facts, rows = machine(), []
    for dilation in arguments.dilations:
        if "dlrm" in arguments.cases:
            job = Job(dlrm(scratch), RATE, scratch, dilation=dilation)
            job.calibrate()
            ratios: dict[tuple[str, str], list[float]] = defaultdict(list)
            collect(job.validate(iterations=arguments.iterations, warmup=2), ratios)
            rows += rows_of("dlrm", dilation, ratios)
            show(rows[-len(ratios) :])
        if "collectives" in arguments.cases:
            ratios = defaultdict(list)
            for op in OPS:
                for size in SIZES_BYTES:
                    # all_gather's size is one rank's input
                    own = size // 8 if op is Op.ALL_GATHER else size
                    folder = fresh(scratch / "collective")
                    save(collective(op, 8, own, 1, 1_000_000), folder, "collective")
                    algorithm = {Op.ALL_REDUCE: ["all_reduce=ring"], Op.ALL_GATHER: ["all_gather=ring"]}.get(op, [])
                    job = Job(folder, RATE, scratch, dilation=dilation, algorithm=algorithm)
                    if op is OPS[0] and size == SIZES_BYTES[0]:
                        calibration = job.calibrate()
                    else:
                        job.use(calibration)
                    one: dict[tuple[str, str], list[float]] = defaultdict(list)
                    collect(job.validate(iterations=arguments.iterations, warmup=2), one)
                    values = next(values for (_, name), values in one.items() if name == "all")
                    ratios[(f"{size // KIB} KiB", op.name.lower())] += values
                    ratios[(">= 64 KiB", op.name.lower())] += values
                    ratios[(">= 64 KiB", "all")] += values
            found = rows_of("collectives", dilation, ratios)
            rows += found
            show(found)
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": facts, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
