"""Speed of level `packet+skip`: `python benchmarks/native/twin_skip.py [--quick] [--long] [--command] [--json FILE]`.

Each row plays one job at both levels, long rows with --long only. Results of both must be the same to the bit. Seconds
are wall time on one core: those of the simulator alone. Reading or generating the workload, and set-up (plan, network,
routes, simulator), stand apart. `over ns-3` divides the packets by the speed of ns-3 -O3 on one core, 84,000 data
packets/s, and by the seconds of the simulator. ns-3 itself is not run. `error` is the difference of end times from
level packet, 0 where the bits are the same. Where the packets are not played it is not known. With --command,
`genie simulate` plays the job with skips from a folder of traces. `command s` is its time from its start to its end.

`gpt13b`, `gpt175b`: AICB's GPT-13B on 128 GPUs on rails and GPT-175B on 1,024 (tp8, dp128), with --aicb DATA or
GENIE_SHARED_DATA. `gpt175b-pp`: GPT-175B as `genie generate` makes it, with tp8, pp8 and dp16 on 1,024 GPUs.
`llama3-405b`: tp8, pp16 and dp128 on 16,384 GPUs. Played with skips only (5 minutes), and only if
--rows names it.
`moe` and `moe-zipf`: Mixtral-8x7B with tp8, ep8 and dp16 on 128 GPUs, with equal and with Zipf sizes. `ring-N`: a ring
all-reduce of 1 GiB (--quick: 64 MiB) with NCCL's messages on a fat tree. `permutation-128`: messages of 2 MiB, where
nothing can be skipped. Packets of long rows take minutes, and are played with --long only. Exit code 1 when results
differ or a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import numpy as np
from levels import FILES, LINK, rails

from genie.collectives.nccl.shape import NcclShape
from genie.config.units import Size
from genie.plan.build import build_plan
from genie.plan.lowering import Lowering
from genie.workload.aicb.convert import Given, convert_aicb
from genie.workload.graph import Op, Workload
from genie.workload.load import load
from genie.workload.synthetic import collective
from genie.workload.write import save
from simtwin.fabric.reading import to_toml
from simtwin.fabric.schema import Fabric, FatTree, Switch
from simtwin.fabric.topology import build_network
from simtwin.play.recorded_ranks import first_of_each_class, is_large
from simtwin.play.twin import Twin

sys.path.insert(0, str(Path(__file__).parents[1]))
import twin_packets
from common.arguments import add_json
from common.skip_cases import run_to_the_end

MIB = 1 << 20
NS3_PACKETS_PER_S = 84_000


@dataclass(frozen=True)
class Row:
    """A job with its target: most seconds of the simulator with skips, or least share of level packet's speed."""

    fabric: Callable[[], Fabric]
    workload: Callable[[], Workload]
    lowering: Lowering | None
    most_s: float | None = None
    is_long: bool = False  # packets take minutes
    takes_hours: bool = False  # with skips too
    least_times: float | None = None
    plays: int = 1  # of each level, in turn; the median seconds count
    limit: str = ""  # why the target is out of reach, as measured


def generated(model: str, *options: str) -> Workload:
    """Return a job as `genie generate` makes it."""
    with tempfile.TemporaryDirectory() as folder:
        genie = Path(sys.executable).with_name("genie")
        subprocess.run([genie, "--quiet", "generate", model, *options, "-o", folder], check=True, capture_output=True)
        return load(folder)


def command_s(row: Row, packets: int) -> float:
    """Return the seconds of `genie simulate` with skips for a row with NCCL's messages, which are so many `packets`."""
    assert row.lowering is not None
    assert row.lowering.nccl is not None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save(row.workload(), folder / "traces")
        genie, fabric, out = Path(sys.executable).with_name("genie"), folder / "fabric.toml", folder / "out"
        shape = row.lowering.nccl
        options = f"--wire nccl --gpu none --ranks-per-node {shape.ranks_per_node} --channels {shape.channels}".split()
        options += ["--level", "packet+skip", "--fabric", str(fabric), "-o", str(out)]
        fabric.write_text(to_toml(row.fabric()))
        began = time.perf_counter()
        subprocess.run([genie, "simulate", folder / "traces", *options], check=True, capture_output=True)
        ended = time.perf_counter()
        played = json.loads((out / "run.json").read_text())["data_packets"]
        if played != packets:
            sys.exit(f"genie simulate plays {played} packets of the row, and not {packets}")
    return ended - began


def rows_of(size_bytes: int, shared: Path | None) -> dict[str, Row]:
    rows = {}
    if shared is not None:
        path = shared / "aicb" / "simAI" / FILES["gpt13b"]
        rows["gpt13b"] = Row(
            rails,
            lambda: convert_aicb(path, Given(ranks=128)).workload,
            Lowering(nccl=NcclShape(ranks_per_node=8)),
            most_s=0.5,
        )
        large = shared / "aicb" / "simAI" / "G175B-M1-C03_GPT175B_megatron_tp8_pp1_mbs1_A100.txt"
        rows["gpt175b"] = Row(
            lambda: rails(128),
            lambda: convert_aicb(large, Given(ranks=1024)).workload,
            Lowering(nccl=NcclShape(ranks_per_node=8)),
            most_s=60,
            is_long=True,
        )
    on_servers = Lowering(nccl=NcclShape(ranks_per_node=8))
    rows["gpt175b-pp"] = Row(
        lambda: rails(128),
        lambda: generated("gpt3-175b", "--gpus", "1024", "--tp", "8", "--pp", "8", "--micro-batches", "16"),
        on_servers,
        most_s=5,
        is_long=True,
        limit="25.5 M packets are played, about half of them in plays of all ranks. The last all-reduce joins the "
        "stages' reduce-scatters, and its first messages disturb them. Walking the ranks and replaying 272,283 "
        "episodes takes 4 s.",
    )
    rows["llama3-405b"] = Row(
        lambda: msgspec.structs.replace(rails(2048), switch=Switch(shared_buffer=Size(512 * MIB))),
        lambda: generated("llama3-405b", "--gpus", "16384", "--tp", "8", "--pp", "16", "--micro-batches", "16"),
        on_servers,
        most_s=300,
        takes_hours=True,
        limit="0.50 G packets are played, most of them in plays of all ranks: the last all-reduce joins the stages one "
        "after the other, and after each join the rings that it has disturbed are searched again.",
    )
    for name, times, routing in (("moe", 20, "balanced"), ("moe-zipf", 3, "zipf:1.2")):
        rows[name] = Row(
            rails,
            lambda routing=routing: generated(  # type: ignore[misc]
                "mixtral-8x7b", "--gpus", "128", "--tp", "8", "--ep", "8", "--routing", routing
            ),
            on_servers,
            least_times=times,
            is_long=True,
        )
    of_128 = (
        "1.3 M packets are played: 0.5 s at level packet's speed. 0.3 M of them are the first rounds, 0.4 M those at "
        "the seam of the two loops, and 0.6 M the last rounds, whose receives have no successors."
    )
    for ranks, ports, most_s, limit in ((128, 8, 0.3, of_128), (1024, 16, 3.0, "")):
        rows[f"ring-{ranks}"] = Row(
            lambda ports=ports: Fabric(topology=FatTree(ports), link=LINK),  # type: ignore[misc]
            lambda ranks=ranks: collective(Op.ALL_REDUCE, ranks, size_bytes),  # type: ignore[misc]
            Lowering(nccl=NcclShape()),
            most_s=most_s,
            plays=7 if ranks == 128 else 1,
            limit=limit,
        )
    rows["permutation-128"] = Row(
        lambda: twin_packets.lossless(128),
        lambda: twin_packets.cross_pod(128),
        None,
        least_times=0.97,
        plays=7,
        limit="looks and slices take 2 %; other work on the machine moves a run by more.",
    )
    return rows


def play(row: Row, *, skips: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Play a row once; its measurements, and the results that must be the same."""
    called = time.perf_counter()
    fabric, workload = row.fabric(), row.workload()
    began = time.perf_counter()
    plan = build_plan(workload, lowering=row.lowering)
    twin = Twin(fabric, build_network(fabric), list(range(workload.world_size)))
    # As `genie simulate` does: of a large job one rank of each class is recorded.
    recorded = first_of_each_class(plan) if is_large(plan) else list(plan.ranks)
    run = run_to_the_end(twin, plan, skips=skips, recorded=recorded)
    simulator, recurrence, episodes = run.simulator, run.recurrence, run.episodes
    bits: dict[str, Any] = {f"link {name}": values for name, values in simulator.links().items()}
    for rank in plan.ranks:
        bits[f"rank {rank} counters"] = np.array(list(simulator.counters(rank).values()))
    for rank in recorded:
        for table, record in simulator.records(rank).items():
            bits |= {f"rank {rank} {table} {name}": values for name, values in record.items()}
    measured = {
        "read_s": began - called,
        "setup_s": run.ready_s - began,
        "simulator_s": run.ended_s - run.ready_s,  # with further beginnings
        "packets": simulator.data_packets,
        "events": simulator.events,
        "end_ms": simulator.now_ps / 1e9,
        "skip": dict(recurrence.report) if skips else {},
        "episodes": {} if episodes is None else {**episodes.report, "unusable": episodes.unusable},
    }
    return measured, bits


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="64 MiB instead of 1 GiB, and no 1,024 ranks")
    parser.add_argument("--aicb", type=Path, metavar="DATA", help="shared data with aicb/simAI")
    parser.add_argument("--long", action="store_true", help="play the packets of long rows too")
    parser.add_argument("--command", action="store_true", help="measure the whole of genie simulate, too")
    parser.add_argument("--rows", help="names of rows, with commas between them (default: all)")
    add_json(parser)
    given = parser.parse_args()
    shared = given.aicb or (Path(os.environ["GENIE_SHARED_DATA"]) if "GENIE_SHARED_DATA" in os.environ else None)
    rows = rows_of(64 * MIB if given.quick else 1024 * MIB, shared)
    if given.quick:
        rows = {name: row for name, row in rows.items() if name.startswith(("ring-128", "permutation"))}
    if given.rows is None:
        rows = {name: row for name, row in rows.items() if not row.takes_hours}
    else:
        rows = {name: rows[name] for name in given.rows.split(",")}
    results, met_all = [], True
    heads = f"{'row':16} {'packets':>14} {'skipped':>8} {'read s':>7} {'set-up s':>9} {'s':>8} {'packet s':>9}"
    print(f"{heads} {'times':>7} {'over ns-3':>10} {'error':>6} {'command s':>9}")
    for name, row in rows.items():
        is_played = not row.takes_hours and (given.long or not row.is_long)
        seconds_of: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(row.plays):
            skipped, bits = play(row, skips=True)
            played, expected = play(row, skips=False) if is_played else ({}, {})
            seconds_of[True].append(skipped["simulator_s"])
            seconds_of[False].append(played.get("simulator_s", float("nan")))
        differs = [key for key, values in expected.items() if not np.array_equal(values, bits[key])]
        seconds, packets = median(seconds_of[True]), skipped["packets"]
        played_s = median(seconds_of[False])
        times = played_s / seconds
        apart = skipped["episodes"]
        share = (skipped["skip"]["packets"] + max(apart["packets"] - apart["played"], 0)) / packets
        met: bool | None = not differs and (row.most_s is None or seconds <= row.most_s)
        if met and row.least_times is not None:
            met = times >= row.least_times if is_played else None
        met_all &= met is not False
        target = {True: "target met", False: "target NOT met", None: "target not judged"}[met]
        compared = "same bits" if is_played else "packets not played"
        said = f"DIFFERS: {differs[0]}" if differs else f"{compared}, {target}"
        over_ns3 = packets / NS3_PACKETS_PER_S / seconds
        has_command = given.command and row.lowering is not None
        whole_s = command_s(row, packets) if has_command else None
        error = abs(skipped["end_ms"] / played["end_ms"] - 1) if is_played else None
        print(
            f"{name:16} {packets:14,} {share:8.2%} {skipped['read_s']:7.2f} {skipped['setup_s']:9.3f} {seconds:8.3f} "
            f"{played_s:9.3f} {times:7.1f} {over_ns3:10,.0f} {'' if error is None else f'{error:.1%}':>6} "
            f"{'' if whole_s is None else f'{whole_s:.2f}':>9} {said}",
            flush=True,
        )
        if met is False and row.limit:
            print(f"{'':16} {row.limit}", flush=True)
        measured_times = times if is_played else None
        seconds_of_each = {"packet_s": seconds_of[False], "skip_s": seconds_of[True]} if row.plays > 1 else {}
        compared_with = {
            "seconds": seconds,
            "times": measured_times,
            "over_ns3": over_ns3,
            "error": error,
            "command_s": whole_s,
        }
        results.append({"row": name, "met": met, "packet": played, "skip": skipped, **compared_with, **seconds_of_each})
    if given.json:
        Path(given.json).write_text(json.dumps({"rows": results}, indent=1) + "\n")
    return 0 if met_all else 1


if __name__ == "__main__":
    sys.exit(main())
