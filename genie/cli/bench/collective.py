"""`genie bench`: one collective in nccl-tests' table, measured, simulated or both."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from genie.bench import comparison, nccl_json, nccl_table
from genie.bench.asked import Asked
from genie.bench.baseline import asked_facts, job_of
from genie.bench.collectives import OPERATIONS, SENDRECV, Operation, chain
from genie.bench.measured import Measured, measured
from genie.cli.bench import flags
from genie.cli.bench import pairs as benching_pairs
from genie.cli.bench import paths as benching_paths
from genie.cli.bench.report import Report, ReportFiles
from genie.cli.bench.runs import (
    LEFT_OUT,
    KeptLong,
    Mtu,
    Ranks,
    Simulate,
    check_started_by_hand,
    mtu_from,
    show_progress,
    staged,
    warn_of_retransmits,
    workplace,
)
from genie.cli.bench.worlds import LiveWorld, TwinWorld, World
from genie.cli.groups import flattened
from genie.collectives import ALGORITHMS
from genie.errors import EXIT_FAILED, UsageError
from genie.job.option import OUTPUT, WIRE
from genie.job.options import LabOptions, LiveOptions, TrafficOptions, TwinOptions
from genie.plan.facts import facts_of_build

ALIASES = {"alltoall": "all_to_all"}  # nccl-tests' name

bench_app = typer.Typer(
    help="Measure collectives and paths, and print the tables of nccl-tests and perftest.\n\nA collective runs between "
    "all ranks. pingpong and write measure the path between two ranks. pairs measures the paths between all pairs of "
    "ranks. A bench starts its ranks itself with mpirun: do not start it under mpirun or srun.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

COLLECTIVE_EXAMPLES = """
Examples:

```text
genie bench all_reduce --ranks 4
genie bench all_to_all --ranks 8 -b 64K -e 16M -f 4 -n 50 --rate 1Gb/s
genie bench broadcast --hosts hosts.toml -b 1M -e 8M -i 1M -r all -J b.json
genie bench all_reduce --simulate --fabric FABRIC.toml -b 64K -e 16M -f 4
genie bench all_gather --ranks 4 --rate 200Mb/s --compare
NCCL_TESTS_MIN_BW=10 genie bench all_reduce --hosts hosts.toml -b 64M -e 64M
genie bench all_reduce --hosts hosts.toml -b 64M -e 64M --baseline last
```
"""


# The options of the groups that this bench does not have.
LEAVE_OUT = LEFT_OUT | {
    TrafficOptions: LEFT_OUT[TrafficOptions] - {"channels", "wire", "ranks_per_node", "slice_delay", "gpu", "nccl"},
}


def register(app: typer.Typer) -> None:
    """Add `genie bench` with all its commands."""
    command = flattened(collective, LEAVE_OUT, wire="nccl")
    for name, hidden in [*((name, False) for name in OPERATIONS), *((alias, True) for alias in ALIASES)]:
        operation = OPERATIONS[ALIASES.get(name, name)]
        bench_app.command(
            name, cls=flags.NcclTestsCommand, epilog=COLLECTIVE_EXAMPLES, help=_help_of(operation), hidden=hidden
        )(command)
    benching_pairs.register(bench_app)
    benching_paths.register(bench_app)
    app.add_typer(bench_app, name="bench")


def _help_of(operation: Operation) -> str:
    what = "a send to the next rank and a receive from the previous rank" if operation.name == SENDRECV else (
        f"{operation.name} between all ranks"
    )  # fmt: skip
    return (
        f"Measure {what}.\n\n"
        "The table has time, algorithm bandwidth and bus bandwidth for each size, as nccl-tests prints them. The bench "
        "moves bytes and does not reduce them. The columns of the in-place operation are therefore N/A. The column "
        "#wrong counts bytes.\n\nExit codes: 0 done, 1 a byte was wrong, a rank died, or the average bus bandwidth is "
        f"below 0.9 times {flags.MINIMUM_BANDWIDTH} (environment variable, in GB/s), or a size is slower than in the "
        "baseline."
    )


def collective(
    context: typer.Context,
    given: flags.NcclTestsOptions,
    traffic: TrafficOptions,
    live: LiveOptions,
    lab: LabOptions,
    simulated: TwinOptions,
    ranks: Ranks = None,
    percentiles: Annotated[
        bool,
        typer.Option(
            "--percentiles",
            help="Add four columns with the time of messages from post to acknowledgement: `m_p50`, `m_p95`, `m_p99` "
            "and `m_max`.",
        ),
    ] = False,
    simulate: Simulate = False,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare", help="Measure on the network, then simulate in the twin, and print both results side by side."
        ),
    ] = False,
    algorithm: Annotated[
        str | None,
        typer.Option(
            help="Algorithm of the collective, such as ring.  [default: chosen by size, as in `genie run`]",
            rich_help_panel=WIRE,
        ),
    ] = None,
    mtu: Mtu = None,
    out: KeptLong = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|last",
            help="Compare with an earlier bench: its file of `-J`, or `last` for the newest of the same job that "
            "passed. Genie looks for it beside the file of `-J`, and without `-J` in `runs`, where it also keeps this "
            "one. A size that takes 10 % longer, beyond noise, fails the bench.  [default: none]",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    junit: Annotated[
        Path | None,
        typer.Option(
            "--junit",
            help="NAME.xml: the result as JUnit XML, with a test case for each size.  [default: none]",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
) -> int:
    """Measure the operation after which the command is named."""
    name = str(context.info_name)
    operation = OPERATIONS[ALIASES.get(name, name)]
    runs, simulates = compare or not simulate, compare or simulate
    if runs:
        check_started_by_hand(live, lab)
    minimum_gb_per_s = flags.minimum_bandwidth()
    files = ReportFiles(given.output_file, junit, baseline, minimum_gb_per_s)
    asked = flags.asked_from(given, percentiles=percentiles)
    traffic = replace(traffic, algorithm=_algorithm_of(operation, algorithm))
    live = replace(live, verify=bool(given.check))
    mtu_bytes = mtu_from(mtu)
    world = "live" if runs else "twin"
    known = asked_facts(operation.name, world, replace(asked, ranks=ranks or 0))
    ours = {"collective": operation.name, "world": world, **facts_of_build()}
    with (
        Report(files, ours, known) as report,
        staged(traffic, live, lab, ranks, runs=runs) as bench_site,
        workplace(out, bench_site.hosts if runs else None) as folder,
    ):
        tables: list[Table] = []
        _ = bench_site.job.lowering  # its errors come before a table begins
        asked = replace(asked, ranks=bench_site.hosts.ranks)
        known = asked_facts(operation.name, world, asked)
        operations = flags.operations_from(operation, given, asked.ranks)
        level, threads = simulated.level, simulated.threads
        twin = TwinWorld(bench_site, folder, level=level, threads=threads, mtu_bytes=mtu_bytes) if simulates else None
        if runs:
            network = LiveWorld(bench_site, folder, mtu_bytes=mtu_bytes, limit_s=given.timeout or None)
            network.announce(f"{operation.name}-{asked.minimum_bytes}")
            report.of_job(job_of(known, network.devices(), network.facts()))
            # Before the lab's faults, which are not part of the hosts' latency.
            bench_site = bench_site.calibrated(folder / "calibration") if compare else bench_site
            with bench_site.site.faults_injected():
                tables.append(Table(network, asked, operations, minimum_gb_per_s))
                report.add(tables[0])
                tables[0].fill()
            mtu_bytes = int(tables[0].info["settings"]["mtu"])
        if twin is not None:
            if runs:  # with the MTU that the ranks have found, and the hosts' latency
                twin = TwinWorld(bench_site, folder, level=level, threads=threads, mtu_bytes=mtu_bytes)
            else:
                report.of_job(job_of(known, twin.devices(), twin.facts()))
            twin.warn()
            tables.append(Table(twin, asked, operations, None if runs else minimum_gb_per_s))
            report.add(tables[-1])
            tables[-1].fill()
        if compare:
            for text in ["#", *comparison.table(*(table.lines for table in tables))]:
                print(text, flush=True)
    code = _judged([line for _, line in tables[0].lines], minimum_gb_per_s)
    return code or report.code


class Table:
    """A table that is measured and printed line by line."""

    def __init__(
        self, world: World, asked: Asked, operations: Sequence[Operation], minimum_gb_per_s: float | None
    ) -> None:
        self._world, self.asked, self._operations, self._minimum = world, asked, operations, minimum_gb_per_s
        self.devices: Sequence[nccl_json.Device] = world.devices()
        self.lines: list[tuple[Operation, Measured]] = []
        self.info: dict[str, Any] = {}  # run.json of the last size

    def fill(self) -> None:
        """Measure all lines. Raises LaunchError or SimulationError at the first size that fails."""
        asked, operations = self.asked, self._operations
        width = max(len(device.host) for device in self.devices)
        places = [f"on {device.host:>{width}} {device.what}" for device in self.devices]
        for text in nccl_table.head(operations[0], asked, places, self._world.notes()):
            print(text, flush=True)
        for operation in operations:
            for cycle in range(asked.cycles):
                for size_bytes in asked.sizes_bytes:
                    line = self._measure(operation, size_bytes, cycle)
                    self.lines.append((operation, line))
                    stamp = time.strftime(nccl_table.TIME_FORMAT)
                    print(nccl_table.row(operation, asked, line, stamp), flush=True)
        lines = [line for _, line in self.lines]
        for text in nccl_table.foot(operations[0], lines, self._minimum):
            print(text, flush=True)
        warn_of_retransmits(nccl_table.retransmitted(lines))

    def _measure(self, operation: Operation, size_bytes: int, cycle: int) -> Measured:
        what, name = f"{operation.name} of {size_bytes} bytes", f"{operation.name}-{size_bytes}"
        name += f"-root{operation.root}" if len(self._operations) > 1 else ""
        name += f"-cycle{cycle}" if self.asked.cycles > 1 else ""
        show_progress(what)
        run = self._world.play(chain(operation, self.asked, size_bytes), name, what)
        show_progress("")
        self.info = run.info
        return measured(operation, self.asked, size_bytes, run)


def _judged(lines: Sequence[Measured], minimum_gb_per_s: float | None) -> int:
    """Return the exit code, and print one line for each failure."""
    wrong = nccl_table.wrong_bytes(lines)
    if wrong:
        print(f"genie: {wrong} bytes of what arrived are not what was sent", file=sys.stderr)
    fast = nccl_table.is_fast_enough(lines, minimum_gb_per_s)
    if fast is False:
        average = nccl_table.average_bus_bytes_per_s(lines) / nccl_table.GIGA
        print(
            f"genie: the average bus bandwidth, {average:.4g} GB/s, is below {nccl_table.MINIMUM_SHARE} times "
            f"{flags.MINIMUM_BANDWIDTH}, {minimum_gb_per_s:g} GB/s",
            file=sys.stderr,
        )
    return EXIT_FAILED if wrong or fast is False else 0


def _algorithm_of(operation: Operation, chosen: str | None) -> tuple[str, ...]:
    if chosen is None:
        return ()
    if operation.name not in ALGORITHMS:
        raise UsageError(f"--algorithm {chosen}: {operation.name} has no other algorithm: leave it out")
    return (f"{operation.name}={chosen}",)
