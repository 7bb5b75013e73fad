"""Does `genie compare` report a change, and only where there is one? Pairs of validations in a lab of 8 hosts.

    python benchmarks/pairs_of_runs.py               20 pairs without a change, 20 with a link 15 % slower in the second
    python benchmarks/pairs_of_runs.py --pairs 2 --json FILE

Each run is `genie validate --lab` with default options, of the transformer's trace. The link is drawn for each pair
from a seed that is fixed here. A pair without a change is right if the result is `same` or `inconclusive` and names
nothing. One with a change is right if the result is `slower`, and the first suspect is the link. Every pair counts: the
first complete batch is the result.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common.arguments import add_json, positive
from common.validation import fresh, machine
from kinds import FABRIC, SEED, TRACE, genie, spine

SHARE = "rate=87%"  # 15 % slower
LEAST = {"same": 0.95, "slower": 0.9}  # share of the pairs that must be right


def one(scratch: Path, case: str, number: int) -> dict[str, Any]:
    """One pair: two validations, and their comparison."""
    fault = spine(random.Random(f"{SEED}/pairs/{number}"), SHARE, "rate")
    began = time.monotonic()
    results = []
    for at, name in enumerate(("before", "after")):
        shutil.rmtree(scratch / name, ignore_errors=True)
        given = ["--lab-fault", fault.lab[0]] if case == "slower" and at == 1 else []
        seed = str(1 + 2 * number + at)
        lab = str(scratch / "fabric.toml")
        done = genie("validate", str(TRACE), "--lab", lab, "--seed", seed, "-o", str(scratch / name), *given)
        results.append(done.returncode)
    out = scratch / "compared"
    shutil.rmtree(out, ignore_errors=True)
    done = genie("compare", str(scratch / "before"), str(scratch / "after"), "-o", str(out))
    line = (done.stdout or done.stderr).splitlines()[0]
    found: dict[str, Any] = {"result": "none", "suspects": []}
    if (out / "compare.json").exists():
        (found,) = json.loads((out / "compare.json").read_text())["comparisons"]
    links = set(found["suspects"][0]["links"]) if found["suspects"] else set()
    if case == "same":
        right = found["result"] in ("same", "inconclusive") and not found["suspects"]
    else:
        right = found["result"] == "slower" and bool(links) and links <= fault.links
    return {
        "case": case, "number": number, "fault": fault.lab if case == "slower" else [], "codes": results,
        "result": found["result"], "right": right, "line": line, "wall_s": round(time.monotonic() - began, 1),
        "load": os.getloadavg()[0],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=positive, default=20, help="of each case")
    add_json(parser)
    arguments = parser.parse_args()
    facts = machine()
    scratch = fresh(Path(tempfile.gettempdir()) / "genie-pairs")
    (scratch / "fabric.toml").write_text(FABRIC.read_text())
    built = genie("lab", "up", str(scratch / "fabric.toml"))
    if built.returncode != 0:
        sys.exit(built.stderr.strip())
    rows: list[dict[str, Any]] = []
    try:
        for number in range(arguments.pairs):
            for case in LEAST:
                rows.append(one(scratch, case, number))
                row = rows[-1]
                print(
                    f"{case} {number} {row['fault']}: {row['line'][:180]}{'' if row['right'] else '  WRONG'}",
                    flush=True,
                )
                if arguments.json:
                    arguments.json.write_text(json.dumps({"machine": facts, "pairs": rows}, indent=1) + "\n")
    finally:
        genie("lab", "down", str(scratch / "fabric.toml"))
    for case, least in LEAST.items():
        right = [row["right"] for row in rows if row["case"] == case]
        print(
            f"{case}: {sum(right)} of {len(right)} right: {'enough' if sum(right) >= least * len(right) else 'TOO FEW'}"
        )


if __name__ == "__main__":
    main()
