"""Is the right component named, and the right kind of fault? Validations in labs.

    python benchmarks/kinds.py                           20 runs of each condition, and 100 without a fault; root
    python benchmarks/kinds.py --runs 2 --conditions loss,delay
    python benchmarks/kinds.py --busy --conditions clean,spine-40     with one core kept busy by another program
    python benchmarks/kinds.py --workload dlrm --runs 10 --conditions spine-40,spine-70,host-50,loss
    python benchmarks/kinds.py --json FILE --resume      goes on after the runs that FILE holds

Most conditions use 8 hosts on 2 leaves and 2 spines, and the transformer's trace. `fat-tree` uses 16 hosts, and
`uneven` a fabric whose spines and leaves differ: both play an all-to-all and an all-reduce. Faults are drawn for each
run from a seed that is fixed here. Each run is a process of its own, `genie validate --lab` with default options.
Conditions take turns. Every run counts: the first complete batch is the result.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.arguments import add_json, positive, some_of
from common.validation import dlrm, fresh, machine
from detection import interval

from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, RankGraph, Workload
from genie.workload.write import save
from simtwin.fabric.reading import parse_fabric
from simtwin.fabric.topology import build_network

SEED = 20261123
ROOT = Path(__file__).resolve().parents[1]
TRACE, FABRIC = ROOT / "examples/transformer", ROOT / "hosts/fabrics/lab-8.toml"
LIMIT_S = 400.0
OPERATIONS = "all_reduce,all_to_all"  # of --workload collectives: 64 KiB to 16 MiB each
FAT_TREE = """name = "fat-tree-16"
[topology]
kind = "fat-tree"
k = 4
[link]
rate = "25Mb/s"
[switch]
buffer = "1MiB"
[transport]
window_packets = 64
ack_timeout = "2s"
"""
# Host -> leaf, and cables between switches with their rates in Mb/s: spine1 is slower, and does not reach leaf2.
UNEVEN_HOSTS = (0, 0, 0, 1, 1, 1, 2, 2)
UNEVEN_CABLES = {
    ("leaf0", "spine0"): 200, ("leaf1", "spine0"): 200, ("leaf2", "spine0"): 200, ("leaf0", "spine1"): 100,
    ("leaf1", "spine1"): 100,
}  # fmt: skip
HOSTS, HOSTS_PER_LEAF = 8, 4
MARKING = '\n[ecn]\nminimum = "32KiB"\nmaximum = "128KiB"\nprobability = 0.2\n'
NAMED = re.compile(
    r"^FAIL (?:switch (?P<switch>\S+), |link (?P<link>\S+) |rank (?P<rank>\d+):)(?P<words>.*)$", re.MULTILINE
)


@dataclass(frozen=True)
class Fault:
    """A fault of a run, and the verdict that is right."""

    lab: list[str] = field(default_factory=list)  # --lab-fault
    kind: str = "rate"
    links: frozenset[str] = frozenset()  # a right verdict names some of these and no other
    rank: int | None = None  # a right verdict names this rank's NIC or host
    switch: str = ""
    options: list[str] = field(default_factory=list)
    exact: bool = False  # the directions count too
    second: Fault | None = None


@dataclass(frozen=True)
class Place:
    """A fabric and a workload that all runs of a condition share."""

    fabric: str  # name of the file
    workload: str = "given"  # as --workload says, or `both`: an all-to-all and an all-reduce of all hosts
    hosts: int = HOSTS


LAB_8, MARKED = Place("fabric.toml"), Place("marking.toml")
FAT, UNEVEN = Place("fat-tree.toml", "both", 16), Place("uneven.toml", "both")
Draw = random.Random


def spine(draw: Draw, what: str, kind: str, way: int | None = None) -> Fault:
    """A fault of a link or cable between switches. `way`: 0 up, 1 down, 2 both; None: drawn."""
    leaf, spine_ = f"leaf{draw.randrange(2)}", f"spine{draw.randrange(2)}"
    up, down = f"{leaf}->{spine_}", f"{spine_}->{leaf}"
    way = draw.randrange(3) if way is None else way
    name = (up, down, f"{leaf}-{spine_}")[way]
    links = frozenset(([up], [down], [up, down])[way])
    return Fault([f"{name} {what}"], kind, links, exact=len(links) == 1)


def host(draw: Draw, what: str, kind: str) -> Fault:
    """A fault of both directions of a host's link."""
    rank = draw.randrange(HOSTS)
    return Fault([f"host{rank}-leaf{rank // HOSTS_PER_LEAF} {what}"], kind, rank=rank)


def congestion_off(draw: Draw) -> Fault:
    """A host without congestion control, by a fault plan that main() writes."""
    rank = draw.randrange(HOSTS)
    return Fault(kind="congestion", rank=rank, options=["--congestion", "dcqcn", "--faults", f"plan-{rank}.toml"])


def switch(draw: Draw) -> Fault:
    """Both cables of a spine at half their rate."""
    name = f"spine{draw.randrange(2)}"
    return Fault([f"leaf{leaf}-{name} rate=50%" for leaf in (0, 1)], switch=name)


def cable_of_fat_tree(draw: Draw) -> Fault:
    """A link or cable between switches of the fat tree at 40 % of its rate."""
    links = build_network(parse_fabric(FAT_TREE)).link_names
    cables = sorted({tuple(sorted(link.split("->"))) for link in links if "host" not in link})
    return one_of(draw, cables)


def cable_of_uneven(draw: Draw) -> Fault:
    """A link or cable between switches of the uneven fabric at 40 % of its rate."""
    return one_of(draw, sorted(UNEVEN_CABLES))


def one_of(draw: Draw, cables: list[tuple[str, ...]]) -> Fault:
    """One or both directions of one of these cables at 40 % of the rate."""
    one, other = cables[draw.randrange(len(cables))]
    way = draw.randrange(3)
    name = (f"{one}->{other}", f"{other}->{one}", f"{one}-{other}")[way]
    links = frozenset(([name], [name], [f"{one}->{other}", f"{other}->{one}"])[way])
    return Fault([f"{name} rate=40%"], "rate", links, exact=len(links) == 1)


def uneven() -> str:
    """The file of the uneven fabric."""
    hosts = "".join(f'[[topology.host]]\nname = "host{number}"\n' for number in range(len(UNEVEN_HOSTS)))
    switches = sorted({name for cable in UNEVEN_CABLES for name in cable})
    named = "".join(f'[[topology.switch]]\nname = "{name}"\n' for name in switches)
    cables = [(f"host{number}", f"leaf{leaf}", 100) for number, leaf in enumerate(UNEVEN_HOSTS)]
    cables += [(*ends, mbps) for ends, mbps in UNEVEN_CABLES.items()]
    links = "".join(f'[[topology.link]]\na = "{a}"\nb = "{b}"\nrate = "{mbps}Mb/s"\n' for a, b, mbps in cables)
    tail = '[link]\nrate = "100Mb/s"\n[switch]\nbuffer = "1MiB"\n[transport]\nwindow_packets = 64\nack_timeout = "2s"\n'
    return f'name = "uneven"\n[topology]\nkind = "explicit"\n{hosts}{named}{links}{tail}'


def both_workload(hosts: int) -> Workload:
    """Compute, an all-to-all of 1 MiB a rank, compute, an all-reduce of 1 MiB."""
    graphs: dict[int, RankGraph] = {}
    made = Workload("both", hosts, [Group("0", tuple(range(hosts)))], graphs)
    for rank in range(hosts):
        builder = RankBuilder(rank)
        last: tuple[int, ...] = ()
        for op in (Op.ALL_TO_ALL, Op.ALL_REDUCE):
            last = (builder.add(len(builder), "compute", Kind.COMP, last, duration_ns=2_000_000),)
            last = (builder.add(len(builder), op.name.lower(), Kind.COLL, last, size_bytes=1 << 20, op=op, group=0),)
        graphs[rank], _ = builder.finish()
    return made


def two(draw: Draw) -> Fault:
    """A slow link between switches, and a host's link that loses packets."""
    slow, lossy = spine(draw, "rate=40%", "rate", 2), host(draw, "loss=0.5%", "loss")
    return Fault([*slow.lab, *lossy.lab], "rate", slow.links, second=lossy)


# Condition: share of the runs, share of them that must be right, how the fault is drawn.
PLACES = {"congestion": MARKED, "fat-tree": FAT, "uneven": UNEVEN}  # of the other conditions: LAB_8
CONDITIONS: dict[str, tuple[int, float, Callable[[Draw], Fault]]] = {
    "clean": (5, 0.94, lambda _: Fault()),
    "spine-40": (1, 0.95, lambda draw: spine(draw, "rate=40%", "rate", 2)),
    "spine-70": (1, 0.9, lambda draw: spine(draw, "rate=70%", "rate", 2)),
    "host-50": (1, 0.95, lambda draw: host(draw, "rate=50%", "rate")),
    "loss": (1, 0.9, lambda draw: spine(draw, "loss=0.5%", "loss", 2)),
    "delay": (1, 0.9, lambda draw: spine(draw, "delay=300us", "delay", 2)),
    "one-way": (1, 0.9, lambda draw: spine(draw, "rate=40%", "rate", draw.randrange(2))),
    "mtu": (1, 0.9, lambda draw: spine(draw, "mtu=1500", "mtu")),
    "dscp": (1, 0.9, lambda draw: spine(draw, "dscp=0", "dscp")),
    "congestion": (1, 0.9, congestion_off),
    "switch": (1, 0.9, switch),
    "at-times": (1, 0.75, lambda draw: spine(draw, "rate=40% period=2s on=20%", "intermittent", 2)),
    "two": (1, 0.7, two),
    "fat-tree": (1, 0.85, cable_of_fat_tree),
    "uneven": (1, 0.85, cable_of_uneven),
}


def suspects_of(out: Path, stdout: str) -> list[dict[str, Any]]:
    """The suspects of a verdict, or those that a run that died has printed."""
    if (out / "verdict.json").exists():
        found: list[dict[str, Any]] = json.loads((out / "verdict.json").read_text())["suspects"]
        return found
    suspects = []
    for match in NAMED.finditer(stdout):
        link = match["link"] or ""
        one, _, other = link.partition("-")
        links = [link] if "->" in link else [f"{one}->{other}", f"{other}->{one}"] if link else []
        kind = "mtu" if "path MTU" in match["words"] else "loss" if " loses " in match["words"] else "unreachable"
        ranks = [int(match["rank"])] if match["rank"] else []
        place = "switch" if match["switch"] else "link" if link else "nic"
        suspects.append({"kind": place, "name": link or match["switch"], "links": links, "ranks": ranks, "fault": kind})
    return suspects


def times_of(out: Path) -> dict[str, float]:
    """Median time of an iteration, and the cost that the verdict says, in ms; nothing after a run that died."""
    if not (out / "verdict.json").exists():
        return {}
    found = json.loads((out / "verdict.json").read_text())
    times = {"iteration_ms": found["coverage"]["iteration_ns"]["live"] / 1e6}
    return times | ({"cost_ms": found["cost"]["iteration_ns"] / 1e6} if found["cost"] else {})


def cost_errors(rows: list[dict[str, Any]], condition: str) -> list[float]:
    """Error of each verdict's cost, as a fraction of an iteration: the truth is the time beyond that of clean runs."""
    if condition in PLACES:
        return []  # the clean runs are of another lab
    clean = [row["iteration_ms"] for row in rows if row["condition"] == "clean" and "iteration_ms" in row]
    if not clean:
        return []
    usual = statistics.median(clean)
    mine = [row for row in rows if row["condition"] == condition and "cost_ms" in row]
    return [(row["cost_ms"] - max(0.0, row["iteration_ms"] - usual)) / usual for row in mine]


def is_right(suspect: dict[str, Any], fault: Fault) -> bool:
    """Whether a suspect is a fault: the place, and the kind."""
    if suspect["fault"] != fault.kind:
        return False
    if fault.switch:
        return bool(suspect["kind"] == "switch" and suspect["name"] == fault.switch)
    if fault.rank is not None:
        return bool(suspect["ranks"] == [fault.rank] and suspect["kind"] in ("nic", "host"))
    links = set(suspect["links"])
    return bool(links) and links <= fault.links


def judged(condition: str, fault: Fault, result: str, suspects: list[dict[str, Any]]) -> bool:
    """Whether a run's verdict is right: without a fault no alarm; else the first suspect, or both of two."""
    if condition == "clean":
        return result != "fail"
    if fault.second is not None:
        return any(is_right(each, fault) for each in suspects) and any(
            is_right(each, fault.second) for each in suspects
        )
    return bool(suspects) and is_right(suspects[0], fault)


def genie(*words: str, limit_s: float = LIMIT_S) -> subprocess.CompletedProcess[str]:
    """Run one command; end it when it takes longer. Raises TimeoutExpired."""
    line = [sys.executable, "-m", "genie", *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=limit_s, check=False)


def workload_of(scratch: Path, place: Place, given: str) -> list[str]:
    """Words of a validation that name its workload; traces are made once."""
    name = given if place.workload == "given" else place.workload
    if name == "collectives":
        return ["--collectives", OPERATIONS, "--ranks", str(place.hosts)]
    if name == "dlrm":
        return [str(dlrm(scratch))]
    if name == "both":
        folder = scratch / f"both-{place.hosts}"
        if not folder.exists():
            save(both_workload(place.hosts), folder, "both")
        return [str(folder)]
    return [str(TRACE)]


def one(scratch: Path, condition: str, number: int, workload: str) -> dict[str, Any]:
    """One run: the fault and the verdict."""
    draw = random.Random(f"{SEED}/{condition}/{number}")
    fault = CONDITIONS[condition][2](draw)
    place = PLACES.get(condition, LAB_8)
    out, fabric = scratch / "run", scratch / place.fabric
    shutil.rmtree(out, ignore_errors=True)  # an earlier run's verdict must not count
    given = [word for text in fault.lab for word in ("--lab-fault", text)]
    given += [str(scratch / word) if word.endswith(".toml") else word for word in fault.options]
    began = time.monotonic()
    code, said = -1, "took too long"
    try:
        played = workload_of(scratch, place, workload)
        done = genie("validate", *played, "--lab", str(fabric), "--seed", str(1 + number), "-o", str(out), *given)
        code, said = done.returncode, done.stdout
        line = next((line for line in said.splitlines() if line), " ".join(done.stderr.split())[-200:])
    except subprocess.TimeoutExpired:  # it had no time to remove its fault from the lab
        line = said
        genie("lab", "down", str(fabric))
        genie("lab", "up", str(fabric))
    suspects = suspects_of(out, said)
    times = times_of(out)
    result = line.partition(" ")[0].lower()
    return {
        "condition": condition, "workload": workload if place.workload == "given" else place.workload,
        "number": number, "faults": fault.lab or fault.options, "code": code, "result": result,
        "right": judged(condition, fault, result, suspects), "line": line,
        "exact": bool(suspects) and set(suspects[0]["links"]) == set(fault.links),
        "suspects": [[each["kind"], each["name"], each["fault"]] for each in suspects], **times,
        "wall_s": round(time.monotonic() - began, 1), "load": os.getloadavg()[0],
    }  # fmt: skip


def table(rows: list[dict[str, Any]]) -> list[str]:
    """A line for each condition: the number of right runs, and whether it meets the target."""
    lines = []
    for condition, (_, least, _) in CONDITIONS.items():
        mine = [row for row in rows if row["condition"] == condition]
        if not mine:
            continue
        right = sum(row["right"] for row in mine)
        low, high = interval(right, len(mine))
        enough = "enough" if right >= least * len(mine) else "TOO FEW"
        open_ = sum(row["result"] == "inconclusive" for row in mine)
        exact = "" if condition == "clean" else f", {sum(row['exact'] for row in mine)} with its directions"
        errors = [abs(error) for error in cost_errors(rows, condition)]
        cost = (
            f", cost wrong by {statistics.median(errors):.1%} of an iteration, at most {max(errors):.1%}"
            if errors
            else ""
        )
        lines.append(
            f"{condition:10} {right}/{len(mine)} right{exact}, {open_} inconclusive (95 % interval {low:.0%} to "
            f"{high:.0%}), {sum(row['wall_s'] for row in mine) / len(mine):.0f} s a run: {enough}{cost}"
        )
    return lines


def busy() -> subprocess.Popen[bytes]:
    """A program that keeps one core busy."""
    return subprocess.Popen([sys.executable, "-c", "while True: pass"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=positive, default=20, help="of each condition with a fault; clean: five times")
    parser.add_argument("--busy", action="store_true", help="keep one core busy with another program")
    parser.add_argument(
        "--conditions", type=some_of(tuple(CONDITIONS)), default=tuple(CONDITIONS), help=",".join(CONDITIONS)
    )
    parser.add_argument(
        "--workload", choices=("transformer", "dlrm", "collectives"), default="transformer", help="of 8 hosts"
    )
    parser.add_argument("--limit", type=positive, default=10**6, metavar="MINUTES", help="start no run later than this")
    parser.add_argument("--resume", action="store_true", help="keep the runs that the file of --json holds")
    add_json(parser)
    arguments = parser.parse_args()
    deadline = time.monotonic() + 60 * arguments.limit
    facts = machine()
    scratch = fresh(Path(tempfile.gettempdir()) / "genie-kinds")
    (scratch / "fabric.toml").write_text(FABRIC.read_text())
    (scratch / "marking.toml").write_text(FABRIC.read_text() + MARKING)
    (scratch / "fat-tree.toml").write_text(FAT_TREE)
    (scratch / "uneven.toml").write_text(uneven())
    for rank in range(HOSTS):
        (scratch / f"plan-{rank}.toml").write_text(f"[[congestion]]\nrank = {rank}\ncontrol = false\n")
    runs = [(name, at) for name in arguments.conditions for at in range(arguments.runs * CONDITIONS[name][0])]
    random.Random(SEED).shuffle(runs)
    labs = {PLACES.get(name, LAB_8).fabric for name in arguments.conditions}
    rows: list[dict[str, Any]] = []
    if arguments.resume and arguments.json and arguments.json.exists():
        rows = json.loads(arguments.json.read_text())["runs"]
    held = {(row["condition"], row["number"]) for row in rows}
    other = busy() if arguments.busy else None
    try:
        for name in sorted(labs):
            built = genie("lab", "up", str(scratch / name))
            if built.returncode != 0:
                sys.exit(built.stderr.strip())
        for done, (condition, number) in enumerate(runs, start=1):
            if (condition, number) in held:
                continue
            if time.monotonic() > deadline:
                print(f"{len(runs) - len(rows)} runs are left: time is over")
                break
            row = one(scratch, condition, number, arguments.workload)
            rows.append(row)
            mark = "" if row["right"] else "  WRONG"
            print(f"{done}/{len(runs)} {condition} {number} {row['faults']}: {row['line'][:150]}{mark}", flush=True)
            if arguments.json:
                arguments.json.write_text(json.dumps({"machine": facts, "runs": rows}, indent=1) + "\n")
    finally:
        for name in sorted(labs):
            with suppress(subprocess.TimeoutExpired):
                genie("lab", "down", str(scratch / name))
        if other is not None:
            other.kill()
    lines = table(rows)
    print("\n".join(lines))
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": facts, "runs": rows, "table": lines}, indent=1) + "\n")


if __name__ == "__main__":
    main()
