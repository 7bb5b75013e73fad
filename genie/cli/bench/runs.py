"""What all benches do: where ranks run, where they leave their runs, and what goes wrong in one line."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Annotated, Any

import typer

from genie.bench.sizes import SIZE_MAX, parse_size
from genie.cli.live_commands import refuse_half_a_launch, refuse_launched
from genie.config.hosts import Hosts, load_hosts
from genie.job.resolve import Live, Play, UsageError, check_live, fabric_of, hosts_of, transports_of
from genie.job.site import ExecutionSite, execution_site, planned
from genie.lab import Lab
from genie.live.launch.launcher import RANK_MODULE, LaunchError, launch, mpirun_line, remote_hosts
from genie.live.paths.mtu import MTUS
from genie.live.settings import RunSettings
from genie.live.transport import VERBS
from genie.record import is_special, lock_folder, marked_json, refuse_foreign, replace_own, temporary_folder
from genie.workload.graph import Workload
from genie.workload.write import save
from simtwin.fabric.reading import load_fabric, with_host_latency
from simtwin.fabric.schema import Fabric
from simtwin.fabric.topology import build_network

TEMPORARY = "genie-bench-locked-"  # names of folders that are removed when nobody holds them
SHARED_FOLDER = Path("runs/bench")  # where ranks are on other machines, which must see it

UNLIMITED = "unlimited"
REPORT_KIND = "bench-report"
PREFIX = "bench"  # of traces
FIRST_TWO = "0,1"
_ENDS = re.compile(r"([0-9]{1,5}),([0-9]{1,5})")

LineRate = Annotated[
    str, typer.Option("--rate", help="Line rate of every rank's soft NIC, such as 200Mb/s, or unlimited.")
]
Mtu = Annotated[
    int | None, typer.Option(help="Path MTU: 256, 512, 1024, 2048 or 4096.  [default: the largest that gets there]")
]
AsJson = Annotated[Path | None, typer.Option("--json", help="Write all figures and the settings here.")]
_KEPT = (
    "Keep runs here, in a folder that all hosts see.  [default: a temporary one; "
    f"{SHARED_FOLDER} with ranks on other machines]"
)
Kept = Annotated[Path | None, typer.Option("-o", "--out", help=_KEPT)]
KeptLong = Annotated[Path | None, typer.Option("--out", help=_KEPT)]  # where -o is nccl-tests'


def check_started_by_hand(transport: str, lab: Path | None = None) -> None:
    """Benches start ranks themselves."""
    check_live(transport, "plain", lab)
    refuse_launched()
    refuse_half_a_launch()


@dataclass(frozen=True)
class BenchSite:
    """Where and how a bench plays, in one place: files and options say it, or whoever has built the network.

    `play` and `live` are as they are used: of a network that was built `play.fabric` names the file.
    """

    play: Play
    live: Live
    hosts: Hosts
    fabric: Fabric | None = None  # of both worlds; None: no file describes it
    wrapper: tuple[str, ...] = ()  # put before each rank's command
    lab: Lab | None = None  # that the hosts are in
    faults: tuple[str, ...] = ()  # of its links, while ranks are measured

    @property
    def site(self) -> ExecutionSite:
        """The same without the network."""
        return ExecutionSite(self.play, self.live, self.lab, self.faults)

    def calibrated(self, out: Path) -> BenchSite:
        """With hosts that cost what they are known to, or measured now, in the folder `out`, to cost.

        Devices' costs nobody measures. Raises LaunchError.
        """
        if self.hosts.calibration is not None or VERBS in transports_of(self.live, self.hosts):
            return self
        from genie.cli.calibrating import calibrated  # here, because few commands need what it imports

        hosts = calibrated(self.site, self.hosts, out)
        found = hosts.calibration
        if self.fabric is None or found is None:
            return replace(self, hosts=hosts)
        fabric = with_host_latency(self.fabric, found.packet_latency_ns, found.message_latency_ns)
        return replace(self, hosts=hosts, fabric=fabric)

    def command(self, settings: RunSettings, module: str = RANK_MODULE) -> list[str]:
        """What starts all ranks."""
        return mpirun_line(settings, remote_hosts(self.hosts), module, self.wrapper)


@contextmanager
def staged(
    play: Play, live: Live, ranks: int | None, *, runs: bool, lab: Path | None, faults: Sequence[str] | None
) -> Iterator[BenchSite]:
    """The bench_site that files and options describe. `runs`: ranks will be there, not only the twin.

    Without --ranks and --hosts each host of the fabric has a rank. A lab is built for ranks alone.
    """
    known = None
    if not runs:
        if faults:
            raise UsageError("--lab-fault: is of a lab that ranks run in, and with --simulate none do: leave it out")
        if lab is not None:
            play, known = planned(play, lab)
    with execution_site(play, live, lab if runs else None, faults) as site:
        play, live = site.play, site.live
        if ranks is None and play.hosts is None and play.fabric is not None:
            ranks = build_network(play.as_built or load_fabric(play.fabric)).hosts
        if site.lab is not None:
            placed = site.hosts(ranks or 0)
        else:
            placed = places_of(play.hosts, ranks, live.udp_port if runs else None)
            placed = placed if known is None else replace(placed, calibration=known)
        fabric = fabric_of(play, placed.ranks, placed) if play.fabric is not None else None
        yield BenchSite(play, live, placed, fabric, site.wrapper(placed.ranks), site.lab, site.faults)


def places_of(hosts: Path | None, ranks: int | None, udp_port: int | None) -> Hosts:
    """Where the ranks are."""
    if hosts is None and ranks is None:
        raise UsageError("give --ranks N for loopback, or --hosts FILE")
    wanted = load_hosts(hosts).ranks if ranks is None and hosts is not None else ranks or 0
    if wanted < 2:
        raise UsageError(f"{hosts}: places {wanted} rank: a bench needs 2")
    return hosts_of(Play("", hosts=hosts), wanted, udp_port)


def ends_of(hosts: Path | None, ends: str, udp_port: int) -> Hosts:
    """The two ends of a path, which become ranks 0 and 1. `ends`: their ranks in the hosts file, as "0,4"."""
    if not (match := _ENDS.fullmatch(ends)) or match[1] == match[2]:
        raise UsageError(f"--ends {ends}: give two ranks of the hosts file, such as 0,4")
    if hosts is None:
        if ends != FIRST_TWO:
            raise UsageError(f"--ends {ends}: are ranks of a hosts file: give --hosts FILE too")
        return places_of(None, 2, udp_port)
    placed = load_hosts(hosts)
    chosen = [int(match[1]), int(match[2])]
    if max(chosen) >= placed.ranks:
        raise UsageError(f"--ends {ends}: {hosts} has ranks 0 to {placed.ranks - 1}")
    here, there = (placed.places[rank] for rank in chosen)
    if here.address == there.address:
        text = f"{hosts}: ranks {chosen[0]} and {chosen[1]} have one address, {here.address}"
        raise UsageError(f"{text}: choose others with --ends")
    return Hosts((replace(here, rank=0), replace(there, rank=1)), placed.calibration, placed.name)


def size_from(option: str, text: str, maximum: str = SIZE_MAX) -> int:
    """An option's size in bytes, at most `maximum`."""
    try:
        return parse_size(text, maximum)
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}") from error


def mtu_from(mtu: int | None) -> int:
    """--mtu, or 0 for the largest path MTU that all paths carry."""
    if mtu is not None and mtu not in MTUS:
        raise UsageError(f"--mtu {mtu}: must be {', '.join(map(str, sorted(MTUS)))}")
    return mtu or 0


@contextmanager
def workplace(out: Path | None, hosts: Hosts | None) -> Iterator[Path]:
    """The folder for traces and runs; a temporary one where nobody asked for it and only this machine needs it.

    `hosts`: where ranks run, None for those of the twin.
    """
    if out is not None or (hosts is not None and remote_hosts(hosts) is not None):
        kept = out or SHARED_FOLDER
        kept.mkdir(parents=True, exist_ok=True)
        lock_folder(kept)
        yield kept.resolve()
        return
    with temporary_folder(TEMPORARY) as folder:
        try:
            yield folder
        except LaunchError as error:  # what it says of files in the folder is true no more
            parts = [part for part in str(error).split("; ") if str(folder) not in part]
            raise LaunchError("; ".join(parts) or "the run failed", error.code) from error


def run_ranks(settings: RunSettings, line: list[str], what: str, limit_s: float | None = None) -> None:
    """Run all ranks to their end, within so long once they are set up. Raises LaunchError with what went wrong."""
    with redirect_stderr(StringIO()):  # the launcher's progress is that of iterations, of which there is one
        outcome = launch(settings, line, limit_s)
    if outcome.code != 0:
        show_progress("")
        raise LaunchError(f"{what}: {outcome.problem}", outcome.code)


@contextmanager
def watched(look: Callable[[], None], interval_s: float) -> Iterator[None]:
    """Look at what ranks leave, every so often, while they run; no progress is shown afterwards."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(interval_s):
            look()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        show_progress("")


def show_progress(text: str) -> None:
    """What is being measured, in one line that changes, on a terminal only: lines of tables say it elsewhere."""
    terminal = sys.__stderr__  # not what run_ranks puts in its place
    if terminal is not None and terminal.isatty():
        print(f"\r\x1b[K{text}", end="", file=terminal, flush=True)


def warn_of_retransmits(packets: int) -> None:
    """Say so when packets were sent again: they cost time."""
    if packets:
        why = "the network or a receiver lost some, or answers took longer than the timeout"
        print(f"genie: {packets} packets were sent again: {why}", file=sys.stderr)


def save_trace(workload: Workload, folder: Path) -> None:
    """Write what is played, in place of an earlier one there."""
    save(workload, folder, PREFIX)


def check_json(path: Path | None, kind: str = REPORT_KIND) -> None:
    """Raises UsageError before anything runs when there is no place for the file."""
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        raise UsageError(f"--json {path}: {'is a folder' if path.is_dir() else 'its folder is not there'}: give a file")
    if path is not None and not is_special(path):
        refuse_foreign(path, kind)


def write_json(path: Path, report: dict[str, Any], kind: str = REPORT_KIND) -> None:
    """One JSON object."""
    replace_own(path, marked_json(kind, report), kind)
