"""`genie bench pingpong` and `genie bench write`: the path between two ranks, in perftest's tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from genie.bench import perftest_table
from genie.bench.pair import PairSettings, Test, line_of
from genie.bench.rank import LINES
from genie.cli.bench.path_twin import PathAsked, simulate_path
from genie.cli.bench.runs import (
    FIRST_TWO,
    LEFT_OUT,
    UNLIMITED,
    AsJson,
    Kept,
    Mtu,
    Simulate,
    check_json,
    check_started_by_hand,
    ends_of,
    mtu_from,
    run_ranks,
    show_progress,
    size_from,
    warn_of_retransmits,
    watched,
    without,
    workplace,
    write_json,
)
from genie.cli.groups import flattened
from genie.config.limits import QUEUE_PAIRS_MAX
from genie.errors import EXIT_FAILED, UsageError
from genie.invocation import detail
from genie.job.job import Job, transports_of
from genie.job.live_settings import live_settings
from genie.job.option import NETWORK, OUTPUT, WIRE, Option
from genie.job.options import LiveOptions, TrafficOptions, TwinOptions
from genie.live.launch.launcher import mpirun_line, refuse_running, remote_hosts
from genie.live.parts import PARTS
from genie.live.transport import VERBS
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
genie bench pingpong --simulate --fabric FABRIC.toml -s 2
```
"""
WRITE_EXAMPLES = """
Examples:

```text
genie bench write
genie bench write -a --queue-pairs 4 --hosts hosts/cluster.toml --ends 0,2
genie bench write -s 1M -n 2000 --rate 1Gb/s --report-gbits
genie bench write --simulate --fabric FABRIC.toml -a -n 100 --depth 1
```
"""

PANEL = "Messages"
# The options of the groups that these benches do not have.
LEAVE_OUT = LEFT_OUT | {
    TrafficOptions: without(TrafficOptions, "fabric", "hosts", "rate", "congestion"),
    LiveOptions: LEFT_OUT[LiveOptions] | {"events"},
}


@dataclass(frozen=True)
class PathOptions:
    """The two ends of a path, and the sizes of its messages."""

    size: Annotated[
        str | None,
        Option(
            "Size of one message. K, M and G are powers of 1024.",
            PANEL,
            ("-s", "--size"),
            default="64 for pingpong, 64K for write",
        ),
    ] = None
    all_sizes: Annotated[bool, Option("Measure all powers of two from 2 bytes to 8 MiB.", PANEL, ("-a", "--all"))] = (
        False
    )
    ends: Annotated[
        str,
        Option(
            "Ends of the path: two ranks of the hosts file, or with `--simulate` and no hosts file two hosts of the "
            "fabric. The first end sends first.",
            NETWORK,
        ),
    ] = FIRST_TWO
    limit: Annotated[
        float, Option("Time limit in seconds for each size, without `--simulate`.", PANEL, (), 0.1, 86400)
    ] = 600.0


def register(app: typer.Typer) -> None:
    """Add this file's commands."""
    app.command("pingpong", epilog=PINGPONG_EXAMPLES)(flattened(pingpong, LEAVE_OUT, rate=UNLIMITED))
    app.command("write", epilog=WRITE_EXAMPLES)(flattened(write, LEAVE_OUT, rate=UNLIMITED))


def pingpong(
    path: PathOptions,
    traffic: TrafficOptions,
    live: LiveOptions,
    simulated: TwinOptions,
    count: Annotated[
        int,
        typer.Option(
            "-n", "--iters", min=1, max=10**8, help="Number of round trips for each size.", rich_help_panel=PANEL
        ),
    ] = 1000,
    events: Annotated[
        bool,
        typer.Option(
            "-e",
            "--events",
            help="Sleep until a packet comes, instead of polling.  [default: poll if the machine has a core for each "
            "of its ranks, otherwise sleep]",
        ),
    ] = False,
    mtu: Mtu = None,
    simulate: Simulate = False,
    as_json: AsJson = None,
    out: Kept = None,
) -> int:
    """Measure the latency between two ranks, in the columns of ib_write_lat.

    The two ranks send WRITE_WITH_IMM messages to each other in turn. The latency is half of a round trip. Both ranks
    compare the last message of each size with the bytes that were sent. The twin has no bytes to compare.

    Exit codes: 0 done, 1 a byte was wrong, a rank died, or a time limit was exceeded.
    """
    sizes_bytes = sizes_of(path, "64")
    if simulate:
        asked = PathAsked("pingpong", sizes_bytes, count, mtu_from(mtu))
        return simulate_path(asked, traffic, live, simulated, path.ends, out=out, as_json=as_json)
    bench = PathBench("pingpong", traffic, live, path.ends, sizes_bytes, mtu)
    return bench.run(out, as_json, rounds=count, limit_s=path.limit, poll=False if events else None)


def write(
    path: PathOptions,
    traffic: TrafficOptions,
    live: LiveOptions,
    simulated: TwinOptions,
    count: Annotated[
        int,
        typer.Option("-n", "--iters", min=1, max=10**8, help="Number of messages of each size.", rich_help_panel=PANEL),
    ] = 5000,
    queue_pairs: Annotated[
        int,
        typer.Option(
            "--queue-pairs",
            "-q",
            min=1,
            max=QUEUE_PAIRS_MAX,
            help="Number of queue pairs of the connection. Messages use them in turn.",
            rich_help_panel=WIRE,
        ),
    ] = 1,
    depth: Annotated[
        int,
        typer.Option(
            "--depth",
            "-t",
            min=1,
            max=10**5,
            help="Maximum number of outstanding messages on each queue pair.",
            rich_help_panel=PANEL,
        ),
    ] = 128,
    gigabits: Annotated[
        bool,
        typer.Option(
            "--report-gbits",
            help="Print bandwidth in Gb/s (10^9 bits per second) instead of MB/s (2^20 bytes per second).",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    mtu: Mtu = None,
    simulate: Simulate = False,
    as_json: AsJson = None,
    out: Kept = None,
) -> int:
    """Measure the bandwidth from one rank to another with RDMA WRITEs, in the columns of ib_write_bw.

    The sender measures the average, from its first post to its last completion. The receiver measures the peak, the
    highest rate over a tenth of the messages. With several queue pairs the peak is a lower bound. The receiver compares
    the last message of each size with the bytes that were sent. On verbs the WRITEs carry immediate data, because a
    receiver gets no completion otherwise. The twin's WRITEs carry immediate data too.

    Exit codes: 0 done, 1 a byte was wrong, a rank died, or a time limit was exceeded.
    """
    sizes_bytes = sizes_of(path, "64K")
    if simulate:
        asked = PathAsked("write", sizes_bytes, count, mtu_from(mtu), depth, queue_pairs)
        return simulate_path(asked, traffic, live, simulated, path.ends, out=out, as_json=as_json, gigabits=gigabits)
    bench = PathBench("write", traffic, live, path.ends, sizes_bytes, mtu)
    return bench.run(
        out, as_json, gigabits=gigabits, rounds=count, limit_s=path.limit, depth=depth, queue_pairs=queue_pairs
    )


def sizes_of(path: PathOptions, default: str) -> list[int]:
    """The sizes to measure, in bytes. Raises UsageError."""
    if path.all_sizes and path.size is not None:
        raise UsageError(f"-s {path.size} and -a: give one of the two")
    return ALL_SIZES if path.all_sizes else [size_from("-s", path.size or default, SIZE_MAX)]


class PathBench:
    """One bench between two ranks."""

    def __init__(
        self,
        test: Test,
        traffic: TrafficOptions,
        live: LiveOptions,
        ends: str,
        sizes_bytes: list[int],
        mtu: int | None,
    ) -> None:
        check_started_by_hand(live)
        if traffic.fabric is not None:
            raise UsageError(
                f"--fabric {traffic.fabric}: has an effect with --simulate only: add it, or leave this out"
            )
        self._test, self._traffic, self._live, self._mtu = test, traffic, live, mtu_from(mtu)
        self._sizes_bytes = sizes_bytes
        self._hosts = ends_of(traffic.hosts, ends, live.udp_port)
        if len(set(transports_of(live, self._hosts))) > 1:
            raise UsageError(f"{traffic.hosts}: one end is on softroce and one on verbs: a bench needs one transport")

    def run(self, out: Path | None, as_json: Path | None, *, gigabits: bool = False, **asked: Any) -> int:
        """Measure, print the table, and return the exit code. `asked`: fields of PairSettings."""
        check_json(as_json)
        with workplace(out, self._hosts) as folder:
            settings = self._settings(folder / self._test, asked)
            refuse_running(settings.out_path)
            prepare_folder(settings.out_path, BENCH)
            line = mpirun_line(settings, remote_hosts(self._hosts), PAIR_MODULE)
            detail(" ".join(line))
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
        settings = live_settings(Job(self._traffic, self._live, workload, self._hosts), out)
        fields = msgspec.structs.asdict(settings)
        fields |= {"schema": launch_mark(BENCH), "workload": "", "mtu": self._mtu} | asked
        return PairSettings(**fields, test=self._test, sizes_bytes=self._sizes_bytes)

    def _facts(self, settings: PairSettings) -> list[tuple[str, str]]:
        return [
            ("Transport", _transport(settings)),
            ("Path", " -> ".join(settings.addresses)),
            ("Line rate", str(self._traffic.rate)),
            ("Number of qps", str(settings.queue_pairs)),
            *([("TX depth", str(settings.depth))] if self._test == "write" else []),
            ("Mtu", f"{settings.mtu}[B]" if settings.mtu else "the largest that the path carries"),
        ]


def _transport(settings: PairSettings) -> str:
    if settings.transport == VERBS:
        return f"verbs, {settings.device_of(0) or 'the device of the address'}"
    return f"softroce, offload {'on' if settings.offload else 'off'}"


@contextmanager
def printed(settings: PairSettings, text_of: Callable[[Any], str]) -> Iterator[None]:
    """Print lines as the ranks write them, and at the end those not printed yet."""
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
