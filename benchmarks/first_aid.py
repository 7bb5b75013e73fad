"""Does genie check find faults, and none in a clean lab? A lab of 8 hosts, 2 leaves and 2 spines; root.

python benchmarks/first_aid.py                                   each of eight faults three times, clean ten times
python benchmarks/first_aid.py --faults small-mtu,clean --runs 1

Each time the lab is built anew, with the fault at another place. A fault is found when a finding of its kind names its
place; all other findings are counted as others. Exit code 1 when a fault is not found or there are other findings.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from common.arguments import add_json, positive, some_of
from common.first_aid_faults import FABRIC, FAULTS, Put

from genie.lab import down, names_of, up

SECONDS_MAX = 60.0
LIMIT_S = 180.0


@dataclass(frozen=True)
class Row:
    """One check of a lab."""

    fault: str
    where: str
    code: int
    is_found: bool
    others: int  # findings beside the fault's
    took_s: float  # duration of the command
    findings: list[str]

    @property
    def is_right(self) -> bool:
        """Whether exactly the fault is found (in a clean lab: none), in time."""
        wanted = (0, False, 0) if self.fault == "clean" else (1, True, 1)
        return (self.code, self.is_found, len(self.findings)) == wanted and self.took_s < SECONDS_MAX


def checked(name: str, seed: int) -> Row:
    """Build one lab with a fault, check it and remove it."""
    with tempfile.TemporaryDirectory(prefix="genie-first-aid-") as folder:
        fabric, report = Path(folder) / "first-aid.toml", Path(folder) / "check.json"
        fabric.write_text(FABRIC)
        lab, _ = up(fabric)
        try:
            put = FAULTS[name](lab, random.Random(seed), Path(folder))
            line = [sys.executable, "-m", "genie.cli.main", "check", "--lab", str(fabric), "--json", str(report)]
            began = time.monotonic()
            ended = subprocess.run([*line, *put.options], capture_output=True, text=True, timeout=LIMIT_S, check=False)
            took_s = time.monotonic() - began
        finally:
            for each in names_of(fabric):
                down(each)
        if not report.exists():
            return Row(name, put.where, ended.returncode, False, 0, took_s, [ended.stderr.strip()[-400:]])
        return judged(name, put, ended.returncode, took_s, json.loads(report.read_bytes())["findings"])


def judged(name: str, put: Put, code: int, took_s: float, findings: Sequence[dict[str, str]]) -> Row:
    """Judge the findings of a lab with a fault."""
    of_it = [each for each in findings if each["kind"] in put.kinds and any(word in each["text"] for word in put.names)]
    texts = [f"{each['kind']}: {each['text']}" for each in findings]
    return Row(name, put.where, code, bool(of_it), len(findings) - len(of_it), round(took_s, 1), texts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=some_of(tuple(FAULTS)), default=tuple(FAULTS), help="some, parted by commas")
    parser.add_argument("--runs", type=positive, default=3, help="of each fault")
    parser.add_argument("--clean", type=positive, default=10, help="of a clean lab")
    parser.add_argument("--seed", type=int, default=1)
    add_json(parser)
    arguments = parser.parse_args()
    rows: list[Row] = []
    print(f"{'fault':<14} {'where':<22} {'found':<6} {'others':>6} {'s':>6}", flush=True)
    for name in arguments.faults:
        for number in range(arguments.clean if name == "clean" else arguments.runs):
            row = checked(name, arguments.seed * 1000 + number)
            rows.append(row)
            found = "yes" if row.is_found else "-" if name == "clean" else "NO"
            print(f"{name:<14} {row.where:<22} {found:<6} {row.others:>6} {row.took_s:>6.1f}", flush=True)
            for text in row.findings:
                print(f"    {text}", flush=True)
    wrong = [row for row in rows if not row.is_right]
    print(f"{len(rows) - len(wrong)} of {len(rows)} right, longest {max(row.took_s for row in rows):.1f} s")
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
