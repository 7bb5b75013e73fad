"""Accuracy of the twin: predicted / measured completion, given a fabric file and the host latency.

python benchmarks/truth.py                            all points (root; about a quarter of an hour)
python benchmarks/truth.py --worlds loopback --quick  a few of them

A point is one operation of one size, on 4 or 8 ranks, in one world (`truth_worlds`). All links are alike,
or one has half its rate. Its completion is the time from the first rank's start to the last rank's end; measured is the
median of its iterations. The twin starts all ranks at once, as the live ranks are told to, and follows no measured
time. The host latency is calibrated before any point, in the same world, with as many ranks and equal links.
Exit code 1 when the targets are not met.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
from common.arguments import add_json, some_of
from common.truth_worlds import UDP_PORT, Loopback, World, namespaces
from common.validation import fresh, machine
from numpy.typing import NDArray
from wire import Others

from genie.config.hosts import Calibration
from genie.job.calibration import measure
from genie.job.job import Job, fabric_file, load_workload
from genie.job.live_settings import live_settings
from genie.job.options import LiveOptions, TrafficOptions
from genie.live.launch.launcher import launch, mpirun_line
from genie.record import LIVE, Run, open_run, prepare_folder
from genie.workload.graph import Op, Workload
from genie.workload.synthetic import collective
from genie.workload.write import save

KIB = 1024
SIZES_BYTES = tuple(KIB << power for power in (6, 8, 10, 12, 14))  # the operation's buffer: 64 KiB to 16 MiB
QUICK_SIZES_BYTES = (64 * KIB, 1024 * KIB)
RANKS = (4, 8)
WORLDS = ("loopback", "namespaces")
OPERATIONS = {"all_reduce": Op.ALL_REDUCE, "all_to_all": Op.ALL_TO_ALL, "incast": Op.GATHER}
ALGORITHMS = ("all_reduce=ring", "all_to_all=pairwise", "gather=direct")

MEDIAN_MAX, P90_MAX, SET_ASIDE_MAX = 0.05, 0.10, 0.10
# Ranks that wake together queue for the cores, also during calibration, whose latency includes it. A point is set aside
# when some rank waited for a core for longer than in the calibration, per packet received. The extra wait in the median
# iteration must exceed this share of the completion. The share is not smaller because not every wait delays the
# completion. Eight busy ranks on two cores without other programs wait for a tenth of it.
WAITING_MAX = 0.20
TRIES = 3  # runs of a starved point; the one with the least waiting counts

WARMUP, ITERATIONS_MIN, ITERATIONS_MAX = 1, 3, 15
POINT_S = 2.5  # playing time of a point, unless the minimum of iterations takes longer
EXIT_NOT_MET, EXIT_ENVIRONMENT = 1, 3


@dataclass(frozen=True)
class Point:
    """One operation in one world."""

    world: str
    operation: str
    size_bytes: int
    ranks: int
    slow: bool

    def workload(self) -> Workload:
        """A workload of one collective; the incast's buffer is the receiver's at the end."""
        own_bytes = self.size_bytes // self.ranks if self.operation == "incast" else self.size_bytes
        return collective(OPERATIONS[self.operation], self.ranks, own_bytes)

    def line(self) -> str:
        link = "50 %" if self.slow else "clean"
        return f"{self.world:<10} {self.operation:<10} {self.size_bytes // KIB:>6} {self.ranks:>5} {link:>6}"


@dataclass(frozen=True)
class Calibrated:
    """Calibration of a world with a number of ranks."""

    latency: Calibration
    waiting_ns: float  # for a core, per packet received


@dataclass(frozen=True)
class Measured:
    """Results of a live run, by iteration."""

    completions_ns: list[int]
    waiting: list[float]  # share of the completion in which some rank had no core, beyond the calibration's
    retransmitted: int

    @property
    def waits(self) -> float:
        """Waiting share of the median iteration."""
        return statistics.median(self.waiting)


class Table:
    """Plays points and keeps their rows."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.calibrations: dict[tuple[str, int], Calibrated] = {}
        self.rows: list[dict[str, Any]] = []

    def calibrate(self, world: World, ranks: int) -> Calibrated:
        """The host latency of a world with this number of ranks, measured once."""
        if (world.name, ranks) not in self.calibrations:
            world.prepare(slow=False)
            traffic = TrafficOptions(fabric=self._fabric(world, ranks, slow=False))
            live = LiveOptions(offload=world.offload, udp_port=UDP_PORT)
            hosts = world.hosts(ranks)
            folder = self.scratch / "calibration"
            with contextlib.redirect_stderr(io.StringIO()):
                found = measure(traffic, live, hosts, folder, written=fabric_file(traffic), wrapper=world.wrapper)
            run = open_run(folder)
            waiting_ns = np.array(run.info["run_queue_ns"]).sum() / packets_of(run).sum()
            self.calibrations[world.name, ranks] = Calibrated(found, float(waiting_ns))
            say(
                f"{world.name}, {ranks} ranks: packet latency {found.packet_latency_ns / 1e3:.1f} us, spread "
                f"{found.packet_latency_spread_ns / 1e3:.1f} us; {waiting_ns / 1e3:.1f} us waiting for a core"
            )
        return self.calibrations[world.name, ranks]

    def play(self, world: World, point: Point) -> dict[str, Any]:
        """Predict a point, then measure it."""
        calibration = self.calibrate(world, point.ranks)
        workload = point.workload()
        folder = fresh(self.scratch / "workload")
        save(workload, folder)
        traffic = TrafficOptions(str(folder), algorithm=ALGORITHMS)
        predicted_ns = self._predict(world, point, traffic, calibration.latency)
        iterations = max(ITERATIONS_MIN, min(ITERATIONS_MAX, round(POINT_S * 1e9 / predicted_ns)))
        others = Others()
        tries: list[Measured] = []
        while len(tries) < TRIES and all(each.waits > WAITING_MAX for each in tries):
            tries.append(self._measure(world, point, traffic, iterations, calibration.waiting_ns))
        measured = min(tries, key=lambda each: each.waits)
        measured_ns = statistics.median(measured.completions_ns)
        row = {
            **asdict(point),
            "measured_ms": measured_ns / 1e6,
            "predicted_ms": predicted_ns / 1e6,
            "ratio": predicted_ns / measured_ns,
            "spread": (max(measured.completions_ns) - min(measured.completions_ns)) / measured_ns,
            "iterations": iterations,
            "waiting": measured.waits,
            "starved": measured.waits > WAITING_MAX,
            "tries": len(tries),
            "retransmitted": measured.retransmitted,
            "others_share": others.share(),
            "load": os.getloadavg()[0],
        }
        self.rows.append(row)
        return row

    def _fabric(self, world: World, ranks: int, slow: bool) -> Path:
        path = self.scratch / f"{world.name}-{ranks}{'-slow' if slow else ''}.toml"
        path.write_text(world.fabric(ranks, slow))
        return path

    def _predict(self, world: World, point: Point, traffic: TrafficOptions, calibration: Calibration) -> int:
        traffic = replace(traffic, fabric=self._fabric(world, point.ranks, point.slow))
        hosts = replace(world.hosts(point.ranks), calibration=calibration)
        job = Job(traffic, LiveOptions(), load_workload(traffic), hosts, fabric_file(traffic))
        simulation = job.twin().play(job.workload, lowering=job.lowering)
        return completions_ns(simulation.timeline)[0]

    def _measure(
        self, world: World, point: Point, traffic: TrafficOptions, iterations: int, usual_ns: float
    ) -> Measured:
        faults = world.prepare(point.slow)
        # A NIC's line rate does not change with a slow cable behind it.
        traffic = replace(traffic, fabric=self._fabric(world, point.ranks, slow=False))
        live = LiveOptions(iterations, WARMUP, offload=world.offload, udp_port=UDP_PORT)
        out = self.scratch / "run"
        job = Job(traffic, live, load_workload(traffic), world.hosts(point.ranks), fabric_file(traffic))
        settings = live_settings(job, out)
        settings = msgspec.structs.replace(settings, faults=faults)
        prepare_folder(out, LIVE)
        with contextlib.redirect_stderr(io.StringIO()):
            outcome = launch(settings, mpirun_line(settings, None, wrapper=world.wrapper))
        if outcome.code != 0:
            raise SystemExit(f"truth: {point.line()}: {outcome.problem}")
        run = open_run(out)
        completions = completions_ns(run.timeline.filter(pl.col("iteration") >= WARMUP))
        waited_ns = np.array(run.info["run_queue_ns"])[:, WARMUP:]  # (ranks, iterations)
        expected_ns = packets_of(run)[:, None] / (WARMUP + iterations) * usual_ns
        waiting = ((waited_ns - expected_ns).max(axis=0) / np.array(completions)).tolist()
        return Measured(completions, waiting, sum(rank["retransmitted"] for rank in run.counters["ranks"]))


def packets_of(run: Run) -> NDArray[np.int64]:
    """Number of received packets by rank."""
    return np.array([rank["datagrams_received"] for rank in run.counters["ranks"]], np.int64)


def completions_ns(timeline: pl.DataFrame) -> list[int]:
    """Completion by iteration: from the first rank's start to the last rank's end."""
    ends = timeline.filter(pl.col("kind") == "coll").group_by("iteration", maintain_order=True)
    spans = ends.agg(span_ns=pl.col("end_ns").max() - pl.col("start_ns").min()).sort("iteration")
    return [int(span) for span in spans["span_ns"]]


def summary_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Statistics of |ratio - 1| over the points that are not set aside."""
    errors = [abs(row["ratio"] - 1) for row in rows if not row["starved"]]
    found: dict[str, Any] = {"points": len(rows), "set_aside": 1 - len(errors) / len(rows)}
    if errors:
        found |= {"median": float(np.median(errors)), "p90": float(np.percentile(errors, 90)), "worst": max(errors)}
    found["met"] = bool(
        errors
        and found["median"] <= MEDIAN_MAX
        and found["p90"] <= P90_MAX
        and found["set_aside"] <= SET_ASIDE_MAX
    )  # fmt: skip
    return found


def summaries_of(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Summaries of all points, by world, and by operation in it."""
    groups: dict[str, list[dict[str, Any]]] = {"all": rows}
    for row in rows:
        groups.setdefault(row["world"], []).append(row)
        groups.setdefault(f"{row['world']} {row['operation']}", []).append(row)
    return {name: summary_of(members) for name, members in groups.items()}


HEADING = (
    f"{'world':<10} {'operation':<10} {'KiB':>6} {'ranks':>5} {'link':>6} "
    f"{'measured ms':>12} {'predicted ms':>12} {'ratio':>6} {'spread':>6} {'waiting':>7}"
)


def line_of(row: dict[str, Any]) -> str:
    """A point as a line of the table."""
    point = Point(row["world"], row["operation"], row["size_bytes"], row["ranks"], row["slow"])
    return (
        f"{point.line()} {row['measured_ms']:>12.3f} {row['predicted_ms']:>12.3f} {row['ratio']:>6.3f} "
        f"{row['spread']:>6.1%} {row['waiting']:>7.1%}{'  starved' if row['starved'] else ''}"
        f"{'  sent again: ' + str(row['retransmitted']) if row['retransmitted'] else ''}"
    )


def summary_line(name: str, found: dict[str, Any]) -> str:
    errors = (
        f"median {found['median']:.1%}, p90 {found['p90']:.1%}, worst {found['worst']:.1%}"
        if "median" in found
        else "-"
    )
    verdict = "MET" if found["met"] else "NOT MET"
    return f"{name:<22} {found['points']:>4} points, {found['set_aside']:.0%} set aside: {errors}  {verdict}"


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=some_of(WORLDS), default=WORLDS, help=",".join(WORLDS))
    parser.add_argument("--ops", type=some_of(tuple(OPERATIONS)), default=tuple(OPERATIONS), help=",".join(OPERATIONS))
    sizes_kib = tuple(size // KIB for size in SIZES_BYTES)
    parser.add_argument("--sizes", type=some_of(sizes_kib), default=sizes_kib, metavar="KIB", help="in KiB")
    parser.add_argument("--ranks", type=some_of(RANKS), default=RANKS, help="4,8")
    parser.add_argument("--links", type=some_of(("clean", "slow")), default=("clean", "slow"), help="clean,slow")
    parser.add_argument("--quick", action="store_true", help="64 KiB and 1 MiB only")
    add_json(parser)
    chosen = parser.parse_args()
    if "namespaces" in chosen.worlds and os.geteuid() != 0:
        print("truth: namespaces need root (without: --worlds loopback)", file=sys.stderr)
        return EXIT_ENVIRONMENT
    sizes_bytes = QUICK_SIZES_BYTES if chosen.quick else tuple(size * KIB for size in chosen.sizes)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # removes namespaces too
    facts, began = machine(), time.monotonic()
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="genie-truth-")))
        table = Table(scratch)
        worlds: list[World] = [Loopback()] if "loopback" in chosen.worlds else []
        if "namespaces" in chosen.worlds:
            worlds.append(stack.enter_context(namespaces(max(chosen.ranks))))
        points = [
            (world, Point(world.name, operation, size_bytes, ranks, link == "slow"))
            for world in worlds
            for ranks in chosen.ranks
            for operation in world.operations
            if operation in chosen.ops
            for link in chosen.links
            for size_bytes in sizes_bytes
        ]
        others = Others()
        for number, (world, point) in enumerate(points, 1):
            say(f"[{number:>3}/{len(points)}] {line_of(table.play(world, point))}")
        facts |= {"took_s": round(time.monotonic() - began, 1), "others_share": round(others.share(), 3)}
    rows, summaries = table.rows, summaries_of(table.rows)
    print(HEADING)
    for row in rows:
        print(line_of(row))
    for name, found in summaries.items():
        print(summary_line(name, found))
    print(f"took {facts['took_s']:.0f} s; others used {facts['others_share']:.0%} of {os.cpu_count()} cores meanwhile")
    if chosen.json:
        calibrations = {
            f"{world} {ranks}": {**msgspec.to_builtins(found.latency), "waiting_ns": found.waiting_ns}
            for (world, ranks), found in table.calibrations.items()
        }
        limits = {"median": MEDIAN_MAX, "p90": P90_MAX, "set_aside": SET_ASIDE_MAX, "waiting": WAITING_MAX}
        results = {**facts, "limits": limits, "calibrations": calibrations, "summaries": summaries, "rows": rows}
        chosen.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0 if summaries["all"]["met"] else EXIT_NOT_MET


if __name__ == "__main__":
    sys.exit(main())
