"""Step times of published training jobs: generated, played by the twin, and held beside what was measured.

    python benchmarks/step_times.py                              all rows
    python benchmarks/step_times.py --publications korthikanti   the rows of one publication
    python benchmarks/step_times.py --fit                        fit the efficiencies again, and print them

The measurements are tables in the shared data (GENIE_SHARED_DATA, or ../shared/data beside the checkout), each with its
source. Compute times are those of `genie generate` from the data sheet of the GPU. Factors that were fitted stand in
`benchmarks/hardware/step_times.toml` with the rows that set them; these rows do not count. A job plays at level
analytic with `--gpu`. All servers share a leaf of each rail. The time of a long step on many GPUs comes from two steps
with fewer micro-batches, over which it grows on a straight line. Errors are predicted / measured - 1.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import tempfile
import tomllib
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import Any

import msgspec
from common.arguments import add_json, some_of
from common.published import shared_data
from common.step_times_rows import PUBLICATIONS, LeftOut, Row, rows_of
from common.validation import machine

import simtwin
from genie.compute.gpus import find_gpu
from genie.generate.training_job import TrainingJob
from simtwin.sweep.communication import communication_of
from simtwin.sweep.training_job import step_of_job

ROOT = Path(__file__).resolve().parents[1]
EFFICIENCIES = ROOT / "benchmarks/hardware/step_times.toml"
NIC_GBPS = {"a100": 200, "h100": 400, "b200": 400}  # of a GPU, of the DGX systems; 8 GPUs a server
REFERENCE_GPUS = 8  # compute scales are those of the slowest of so many GPUs
NODES_MAX = 12_000_000  # of all ranks; a step with more is extrapolated
FIT_ROUNDS = 6
WITHIN, LOSS_WITHIN = 0.15, 0.015


@dataclass(frozen=True)
class Played:
    """A step of a job: its time, and the share in which a rank computes nothing and waits for the network."""

    step_s: float
    exposed: float


@dataclass(frozen=True)
class Result:
    """A row and its prediction."""

    row: Row
    predicted_s: float
    exposed: float
    has_set: bool  # a fitted factor: the row does not count

    @property
    def error(self) -> float:
        return self.predicted_s / self.row.measured_s - 1


class Efficiencies:
    """The fitted factors, each with the rows that set it."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, Any]] = tomllib.loads(EFFICIENCIES.read_text(encoding="utf-8"))

    def scale(self, row: Row, *, with_spread: bool = True) -> float:
        """Return the factor of a row's compute times: of its framework, and of the slowest of its GPUs."""
        scale = float(self.tables[row.efficiency]["compute_scale"]) if row.efficiency else 1.0
        return scale * (slowest(self.spread(row.job.gpu), row.job.gpus) if with_spread else 1.0)

    def spread(self, gpu: str) -> float:
        """Return the standard deviation of the times of GPUs of a kind; 0 where no row has set it."""
        return float(self.tables.get(f"spread-{gpu}", {}).get("spread", 0.0))

    def has_set(self, row: Row) -> bool:
        return any(row.name in table["rows"] for table in self.tables.values())


def slowest(spread: float, gpus: int) -> float:
    """Return the expected time of the slowest of normally spread GPUs over that of the slowest of REFERENCE_GPUS."""
    return (1 + spread * largest(gpus)) / (1 + spread * largest(REFERENCE_GPUS))


def largest(count: int) -> float:
    """Return the expected largest of so many standard normal variates (Blom 1958)."""
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25))


def fabric_of(job: TrainingJob) -> simtwin.Fabric:
    """Return servers of 8 GPUs on rails, with the link of the GPU's data sheet inside."""
    servers = -(-job.gpus // 8)
    return simtwin.Fabric.make(
        name=f"{job.gpu}-{servers}",
        topology={
            "kind": "rail-optimized", "servers": servers, "rails": 8, "servers_per_leaf": servers, "spines": 1,
            "domain": {"rate": f"{find_gpu(job.gpu).link_gb_per_s * 8:.0f}Gb/s", "delay": "500ns", "pxn": True},
        },
        link={"rate": f"{NIC_GBPS[job.gpu]}Gb/s", "delay": "600ns"},
        server={"gpu": job.gpu},
    )  # fmt: skip


@cache
def played(job: TrainingJob, whole: bool = False) -> Played:
    """Generate a job and play a step."""
    assert job.micro_batches is not None
    first, second = 2 * job.pp, 3 * job.pp
    if not whole and job.pp > 1 and job.micro_batches > second and nodes_of(job) > NODES_MAX:
        short, long = (played(msgspec.structs.replace(job, micro_batches=each), True) for each in (first, second))
        reach = (job.micro_batches - second) / (second - first)
        step_s = long.step_s + reach * (long.step_s - short.step_s)
        exposed_s = long.exposed * long.step_s + reach * (long.exposed * long.step_s - short.exposed * short.step_s)
        return Played(step_s, exposed_s / step_s)
    workload = step_of_job(job).workload(Path(job.model).stem)
    with contextlib.redirect_stderr(io.StringIO()):  # warnings of level analytic, alike for all rows
        run = simtwin.simulate(fabric_of(job), workload, level="analytic", wire="nccl")
    waited_s = communication_of(run)["exposed_s"]
    assert waited_s is not None
    return Played(run.completion_s, waited_s / run.completion_s)


def nodes_of(job: TrainingJob) -> int:
    """Return the nodes of all ranks, from the nodes of the first."""
    assert job.micro_batches is not None
    short = msgspec.structs.replace(job, micro_batches=job.pp)
    graph, _ = step_of_job(short).graph(0)
    return len(graph.kind) * job.gpus * job.micro_batches // job.pp


def scaled(job: TrainingJob, scale: float) -> TrainingJob:
    return msgspec.structs.replace(job, compute_scale=scale)


def scale_that_fits(row: Row) -> float:
    """Return the factor of compute times with which the prediction is what was measured."""
    scale = 1.0
    for _ in range(FIT_ROUNDS):
        scale *= row.measured_s / played(scaled(row.job, scale)).step_s
    return scale


def fit(rows: dict[str, Row], efficiencies: Efficiencies) -> None:
    """Print each factor as its named rows set it: the scales first, as the spread depends on them."""
    scales: dict[str, float] = {}
    for name, table in efficiencies.tables.items():
        if "compute_scale" in table:
            [row] = table["rows"]
            scales[name] = scale_that_fits(rows[row])
            print(f"[{name}]\ncompute_scale = {scales[name]:.4f}", flush=True)
    for name, table in efficiencies.tables.items():
        if "spread" in table:
            row = rows[table["rows"][-1]]
            factor = scale_that_fits(row) / scales[row.efficiency]
            spread = (factor - 1) / (largest(row.job.gpus) - factor * largest(REFERENCE_GPUS))
            print(f"[{name}]\nspread = {spread:.4f}", flush=True)


def predicted(row: Row, efficiencies: Efficiencies, known: dict[str, dict[str, Any]]) -> Result:
    """Return the row with its prediction, or that of an earlier run of the same job."""
    job = scaled(row.job, efficiencies.scale(row))
    key = words_of(job)
    if key not in known:
        known[key] = asdict(played(job))
    return Result(row, known[key]["step_s"], known[key]["exposed"], efficiencies.has_set(row))


def words_of(job: TrainingJob) -> str:
    """Return all that decides a step, without the folder of the model's configuration."""
    return f"{msgspec.structs.replace(job, model=Path(job.model).stem)!r} on {fabric_of(job).topology!r}"


def losses(results: dict[str, Result], efficiencies: Efficiencies) -> list[dict[str, Any]]:
    """The throughput that 128 GPUs of torchtitan lose against 8: measured, predicted, and without spread of GPUs."""
    found = []
    for mode in ("eager", "compile", "fp8"):
        few, many = (results.get(f"torchtitan 8B {gpus} GPUs {mode}") for gpus in (8, 128))
        if few is None or many is None:
            continue
        steps = [played(scaled(each.row.job, efficiencies.scale(each.row, with_spread=False))) for each in (few, many)]
        found.append({
            "mode": mode,
            "measured": 1 - few.row.measured_s / many.row.measured_s,
            "predicted": 1 - few.predicted_s / many.predicted_s,
            "network_alone": 1 - steps[0].step_s / steps[1].step_s,
            "has_set": many.has_set,
        })  # fmt: skip
    return found


def show(result: Result) -> None:
    row, note = result.row, "  set a factor" if result.has_set else ""
    print(
        f"{row.name:46} {row.measured_s:10.3f} {result.predicted_s:10.3f} {result.error:+8.1%} {result.exposed:8.1%}"
        f"  {row.open or '-'}{note}",
        flush=True,
    )


def summary(results: list[Result], lost: list[dict[str, Any]], efficiencies: Efficiencies, left: list[LeftOut]) -> None:
    """Print the efficiencies, the targets, and the rows that were left out."""
    print("\nfactors that were fitted, and the rows that set them:")
    for name, table in efficiencies.tables.items():
        value = ", ".join(f"{key} {given:g}" for key, given in table.items() if key != "rows")
        print(f"  {name:20} {value:24} {'; '.join(table['rows'])}")
    judged = [each for each in results if each.row.publication == "korthikanti" and not each.has_set]
    if judged:
        met = sum(abs(each.error) <= WITHIN for each in judged)
        print(f"\nKorthikanti et al.: {met} of {len(judged)} step times within {WITHIN:.0%}")
    for loss in lost:
        off = loss["predicted"] - loss["measured"]
        judgement = "set a factor" if loss["has_set"] else "within" if abs(off) <= LOSS_WITHIN else "not within"
        print(
            f"torchtitan {loss['mode']}: 8 to 128 GPUs lose {loss['measured']:.1%}, predicted {loss['predicted']:.1%} "
            f"({judgement}{'' if loss['has_set'] else ' 1.5 points'}); without the spread of GPUs "
            f"{loss['network_alone']:.1%}"
        )
    reasons = dict.fromkeys(each.reason for each in left)
    if reasons:
        print("\nrows that are not played:")
    for reason in reasons:
        print(f"  {reason}:")
        print(*(f"    {each.name}" for each in left if each.reason == reason), sep="\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--publications", type=some_of(PUBLICATIONS), default=PUBLICATIONS, metavar="NAME[,…]",
        help="of: " + ", ".join(PUBLICATIONS),
    )  # fmt: skip
    parser.add_argument("--fit", action="store_true", help="fit the factors again, print them, and play nothing else")
    parser.add_argument("--resume", action="store_true", help="take the jobs that the file of --json has")
    add_json(parser)
    given = parser.parse_args()
    if given.resume and given.json is None:
        parser.error("--resume: give --json FILE with it, the file to go on with")
    data = shared_data("hardware")
    efficiencies = Efficiencies()
    with tempfile.TemporaryDirectory() as folder:
        rows, left = rows_of(data / "hardware", Path(folder), PUBLICATIONS if given.fit else given.publications)
        if given.fit:
            fit({row.name: row for row in rows}, efficiencies)
            return
        known: dict[str, dict[str, Any]] = {}
        if given.resume and given.json.exists():
            known = json.loads(given.json.read_text())["jobs"]
        print(f"{'row':46} {'measured s':>10} {'predicted':>10} {'error':>8} {'exposed':>8}  open, and played here")
        results: list[Result] = []
        for row in rows:
            results.append(predicted(row, efficiencies, known))
            show(results[-1])
            write(given.json, results, known, [], left)
        lost = losses({each.row.name: each for each in results}, efficiencies)
        summary(results, lost, efficiencies, left)
        write(given.json, results, known, lost, left)


def write(
    path: Path | None, results: list[Result], known: dict[str, Any], lost: list[dict[str, Any]], left: list[LeftOut]
) -> None:
    """Write what there is, so that a run that ends early can go on."""
    if path is None:
        return
    rows = [
        {
            "name": each.row.name, "measured_s": each.row.measured_s, "predicted_s": each.predicted_s,
            "error": each.error, "exposed": each.exposed, "open": each.row.open, "set_a_factor": each.has_set,
        }
        for each in results
    ]  # fmt: skip
    found = {"machine": machine(), "rows": rows, "losses": lost, "left_out": [asdict(each) for each in left]}
    path.write_text(json.dumps(found | {"jobs": known}, indent=1))


if __name__ == "__main__":
    main()
