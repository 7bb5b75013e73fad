"""`genie bench pingpong` and `genie bench write`: the path between two ranks, in perftest's tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from genie.bench import perftest_table
from genie.bench.pair import PairSettings, Test, line_of
from genie.bench.rank import LINES
from genie.cli import options
from genie.cli.bench.runs import (
    FIRST_TWO,
    UNLIMITED,
    AsJson,
    Kept,
    LineRate,
    Mtu,
    check_json,
    check_started_by_hand,
    ends_of,
    mtu_from,
    run_ranks,
    show_progress,
    size_from,
    warn_of_retransmits,
    watched,
    workplace,
    write_json,
)
from genie.config.limits import QUEUE_PAIRS_MAX
from genie.config.source_ports import PAIR
from genie.errors import EXIT_FAILED
from genie.job.resolve import Live, Play, UsageError, settings_of, transports_of
from genie.live.launch.launcher import mpirun_line, refuse_running, remote_hosts
from genie.live.parts import PARTS
from genie.live.transport import SOFTROCE, VERBS
from genie.record import BENCH, launch_mark, prepare_folder
from genie.workload.graph import Group, Workload

PAIR_MODULE = "genie.bench.rank"
ALL_SIZES = [1 << power for power in range(1, 24)]  # perftest's -a: 2 B to 8 MiB
SIZE_MAX = "1G"
WATCH_S = 0.1

PINGPONG_EXAMPLES = """
Examples:

```text
genie bench pingpong
genie bench pingpong -a -n 10000 --hosts hosts/cluster.toml --ends 0,2
genie bench pingpong -s 4K --rate 1Gb/s --no-offload
genie bench pingpong --transport verbs --hosts hosts/cluster.toml --ends 0,6
```
"""
WRITE_EXAMPLES = """
Examples:

```text
genie bench write
genie bench write -a --queue-pairs 4 --hosts hosts/cluster.toml --ends 0,2
genie bench write -s 1M -n 2000 --rate 1Gb/s --report-gbits
```
"""

AllSizes = Annotated[bool, typer.Option("-a", "--all", help="All powers of two from 2 B to 8M.")]
QueuePairs = Annotated[
    int, typer.Option("--queue-pairs", "-q", min=1, max=QUEUE_PAIRS_MAX, help="Of the connection, in turn.")
]
Ends = Annotated[str, typer.Option(help="The two ranks of the hosts file that are the ends; the first sends first.")]
Limit = Annotated[float, typer.Option("--limit", min=0.1, max=86400, help="Seconds that one size may take.")]


def register(app: typer.Typer) -> None:
    """Add this file's commands."""
    app.command(epilog=PINGPONG_EXAMPLES)(pingpong)
    app.command(epilog=WRITE_EXAMPLES)(write)


def pingpong(
    size: Annotated[
        str | None, typer.Option("-s", "--size", help="Bytes of a message; K and M are 1024s.  [default: 64]")
    ] = None,
    all_sizes: AllSizes = False,
    count: Annotated[int, typer.Option("-n", "--iters", min=1, max=10**8, help="Round trips of each size.")] = 1000,
    hosts: options.HostsFile = None,
    ends: Ends = FIRST_TWO,
    rate: LineRate = UNLIMITED,
    transport: options.Transport = SOFTROCE,
    mtu: Mtu = None,
    congestion: options.Congestion = None,
    source_ports: options.Ports = PAIR,
    traffic_class: options.TrafficClass = None,
    icrc: options.Icrc = "auto",
    verbs: options.Verbs = None,
    events: Annotated[
        bool,
        typer.Option("-e", "--events", help="Sleep until something comes.  [default: poll, with a core for each rank]"),
    ] = False,
    no_offload: options.NoOffload = False,
    as_json: AsJson = None,
    out: Kept = None,
    limit: Limit = 600.0,
    udp_port: options.UdpPort = 4791,
    join_limit: options.Join = 60.0,
    stall: options.Stall = 10.0,
) -> int:
    """Latency between two ranks: WRITE_WITH_IMM to and fro, and half of each round trip in ib_write_lat's columns.

    Both ends compare the last message with what was sent; a byte that differs fails the bench.
    """
    live = Live(
        offload=not no_offload, udp_port=udp_port, join_s=join_limit, stall_s=stall, transport=transport,
        source_ports=source_ports, traffic_class=traffic_class, icrc=icrc, verbs=tuple(verbs or ()),
    )  # fmt: skip
    play = Play("", hosts=hosts, rate=rate, congestion=congestion)
    bench = PathBench("pingpong", play, live, ends, sizes_of(size, "64", all_sizes), mtu)
    return bench.run(out, as_json, rounds=count, limit_s=limit, poll=False if events else None)


def write(
    size: Annotated[
        str | None, typer.Option("-s", "--size", help="Bytes of a message; K and M are 1024s.  [default: 64K]")
    ] = None,
    all_sizes: AllSizes = False,
    count: Annotated[int, typer.Option("-n", "--iters", min=1, max=10**8, help="Messages of each size.")] = 5000,
    queue_pairs: QueuePairs = 1,
    depth: Annotated[
        int, typer.Option("--depth", "-t", min=1, max=10**5, help="Messages under way on each queue pair.")
    ] = 128,
    hosts: options.HostsFile = None,
    ends: Ends = FIRST_TWO,
    rate: LineRate = UNLIMITED,
    transport: options.Transport = SOFTROCE,
    mtu: Mtu = None,
    congestion: options.Congestion = None,
    source_ports: options.Ports = PAIR,
    traffic_class: options.TrafficClass = None,
    icrc: options.Icrc = "auto",
    verbs: options.Verbs = None,
    no_offload: options.NoOffload = False,
    gigabits: Annotated[bool, typer.Option("--report-gbits", help="Gb/s, of 10^9 bits, not MB/s, of 2^20 bytes.")] = (
        False
    ),
    as_json: AsJson = None,
    out: Kept = None,
    limit: Limit = 600.0,
    udp_port: options.UdpPort = 4791,
    join_limit: options.Join = 60.0,
    stall: options.Stall = 10.0,
) -> int:
    """Bandwidth from one rank to another: RDMA WRITEs as fast as they go, in ib_write_bw's columns.

    The average is the sender's, from its first post to its last completion; the peak is the least that the fastest
    tenth can have had at the receiver, which compares the last message with what was sent: a byte that differs fails
    the bench. Over verbs the WRITEs carry immediate data: of others a receiver hears nothing.
    """
    live = Live(
        offload=not no_offload, udp_port=udp_port, join_s=join_limit, stall_s=stall, transport=transport,
        source_ports=source_ports, traffic_class=traffic_class, icrc=icrc, verbs=tuple(verbs or ()),
    )  # fmt: skip
    play = Play("", hosts=hosts, rate=rate, congestion=congestion)
    bench = PathBench("write", play, live, ends, sizes_of(size, "64K", all_sizes), mtu)
    return bench.run(out, as_json, gigabits=gigabits, rounds=count, limit_s=limit, depth=depth, queue_pairs=queue_pairs)


def sizes_of(size: str | None, default: str, all_sizes: bool) -> list[int]:
    """What to measure, in bytes."""
    if all_sizes and size is not None:
        raise UsageError(f"-s {size} and -a: give one of the two")
    return ALL_SIZES if all_sizes else [size_from("-s", size or default, SIZE_MAX)]


class PathBench:
    """One bench between two ranks."""

    def __init__(self, test: Test, play: Play, live: Live, ends: str, sizes_bytes: list[int], mtu: int | None) -> None:
        check_started_by_hand(live.transport)
        self._test, self._play, self._live, self._mtu = test, play, live, mtu_from(mtu)
        self._sizes_bytes = sizes_bytes
        self._hosts = ends_of(play.hosts, ends, live.udp_port)
        if len(set(transports_of(live, self._hosts))) > 1:
            raise UsageError(f"{play.hosts}: one end is on softroce and one on verbs: a bench has the same at both")

    def run(self, out: Path | None, as_json: Path | None, *, gigabits: bool = False, **asked: Any) -> int:
        """Measure, print the table; the exit code. `asked`: fields of PairSettings."""
        check_json(as_json)
        with workplace(out, self._hosts) as folder:
            settings = self._settings(folder / self._test, asked)
            refuse_running(settings.out_path)
            prepare_folder(settings.out_path, BENCH)
            line = mpirun_line(settings, remote_hosts(self._hosts), PAIR_MODULE)
            print("genie: " + " ".join(line), file=sys.stderr, flush=True)
            pingpong = self._test == "pingpong"
            for text in perftest_table.head(pingpong, self._facts(settings), gigabits):
                print(text, flush=True)
            with printed(settings, lambda row: perftest_table.row(row, gigabits)):
                run_ranks(settings, line, f"bench {self._test}")
            info = json.loads((settings.out_path / "run.json").read_bytes())
        print(perftest_table.RULE, flush=True)
        warn_of_retransmits(sum(rank["counters"].get("retransmitted", 0) for rank in info["ranks"]))
        if as_json is not None:
            write_json(as_json, info)
        wrong = sum(each["wrong_bytes"] for each in info["lines"])
        if wrong:
            print(f"genie: {wrong} bytes of what arrived are not what was sent", file=sys.stderr)
        return EXIT_FAILED if wrong else 0

    def _settings(self, out: Path, asked: dict[str, Any]) -> PairSettings:
        workload = Workload(self._test, 2, [Group("0", (0, 1))], {})
        settings = settings_of(self._play, self._live, out, workload, self._hosts, None)
        fields = msgspec.structs.asdict(settings)
        fields |= {"schema": launch_mark(BENCH), "workload": "", "mtu": self._mtu} | asked
        return PairSettings(**fields, test=self._test, sizes_bytes=self._sizes_bytes)

    def _facts(self, settings: PairSettings) -> list[tuple[str, str]]:
        return [
            ("Transport", _transport(settings)),
            ("Path", " -> ".join(settings.addresses)),
            ("Line rate", str(self._play.rate)),
            ("Number of qps", str(settings.queue_pairs)),
            *([("TX depth", str(settings.depth))] if self._test == "write" else []),
            ("Mtu", f"{settings.mtu}[B]" if settings.mtu else "the largest that gets there"),
        ]


def _transport(settings: PairSettings) -> str:
    if settings.transport == VERBS:
        return f"verbs, {settings.device_of(0) or 'the device of the address'}"
    return f"softroce, offload {'on' if settings.offload else 'off'}"


@contextmanager
def printed(settings: PairSettings, text_of: Callable[[Any], str]) -> Iterator[None]:
    """Print lines as the ranks leave them, and at the end those that nobody has seen yet."""
    shown = 0

    def show(path: Path, key: str | None) -> None:
        nonlocal shown
        with suppress(OSError, ValueError, KeyError):
            found = json.loads(path.read_bytes())
            lines = found[key] if key else found
            while shown < len(lines):
                show_progress("")
                print(text_of(line_of(settings, lines[shown])), flush=True)
                shown += 1

    def look() -> None:
        show(settings.out_path / PARTS / LINES, None)
        if shown < len(settings.sizes_bytes):
            show_progress(f"{settings.sizes_bytes[shown]} bytes")

    try:
        with watched(look, WATCH_S):
            yield
    finally:
        show(settings.out_path / "run.json", "lines")
