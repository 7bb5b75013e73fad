"""Collectives of published clusters: predicted by the twin beside what was measured.

    python benchmarks/hardware.py                      all rows; some minutes
    python benchmarks/hardware.py --clusters mn5-4     one cluster

The measurements are tables in the shared data (GENIE_SHARED_DATA, or ../shared/data beside the checkout), each with its
source. The fabric of a cluster is `benchmarks/hardware/CLUSTER.toml`. A prediction is a run of `genie bench --simulate`
with the cluster's NCCL variables. Nothing is fitted to a cluster. Errors are predicted / measured - 1.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
from common.arguments import add_json, some_of
from common.published import shared_data, tables
from common.validation import machine

ROOT = Path(__file__).resolve().parents[1]
FABRICS = ROOT / "benchmarks/hardware"
LIMIT_S = 600.0
CLASSES = (
    ("64 KiB and less", 0, 64 << 10),
    ("between", (64 << 10) + 1, (64 << 20) - 1),
    ("64 MiB and more", 64 << 20, 1 << 50),
)


@dataclass(frozen=True)
class Column:
    """A column of measured times in a published table."""

    name: str  # of the row's heading, as the table writes it
    operation: str
    label: str
    variables: dict[str, str] = field(default_factory=dict)  # NCCL's, as the publication sets them
    parts: int = 1  # of the operation's buffer, of which the table gives the size of one


@dataclass(frozen=True)
class Cluster:
    """A published table of measurements, and the columns to predict."""

    name: str  # of the fabric file
    file: str  # in hardware/ of the shared data
    heading: str  # of the table's section; "": the first table
    size: str  # column of sizes in bytes
    columns: tuple[Column, ...]
    version: str = ""  # of NCCL; "": the newest


FORCED = tuple(Column(name, "all_reduce", name, {"NCCL_ALGO": name.capitalize()}) for name in ("ring", "tree"))
SPARK_COLUMNS = (
    ("all_reduce", "", 1), ("all_gather", " (output = n x)", 2), ("reduce_scatter", " (input = n x)", 2),
)  # fmt: skip
SPARK = {"NCCL_MAX_NCHANNELS": "8", "NCCL_BUFFSIZE": "1048576", "NCCL_PROTO": "^LL128"}
MN5 = "mn5-h100-allreduce-by-algorithm.md"
CLUSTERS = (
    Cluster("mn5-4", MN5, "4 nodes", "size", FORCED, "2.19"),
    Cluster("mn5-16", MN5, "16 nodes", "size", FORCED, "2.19"),
    Cluster("spark2", "spark2-pair-nccl2307.md", "", "bytes/rank",
            tuple(Column(f"{name} us{shown}", name, "", SPARK, parts) for name, shown, parts in SPARK_COLUMNS)),
    Cluster("oci-h100", "oci-h100-2n-allreduce.md", "", "bytes", (Column("us", "all_reduce", ""),), "2.23"),
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One measurement and its prediction."""

    cluster: str
    operation: str
    label: str
    size_bytes: int
    measured_us: float
    predicted_us: float

    @property
    def name(self) -> str:
        return f"{self.cluster} {self.operation} {self.label} {self.size_bytes}"

    @property
    def error(self) -> float:
        return self.predicted_us / self.measured_us - 1


def measured(cluster: Cluster, data: Path) -> Iterator[tuple[Column, int, float]]:
    """(column, size in bytes, measured time in us) of each row of a published table."""
    path = data / "hardware" / cluster.file
    found = tables(path.read_text())
    header, rows = next(
        ((names, cells) for heading, names, cells in found if heading.startswith(cluster.heading)), ([], [])
    )
    if not rows:
        sys.exit(f"{path}: no table under a heading that starts with {cluster.heading!r}")
    for column in cluster.columns:
        for cells in rows:
            time_us = re.match(r"[0-9.]+", cells[header.index(column.name)])
            if time_us:
                yield column, int(cells[header.index(cluster.size)]), float(time_us[0])


def predicted_us(cluster: Cluster, column: Column, size_bytes: int) -> float:
    """Return the twin's time of one operation, in us."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "bench.json"
        size = str(size_bytes * column.parts)
        line = [
            sys.executable, "-m", "genie", "bench", column.operation, "--simulate", "--wire", "nccl",
            "--fabric", str(FABRICS / f"{cluster.name}.toml"), "-b", size, "-e", size,
            "-n", "1", "-w", "0", "--level", "flow", "--json", str(out),
            *(("--nccl", cluster.version) if cluster.version else ()),
        ]  # fmt: skip
        environment = {key: value for key, value in os.environ.items() if not key.startswith("NCCL_")}
        run = subprocess.run(
            line, capture_output=True, text=True, timeout=LIMIT_S, env=environment | column.variables, check=False
        )
        if run.returncode:
            raise RuntimeError(f"{' '.join(line)}: {run.stderr.strip().splitlines()[-1]}")
        [result] = json.loads(out.read_text())["results"]
        return float(result["out_of_place"]["time"])


def named_rows() -> set[str]:
    """Rows that have set a constant: they are shown, and are no test of a prediction."""
    constants = tomllib.loads((ROOT / "genie/collectives/nccl/tuning.toml").read_text())
    return {row for found in constants["measured"].values() for row in found["rows"]}


def summary(rows: list[Row]) -> list[str]:
    """Median and 90th percentile of the absolute errors, of all rows and by size class."""
    lines = []
    for name, least, most in (("all", 0, 1 << 50), *CLASSES):
        errors = [abs(row.error) for row in rows if least <= row.size_bytes <= most]
        if errors:
            high = float(np.quantile(errors, 0.9))
            lines.append(f"{name:16} {len(errors):4} rows   median {median(errors):6.1%}   p90 {high:6.1%}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = tuple(cluster.name for cluster in CLUSTERS)
    parser.add_argument(
        "--clusters", type=some_of(names), default=names, metavar="NAME[,…]", help="of: " + ", ".join(names)
    )
    add_json(parser)
    given = parser.parse_args()
    data = shared_data("hardware")
    rows: list[Row] = []
    named = named_rows()
    print(
        f"{'cluster':10} {'operation':14} {'algorithm':9} {'bytes':>12} {'measured us':>12} {'predicted us':>12} "
        f"{'error':>8}"
    )
    for cluster in CLUSTERS:
        if cluster.name not in given.clusters:
            continue
        for column, size_bytes, time_us in measured(cluster, data):
            row = Row(
                cluster.name, column.operation, column.label or "chosen", size_bytes, time_us,
                predicted_us(cluster, column, size_bytes),
            )  # fmt: skip
            rows.append(row)
            print(
                f"{row.cluster:10} {row.operation:14} {row.label:9} {row.size_bytes:12} {row.measured_us:12.1f} "
                f"{row.predicted_us:12.1f} {row.error:+8.1%}{'  set a constant' if row.name in named else ''}",
                flush=True,
            )
    judged = [row for row in rows if row.name not in named and row.operation == "all_reduce"]
    print(f"\nabsolute errors of the {len(judged)} all-reduces that have set no constant:")
    print(*summary(judged), sep="\n")
    if given.json:
        table = [asdict(row) | {"error": row.error} for row in rows]
        given.json.write_text(json.dumps({"machine": machine(), "rows": table}, indent=1))


if __name__ == "__main__":
    main()
