"""The twin beside ns-3's RDMA model: python benchmarks/ns3_reference.py DATA/ns3-reference [--seeds 20] [--json FILE]

DATA holds flow completion times of that model (its README says of which), its configurations and its topology. Each
experiment is imported as `genie convert ns3` does and played once for each seed. Wanted: the single flow to the
nanosecond; of the others the median over the seeds of the median within 5 %, that model's longest time from the
smallest to the largest of our seeds' longest times, and pauses in every seed where that model has them, and in none
where it has none. The targets are for 20 seeds: with fewer the longest times span less, and may miss that model's. Exit
code 1 when something is not as wanted.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from arguments import add_json, positive

from simtwin.imports.ns3 import read_experiment
from simtwin.imports.words import ForeignFileError
from simtwin.topology import build_network
from simtwin.twin import Twin

WITHIN = 0.05


@dataclass(frozen=True)
class Times:
    """Flow completion times, (seeds, flows), sorted in each row, and pauses of each seed."""

    fct_ns: np.ndarray
    pauses: list[int]


def play(config: Path, seeds: range) -> Times:
    """An experiment in the twin. Raises ForeignFileError."""
    experiment = read_experiment(config)
    network = build_network(experiment.fabric)
    rows, pauses = [], []
    for seed in seeds:
        result = Twin(experiment.fabric, network, range(network.hosts), seed).play(experiment.workload)
        rows.append(sorted((result.transfers["acked_ns"] - result.transfers["post_ns"]).to_list()))
        pauses.append(sum(result.counters["links"]["pauses"]))
    return Times(np.array(rows), pauses)


def reference(data: Path, name: str) -> tuple[np.ndarray, int]:
    """That model's times, sorted, and its pauses."""
    lines = (data / "fct" / f"{name}.txt").read_text().split("\n")
    times = sorted(int(line.split()[6]) for line in lines if line.strip())
    fired = data / "pfc" / f"{name}.txt"
    pauses = [line for line in fired.read_text().split("\n") if line.endswith(" 1")] if fired.exists() else []
    return np.array(times), len(pauses)


def compare(data: Path, name: str, seeds: range) -> dict[str, Any]:
    """One line of the table."""
    theirs, their_pauses = reference(data, name)
    ours = play(data / "config" / f"{name}.txt", seeds)
    longest = ours.fct_ns.max(axis=1)
    median, wanted = float(np.median(np.median(ours.fct_ns, axis=1))), float(np.median(theirs))
    if len(theirs) == 1:
        good = {"exact": median == wanted}
    else:
        good = {
            "median": abs(median / wanted - 1) <= WITHIN,
            "longest": bool(longest.min() <= theirs[-1] <= longest.max()),
            "pauses": all((count > 0) == (their_pauses > 0) for count in ours.pauses),
        }
    return {
        "experiment": name,
        "flows": len(theirs),
        "seeds": len(seeds),
        "median_ns": median,
        "reference_median_ns": wanted,
        "longest_ns": [int(longest.min()), int(longest.max())],
        "reference_longest_ns": int(theirs[-1]),
        "pauses": float(np.median(ours.pauses)),
        "reference_pauses": their_pauses,
        "good": good,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=positive, default=20, metavar="N", help="(20, for which the targets are)")
    add_json(parser)
    chosen = parser.parse_args()
    names = sorted(path.stem for path in (chosen.data / "fct").glob("*.txt"))
    if not names:
        parser.error(f"{chosen.data}: has no folder fct with times")
    rows = []
    columns = (("flows", 6), ("median us", 11), ("ns-3", 9), ("", 8), ("longest us", 21), ("ns-3", 9), ("pauses", 8))
    print(f"{'experiment':<28}" + "".join(f"{column:>{width}}" for column, width in columns) + "  ns-3")
    for name in names:
        try:
            row = compare(chosen.data, name, range(1, chosen.seeds + 1))
        except ForeignFileError as wrong:
            print(wrong, file=sys.stderr)
            return 2
        rows.append(row)
        longest = " to ".join(f"{time / 1e3:.1f}" for time in row["longest_ns"])
        missed = [what for what, good in row["good"].items() if not good]
        print(
            f"{name:<28}{row['flows']:>6}{row['median_ns'] / 1e3:>11.1f}{row['reference_median_ns'] / 1e3:>9.1f}"
            f"{row['median_ns'] / row['reference_median_ns'] - 1:>+8.1%}{longest:>21}"
            f"{row['reference_longest_ns'] / 1e3:>9.1f}{row['pauses']:>8.0f}{row['reference_pauses']:>6}"
            + (f"  NOT MET: {', '.join(missed)}" if missed else ""),
            flush=True,
        )
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if all(all(row["good"].values()) for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
