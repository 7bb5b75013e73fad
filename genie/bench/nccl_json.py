"""nccl-tests' JSON, version 3: the same keys in the same places; fields that only Genie has are under `genie`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from genie.bench.asked import Asked, Blocking
from genie.bench.collectives import Operation
from genie.bench.measured import Measured, MessageTimes
from genie.bench.nccl_table import GIGA, average_bus_bytes_per_s, is_fast_enough, wrong_bytes

JSON_VERSION = 3
# The environment may contain secrets: only variables of launchers and NCCL are recorded.
ENVIRONMENT_KEPT = ("NCCL_", "GENIE_", "OMPI_MCA_", "HYDRA_", "MPIR_", "UCX_", "SLURM_JOB_")


@dataclass(frozen=True)
class Device:
    """The device of a rank."""

    rank: int
    host: str
    number: int  # of the rank among the ranks of its host
    address: str  # IP address, or the RDMA device
    what: str  # description


@dataclass(frozen=True)
class Circumstances:
    """Command, place and time of a bench."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    started: str
    ended: str
    devices: Sequence[Device]
    minimum_gb_per_s: float | None = None
    errors: Sequence[str] = ()


def report(
    asked: Asked, results: Sequence[tuple[Operation, Measured]], about: Circumstances, ours: dict[str, Any]
) -> dict[str, Any]:
    """The file's object. `results`: the table's lines; `ours`: fields under `genie`, besides those of the lines."""
    lines = [line for _, line in results]
    wrong, fast = wrong_bytes(lines), is_fast_enough(lines, about.minimum_gb_per_s)
    return {
        "version": JSON_VERSION,
        "start_time": about.started,
        "args": list(about.arguments),
        "env": [
            f"{name}={value}" for name, value in about.environment.items() if name.startswith(ENVIRONMENT_KEPT)
        ],
        "nccl_version": None,  # NCCL is not used
        "config": config_of(asked, about.devices),
        "results": [result(operation, asked, line) for operation, line in results],
        "out_of_bounds": {"count": wrong, "okay": _word(wrong == 0)},
        "average_bus_bandwidth": {
            "bandwidth": average_bus_bytes_per_s(lines) / GIGA,
            "okay": "unchecked" if fast is None else _word(fast),
        },
        "errors": list(about.errors),
        "end_time": about.ended,
        "genie": {**ours, "lines": [extras(line) for line in lines]},
    }  # fmt: skip


def _word(value: bool) -> str:
    """A Boolean as a string, as nccl-tests writes it."""
    return "true" if value else "false"


def config_of(asked: Asked, devices: Sequence[Device]) -> dict[str, Any]:
    """Options and devices: `config` of the file."""
    return {
        "nthreads": 1,
        "ngpus": 1,
        "minimum_bytes": asked.minimum_bytes,
        "maximum_bytes": asked.maximum_bytes,
        **({"step_factor": asked.step_factor} if asked.step_factor else {"step_bytes": asked.step_bytes}),
        "warmup_iters": asked.warmup,
        "iterations": asked.iterations,
        "aggregated_iterations": asked.aggregated,
        "validation": asked.check,
        "graph": 0,
        "blocking_collectives": _word(asked.blocking is not Blocking.NONE),
        "per_iter_timing": _word(True),  # always in the file, whether or not it is printed
        "per_iter_skip": asked.skipped,
        "parallel_init": _word(False),
        "devices": [
            {
                "rank": device.rank,
                "group": 0,
                "pid": None,
                "hostname": device.host,
                "device": device.number,
                "device_hex": device.address,
                "device_info": device.what,
            }
            for device in devices
        ],
    }


def result(operation: Operation, asked: Asked, line: Measured) -> dict[str, Any]:
    """One line of `results`."""
    times = line.iterations(asked.skipped)
    return {
        "size": line.size_bytes,
        "count": line.count,
        "type": operation.data_type,
        "redop": operation.redop,
        "root": str(operation.root),
        "out_of_place": {
            "time": line.time_us,
            "alg_bw": line.algorithm_bytes_per_s / GIGA,
            "bus_bw": line.bus_bytes_per_s / GIGA,
            "nwrong": line.wrong_bytes,
        },
        "out_of_place_per_iter": {
            "skipped_iterations": asked.skipped,
            "min_us": times.minimum_us,
            "max_us": times.maximum_us,
            "avg_us": times.average_us,
            "p50_us": times.percentile_50_us,
            "p95_us": times.percentile_95_us,
            "p99_us": times.percentile_99_us,
            "stdev_us": times.deviation_us,
            "cv_pct": times.variation_percent,
            "times_us": line.times_us,
            "per_process_max_times_us": line.rank_iterations_us,
        },
        "in_place": None,  # no data is reduced, so in place would give the same
        "actual_iterations": asked.iterations,
        "experiment_name": "",
    }


def extras(line: Measured) -> dict[str, Any]:
    """Fields that nccl-tests does not have."""
    return {
        "size_bytes": line.size_bytes,
        "rank_times_us": line.rank_times_us,
        "verified_bytes": line.verified_bytes,
        "wrong_bytes": line.wrong_bytes,
        "retransmitted": line.retransmitted,
        "messages": _messages(line.messages),
    }


def _messages(times: MessageTimes | None) -> dict[str, Any] | None:
    if times is None:
        return None
    return {
        "count": times.count,
        "single": times.single,
        "p50_us": times.percentile_50_us,
        "p95_us": times.percentile_95_us,
        "p99_us": times.percentile_99_us,
        "max_us": times.maximum_us,
    }
