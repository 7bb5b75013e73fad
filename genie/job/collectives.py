"""Workloads of collectives alone, for jobs without a trace."""

from __future__ import annotations

from pathlib import Path

from genie.config.hosts import load_hosts
from genie.errors import UsageError
from genie.job.option import one_of
from genie.job.site import ExecutionSite
from genie.record import COLLECTIVES, COLLECTIVES_FILE, marked_json
from genie.workload.graph import Op, Workload
from genie.workload.synthetic import collectives
from genie.workload.write import save
from simtwin.fabric.topology import build_network

SIZES_BYTES = tuple(1 << power for power in (16, 18, 20, 22, 24))  # 64 KiB to 16 MiB
OPERATIONS = tuple(op.name.lower() for op in Op if op not in (Op.NONE, Op.BARRIER))


def operations_from(text: str) -> list[Op]:
    """Return the operations of `all_reduce,all_to_all`. Raises UsageError for an unknown name."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in OPERATIONS:
            raise UsageError(f"--collectives {text}: {name or 'an empty name'} is unknown: give {one_of(OPERATIONS)}")
    return [Op[name.upper()] for name in names]


def workload_of(text: str, site: ExecutionSite) -> Workload:
    """Return a workload of these operations at each size, on all hosts of the site. Raises UsageError."""
    operations, ranks = operations_from(text), site.traffic.ranks
    if site.traffic.workload:
        raise UsageError(f"--collectives {text}: takes the place of a trace: leave {site.traffic.workload} out")
    if ranks is None and site.traffic.hosts is not None:
        ranks = load_hosts(site.traffic.hosts).ranks
    if ranks is None:
        written = site.fabric_as_written()
        if written is None:
            raise UsageError(
                f"--collectives {text}: give --ranks N, --hosts, --fabric or --lab, for the number of ranks"
            )
        ranks = build_network(written).hosts
    if ranks < 2:
        raise UsageError(f"--collectives {text}: needs 2 ranks or more")
    return collectives(operations, ranks, SIZES_BYTES)


def save_traces(workload: Workload, out: Path, text: str) -> None:
    """Write the traces of a generated workload into the folder of a validation, for its ranks and for later use."""
    folder = out / COLLECTIVES
    folder.mkdir()
    (folder / COLLECTIVES_FILE).write_text(marked_json(COLLECTIVES, {"collectives": text, "sizes_bytes": SIZES_BYTES}))
    save(workload, folder, COLLECTIVES)
