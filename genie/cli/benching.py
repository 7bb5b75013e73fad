"""`genie bench`: one collective in nccl-tests' table, one path in perftest's."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from genie.cli import benching_paths, options
from genie.cli.bench_runs import (
    UNLIMITED,
    AsJson,
    Kept,
    LineRate,
    Mtu,
    check_json,
    check_started_by_hand,
    mtu_from,
    places_of,
    remark_on_retransmits,
    run_ranks,
    save_trace,
    show_progress,
    size_from,
    workplace,
    write_json,
)
from genie.cli.resolve import Live, Play, UsageError, settings_of
from genie.collectives import ALGORITHMS
from genie.config.hosts import Hosts
from genie.live.bench import nccl_table
from genie.live.bench.collectives import OPERATIONS, SENDRECV, Measured, Operation, chain, measured
from genie.live.endings import EXIT_FAILED
from genie.live.launcher import LaunchError, mpirun_line, refuse_running, remote_hosts
from genie.live.settings import RunSettings
from genie.live.transport import SOFTROCE
from genie.record import RecordError, Run, open_run, prepare_folder
from genie.workload.graph import Workload

RANKS_MAX, SIZES_MAX = 1024, 1000
ALIASES = {"alltoall": "all_to_all"}  # nccl-tests' name

bench_app = typer.Typer(
    help="What a collective takes between all ranks (nccl-tests' table), and what a path carries (perftest's). "
    "A bench starts its ranks itself, by mpirun: it is not started by mpirun or srun.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

COLLECTIVE_EXAMPLES = """
Examples:

```text
genie bench all_reduce --ranks 4
genie bench all_to_all --ranks 8 -b 64K -e 16M -f 4 -n 50 --rate 1Gb/s
genie bench broadcast --hosts hosts/cluster.toml -b 1M -e 8M -i 1M --json broadcast.json
```
"""


def register(app: typer.Typer) -> None:
    """Add this file's commands."""
    for name, operation in OPERATIONS.items():
        bench_app.command(name, epilog=COLLECTIVE_EXAMPLES, help=_help_of(operation))(collective)
    for alias, name in ALIASES.items():
        bench_app.command(alias, epilog=COLLECTIVE_EXAMPLES, help=_help_of(OPERATIONS[name]), hidden=True)(collective)
    benching_paths.register(bench_app)
    app.add_typer(bench_app, name="bench")


def _help_of(operation: Operation) -> str:
    what = "Each rank sends to the next and receives from the one before" if operation.name == SENDRECV else (
        f"{operation.name} between all ranks"
    )  # fmt: skip
    return (
        f"{what}: time, algorithm and bus bandwidth for each size, as nccl-tests prints them.\n\n"
        "Bytes are moved and none is reduced, so the columns of the operation in place are N/A. #wrong counts bytes."
    )


def collective(
    context: typer.Context,
    ranks: Annotated[
        int | None, typer.Option(min=2, max=RANKS_MAX, help="Number of ranks.  [default: all of the hosts file]")
    ] = None,
    minimum: Annotated[str, typer.Option("-b", "--minbytes", help="Smallest size; K, M and G are 1024s.")] = "1K",
    maximum: Annotated[str, typer.Option("-e", "--maxbytes", help="Largest size.")] = "4M",
    factor: Annotated[
        int | None, typer.Option("-f", "--stepfactor", min=2, help="From one size to the next.  [default: 2]")
    ] = None,
    step: Annotated[
        str | None, typer.Option("-i", "--stepbytes", help="Or: this much from one size to the next.")
    ] = None,
    count: Annotated[int, typer.Option("-n", "--iters", min=1, max=10**6, help="Operations that are timed.")] = 20,
    warmup: Annotated[
        int, typer.Option("-w", "--warmup_iters", min=0, max=10**6, help="Operations before them that are not.")
    ] = 5,
    check: Annotated[
        int, typer.Option("-c", "--check", min=0, max=1, help="Whether receivers compare every byte; it takes time.")
    ] = 1,
    hosts: options.HostsFile = None,
    rate: LineRate = UNLIMITED,
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
    as_json: AsJson = None,
    out: Kept = None,
    udp_port: options.UdpPort = 4791,
    join_limit: options.Join = 60.0,
    stall: options.Stall = 10.0,
) -> int:
    name = str(context.info_name)
    operation = OPERATIONS[ALIASES.get(name, name)]
    check_started_by_hand(transport)
    check_json(as_json)
    asked = _asked(minimum, maximum, factor, step, count, warmup, check)
    placed = places_of(hosts, ranks, udp_port)
    asked = replace(asked, ranks=placed.ranks)
    play = Play(
        "",
        hosts=hosts,
        rate=rate,
        algorithm=_algorithm_of(operation, algorithm),
        channels=channels,
        queue_pairs=queue_pairs,
        split=split,
        congestion=congestion,
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
    lines: list[Measured] = []
    with workplace(out, placed) as folder:
        bench = CollectiveBench(
            operation, asked, play, live, placed, folder, spin=False if events else None, mtu_bytes=mtu_from(mtu)
        )
        for line in nccl_table.head(operation, asked, bench.places()):
            print(line, flush=True)
        for size_bytes in asked.sizes_bytes:
            show_progress(f"{operation.name} of {size_bytes} bytes")
            lines.append(bench.measure(size_bytes))
            show_progress("")
            print(nccl_table.row(operation, lines[-1]), flush=True)
    for line in nccl_table.foot(operation, lines):
        print(line, flush=True)
    remark_on_retransmits(nccl_table.retransmitted(lines))
    if as_json is not None:
        write_json(as_json, nccl_table.report(operation, asked, lines, bench.settings))
    return EXIT_FAILED if nccl_table.wrong_bytes(lines) else 0


def _asked(
    minimum: str, maximum: str, factor: int | None, step: str | None, count: int, warmup: int, check: int
) -> nccl_table.Asked:
    """What is asked for, of ranks that are not known yet."""
    smallest, largest = size_from("-b", minimum), size_from("-e", maximum)
    if smallest > largest:
        raise UsageError(f"-b {minimum} is more than -e {maximum}: give the smallest size first")
    if factor is not None and step is not None:
        raise UsageError(f"-f {factor} and -i {step}: give one of the two")
    step_bytes = None if step is None else size_from("-i", step)
    if step_bytes is not None and (largest - smallest) // step_bytes >= SIZES_MAX:
        raise UsageError(f"-i {step}: is more than {SIZES_MAX} sizes from {minimum} to {maximum}: give a larger step")
    return nccl_table.Asked(
        ranks=0,
        minimum_bytes=smallest,
        maximum_bytes=largest,
        step_factor=None if step is not None else factor or 2,
        step_bytes=step_bytes,
        warmup=warmup,
        iterations=count,
        check=check,
    )


def _algorithm_of(operation: Operation, chosen: str | None) -> tuple[str, ...]:
    if chosen is None:
        return ()
    known = ALGORITHMS.get(operation.name, ())
    if chosen not in known:
        raise UsageError(f"--algorithm {chosen}: {operation.name} has {', '.join(known) or 'none to choose from'}")
    return (f"{operation.name}={chosen}",)


class CollectiveBench:
    """Plays one size after another, each in a run of its own, so that what is wrong is known by size."""

    def __init__(
        self,
        operation: Operation,
        asked: nccl_table.Asked,
        play: Play,
        live: Live,
        hosts: Hosts,
        folder: Path,
        *,
        spin: bool | None = None,
        mtu_bytes: int = 0,
    ) -> None:
        self._operation, self._asked, self._hosts, self._folder = operation, asked, hosts, folder
        self._play, self._live, self._spin, self._mtu_bytes = play, live, spin, mtu_bytes
        self._last: Run | None = None
        self._shape = Workload(operation.name, asked.ranks, [], {})
        # What is wrong with the options is said before the table begins.
        line = self._line(self._settings_of(asked.sizes_bytes[0]))
        print("genie: " + " ".join(line), file=sys.stderr, flush=True)

    def places(self) -> list[str]:
        """What each rank is and where."""
        width = max(len(place.host) for place in self._hosts.places)
        return [
            f"on {place.host:>{width}} {place.transport or self._live.transport} {place.address}"
            for place in self._hosts.places
        ]

    def measure(self, size_bytes: int) -> Measured:
        """One line. Raises LaunchError when the run did not end well."""
        settings = self._settings_of(size_bytes)
        refuse_running(settings.out_path)
        prepare_folder(settings.out_path)
        played = self._chain(size_bytes)
        save_trace(played, Path(settings.workload))
        problem: LaunchError | None = None
        try:
            run_ranks(settings, self._line(settings), f"{self._operation.name} of {size_bytes} bytes")
        except LaunchError as error:
            problem = error
        if problem is not None and not _found_wrong(settings, played):
            raise problem
        run = self._last = open_run(settings.out_path)
        checked = bool(self._asked.check)
        return measured(self._operation, self._asked.ranks, size_bytes, run.timeline, run.counters["ranks"], checked)

    def _line(self, settings: RunSettings) -> list[str]:
        return mpirun_line(settings, remote_hosts(self._hosts))

    @property
    def settings(self) -> dict[str, Any]:
        """Those of the last size's run, with what the ranks have found out, for the JSON."""
        return {} if self._last is None else {"run": self._last.info}

    def _chain(self, size_bytes: int) -> Workload:
        asked = self._asked
        return chain(self._operation, asked.ranks, size_bytes, asked.iterations, asked.warmup)

    def _settings_of(self, size_bytes: int) -> RunSettings:
        name = f"{self._operation.name}-{size_bytes}"
        play = replace(self._play, workload=str(self._folder / f"{name}.trace"))
        settings = settings_of(play, self._live, self._folder / name, self._shape, self._hosts, None)
        return msgspec.structs.replace(settings, spin=self._spin, mtu=self._mtu_bytes)


def _found_wrong(settings: RunSettings, workload: Workload) -> bool:
    """Whether a run failed for its payload alone: it was played to its end on all ranks."""
    try:
        run = open_run(settings.out_path)
    except RecordError:
        return False
    nodes = sum(map(len, workload.ranks.values()))
    played = run.timeline.height == nodes and bool((run.timeline["end_ns"] >= 0).all())
    return played and any(each and each.get("wrong_bytes") for each in run.counters["ranks"])
