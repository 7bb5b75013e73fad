"""The twin compared with ns-3's RDMA model: python benchmarks/ns3_reference.py DATA/ns3-reference [--seeds 20]
                                             [--json FILE] [--runs FOLDER]

DATA holds flow completion times of that model (its README names the version), its configurations and its topology. Each
experiment is imported as by `genie convert ns3` and played once for each seed. The targets are:
- the single flow matches to the nanosecond
- for the others, the median over the seeds of the median is within 5 %
- the model's longest time is between the smallest and the largest of the seeds' longest times
- pauses occur in every seed if the model has them, and in no seed otherwise

The targets are for 20 seeds: with fewer, the longest times span less and may miss the model's. Exit code 1 when a
target is missed.

For an experiment that draws marks, DATA has one draw. FOLDER has more runs of that model, each with its own seed, as
NAME.RUN.txt in the form of DATA's fct. The twin's medians and longest times, of as many seeds, are then compared with
the model's as samples of one distribution (Kolmogorov and Smirnov, 5 %). The model's runs, 20 by 20, are also held to
the target for medians.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common.arguments import add_json, positive

from simtwin.fabric.topology import build_network
from simtwin.imports.ns3 import read_experiment
from simtwin.imports.words import ForeignFileError
from simtwin.play.twin import Twin

WITHIN = 0.05
TARGET_SEEDS = 20
QUANTILES = (0.1, 0.5, 0.9)
SMIRNOV_5 = 1.358  # times the root of 1/n + 1/m: two samples of one distribution differ by more in 5 % of cases


@dataclass(frozen=True)
class Times:
    """Flow completion times, (seeds, flows), sorted in each row, and pauses of each seed."""

    fct_ns: np.ndarray
    pauses: list[int]


def play(config: Path, seeds: range) -> Times:
    """Play an experiment in the twin. Raises ForeignFileError."""
    experiment = read_experiment(config)
    network = build_network(experiment.fabric)
    rows, pauses = [], []
    for seed in seeds:
        result = Twin(experiment.fabric, network, range(network.hosts), seed).play(experiment.workload)
        rows.append(sorted((result.transfers["acked_ns"] - result.transfers["post_ns"]).to_list()))
        pauses.append(sum(result.counters["links"]["pauses"]))
    return Times(np.array(rows), pauses)


def times_ns(path: Path) -> list[int]:
    """The model's times, sorted."""
    return sorted(int(line.split()[6]) for line in path.read_text().split("\n") if line.strip())


def reference(data: Path, name: str) -> tuple[np.ndarray, int]:
    """(the model's times, sorted; its number of pauses)."""
    times = times_ns(data / "fct" / f"{name}.txt")
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


def distance(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest distance between the distributions of two samples (Kolmogorov and Smirnov)."""
    both = np.sort(np.concatenate([ours, theirs]))
    shares = [np.searchsorted(np.sort(sample), both, side="right") / len(sample) for sample in (ours, theirs)]
    return float(np.abs(shares[0] - shares[1]).max())


def compare_runs(data: Path, folder: Path, name: str) -> list[dict[str, Any]]:
    """The two lines of the second table, or none."""
    runs = [
        times_ns(path) for path in sorted(folder.glob(f"{name}.*.txt"), key=lambda path: int(path.suffixes[-2][1:]))
    ]
    if not runs:
        return []
    theirs = np.array(runs)
    ours = play(data / "config" / f"{name}.txt", range(1, len(runs) + 1)).fct_ns
    wanted = float(np.median(reference(data, name)[0]))
    medians = np.median(theirs, axis=1)
    twenties = [
        np.median(medians[at : at + TARGET_SEEDS]) for at in range(0, len(runs) - TARGET_SEEDS + 1, TARGET_SEEDS)
    ]
    rows = []
    for what, of in (("median", lambda fct: np.median(fct, axis=1)), ("longest", lambda fct: fct.max(axis=1))):
        row = {
            "experiment": name,
            "what": what,
            "runs": len(runs),
            "quantiles_ns": np.quantile(of(ours), QUANTILES).tolist(),
            "reference_quantiles_ns": np.quantile(of(theirs), QUANTILES).tolist(),
            "distance": distance(of(ours), of(theirs)),
            "distance_max": SMIRNOV_5 * (2 / len(runs)) ** 0.5,
        }
        if what == "median":
            row["sets"] = len(twenties)
            row["sets_within"] = sum(bool(abs(median / wanted - 1) <= WITHIN) for median in twenties)
        rows.append(row)
    return rows


def print_runs(data: Path, folder: Path, names: list[str]) -> list[dict[str, Any]]:
    """Print the second table; return its rows."""
    columns = (("runs", 6), ("twin 10 %, median, 90 %, us", 29), ("ns-3", 29), ("distance", 10), ("5 %", 7))
    print(f"\n{'experiment':<28}{'':<8}" + "".join(f"{column:>{width}}" for column, width in columns))
    rows = [row for name in names for row in compare_runs(data, folder, name)]
    for row in rows:
        ours, theirs = (
            " ".join(f"{time / 1e3:8.1f}" for time in row[key]) for key in ("quantiles_ns", "reference_quantiles_ns")
        )
        of_sets = f"  ns-3's own twenties within 5 %: {row['sets_within']} of {row['sets']}" if row.get("sets") else ""
        print(
            f"{row['experiment']:<28}{row['what']:<8}{row['runs']:>6}{ours:>29}{theirs:>29}"
            f"{row['distance']:>10.3f}{row['distance_max']:>7.3f}{of_sets}"
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument(
        "--seeds", type=positive, default=TARGET_SEEDS, metavar="N", help="(20, for which the targets are)"
    )
    parser.add_argument("--runs", type=Path, metavar="FOLDER", help="more runs of that model, NAME.RUN.txt")
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
    spread = print_runs(chosen.data, chosen.runs, names) if chosen.runs else []
    if chosen.json:
        chosen.json.write_text(json.dumps({"experiments": rows, "runs": spread}, indent=1) + "\n")
    return 0 if all(all(row["good"].values()) for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
