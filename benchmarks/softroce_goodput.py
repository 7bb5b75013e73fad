"""Goodput of softroce between two ranks on loopback, unpaced, ICRC on: python benchmarks/softroce_goodput.py

Rank 0 sends TOTAL_BYTES in messages of one size, all at once, on one queue pair. Goodput counts message bytes from the
first message's post to the last packet's arrival; the median of the iterations is shown. The result is meaningful with
two free cores only. With fewer, ranks sleep instead of polling, and other programs reduce the result.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import polars as pl
from common.arguments import add_json, whole

from genie.job.job import Job
from genie.job.live_settings import live_settings
from genie.job.options import LiveOptions, TrafficOptions
from genie.live.launch.launcher import launch, mpirun_line
from genie.live.launch.loopback import free_loopback_hosts
from genie.plan.facts import facts_of_build
from genie.record import LIVE, Run, open_run, prepare_folder
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, RankGraph, Workload
from genie.workload.write import save

SIZES_BYTES = (4096, 65536, 1 << 20, 16 << 20)
TOTAL_BYTES = 256 << 20
MESSAGES_MAX = 4096
ITERATIONS, WARMUP = 5, 1
UDP_PORT = 4791
WANTED_GBPS = 5.0  # of 1 MiB messages, with offload


def stream(size_bytes: int) -> Workload:
    """A workload of messages of this size from rank 0 to rank 1, TOTAL_BYTES together."""
    graphs: dict[int, RankGraph] = {}
    workload = Workload("stream", 2, [Group("world", (0, 1))], graphs)
    for rank, kind in ((0, Kind.SEND), (1, Kind.RECV)):
        builder = RankBuilder(rank)
        for number in range(min(TOTAL_BYTES // size_bytes, MESSAGES_MAX)):
            builder.add(number, "message", kind, size_bytes=size_bytes, peer=1 - rank, tag=number)
        graphs[rank], _ = builder.finish()
    return workload


def measured(size_bytes: int, offload: bool, scratch: Path) -> Run:
    """One live run of a stream."""
    folder, out = scratch / "trace", scratch / "run"
    workload = stream(size_bytes)
    for old in folder.glob("*"):
        old.unlink()
    save(workload, folder, "stream")
    live = LiveOptions(ITERATIONS, WARMUP, offload=offload, udp_port=UDP_PORT)
    hosts = free_loopback_hosts(2, UDP_PORT)
    settings = live_settings(Job(TrafficOptions(str(folder), rate="unlimited"), live, workload, hosts), out)
    prepare_folder(out, LIVE)
    outcome = launch(settings, mpirun_line(settings, None))
    if outcome.code != 0:
        sys.exit(f"softroce_goodput: {outcome.problem}")
    return open_run(out)


def row_of(size_bytes: int, offload: bool, run: Run) -> dict[str, Any]:
    """Goodput by iteration, and lost packets."""
    by_iteration = (
        run.transfers.filter(pl.col("iteration") >= WARMUP)
        .group_by("iteration")
        .agg(size=pl.col("size_bytes").sum(), took_ns=pl.col("last_ns").max() - pl.col("post_ns").min())
    )
    gbps = (by_iteration["size"] * 8 / by_iteration["took_ns"]).sort()
    sender, receiver = run.counters["ranks"]
    return {
        "size_bytes": size_bytes,
        "offload": offload,
        "goodput_gbps": round(float(gbps.median()), 3),  # type: ignore[arg-type]
        "goodput_gbps_min": round(float(gbps[0]), 3),
        "goodput_gbps_max": round(float(gbps[-1]), 3),
        "data_packets": sender["data_sent"],
        "retransmitted": sender["retransmitted"],
        "bad_icrc": receiver["bad_icrc"],
        "spin": run.info["spin"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add_json(parser)
    sizes = whole(1, TOTAL_BYTES)
    parser.add_argument("--size", type=sizes, action="append", metavar="BYTES", help="of a message; may be repeated")
    chosen = parser.parse_args()
    rows = []
    print(f"{'message':>10} {'offload':>8} {'Gb/s':>8} {'min':>8} {'max':>8} {'retransmitted':>14}")
    with tempfile.TemporaryDirectory(prefix="genie-goodput-") as scratch:
        for offload in (True, False):
            for size_bytes in chosen.size or SIZES_BYTES:
                row = row_of(size_bytes, offload, measured(size_bytes, offload, Path(scratch)))
                rows.append(row)
                print(
                    f"{size_bytes:>10} {'on' if offload else 'off':>8} {row['goodput_gbps']:>8.2f} "
                    f"{row['goodput_gbps_min']:>8.2f} {row['goodput_gbps_max']:>8.2f} {row['retransmitted']:>14}",
                    flush=True,
                )
    result = {
        **facts_of_build(),
        "cores": len(os.sched_getaffinity(0)),
        "load_1min": os.getloadavg()[0],
        "wanted_gbps": WANTED_GBPS,
        "rows": rows,
    }
    if chosen.json:
        chosen.json.write_text(json.dumps(result, indent=1) + "\n")
    wanted = [row["goodput_gbps"] for row in rows if row["size_bytes"] == 1 << 20 and row["offload"]]
    if wanted:
        print(f"1 MiB messages, offload on: {wanted[0]:.2f} Gb/s, at least {WANTED_GBPS:g} wanted")
    return 0 if not wanted or wanted[0] >= WANTED_GBPS else 1


if __name__ == "__main__":
    sys.exit(main())
