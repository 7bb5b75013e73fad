"""What a second thread gives the twin: `python benchmarks/twin_threads.py [--hosts 1024] [--rounds 3] [--json FILE]`.

One run of `permutation-N` on two threads beside two independent runs of it at once, each process and thread pinned to a
processor: the rate of the one over the sum of the two, in turns, so that both meet the same machine. The results of the
two-thread run are compared bit by bit with those of one thread. Exit code 1 when the median share is below 80 % or a
bit differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import twin_packets

from genie import _core
from genie.plan.build import build_plan
from simtwin.simulate import Twin
from simtwin.topology import build_network

TARGET = 0.8


def play(hosts: int, threads: int, processors: list[int]) -> dict[str, Any]:
    """In this process: wait until all are ready (a line on standard input), play, tell rate and bits."""
    os.sched_setaffinity(0, processors)
    case = twin_packets.cases(hosts)[f"permutation-{hosts}"]
    plan = build_plan(case.workload(), lowering=case.lowering)
    fabric = case.fabric()
    simulator = Twin(fabric, build_network(fabric), range(hosts), threads=threads).simulator(plan)
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
    simulator.start()
    while simulator.run(5_000_000):
        pass
    wall_s = time.perf_counter() - began
    bits = hashlib.sha256()
    for name, values in sorted(simulator.links().items()):
        bits.update(name.encode() + np.ascontiguousarray(values).tobytes())
    for rank in plan.ranks:
        for name, values in sorted(simulator.records(rank)["nodes"].items()):
            bits.update(name.encode() + np.ascontiguousarray(values).tobytes())
    return {"packets_per_s": simulator.data_packets / wall_s, "wall_s": wall_s, "bits": bits.hexdigest()}


def together(hosts: int, runs: list[tuple[int, list[int]]]) -> list[dict[str, Any]]:
    """Runs of so many threads on those processors, all at once."""
    command = [sys.executable, __file__, "--hosts", str(hosts), "--play"]
    processes = [
        subprocess.Popen(
            [*command, json.dumps(run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for run in runs
    ]  # fmt: skip
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return [json.loads(process.communicate()[0]) for process in processes]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=1024, help="of the fat tree: 16, 128, 1024, 8192")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--play", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.play:
        print(json.dumps(play(arguments.hosts, *json.loads(arguments.play))))
        return 0
    processors = sorted(os.sched_getaffinity(0))[:2]
    if len(processors) < 2:
        print("two processors are needed", file=sys.stderr)
        return 3
    print(f"build: {_core.build_flags}; permutation-{arguments.hosts}; processors {processors}; by wall time")
    print(f"{'round':>5}{'two runs M/s':>15}{'two threads M/s':>17}{'share':>8}{'bits':>8}")
    rows = []
    for number in range(arguments.rounds):
        apart = together(arguments.hosts, [(1, [processor]) for processor in processors])
        (pair,) = together(arguments.hosts, [(2, processors)])
        total = sum(row["packets_per_s"] for row in apart)
        row = {
            "two_runs_packets_per_s": total,
            "two_threads_packets_per_s": pair["packets_per_s"],
            "share": pair["packets_per_s"] / total,
            "same_bits": all(other["bits"] == pair["bits"] for other in apart),
        }
        rows.append(row)
        print(
            f"{number:>5}{total / 1e6:>15.2f}{pair['packets_per_s'] / 1e6:>17.2f}{row['share']:>8.0%}"
            f"{'same' if row['same_bits'] else 'DIFFER':>8}",
            flush=True,
        )
    share = float(np.median([row["share"] for row in rows]))
    met = share >= TARGET and all(row["same_bits"] for row in rows)
    print(f"median share {share:.0%}, target {TARGET:.0%}: {'met' if met else 'NOT MET'}")
    if arguments.json:
        report = {"build_flags": _core.build_flags, "hosts": arguments.hosts, "met": met, "share": share, "rows": rows}
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
