"""Speed-up of the twin with a second thread: `python benchmarks/twin_threads.py [--hosts 1024] [--rounds 3]
[--json FILE]`.

One run of `permutation-N` on two threads is compared with two independent runs of it at the same time. The share is the
rate of the first over the sum of the others; they take turns, so that all have the same machine. Each playing thread is
pinned to a processor of its own. That is the caller of the simulator, and each thread that it starts, as soon as it
appears. The results of the two-thread run are compared bit by bit with those of one thread. Exit code 1 when the median
share is below 80 % or a bit differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import genie_core
import numpy as np
import twin_packets
from common.arguments import add_json, positive

from genie.plan.build import build_plan
from simtwin.fabric.topology import build_network
from simtwin.play.twin import Twin

TARGET = 0.8
TASKS = Path("/proc/self/task")
LOOK_S = 0.001  # between two checks for threads
ALL_EVENTS = 2**62  # in one call, because each call starts new threads


class Pins:
    """Pins the caller to the first processor and each later thread to the next, while the caller plays."""

    def __init__(self, processors: list[int]) -> None:
        self._processors = processors
        self._known = set(os.listdir(TASKS))
        self._over = threading.Event()
        self.pinned = [processors[:1]]  # processors of each thread
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        os.sched_setaffinity(0, processors[:1])
        self.pinned[0] = sorted(os.sched_getaffinity(0))

    def _watch(self) -> None:
        self._known.add(str(threading.get_native_id()))
        while len(self.pinned) < len(self._processors) and not self._over.is_set():
            for task in sorted(set(os.listdir(TASKS)) - self._known, key=int):
                self._known.add(task)
                os.sched_setaffinity(int(task), [self._processors[len(self.pinned)]])
                self.pinned.append(sorted(os.sched_getaffinity(int(task))))
            self._over.wait(LOOK_S)

    def end(self) -> list[list[int]]:
        self._over.set()
        self._watcher.join()
        return self.pinned


def play(hosts: int, threads: int, processors: list[int]) -> dict[str, Any]:
    """Wait in this process until all are ready (a line on standard input), play, and return rate and bits."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # one call plays all, and Python would not notice a signal
    case = twin_packets.cases(hosts)[f"permutation-{hosts}"]
    plan = build_plan(case.workload(), lowering=case.lowering)
    fabric = case.fabric()
    twin = Twin(fabric, build_network(fabric), range(hosts), threads=threads)
    pins = Pins(processors)
    simulator = twin.simulator(plan)
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
    simulator.start()
    simulator.run(ALL_EVENTS)
    wall_s = time.perf_counter() - began
    pinned = pins.end()
    if not simulator.done or pinned != [[processor] for processor in processors]:
        raise SystemExit(f"twin_threads: threads on {pinned}, not on one each of {processors}: {simulator.problems()}")
    bits = hashlib.sha256()
    for name, values in sorted(simulator.links().items()):
        bits.update(name.encode() + np.ascontiguousarray(values).tobytes())
    for rank in plan.ranks:
        for name, values in sorted(simulator.records(rank)["nodes"].items()):
            bits.update(name.encode() + np.ascontiguousarray(values).tobytes())
    return {
        "packets_per_s": simulator.data_packets / wall_s,
        "wall_s": wall_s,
        "bits": bits.hexdigest(),
        "pinned": pinned,
    }


def together(hosts: int, runs: list[tuple[int, list[int]]]) -> list[dict[str, Any]]:
    """Start runs with these threads on these processors, all at the same time; return their results."""
    command = [sys.executable, __file__, "--hosts", str(hosts), "--play"]
    processes = [
        subprocess.Popen(
            [*command, json.dumps(run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for run in runs
    ]  # fmt: skip
    for process in processes:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise SystemExit(process.wait() or 1)  # it has printed the reason
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit(1)
    return [json.loads(text) for text in said]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, choices=twin_packets.HOSTS, default=1024, help="of the fat tree (1024)")
    parser.add_argument("--rounds", type=positive, default=3, help="(3)")
    add_json(parser)
    parser.add_argument("--play", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.play:
        print(json.dumps(play(arguments.hosts, *json.loads(arguments.play))))
        return 0
    processors = sorted(os.sched_getaffinity(0))[:2]
    if len(processors) < 2:
        print("two processors are needed", file=sys.stderr)
        return 3
    print(f"build: {genie_core.build_flags}; permutation-{arguments.hosts}; processors {processors}; by wall time")
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
            "pinned": pair["pinned"],
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
        report = {
            "build_flags": genie_core.build_flags,
            "hosts": arguments.hosts,
            "met": met,
            "share": share,
            "rows": rows,
        }
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
