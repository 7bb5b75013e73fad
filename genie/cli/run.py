"""`genie run`."""

from __future__ import annotations

from pathlib import Path

import typer

from genie.cli.groups import flattened
from genie.cli.launching import be_a_rank, check_live, refuse_half_a_launch
from genie.cli.output import out_folder
from genie.cli.results.metrics import MetricsAtTheEnd
from genie.job.job import Job, resolve
from genie.job.live_settings import live_settings
from genie.job.options import LabOptions, LiveOptions, TrafficOptions
from genie.job.outputs import OutputOptions
from genie.job.playing import run_live
from genie.job.site import execution_site
from genie.job.warnings import warn
from genie.live.launched import launched_by, speaks
from genie.live.settings import RunSettings
from genie.workload.files import find_files

EFFECTS_MAX_BYTES = 64 << 20  # of traces, which take about two seconds to load

RUN_EXAMPLES = """
Examples:

```text
genie run examples/transformer -o runs/mine --rate 200Mb/s -n 10 --warmup 2
genie run TRACE --hosts hosts/cluster.toml -o runs/cluster
genie run TRACE --lab FABRIC.toml -o runs/lab
MASTER_ADDR=n1 srun --mpi=none genie run TRACE --hosts HOSTS.toml -o runs/x
```

A fault plan with all keys:

```text
[[rate]]             # NIC of rank 5: half its rate in iterations 6 to 8,
rank = 5             # from 1 ms to 50 ms after the start of each iteration
factor = 0.5
from_iteration = 6   # default: 0; the count includes warm-up iterations
until_iteration = 9  # first iteration without the fault; default: none
from_s = 0.001       # default: 0
until_s = 0.05       # default: to the end of the iteration

[[loss]]             # NIC of rank 2: loses one of every 100 data packets
rank = 2
every = 100
peer = 3             # only packets to rank 3; default: to every peer

[[delay]]            # packets from rank 1 to rank 3 arrive 200 us later
rank = 1
peer = 3
delay_us = 200

[[congestion]]       # rank 4 has no congestion control: no ECN, no CNPs
rank = 4
control = false
```
"""


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command("run", epilog=RUN_EXAMPLES)(flattened(run, wire="nccl", trace_paths="auto"))


def run(traffic: TrafficOptions, live: LiveOptions, given: LabOptions, output: OutputOptions) -> int:
    """Play a workload on the real network: one process for each rank, with real RDMA traffic.

    Each rank sleeps for the duration of its compute nodes. Without a launcher, the command starts the ranks with
    mpirun. Under mpirun, srun or another launcher, the command is itself one rank.

    Exit codes: 0 complete, 1 the run died.
    """
    with out_folder(output.out, "run") as out, MetricsAtTheEnd(output.metrics, out, traffic.workload) as end:
        if launched_by() is not None:

            def ready() -> RunSettings:
                end.check()
                check_live(live, given)
                return _settings(resolve(traffic, live, shape_only=not _sees_all_ranks(traffic)), out)

            end.rank, end.code = be_a_rank(live, ready)
        else:
            check_live(live, given)
            refuse_half_a_launch()
            with execution_site(traffic, live, given) as site:
                job = site.job()
                settings = _settings(job, out)
                with site.faults_injected():
                    end.code = run_live(settings, job.hosts, site).code
    return end.code


def _settings(job: Job, out: Path) -> RunSettings:
    if job.written is not None:
        job.twin()  # refuse a fabric that does not fit before anything runs
    return live_settings(job, out)


def _sees_all_ranks(traffic: TrafficOptions) -> bool:
    """Whether this rank of a launch loads the traces of all ranks, to warn of options without effect at the start.

    One rank does so for all, and only where that takes a short time.
    """
    if not speaks():
        return False
    size_bytes = sum(trace.stat().st_size for trace in find_files(traffic.workload).traces.values())
    if size_bytes <= EFFECTS_MAX_BYTES:
        return True
    warn(
        f"{traffic.workload}: options without effect are not looked for in {size_bytes / 2**20:.0f} MiB of traces (at "
        f"most {EFFECTS_MAX_BYTES >> 20} MiB under a launcher): genie simulate names them"
    )
    return False
