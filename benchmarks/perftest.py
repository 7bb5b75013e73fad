"""perftest's figures of published NICs: predicted by the twin beside what was measured.

    python benchmarks/perftest.py                   all rows; a minute
    python benchmarks/perftest.py --nics cx5-100g   one NIC

The fabric of a NIC is `benchmarks/hardware/NIC.toml`; it says where its values come from. A row of one flow is
predicted by `genie bench write --simulate` or `genie bench pingpong --simulate`. Rows of several flows are the same
streams at one time. A row that has set a value is shown, and does not count. A row with a limit is
judged; all other rows are shown only. Errors are predicted / measured - 1, of a share in percentage points.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from common.arguments import add_json, some_of
from common.validation import machine

from genie.bench.streams import bandwidth_in, streams
from simtwin import simulate

ROOT = Path(__file__).resolve().parents[1]
FABRICS = ROOT / "benchmarks/hardware"
LIMIT_S = 600.0
LOST = "shown: the lone flow loses packets in the measurement"
NEAR = "shown: near the rate of the lone flow that loses packets"
DEPTH_MAX = 128  # perftest's own


@dataclass(frozen=True)
class Row:
    """One published figure and how the twin predicts it.

    `limit`: of the absolute error, for a row that is judged. `note`: why a row is not judged.
    """

    nic: str
    name: str
    measured: float
    unit: str
    predict: Callable[[], float]
    limit: float | None = None
    note: str = ""

    @property
    def in_points(self) -> bool:
        return self.unit == "%"

    def error(self, predicted: float) -> float:
        return (predicted - self.measured) / 100 if self.in_points else predicted / self.measured - 1


@cache
def bench(nic: str, *words: str) -> dict[str, float]:
    """The line of one size of a bench of one path in the twin, as its JSON has it."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "bench.json"
        fabric = str(FABRICS / f"{nic}.toml")
        line = [sys.executable, "-m", "genie", "bench", *words, "--simulate", "--fabric", fabric, "--json", str(out)]
        run = subprocess.run(line, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        if run.returncode:
            raise RuntimeError(f"{' '.join(line)}: {run.stderr.strip().splitlines()[-1]}")
        [found] = json.loads(out.read_text())["lines"]
        return dict(found)


def write_gbps(
    nic: str, size_bytes: int, count: int, *, depth: int = DEPTH_MAX, queue_pairs: int = 1, more: Sequence[str] = ()
) -> float:
    """Average bandwidth of one stream, in Gb/s."""
    words = ("-s", str(size_bytes), "-n", str(count), "-t", str(depth), "-q", str(queue_pairs), *more)
    return bench(nic, "write", *words)["average_bytes_per_s"] * 8e-9


def flows_gbps(
    nic: str,
    flows: Sequence[tuple[int, int]],
    size_bytes: int,
    count: int,
    *,
    queue_pairs: int = 1,
    hosts: Sequence[str] = (),
) -> list[float]:
    """Average bandwidth of each of several streams at once, in Gb/s. `hosts`: of the ranks; by default in order."""
    workload = streams(flows, size_bytes, count, DEPTH_MAX * queue_pairs)
    run = simulate(FABRICS / f"{nic}.toml", workload, queue_pairs=queue_pairs, split=False, hosts=hosts)
    return [bandwidth_in(run.transfers, flow, queue_pairs).average_bytes_per_s * 8e-9 for flow in flows]


def cx5() -> list[Row]:
    """ConnectX-5 Ex: openfabric-systems/simllm, PR 189, 190, 192 and 194."""
    nic, kib, mib = "cx5-100g", 1 << 10, 1 << 20

    def alone(size_bytes: int, depth: int = 1, count: int = 50, mtu: int = 4096) -> float:
        return write_gbps(nic, size_bytes, count, depth=depth, more=("--mtu", str(mtu)))

    def swept(size_bytes: int, measured: float, limit: float | None = 0.05, note: str = "") -> Row:
        return Row(nic, f"WRITE of {size_bytes} B, depth 1", measured, "Gb/s", lambda: alone(size_bytes), limit, note)

    def gain(size_bytes: int) -> float:
        return alone(size_bytes, 16, 500) / alone(size_bytes)

    def tax() -> float:
        full, short = (alone(mib, 16, 100, mtu) for mtu in (4096, 1024))
        return 100 * (1 - short / full)

    @cache
    def fan_out() -> list[float]:
        return flows_gbps(nic, [(0, 1), (0, 2)], mib, 100)

    @cache
    def ring() -> list[float]:
        return flows_gbps(nic, [(0, 1), (1, 2), (2, 3), (3, 0)], mib, 100)

    def fan_in_mpps() -> float:
        return sum(flows_gbps(nic, [(0, 2), (1, 2)], 512, 4000, queue_pairs=4)) * 1e3 / (8 * 512)

    return [
        swept(4 * kib, 7.04, None, "sets packet_latency"),
        swept(16 * kib, 21.95),
        swept(64 * kib, 49.63),
        swept(256 * kib, 79.23, None, "sets prefetch"),
        swept(mib, 73.95, None, LOST),
        swept(4 * mib, 77.03, None, LOST),
        Row(nic, "MTU 1024 instead of 4096, 1 MiB", 5.66, "%", tax, 0.01),
        Row(nic, "fan-out to 2 hosts", 97.83, "Gb/s", lambda: sum(fan_out()), 0.01),
        Row(nic, "fan-out, share of the first", 50.0, "%", lambda: 100 * fan_out()[0] / sum(fan_out()), 0.01),
        Row(nic, "ring of 4 hosts, all ports", 391.94, "Gb/s", lambda: sum(ring()), 0.01),
        Row(nic, "ring of 4 hosts, slowest port", 97.98, "Gb/s", lambda: min(ring()), 0.01),
        Row(nic, "WRITE of 1 KiB, one queue pair", 3.87, "Mmsg/s", lambda: alone(kib, DEPTH_MAX, 5000) * 1e3 / 8192,
            None, "sets message_time"),
        Row(nic, "512 B from 2 hosts to one, 4 queue pairs each", 20.5, "Mmsg/s", fan_in_mpps, None,
            "shown: the number of queue pairs is not published"),
        Row(nic, "8 KiB, depth 16 / depth 1", 5.9, "x", lambda: gain(8 * kib), None, NEAR),
        Row(nic, "64 KiB, depth 16 / depth 1", 1.573, "x", lambda: gain(64 * kib), None, NEAR),
        Row(nic, "WRITE latency of 2 B", 2.08, "us",
            lambda: bench(nic, "pingpong", "-s", "2", "-n", "50")["typical_us"], None,
            "shown: the source does not say what it crosses"),
    ]  # fmt: skip


def cx7() -> list[Row]:
    """ConnectX-7: capetron/gb10-cluster-guide. A direct cable is played through a switch, which changes no rate."""
    nic, size_bytes, mib = "cx7-200g", 65536, 1 << 20
    note = "shown: the payload of PCIe's packets is an assumption"

    @cache
    def halves() -> list[float]:
        return flows_gbps(
            nic, [(0, 2), (1, 3)], mib, 100, queue_pairs=8, hosts=("node1a", "node1b", "node2a", "node2b")
        )

    @cache
    def pairs() -> list[float]:
        hosts = ("node1a", "node2a", "node3a", "node4a", "node5a", "node6a")
        return flows_gbps(nic, [(0, 1), (2, 3), (4, 5)], size_bytes, 1000, hosts=hosts)

    return [
        Row(nic, "one half, 1 MiB, 8 queue pairs", 111.86, "Gb/s",
            lambda: write_gbps(nic, mib, 200, queue_pairs=8, more=("--ends", "0,2")), None, note),
        Row(nic, "both halves, 1 MiB, 8 queue pairs", 196.08, "Gb/s", lambda: sum(halves()), None,
            "shown: nothing but the port's rate limits it"),
        Row(nic, "one half, 64 KiB", 109.11, "Gb/s",
            lambda: write_gbps(nic, size_bytes, 1000, more=("--ends", "8,10")), None, note),
        Row(nic, "three pairs within switches", 327.80, "Gb/s", lambda: sum(pairs()), None, note),
        Row(nic, "one flow between the switches", 109.08, "Gb/s",
            lambda: write_gbps(nic, size_bytes, 1000, more=("--ends", "0,8")), None, note),
    ]  # fmt: skip


NICS = {"cx5-100g": cx5, "cx7-200g": cx7}


def judgement(row: Row, predicted: float) -> str:
    """The words beside a row: its limit and whether the error keeps it, or why it does not count."""
    if row.limit is None:
        return row.note
    kept = "within" if abs(row.error(predicted)) <= row.limit else "MISSES"
    return f"{kept} {row.limit:.0%}" + (" point" if row.in_points else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--nics", type=some_of(tuple(NICS)), default=tuple(NICS), metavar="NAME[,…]", help="of: " + ", ".join(NICS)
    )
    add_json(parser)
    given = parser.parse_args()
    print(f"{'NIC':9} {'row':46} {'measured':>9} {'predicted':>9} {'unit':6} {'error':>7}")
    table = []
    for row in (row for nic in given.nics for row in NICS[nic]()):
        predicted = row.predict()
        words = judgement(row, predicted)
        print(
            f"{row.nic:9} {row.name:46} {row.measured:9.2f} {predicted:9.2f} {row.unit:6} {row.error(predicted):+7.1%}"
            f"  {words}",
            flush=True,
        )
        table.append({
            "nic": row.nic, "row": row.name, "measured": row.measured, "predicted": predicted, "unit": row.unit,
            "error": row.error(predicted), "limit": row.limit, "note": row.note,
        })  # fmt: skip
    judged = [each for each in table if each["limit"] is not None]
    kept = sum(abs(float(each["error"])) <= float(each["limit"]) for each in judged)  # type: ignore[arg-type]
    print(f"\n{kept} of {len(judged)} judged rows are within their limits; they have set no value")
    if given.json:
        given.json.write_text(json.dumps({"machine": machine(), "rows": table}, indent=1))


if __name__ == "__main__":
    main()
