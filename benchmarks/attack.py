"""Hostile packets against runs with --verify: are bytes wrong, do jobs end, and are the packets reported?

    python benchmarks/attack.py                 every kind at every level of knowledge (root; some minutes)
    python benchmarks/attack.py --quick         all kinds in one run for each level

Attackers know, by level:
- "stranger", "wrong port": only the addresses of the run and its queue pairs
- "old numbers": the ports too, and the numbers of a fixed seed
- "blind": the ports only; they try all queue pair numbers
- "queue pair known": queue pairs and ports, but neither PSN nor key
- "all known": all packets on the network
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from common.arguments import add_json, positive, some_of
from common.hostile_packets import KINDS, PSN_COUNT, WINDOW, Forger, Kind, Link, Listener, Numbers, old_key, old_psn

from genie.record import open_run
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Op, RankGraph, Workload
from genie.workload.graph import Kind as NodeKind
from genie.workload.write import save

GENIE = Path(sys.executable).parent / "genie"
SEED = 20270517
RANKS, COLLECTIVES, SIZE_BYTES, RATE = 4, 4, 65536, "100Mb/s"
BURST, PAUSE_S = 40, 0.002  # packets, then a pause for the ranks, because attackers take as many cores as there are
LEVELS = ("stranger", "wrong port", "old numbers", "blind", "queue pair known", "all known")
OUTSIDE = {  # level -> counters that count its packets
    "stranger": ("strangers",),
    "wrong port": ("wrong_port",),
    "old numbers": ("strangers", "wrong_rank"),
    "blind": ("strangers", "wrong_rank"),
}
UNPARSED = ("malformed", "bad_icrc")


@dataclass
class Row:
    """The outcome of one run under attack."""

    level: str
    kinds: str
    packets: int
    code: int
    verified_bytes: int
    wrong_bytes: int
    counted: dict[str, int]
    senders: list[str] = field(default_factory=list)  # senders named in warnings
    error: str = ""
    problems: list[str] = field(default_factory=list)  # unexpected outcomes


class Attack:
    """One run with one attacker."""

    def __init__(self, folder: Path, level: str, kinds: Sequence[Kind], seed: int, iterations: int) -> None:
        self.level, self.kinds = level, kinds
        self.draw = random.Random(f"{seed}/{level}/{'/'.join(kind.name for kind in kinds)}")
        base = f"127.{self.draw.randrange(64, 120)}.{self.draw.randrange(1, 250)}"
        self.addresses = [f"{base}.{rank + 1}" for rank in range(RANKS)]
        self.out, self.iterations, self.folder = folder / "out", iterations, folder
        self.packets = 0

    def run(self) -> Row:
        """Play the run, attack it until it ends, and judge."""
        rings(self.folder / "rings")
        hosts = self.folder / "hosts.toml"
        hosts.write_text(
            f'[[host]]\nname = "localhost"\nranks = "0-{RANKS - 1}"\naddress = "{self.addresses[0][:-1]}{{rank+1}}"\n'
        )
        line = [str(GENIE), "run", str(self.folder / "rings"), "--hosts", str(hosts), "--rate", RATE, "--verify",
                "-n", str(self.iterations), "-o", str(self.out)]  # fmt: skip
        listener, forger = Listener(self.addresses), Forger()
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            self._attack(listener, forger, lambda: process.poll() is None)
            said = process.communicate(timeout=120)[1]
        finally:
            process.kill()
            process.wait()
            listener.close()
            forger.close()
        return self._judged(process.returncode, said)

    def _attack(self, listener: Listener, forger: Forger, goes_on: Callable[[], bool]) -> None:
        while goes_on() and sum(bool(link.last) for link in listener.links.values()) < RANKS:
            listener.listen()
            time.sleep(PAUSE_S)
        # One packet is enough for an attacker who knows all; each later one would be for a connection that is gone.
        burst, pause_s = (4, 0.02) if self.level == "all known" else (BURST, PAUSE_S)
        while goes_on():
            for _ in range(burst):
                listener.listen()
                self._one(listener.links, forger)
            time.sleep(pause_s)

    def _one(self, links: dict[tuple[str, str], Link], forger: Forger) -> None:
        kind = self.draw.choice(self.kinds)
        # A rank's answers go to the ranks that send to it; its requests go to the ranks that it sends to.
        busy = [key for key, link in sorted(links.items()) if link.last]
        sender, receiver = self.draw.choice(busy)
        requests = links[sender, receiver]
        link = links.get((receiver, sender)) if kind.is_answer else requests
        if link is None:
            return
        source, port = link.source, link.source_port
        if self.level == "stranger":
            source = f"{source.rpartition('.')[0]}.{self.draw.randrange(100, 250)}"
        elif self.level == "wrong port":
            port = 1024 + (port + self.draw.randrange(1, 60000)) % 64000
        forger.send(kind, self._numbers(link, requests, kind), source, port, link.target)
        self.packets += 1

    def _numbers(self, link: Link, requests: Link, kind: Kind) -> Numbers:
        if self.level == "old numbers":
            source, target = (self.addresses.index(end) for end in (link.source, link.target))
            psn = old_psn(target, source) if kind.is_answer else old_psn(source, target)
            return Numbers(1 << 16 | source, psn + self.draw.randrange(WINDOW), old_key(target), last=requests.last)
        psn, rkey = self.draw.randrange(PSN_COUNT), self.draw.getrandbits(32)
        if self.level == "blind":
            return Numbers(1 << 16 | self.draw.randrange(1 << 16), psn, rkey, last=requests.last)
        if self.level == "all known":
            psn = requests.psn if kind.is_answer else requests.psn + 1
            return Numbers(link.qpn, psn, rkey, requests.address, requests.last)
        return Numbers(link.qpn, psn, rkey, requests.address, requests.last)

    def _judged(self, code: int, said: str) -> Row:
        run = open_run(self.out)
        ranks = [rank for rank in run.counters["ranks"] if rank]
        total = {name: sum(rank[name] for rank in ranks) for name in ranks[0]}
        names = [name for kind in self.kinds for name in kind.counters]
        told = {name: total[name] for name in dict.fromkeys((*OUTSIDE.get(self.level, ()), *names, "refused"))}
        row = Row(
            self.level,
            ", ".join(kind.name for kind in self.kinds) if len(self.kinds) < len(KINDS) else "all",
            self.packets,
            code,
            total["verified_bytes"],
            total["wrong_bytes"],
            {name: count for name, count in told.items() if count},
            re.findall(r"\d+ from (\S+ port \d+)", said),
            next((line for line in said.splitlines() if "iteration " in line and "/" not in line.split()[2]), ""),
        )
        row.problems = problems_of(row, self.kinds)
        return row


def problems_of(row: Row, kinds: Sequence[Kind]) -> list[str]:
    """Unexpected outcomes of a run; none if it was not affected, or if it ended and names the cause."""
    problems = [f"{row.wrong_bytes} wrong bytes"] if row.wrong_bytes else []
    if row.level == "all known":
        named = "ended its connection" in row.error or "gave up sending" in row.error
        if row.code and not (named and re.search(r"127\.\S+ port \d+", row.error)):
            problems.append(f"names no cause: {row.error}")
        return problems
    if row.code:
        problems.append(f"exit code {row.code}: {row.error}")
    # Packets from outside are refused before their kind matters; other kinds have counters of their own.
    outside = OUTSIDE.get(row.level)
    expected = [("it", outside)] if outside else [(kind.name, kind.counters) for kind in kinds]
    for name, counters in expected:
        if not any(row.counted.get(counter) for counter in counters):
            problems.append(f"nothing of {name} is counted ({' or '.join(counters)})")
    judged = [name for name in row.counted if name not in ("duplicates", "refused")]
    if judged and not row.senders:
        problems.append("no warning names a sender")
    return problems


def rings(folder: Path) -> None:
    """Write a workload of all-reduces on a few ranks."""
    graphs: dict[int, RankGraph] = {}
    workload = Workload("rings", RANKS, [Group("world", tuple(range(RANKS)))], graphs)
    for rank in range(RANKS):
        builder = RankBuilder(rank)
        last: tuple[int, ...] = ()
        for _ in range(COLLECTIVES):
            last = (builder.add(len(builder), "ring", NodeKind.COLL, last, size_bytes=SIZE_BYTES, op=Op.ALL_REDUCE,
                                group=0),)  # fmt: skip
        graphs[rank], _ = builder.finish()
    save(workload, folder, "rings")


def attacked(level: str, kinds: Sequence[Kind], seed: int, iterations: int) -> Row:
    """One run under attack, in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="attack") as folder:
        return Attack(Path(folder), level, kinds, seed, iterations).run()


def rounds(levels: Sequence[str], quick: bool) -> list[tuple[str, tuple[Kind, ...]]]:
    """(level, kinds) of each run: one kind per run where a packet reaches a queue pair."""
    each = [(kind,) for kind in KINDS]
    return [
        (level, kinds)
        for level in levels
        for kinds in ([KINDS] if level in OUTSIDE or (quick and level != "all known") else each)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=SEED, help="of what the attackers draw")
    parser.add_argument("--iterations", type=positive, default=40, help="of each run")
    parser.add_argument("--levels", type=some_of(LEVELS), default=LEVELS, help=f"some of {', '.join(LEVELS)}")
    parser.add_argument("--quick", action="store_true", help="all kinds in one run for each level but the last")
    add_json(parser)
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        print("attack.py: forged addresses need raw sockets: run as root", file=sys.stderr)
        return 3
    rows = []
    print(f"{'level':17} {'kind':27} {'packets':>8}  {'wrong':>5}  {'job':10}  counted")
    for level, kinds in rounds(arguments.levels, arguments.quick):
        row = attacked(level, kinds, arguments.seed, arguments.iterations)
        rows.append(row)
        ended = "ends well" if row.code == 0 else f"exit {row.code}"
        counted = ", ".join(f"{name} {count}" for name, count in row.counted.items())
        print(f"{level:17} {row.kinds:27} {row.packets:8}  {row.wrong_bytes:5}  {ended:10}  {counted}", flush=True)
        for problem in row.problems:
            print(f"  WRONG: {problem} (again: --seed {arguments.seed} --levels '{level}')")
        if row.error:
            print(f"  says: {row.error}")
    wrong = sum(bool(row.problems) for row in rows)
    print(f"{len(rows)} runs, {sum(row.packets for row in rows)} hostile packets, {wrong} runs not as they should be")
    if arguments.json:
        arguments.json.write_text(json.dumps({"seed": arguments.seed, "rows": [asdict(row) for row in rows]}, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
