"""`genie bench`: one collective in nccl-tests' table, measured, simulated or both."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from genie.bench import comparison, nccl_json, nccl_table
from genie.bench.asked import Asked, Average, Blocking
from genie.bench.collectives import OPERATIONS, SENDRECV, Operation, chain
from genie.bench.measured import Measured, measured
from genie.cli import options
from genie.cli.bench import flags
from genie.cli.bench import pairs as benching_pairs
from genie.cli.bench import paths as benching_paths
from genie.cli.bench.runs import (
    KeptLong,
    Mtu,
    check_json,
    check_started_by_hand,
    mtu_from,
    show_progress,
    staged,
    warn_of_retransmits,
    workplace,
    write_json,
)
from genie.cli.bench.worlds import LiveWorld, TwinWorld, World
from genie.cli.exits import text_of
from genie.collectives import ALGORITHMS
from genie.errors import EXIT_FAILED
from genie.job.resolve import Live, Play, UsageError
from genie.job.wire import lowering_of
from genie.live.launch.launcher import LaunchError
from genie.live.transport import SOFTROCE
from genie.plan.facts import facts_of_build

RANKS_MAX = 1024
ALIASES = {"alltoall": "all_to_all"}  # nccl-tests' name

bench_app = typer.Typer(
    help="What a collective takes between all ranks (nccl-tests' table), and what paths carry (perftest's, and a "
    "matrix of all pairs). A bench starts its ranks itself, by mpirun: it is not started by mpirun or srun.",
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
```
"""


def register(app: typer.Typer) -> None:
    """Add this file's commands."""
    for name, hidden in [*((name, False) for name in OPERATIONS), *((alias, True) for alias in ALIASES)]:
        operation = OPERATIONS[ALIASES.get(name, name)]
        bench_app.command(
            name, cls=flags.NcclTestsCommand, epilog=COLLECTIVE_EXAMPLES, help=_help_of(operation), hidden=hidden
        )(collective)
    benching_pairs.register(bench_app)
    benching_paths.register(bench_app)
    app.add_typer(bench_app, name="bench")


def _help_of(operation: Operation) -> str:
    what = "Each rank sends to the next and receives from the one before" if operation.name == SENDRECV else (
        f"{operation.name} between all ranks"
    )  # fmt: skip
    return (
        f"{what}: time, algorithm and bus bandwidth for each size, as nccl-tests prints them.\n\n"
        "Bytes are moved and none is reduced, so the columns of the operation in place are N/A. #wrong counts bytes. "
        f"One wrong byte is exit code 1, and so is an average bus bandwidth below 0.9 times {flags.MINIMUM_BANDWIDTH} "
        "(environment, GB/s)."
    )


def collective(
    context: typer.Context,
    ranks: Annotated[
        int | None,
        typer.Option(min=2, max=RANKS_MAX, help="Number of ranks.  [default: all of the hosts or the fabric file]"),
    ] = None,
    minimum: flags.Minimum = "1K",
    maximum: flags.Maximum = "4M",
    factor: flags.Factor = None,
    step: flags.Step = None,
    count: flags.Iterations = 20,
    warmup: flags.WarmUp = 5,
    aggregated: flags.Aggregated = 1,
    cycles: flags.Cycles = 1,
    check: flags.Check = 1,
    average: flags.Averaged = 1,
    blocking: flags.Blocked = 0,
    per_iteration: flags.PerIteration = 0,
    skipped: flags.Skipped = 0,
    data_type: flags.DataType = "float",
    reduction: flags.Reduction = "sum",
    root: flags.Root = "0",
    timeout: flags.Timeout = None,
    timestamps: flags.Timestamps = 0,
    as_json: flags.AsJson = None,
    percentiles: Annotated[
        bool, typer.Option("--percentiles", help="Columns of what messages took, from post to acknowledgement.")
    ] = False,
    simulate: Annotated[bool, typer.Option("--simulate", help="In the twin, and nowhere else.")] = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="On the network and in the twin, and both tables side by side.")
    ] = False,
    hosts: options.HostsFile = None,
    fabric: options.FabricFile = None,
    rate: options.Rate = None,
    level: options.Level = "packet",
    seed: options.Seed = 1,
    threads: options.Threads = 1,
    transport: options.Transport = SOFTROCE,
    algorithm: Annotated[
        str | None, typer.Option(help="Such as ring.  [default: by size, as genie run chooses]")
    ] = None,
    channels: options.Channels = None,
    queue_pairs: options.QueuePairs = None,
    split: options.Split = None,
    congestion: options.Congestion = None,
    source_ports: options.Ports = "pair",
    traffic_class: options.TrafficClass = None,
    icrc: options.Icrc = "auto",
    mtu: Mtu = None,
    verbs: options.Verbs = None,
    events: Annotated[
        bool, typer.Option("--events", help="Sleep until something comes.  [default: poll, with a core for each rank]")
    ] = False,
    no_offload: options.NoOffload = False,
    wire: options.Wire = "nccl",
    ranks_per_node: options.RanksPerNode = None,
    slice_delay: options.SliceDelay = None,
    lab: options.Lab = None,
    lab_fault: options.LabFault = None,
    out: KeptLong = None,
    udp_port: options.UdpPort = 4791,
    join_limit: options.Join = 60.0,
    stall: options.Stall = 10.0,
) -> int:
    """The command of each operation, which its name says."""
    name = str(context.info_name)
    operation = OPERATIONS[ALIASES.get(name, name)]
    runs, simulates = compare or not simulate, compare or simulate
    if runs:
        check_started_by_hand(transport, lab)
    check_json(as_json)
    minimum_gb_per_s = flags.minimum_bandwidth()
    asked = replace(
        flags.asked_from(minimum, maximum, factor, step, count, skipped),
        warmup=warmup,
        check=check,
        aggregated=aggregated,
        cycles=cycles,
        average=Average(average),
        blocking=Blocking(blocking),
        per_iteration=bool(per_iteration),
        percentiles=percentiles,
        timestamps=bool(timestamps),
    )
    play = Play(
        "",
        hosts=hosts,
        fabric=fabric,
        rate=rate,
        algorithm=_algorithm_of(operation, algorithm),
        channels=channels,
        seed=seed,
        queue_pairs=queue_pairs,
        split=split,
        congestion=congestion,
        wire=wire,
        ranks_per_node=ranks_per_node,
        slice_delay=slice_delay,
    )
    live = Live(
        offload=not no_offload,
        udp_port=udp_port,
        join_s=join_limit,
        stall_s=stall,
        transport=transport,
        source_ports=source_ports,
        traffic_class=traffic_class,
        verify=bool(check),
        icrc=icrc,
        verbs=tuple(verbs or ()),
    )
    mtu_bytes = mtu_from(mtu)
    ours = {"collective": operation.name, "world": "live" if runs else "twin", **facts_of_build()}
    with (
        Report(as_json, ours, minimum_gb_per_s) as report,
        staged(play, live, ranks, runs=runs, lab=lab, faults=lab_fault) as bench_site,
        workplace(out, bench_site.hosts if runs else None) as folder,
    ):
        lowering_of(bench_site.play)  # what it refuses is said before a table begins
        asked = replace(asked, ranks=bench_site.hosts.ranks)
        operations = flags.operations_from(operation, data_type, reduction, root, asked.ranks)
        twin = TwinWorld(bench_site, folder, level=level, threads=threads, mtu_bytes=mtu_bytes) if simulates else None
        if runs:
            spin, limit_s = False if events else None, timeout or None
            network = LiveWorld(bench_site, folder, spin=spin, mtu_bytes=mtu_bytes, limit_s=limit_s)
            network.announce(f"{operation.name}-{asked.minimum_bytes}")
            # Before the lab's faults, as they are none of the hosts'.
            bench_site = bench_site.calibrated(folder / "calibration") if compare else bench_site
            with bench_site.site.faults_injected():
                measured_table = report.of(Table(network, asked, operations, minimum_gb_per_s))
                measured_table.fill()
            mtu_bytes = int(measured_table.info["settings"]["mtu"])
        if twin is not None:
            if runs:  # with what ranks have found, and what their hosts cost
                twin = TwinWorld(bench_site, folder, level=level, threads=threads, mtu_bytes=mtu_bytes)
            twin.warn()
            report.of(Table(twin, asked, operations, None if runs else minimum_gb_per_s)).fill()
        if compare:
            for text in ["#", *comparison.table(*(table.lines for table in report.tables))]:
                print(text, flush=True)
    return _judged([line for _, line in report.tables[0].lines], minimum_gb_per_s)


class Report:
    """The file of -J: written at the end, with the lines that there are, whatever the end."""

    def __init__(self, path: Path | None, ours: dict[str, Any], minimum_gb_per_s: float | None) -> None:
        self._path, self._ours, self._minimum = path, ours, minimum_gb_per_s
        self._started = time.strftime(nccl_table.TIME_FORMAT)
        self.tables: list[Table] = []  # what was measured, what was simulated

    def of(self, table: Table) -> Table:
        """It is about this table too."""
        self.tables.append(table)
        return table

    def __enter__(self) -> Report:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self._path is None or not self.tables or not self.tables[0].lines:
            return
        if error is None:
            write_json(self._path, self._object([]))
            return
        with suppress(LaunchError):  # of what went wrong the first is said
            write_json(self._path, self._object([text_of(error) if isinstance(error, Exception) else "interrupted"]))

    def _object(self, errors: list[str]) -> dict[str, Any]:
        first, *others = self.tables
        ours = {**self._ours, "run": first.info}
        for twin in (table for table in others if table.lines):
            ours["twin"] = twin.info
            ours["simulated"] = [nccl_json.result(operation, first.asked, line) for operation, line in twin.lines]
            ours["compared"] = comparison.compared(first.lines[: len(twin.lines)], twin.lines)
        about = nccl_json.Circumstances(
            sys.argv, os.environ, self._started, time.strftime(nccl_table.TIME_FORMAT), first.devices, self._minimum,
            errors,
        )  # fmt: skip
        return nccl_json.report(first.asked, first.lines, about, ours)


class Table:
    """A table that is filled, and printed, line by line."""

    def __init__(
        self, world: World, asked: Asked, operations: Sequence[Operation], minimum_gb_per_s: float | None
    ) -> None:
        self._world, self.asked, self._operations, self._minimum = world, asked, operations, minimum_gb_per_s
        self.devices = world.devices()
        self.lines: list[tuple[Operation, Measured]] = []
        self.info: dict[str, Any] = {}  # run.json of the last size

    def fill(self) -> None:
        """Measure all. Raises LaunchError or SimulationError at the first size that does not end well."""
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
    """The exit code, and one line for what failed."""
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
        raise UsageError(f"--algorithm {chosen}: {operation.name} has none to choose from")
    return (f"{operation.name}={chosen}",)
