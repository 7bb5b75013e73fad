"""Which link is slow? Runs in a lab of 8 hosts on 2 leaves and 2 spines (host links 100 Mb/s, leaf to spine 200 Mb/s).

    python benchmarks/location.py                        50 runs with a spine link at 40 %, 50 with a host link at 50 %,
                                                         100 clean ones; root
    python benchmarks/location.py --runs 5               a tenth of that
    python benchmarks/location.py --conditions clean

Which link, and whether one direction or both, is drawn for each run from a seed that is fixed here. Each run is a
process of its own, `genie validate --lab`, with paths learned and pinned; conditions take turns. Every run counts: the
first complete batch is the result.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common.arguments import add_json, positive, some_of
from common.validation import fresh, machine
from detection import interval

from genie.errors import EXIT_FAILED, EXIT_INCONCLUSIVE, EXIT_OK
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, RankGraph, Workload
from genie.workload.write import save

SEED = 20261201
LEAVES, SPINES, HOSTS = 2, 2, 8
ITERATIONS, WARMUP = 16, 1
SIZE_BYTES = 1 << 20
# Condition: share of the runs, remaining share of the link's rate, runs that must be right of 50 or of 100.
CONDITIONS = {"spine-40": (1, 0.4, 0.92), "host-50": (1, 0.5, 0.96), "clean": (2, None, 0.97)}
FABRIC = """\
name = "location"

[topology]
kind = "leaf-spine"
leaves = 2
spines = 2
hosts_per_leaf = 4

[topology.spine_link]
rate = "200Mb/s"

[link]
rate = "100Mb/s"

[switch]
buffer = "4MiB"

[transport]
mtu = 4096
window_packets = 16     # a queue of all flows of a slow link is answered before the timeout
ack_timeout = "2s"

[frame]
overhead_bytes = 14     # as Linux's token buckets count
"""


def workload() -> Workload:
    """Compute, an all-to-all of 1 MiB a rank, compute, a ring all-reduce of 1 MiB."""
    graphs: dict[int, RankGraph] = {}
    made = Workload("location", HOSTS, [Group("0", tuple(range(HOSTS)))], graphs)
    for rank in range(HOSTS):
        builder = RankBuilder(rank)
        last: tuple[int, ...] = ()
        for op in (Op.ALL_TO_ALL, Op.ALL_REDUCE):
            last = (builder.add(len(builder), "compute", Kind.COMP, last, duration_ns=2_000_000),)
            last = (builder.add(len(builder), op.name.lower(), Kind.COLL, last, size_bytes=SIZE_BYTES, op=op, group=0),)
        graphs[rank], _ = builder.finish()
    return made


def drawn(condition: str, number: int) -> tuple[str, list[str]]:
    """(slow link as `--lab-fault` names it, its directions); "" and an empty list for a clean run."""
    draw = random.Random(f"{SEED}/{condition}/{number}")
    host, leaf, spine, way = draw.randrange(HOSTS), draw.randrange(LEAVES), draw.randrange(SPINES), draw.randrange(3)
    if CONDITIONS[condition][1] is None:
        return "", []
    ends = (f"leaf{leaf}", f"spine{spine}") if condition.startswith("spine") else (f"host{host}", f"leaf{host // 4}")
    there, back = f"{ends[0]}->{ends[1]}", f"{ends[1]}->{ends[0]}"
    return (there, back, f"{ends[0]}-{ends[1]}")[way], ([there], [back], [there, back])[way]


def genie(*words: str, limit_s: float = 120) -> subprocess.CompletedProcess[str]:
    """Run one command; end it when it takes longer. Raises TimeoutExpired."""
    line = [sys.executable, "-m", "genie", *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=limit_s, check=False)


def one(scratch: Path, condition: str, number: int) -> dict[str, Any]:
    """One run: the slow link and the verdict."""
    fault, links = drawn(condition, number)
    share, out, fabric = CONDITIONS[condition][1], scratch / "run", str(scratch / "fabric.toml")
    shutil.rmtree(out, ignore_errors=True)  # an earlier run's verdict must not count
    given = ["--lab-fault", f"{fault} rate={share:.0%}"] if share is not None else []
    began = time.monotonic()
    code, said = None, "took too long"
    try:
        done = genie(
            "validate", str(scratch / "trace"), "--lab", fabric, "--source-ports", "pinned", "-n", str(ITERATIONS),
            "--warmup", str(WARMUP), "--seed", str(1 + number), "-o", str(out), *given,
        )  # fmt: skip
        code, said = done.returncode, " ".join(done.stderr.split())[-300:]
    except subprocess.TimeoutExpired:  # it had no time to remove its fault from the lab
        genie("lab", "down", fabric)
        genie("lab", "up", fabric)
    row: dict[str, Any] = {"condition": condition, "number": number, "fault": fault, "code": code,
                           "wall_s": round(time.monotonic() - began, 1), "load": os.getloadavg()[0]}  # fmt: skip
    if code not in (EXIT_OK, EXIT_FAILED, EXIT_INCONCLUSIVE) or not (out / "verdict.json").exists():
        return {**row, "right": False, "line": said}
    verdict = json.loads((out / "verdict.json").read_text())
    suspects = verdict["suspects"]
    first = suspects[0] if suspects else {"kind": "", "ranks": [], "links": []}
    if share is None:
        right = verdict["result"] != "fail"
    elif condition.startswith("spine"):
        right = first["kind"] == "link" and bool(first["links"]) and set(first["links"]) <= set(links)
    else:
        right = first["kind"] == "nic" and first["ranks"] == [int(fault.split("host")[1].split("-")[0])]
    return {
        **row, "right": right, "result": verdict["result"], "line": verdict["summary"],
        "suspects": [[suspect["name"], *suspect["also"]] for suspect in suspects],
        "alone": len(suspects) == 1, "exact": sorted(first["links"]) == sorted(links),
    }  # fmt: skip


def table(rows: list[dict[str, Any]]) -> list[str]:
    """A line for each condition: the number of correct runs, and whether it meets the target."""
    lines = []
    for condition, (_, share, least) in CONDITIONS.items():
        mine = [row for row in rows if row["condition"] == condition]
        if not mine:
            continue
        right = sum(row["right"] for row in mine)
        low, high = interval(right, len(mine))
        what = "accused nobody" if share is None else "named the slow link first"
        alone = "" if share is None else f", {sum(row.get('alone', False) for row in mine)} with no other suspect"
        alone += "" if share is None else f", {sum(row.get('exact', False) for row in mine)} with its directions"
        enough = "enough" if right >= least * len(mine) else "TOO FEW"
        lines.append(
            f"{condition:9} {right}/{len(mine)} {what}{alone} (95 % interval {low:.1%} to {high:.1%}): {enough}"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=positive, default=50, help="of each condition with a fault; twice as many clean")
    parser.add_argument(
        "--conditions", type=some_of(tuple(CONDITIONS)), default=tuple(CONDITIONS), help=",".join(CONDITIONS)
    )
    add_json(parser)
    arguments = parser.parse_args()
    facts = machine()
    scratch = fresh(Path(tempfile.gettempdir()) / "genie-location")
    (scratch / "fabric.toml").write_text(FABRIC)
    save(workload(), scratch / "trace")
    runs = [(name, at) for name in arguments.conditions for at in range(arguments.runs * CONDITIONS[name][0])]
    random.Random(SEED).shuffle(runs)
    built = genie("lab", "up", str(scratch / "fabric.toml"))
    if built.returncode != 0:
        sys.exit(built.stderr.strip())
    rows: list[dict[str, Any]] = []
    began = time.monotonic()
    try:
        for done, (condition, number) in enumerate(runs, start=1):
            row = one(scratch, condition, number)
            rows.append(row)
            mark = "" if row["right"] else "  WRONG"
            print(f"{done}/{len(runs)} {condition} {number} {row['fault']}: {row['line'][:140]}{mark}", flush=True)
    finally:
        genie("lab", "down", str(scratch / "fabric.toml"))
    for line in table(rows):
        print(line)
    loads = sorted(row["load"] for row in rows)
    print(
        f"{(time.monotonic() - began) / max(len(rows), 1):.1f} s a run; load of the machine {loads[0]:.1f} to "
        f"{loads[-1]:.1f}, median {loads[len(loads) // 2]:.1f}, on {os.cpu_count()} cores"
    )
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": facts, "runs": rows, "table": table(rows)}, indent=1) + "\n")


if __name__ == "__main__":
    main()
