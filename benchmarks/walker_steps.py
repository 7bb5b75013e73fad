"""Speed of the walker alone: `python benchmarks/walker_steps.py [--json FILE]`.

All ranks of a job over a network without delay, in one thread. It measures only expansion of templates, matching of
messages, slots and dependencies. Limit: 1 M steps in under 1 s of processor time. Set-up makes the plan.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from typing import Any

import genie_core
from common.arguments import add_json

from genie.plan.build import build_plan
from genie.plan.lowering import Lowering
from genie.workload.graph import Op, Workload
from genie.workload.synthetic import chain, collective

STEPS_PER_S_MIN = 1_000_000

Case = tuple[str, Callable[[], Workload], Lowering]
CASES: list[Case] = [
    ("ring all-reduce, 64 ranks", lambda: collective(Op.ALL_REDUCE, 64, 64 << 20, count=60), Lowering()),
    (
        "ring all-reduce, 16 ranks, 8 channels, credits",
        lambda: collective(Op.ALL_REDUCE, 16, 64 << 20, count=130),
        Lowering(channels=8, credit=True),
    ),
    ("pairwise all-to-all, 64 ranks", lambda: collective(Op.ALL_TO_ALL, 64, 64 << 20, count=120), Lowering()),
    (
        "direct all-to-all, 256 ranks",
        lambda: collective(Op.ALL_TO_ALL, 256, 64 << 20, count=8),
        Lowering(algorithms={"all_to_all": "direct"}),
    ),
    ("training step, 8 ranks, 10 k nodes each", lambda: chain(10_000, ranks=8), Lowering(channels=4)),
    ("compute only, 1 rank, 1 M nodes", lambda: chain(1_000_000, collective_every=2_000_000), Lowering()),
]


def measure(name: str, make: Callable[[], Workload], lowering: Lowering) -> dict[str, Any]:
    workload = make()
    began = time.process_time()
    plan = build_plan(workload, lowering=lowering)
    planned = time.process_time()
    result = genie_core.walk_alone(plan.native)
    seconds = time.process_time() - planned
    if result["problems"]:
        raise SystemExit(f"{name}: {result['problems'][0]}")
    nodes = sum(len(graph) for graph in workload.ranks.values())
    steps = result["steps"] + nodes
    return {
        "case": name,
        "ranks": len(workload.ranks),
        "nodes": nodes,
        "steps": steps,
        "messages": result["messages"],
        "setup_s": planned - began,
        "cpu_s": seconds,
        "steps_per_s": steps / seconds,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_json(parser)
    arguments = parser.parse_args()
    print(f"build: {genie_core.build_flags}; processor time of one core; steps are those of collectives and nodes")
    print(f"{'case':<48}{'nodes':>10}{'steps':>11}{'set-up s':>10}{'cpu s':>8}{'M steps/s':>11}{'RSS MB':>8}")
    rows = []
    for case in CASES:
        row = measure(*case)
        rows.append(row)
        print(
            f"{row['case']:<48}{row['nodes']:>10,}{row['steps']:>11,}{row['setup_s']:>10.2f}{row['cpu_s']:>8.2f}"
            f"{row['steps_per_s'] / 1e6:>11.2f}{row['rss_mb']:>8.0f}"
        )
    met = all(row["steps_per_s"] >= STEPS_PER_S_MIN for row in rows)
    print(f"limit of {STEPS_PER_S_MIN / 1e6:g} M steps/s: {'met' if met else 'NOT met'}")
    if arguments.json:
        report = {"build_flags": genie_core.build_flags, "steps_per_s_min": STEPS_PER_S_MIN, "met": met, "rows": rows}
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
