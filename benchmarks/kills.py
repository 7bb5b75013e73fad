"""Is the right rank named when one is killed, and is nothing left behind? Ranks, two at once, mpirun and the launcher.

    python benchmarks/kills.py                        200 kills at random moments, of runs of four ranks on loopback
    python benchmarks/kills.py --kills 6 --seed 3
    python benchmarks/kills.py --seed 3 --only 17     the kill of that number again

Moments: while ranks start, join, play, wait for each other, and gather their records. Ranks are started by hand, under
mpirun, and with torchrun's variables. Ranks and mpirun sometimes get SIGTERM; all other signals are SIGKILL.

A named rank must be one that was killed, of two the first. For a killed mpirun no rank may be named. A launcher must
name a rank that is killed after ranks have begun and before they gather.

Exit code 1 when a wrong rank is named, or something is left behind. That may be a process, parts/, an unfinished file,
a lock, a temporary folder or shared memory. If no process outlives the kill to tidy up, the next command must do it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from common.arguments import add_json, positive, whole
from common.kill_scenes import MOMENTS, WAYS, Kill, Scene, drawn, shared_memory

ATTEMPTS_MAX = 20
STAYS_S = 15.0
RIGHT, UNTOLD, COMPLETE, WRONG = "right", "cannot be told", "complete", "WRONG"
# Phrases that blame one or more ranks; a rank that only reports ("rank 0: nothing came ...") is not blamed.
BLAMED = re.compile(
    r"ranks? ([\d, ]+?) (?:died|is gone|are gone|did not|is stopped)|(?:lost|nothing of) ranks? ([\d, ]+)|"
    r"rank (\d+)(?:: told| stopped: told) to end"
)
# A launcher that watches all ranks of a run must name a rank that is killed during these moments.
MUST_TELL = {("rank", moment) for moment in ("join", "play", "barrier")}
OPEN = re.compile(r"cannot be told|mpirun ended with exit code|nothing came|stopped: |gave up")


@dataclass(frozen=True)
class Row:
    """A kill and its outcome."""

    number: int
    kill: Kill
    judged: str
    codes: list[int]
    said: list[str]
    left: list[str]


def judge(kill: Kill, codes: list[int], said: list[str], problem: str | None) -> str:
    """Judge the output after a kill. `problem`: the run folder's; None when the run is complete."""
    texts = [*said, problem or ""]
    if _blamed(texts) - set(kill.ranks):
        return WRONG
    if kill.way == "launcher" and (kill.victim, kill.moment) in MUST_TELL:
        return RIGHT if kill.ranks[0] in _blamed(_first(texts)) else WRONG
    if problem is None and codes[0] == 0:
        return COMPLETE
    if kill.victim in ("mpirun", "launcher"):
        words = [f"{kill.victim} was "] + ["were told to end by SIGTERM"] * (kill.signal == "SIGTERM")
        silent = kill.victim == "launcher" and not problem  # without a played iteration there is no run folder
        return RIGHT if silent or any(word in text for word in words for text in texts) else WRONG
    if kill.victim == "two ranks":  # the first had ended before the second was killed
        if kill.ranks[1] in _blamed(_first(texts)):
            return WRONG
        if kill.ranks[0] not in _blamed(_first(texts)):
            return UNTOLD if any("cannot be told" in text for text in texts) else WRONG
    if _blamed(texts):
        return RIGHT
    return UNTOLD if kill.way != "launcher" or any(OPEN.search(text) for text in texts) else WRONG


def _blamed(texts: list[str]) -> set[int]:
    return {
        int(number)
        for text in texts
        for groups in BLAMED.findall(text)
        for number in re.findall(r"\d+", " ".join(groups))
    }


def _first(texts: list[str]) -> list[str]:
    """The causes, without their consequences."""
    return [text.split("; then ")[0] for text in texts]


def carried_out(seed: int, number: int) -> Row:
    """The kill of this number, or another one if the run had ended before it."""
    for attempt in range(ATTEMPTS_MAX):
        kill = drawn(seed, number, attempt)
        with tempfile.TemporaryDirectory(prefix="genie-kills-") as folder:
            before = shared_memory()
            scene = Scene(Path(folder), number)
            try:
                scene.start(kill)
                hit = scene.kill(kill)
                codes, said = scene.end()
                if hit:
                    return _row(number, kill, scene, codes, said, before)
            finally:
                scene.clear()
    raise SystemExit(f"kill {number} of seed {seed}: {ATTEMPTS_MAX} runs ended before their kill")


def _row(number: int, kill: Kill, scene: Scene, codes: list[int], said: list[str], before: set[str]) -> Row:
    problem: str | None = ""
    if (scene.out / "run.json").exists():
        problem = json.loads((scene.out / "run.json").read_bytes())["problem"]
    left = scene.left()
    if kill.way != "launcher" or kill.victim == "launcher":
        code = scene.next_command()
        left = [f"the next command ended with {code}"] if code else scene.left()
    left += _left_in_memory(before)
    return Row(number, kill, judge(kill, codes, said, problem), codes, said, left)


def _left_in_memory(before: set[str]) -> list[str]:
    """Names of shared memory that have appeared and stay; those of other runs on this machine disappear."""
    names = shared_memory() - before
    deadline = time.monotonic() + STAYS_S
    while names and time.monotonic() < deadline:
        time.sleep(0.5)
        names &= shared_memory()
    return sorted(names)


def table(rows: list[Row]) -> str:
    """Counts by way, victim and moment."""
    lines = [
        f"{'way':<10} {'victim':<10} {'moment':<8} {'kills':>5} {'right':>6} {'untold':>7} {'complete':>9} WRONG left"
    ]
    keys = sorted(
        {(row.kill.way, row.kill.victim, row.kill.moment) for row in rows},
        key=lambda key: (WAYS.index(key[0]), key[1], MOMENTS.index(key[2])),
    )
    for key in keys:
        some = [row for row in rows if (row.kill.way, row.kill.victim, row.kill.moment) == key]
        lines.append(f"{key[0]:<10} {key[1]:<10} {key[2]:<8} {_counts(some)}")
    return "\n".join([*lines, f"{'all':<30} {_counts(rows)}"])


def _counts(rows: list[Row]) -> str:
    count = Counter(row.judged for row in rows)
    left = sum(bool(row.left) for row in rows)
    return f"{len(rows):>5} {count[RIGHT]:>6} {count[UNTOLD]:>7} {count[COMPLETE]:>9} {count[WRONG]:>5} {left:>4}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=positive, default=200, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=whole(0), default=1, help="of all that is drawn (default: %(default)s)")
    parser.add_argument("--first", type=whole(0), default=0, help="number of the first one (default: %(default)s)")
    parser.add_argument("--only", type=whole(0), metavar="NUMBER", help="this one alone")
    add_json(parser)
    given = parser.parse_args()
    rows: list[Row] = []
    numbers = range(given.first, given.first + given.kills)
    for number in numbers if given.only is None else [given.only]:
        row = carried_out(given.seed, number)
        rows.append(row)
        bad = row.judged == WRONG or row.left
        if bad or given.only is not None:
            print(f"{row.judged}: {row.kill}; exit codes {row.codes}; said {row.said}; left {row.left}", flush=True)
            print(f"  again: python benchmarks/kills.py --seed {given.seed} --only {number}", flush=True)
        elif sys.stderr.isatty():
            print(f"kill {len(rows)}/{given.kills}: {row.judged}", file=sys.stderr, flush=True)
    print(table(rows))
    if given.json:
        given.json.write_text(json.dumps({"seed": given.seed, "rows": [asdict(row) for row in rows]}, indent=1) + "\n")
    return int(any(row.judged == WRONG or row.left for row in rows))


if __name__ == "__main__":
    sys.exit(main())
