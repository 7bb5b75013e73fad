"""Collectives of published clusters: predicted by the twin beside what was measured.

    python benchmarks/hardware.py                      all rows; some minutes
    python benchmarks/hardware.py --clusters mn5-4     one cluster
    python benchmarks/hardware.py --page curves.html   and a page of measured and predicted curves
    python benchmarks/hardware.py --what-if network_us=20%
                                                       by how much a constant moves each row
    python benchmarks/hardware.py --list-constants     names for --what-if

The measurements are tables in the shared data (GENIE_SHARED_DATA, or ../shared/data beside the checkout), each with its
source. The fabric of a cluster is `benchmarks/hardware/CLUSTER.toml`. A prediction is a simulation at level flow with
the cluster's NCCL variables. Errors are predicted / measured - 1. The rows that have set a constant are named in
genie/collectives/nccl/tuning.toml, and the summary of errors leaves them out.

Some publications leave the network open, or use another library than NCCL. Their curves are shown as shapes: the time
of each size over that of the largest one, predicted over measured.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import polars as pl
from common.arguments import add_json, results_file, some_of
from common.curves import Curve, Part, Point, page
from common.published import shared_data, tables
from common.validation import machine

import simtwin
from genie.collectives.nccl.shape import choose_nccl
from genie.collectives.nccl.tuning import constants

ROOT = Path(__file__).resolve().parents[1]
FABRICS = ROOT / "benchmarks/hardware"
PERCENT = re.compile(r"([a-z0-9_.]+)=(?:±|\+-)?([0-9]{1,2}(?:\.[0-9]+)?)%")
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
    shape: str = ""  # why only the curve's shape can be predicted; "": its times can be


FORCED = tuple(Column(name, "all_reduce", name, {"NCCL_ALGO": name.capitalize()}) for name in ("ring", "tree"))
SPARK_COLUMNS = (
    ("all_reduce", "", 1), ("all_gather", " (output = n x)", 2), ("reduce_scatter", " (input = n x)", 2),
)  # fmt: skip
SPARK = {"NCCL_MAX_NCHANNELS": "8", "NCCL_BUFFSIZE": "1048576", "NCCL_PROTO": "^LL128"}
CHOSEN = (Column("us", "all_reduce", ""),)
MN5 = "mn5-h100-allreduce-by-algorithm.md"
CLUSTERS = (
    Cluster("mn5-4", MN5, "4 nodes", "size", FORCED, "2.19"),
    Cluster("mn5-16", MN5, "16 nodes", "size", FORCED, "2.19"),
    Cluster("spark2", "spark2-pair-nccl2307.md", "", "bytes/rank",
            tuple(Column(f"{name} us{shown}", name, "", SPARK, parts) for name, shown, parts in SPARK_COLUMNS)),
    Cluster("oci-h100", "oci-h100-2n-allreduce.md", "", "bytes", CHOSEN, "2.23"),
    Cluster("oke-mi300x", "oci-oke-mi300x-2n-allreduce.md", "", "bytes", CHOSEN,
            shape="RCCL on MI300X, whose costs are not known: GPUs take no time here"),
    Cluster("coreweave-32", "coreweave-a100-32g-2022.md", "", "bytes", CHOSEN, "2.19",
            "NCCL 2.12, and an unknown number of network cards"),
    Cluster("coreweave-128", "coreweave-a100-128g-2022.md", "", "bytes", CHOSEN, "2.19",
            "NCCL of 2022, and an unknown number of network cards"),
    Cluster("aws-p4de", "aws-p4de-2n-allreduce.md", "", "bytes", CHOSEN, "2.19",
            "SRD in place of RoCE; NCCL version not stated"),
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


@contextmanager
def variables_of(column: Column) -> Iterator[None]:
    """The column's NCCL variables, and no others."""
    before = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("NCCL_")}
    os.environ.update(column.variables)
    try:
        yield
    finally:
        for name in column.variables:
            del os.environ[name]
        os.environ.update(before)


def predicted_us(cluster: Cluster, column: Column, size_bytes: int) -> float:
    """Return the twin's time of one operation in us: the mean of all ranks, as nccl-tests has it."""
    fabric = simtwin.Fabric.load(FABRICS / f"{cluster.name}.toml")
    workload = simtwin.collective(fabric, column.operation, size_bytes * column.parts)
    options: dict[str, Any] = {"level": "flow", "wire": "nccl", "nccl": cluster.version or None}
    if fabric.server is None:
        options |= {"gpu": "none", "nccl": None}
    with variables_of(column):
        played = simtwin.simulate(fabric, workload, **options).timeline.filter(pl.col("kind") == "coll")
    return float((played["end_ns"] - played["start_ns"]).mean()) / 1e3  # type: ignore[arg-type]


def named_rows() -> set[str]:
    """Rows that have set a constant: they are shown, and are no test of a prediction."""
    return {row for found in constants()["measured"].values() for row in found["rows"]}


def numbers_of(table: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any], str]]:
    """(dotted name, table, key) of each number or list of numbers in the file of constants."""
    for name, value in table.items():
        dotted = f"{path}.{name}".lstrip(".")
        if isinstance(value, dict):
            yield from numbers_of(value, dotted)
        elif name != "rows" and isinstance(value, float | int | list) and not isinstance(value, bool):
            yield dotted, table, name


def is_part(name: str, dotted: str) -> bool:
    """Whether all of a name's words stand in a dotted name, one after another."""
    return f".{name}." in f".{dotted}."


def scaled(value: Any, factor: float) -> Any:
    """A number, or all numbers in lists of them, times the factor."""
    return [scaled(each, factor) for each in value] if isinstance(value, list) else value * factor


@contextmanager
def with_constant(name: str, factor: float) -> Iterator[None]:
    """All constants of this name times the factor."""
    changed = [(table, key, table[key]) for dotted, table, key in numbers_of(constants()) if is_part(name, dotted)]
    for table, key, value in changed:
        table[key] = scaled(value, factor)
    choose_nccl.cache_clear()
    try:
        yield
    finally:
        for table, key, value in changed:
            table[key] = value
        choose_nccl.cache_clear()


def change(text: str) -> tuple[str, float]:
    """Parser of CONSTANT=PERCENT%."""
    match = PERCENT.fullmatch(text)
    if match is None or not 0 < float(match[2]) < 100:
        raise argparse.ArgumentTypeError(f"{text}: give CONSTANT=PERCENT%, such as network_us=20%")
    if not any(is_part(match[1], dotted) for dotted, _, _ in numbers_of(constants())):
        raise argparse.ArgumentTypeError(f"{match[1]}: is no constant: --list-constants lists them")
    return match[1], float(match[2]) / 100


def summary(rows: list[Row]) -> list[str]:
    """Median and 90th percentile of the absolute errors, of all rows and by size class."""
    lines = []
    for name, least, most in (("all", 0, 1 << 50), *CLASSES):
        errors = [abs(row.error) for row in rows if least <= row.size_bytes <= most]
        if errors:
            high = float(np.quantile(errors, 0.9))
            lines.append(f"{name:16} {len(errors):4} rows   median {median(errors):6.1%}   p90 {high:6.1%}")
    return lines


def shape_errors(rows: list[Row]) -> list[float]:
    """Errors of the shape of a curve: of each row's time over that of the largest size."""
    largest = max(rows, key=lambda row: row.size_bytes)
    return [(1 + row.error) / (1 + largest.error) - 1 for row in rows if row is not largest]


def print_what_if(cluster: Cluster, row: Row, column: Column, name: str, share: float) -> None:
    """A row's line, with the moves of its prediction under a change of a constant."""
    moves = []
    for factor in (1 - share, 1 + share):
        with with_constant(name, factor):
            moves.append(predicted_us(cluster, column, row.size_bytes) / row.predicted_us - 1)
    print(
        f"{row.cluster:13} {row.operation:14} {row.label:9} {row.size_bytes:12} {row.predicted_us:12.1f} "
        f"{moves[0]:+9.1%} {moves[1]:+9.1%}",
        flush=True,
    )


def part_of(cluster: Cluster, rows: list[Row], named: set[str]) -> Part:
    """The section of a cluster in the page of curves."""
    labels = dict.fromkeys((row.operation, row.label) for row in rows)
    curves = [
        Curve(
            f"{operation}, {label}",
            tuple(
                Point(row.size_bytes, row.measured_us, row.predicted_us, row.name in named)
                for row in sorted(rows, key=lambda row: row.size_bytes)
                if (row.operation, row.label) == (operation, label)
            ),
        )
        for operation, label in labels
    ]
    count = sum(row.name in named for row in rows)
    set_by = f"{count} of {len(rows)} rows have set a constant" if count else "no row has set a constant"
    why = f"{cluster.file}; " + (f"as a shape only: {cluster.shape}." if cluster.shape else f"{set_by}.")
    return Part(cluster.name, why, tuple(curves))


def print_summaries(rows: list[Row], named: set[str]) -> list[str]:
    """Print the errors of all-reduces, and of shapes; return the lines of the former."""
    shapes = {cluster.name: cluster.shape for cluster in CLUSTERS if cluster.shape}
    judged = [
        row for row in rows if row.name not in named and row.operation == "all_reduce" and row.cluster not in shapes
    ]
    lines = [f"absolute errors of the {len(judged)} all-reduces that have set no constant:", *summary(judged)]
    if judged:
        print("", *lines, sep="\n")
    for name, why in shapes.items():
        if own := [row for row in rows if row.cluster == name]:
            errors = shape_errors(own)
            print(f"{name}, shape only ({why}): median {median(map(abs, errors)):.0%}, {min(errors):+.0%} to "
                  f"{max(errors):+.0%}")  # fmt: skip
    return lines if judged else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = tuple(cluster.name for cluster in CLUSTERS)
    parser.add_argument(
        "--clusters", type=some_of(names), default=names, metavar="NAME[,…]", help="of: " + ", ".join(names)
    )
    parser.add_argument("--what-if", type=change, metavar="CONSTANT=PERCENT%", help="change a constant both ways")
    parser.add_argument("--list-constants", action="store_true", help="list the names for --what-if, and end")
    parser.add_argument("--page", type=results_file, metavar="FILE", help="write the curves as an HTML page")
    add_json(parser)
    given = parser.parse_args()
    if given.list_constants:
        print(*(dotted for dotted, _, _ in numbers_of(constants())), sep="\n")
        return
    data = shared_data("hardware")
    rows: list[Row] = []
    parts: list[Part] = []
    named = named_rows()
    start = f"{'cluster':13} {'operation':14} {'algorithm':9} {'bytes':>12}"
    if given.what_if:
        name, share = given.what_if
        print(f"{name}: by how much predictions move\n{start} {'predicted us':>12} {-share:>+9.0%} {share:>+9.0%}")
    else:
        print(f"{start} {'measured us':>12} {'predicted us':>12} {'error':>8}")
    for cluster in (each for each in CLUSTERS if each.name in given.clusters):
        first = len(rows)
        for column, size_bytes, time_us in measured(cluster, data):
            row = Row(
                cluster.name, column.operation, column.label or "chosen", size_bytes, time_us,
                predicted_us(cluster, column, size_bytes),
            )  # fmt: skip
            rows.append(row)
            if given.what_if:
                print_what_if(cluster, row, column, *given.what_if)
                continue
            print(
                f"{row.cluster:13} {row.operation:14} {row.label:9} {row.size_bytes:12} {row.measured_us:12.1f} "
                f"{row.predicted_us:12.1f} {row.error:+8.1%}{'  set a constant' if row.name in named else ''}",
                flush=True,
            )
        parts.append(part_of(cluster, rows[first:], named))
    lines = [] if given.what_if else print_summaries(rows, named)
    if given.page:
        given.page.write_text(page("Collectives of published clusters, measured and predicted", lines, parts))
    if given.json:
        table = [asdict(row) | {"error": row.error} for row in rows]
        given.json.write_text(json.dumps({"machine": machine(), "rows": table}, indent=1))


if __name__ == "__main__":
    main()
