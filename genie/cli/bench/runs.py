"""Common parts of all benches: the place of the ranks, the folder of the runs, and errors in one line."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Annotated, Any

import typer

from genie.bench.baseline import REPORT_KIND
from genie.bench.sizes import SIZE_MAX, parse_size
from genie.cli.launching import check_live, refuse_half_a_launch, refuse_launched
from genie.config.hosts import Hosts, load_hosts
from genie.errors import UsageError
from genie.invocation import note
from genie.job.job import Job, hosts_of
from genie.job.option import OUTPUT, WIRE, fields_of
from genie.job.options import LabOptions, LiveOptions, TrafficOptions, TwinOptions
from genie.job.site import ExecutionSite, execution_site, planned
from genie.live.launch.launcher import RANK_MODULE, LaunchError, launch, mpirun_line, remote_hosts
from genie.live.paths.mtu import MTUS
from genie.live.settings import RunSettings
from genie.live.transport import VERBS
from genie.progress import Display
from genie.record import is_special, lock_folder, marked_json, refuse_foreign, replace_own, temporary_folder
from genie.workload.graph import Workload
from genie.workload.write import save
from simtwin.fabric.topology import build_network

RANKS_MAX = 1024
TEMPORARY = "genie-bench-locked-"  # prefix of folders that are removed once no process locks them
SHARED_FOLDER = Path("runs/bench")  # where ranks are on other machines, which must see it

UNLIMITED = "unlimited"
PREFIX = "bench"  # of traces
FIRST_TWO = "0,1"
_ENDS = re.compile(r"([0-9]{1,5}),([0-9]{1,5})")

_KEPT = (
    "Folder in which the command keeps the runs. All hosts must see it.  [default: a temporary folder, or "
    f"`{SHARED_FOLDER}` if ranks run on other machines]"
)
Kept = Annotated[Path | None, typer.Option("-o", "--out", help=_KEPT, rich_help_panel=OUTPUT)]
KeptLong = Annotated[Path | None, typer.Option("--out", help=_KEPT, rich_help_panel=OUTPUT)]  # where -o is nccl-tests'
Mtu = Annotated[
    int | None,
    typer.Option(
        help="Path MTU in bytes: 256, 512, 1024, 2048 or 4096.  [default: the MTU of the fabric file, otherwise the "
        "largest that all paths carry, in `check` the largest that the interfaces carry]",
        rich_help_panel=WIRE,
    ),
]
AsJson = Annotated[
    Path | None,
    typer.Option("--json", help="File for all results and settings, as JSON.  [default: none]", rich_help_panel=OUTPUT),
]
Ranks = Annotated[
    int | None,
    typer.Option(
        min=2,
        max=RANKS_MAX,
        help="Number of ranks.  [default: all ranks of the hosts file, or one for each host of the fabric file]",
    ),
]
Simulate = Annotated[bool, typer.Option("--simulate", help="Play in the twin only, and start no ranks.")]


def without(group: type, *kept: str) -> set[str]:
    """Return the options of a group except these."""
    return {each.name for each in fields_of(group)} - set(kept)


# The options of the groups that benches do not have.
LEFT_OUT: dict[type, set[str]] = {
    TrafficOptions: without(
        TrafficOptions, "fabric", "hosts", "rate", "queue_pairs", "split", "spray", "congestion", "seed"
    ),
    LiveOptions: {"iterations", "warmup", "trace_paths", "verify", "faults"},
    TwinOptions: without(TwinOptions, "level", "threads"),
}


def check_started_by_hand(live: LiveOptions, given: LabOptions | None = None) -> None:
    """Raises UsageError under a launcher, as benches start ranks themselves."""
    check_live(live, given or LabOptions())
    refuse_launched()
    refuse_half_a_launch()


@dataclass(frozen=True)
class BenchSite:
    """The place of a bench: where its ranks run, and its job, whose workload each size replaces."""

    site: ExecutionSite
    job: Job

    @property
    def hosts(self) -> Hosts:
        """The hosts of all ranks."""
        return self.job.hosts

    def calibrated(self, out: Path) -> BenchSite:
        """Return the same site with calibrated hosts. Without a calibration it is measured now, in the folder `out`.

        RDMA devices are not measured. Raises LaunchError.
        """
        if self.hosts.calibration is not None or VERBS in self.job.transports:
            return self
        from genie.job.calibration import calibrated  # imported here, because few commands need it

        return replace(self, job=replace(self.job, hosts=calibrated(self.site, self.hosts, out)))

    def command(self, settings: RunSettings, module: str = RANK_MODULE) -> list[str]:
        """The command that starts all ranks."""
        return mpirun_line(settings, remote_hosts(self.hosts), module, self.site.wrapper(self.hosts.ranks))


@contextmanager
def staged(
    traffic: TrafficOptions, live: LiveOptions, given: LabOptions, ranks: int | None, *, runs: bool
) -> Iterator[BenchSite]:
    """Yield the site that files and options describe. `runs`: whether ranks run there, and not only the twin.

    Without --ranks and --hosts each host of the fabric has a rank. A lab is built only if ranks run.
    """
    known, written = None, None
    if not runs:
        if given.lab_fault:
            raise UsageError("--lab-fault: has no effect with --simulate, which starts no ranks: leave it out")
        if given.lab is not None:
            traffic, written, known = planned(traffic, given.lab)
    with execution_site(traffic, live, given if runs else LabOptions()) as site:
        site = replace(site, written=written) if written is not None else site
        written = site.fabric_as_written()
        if ranks is None and site.traffic.hosts is None and written is not None:
            ranks = build_network(written).hosts
        if site.lab is not None:
            placed = site.hosts(ranks or 0)
        else:
            placed = places_of(site.traffic.hosts, ranks, live.udp_port if runs else None)
            placed = placed if known is None else replace(placed, calibration=known)
        nothing = Workload("bench", placed.ranks, [], {})
        yield BenchSite(site, Job(site.traffic, site.live, nothing, placed, written))


def places_of(hosts: Path | None, ranks: int | None, udp_port: int | None) -> Hosts:
    """Return the places of the ranks. Raises UsageError."""
    if hosts is None and ranks is None:
        raise UsageError("give --ranks N for loopback, or --hosts FILE")
    wanted = load_hosts(hosts).ranks if ranks is None and hosts is not None else ranks or 0
    if wanted < 2:
        raise UsageError(f"{hosts}: places {wanted} rank: a bench needs 2 or more")
    return hosts_of(TrafficOptions(hosts=hosts), wanted, udp_port)


def two_of(ends: str) -> tuple[int, int] | None:
    """Return the two different numbers of --ends; None if it has none."""
    match = _ENDS.fullmatch(ends)
    return None if match is None or int(match[1]) == int(match[2]) else (int(match[1]), int(match[2]))


def ends_of(hosts: Path | None, ends: str, udp_port: int) -> Hosts:
    """Return the two ends of a path, which become ranks 0 and 1. `ends`: their ranks in the hosts file, as "0,4"."""
    if (chosen := two_of(ends)) is None:
        raise UsageError(f"--ends {ends}: give two ranks of the hosts file, such as 0,4")
    if hosts is None:
        if ends != FIRST_TWO:
            raise UsageError(f"--ends {ends}: are ranks of a hosts file: give --hosts FILE too")
        return places_of(None, 2, udp_port)
    placed = load_hosts(hosts)
    if max(chosen) >= placed.ranks:
        raise UsageError(f"--ends {ends}: {hosts} has ranks 0 to {placed.ranks - 1}")
    here, there = (placed.places[rank] for rank in chosen)
    if here.address == there.address:
        text = f"{hosts}: ranks {chosen[0]} and {chosen[1]} have one address, {here.address}"
        raise UsageError(f"{text}: choose others with --ends")
    return Hosts((replace(here, rank=0), replace(there, rank=1)), placed.calibration, placed.name)


def size_from(option: str, text: str, maximum: str = SIZE_MAX) -> int:
    """Return an option's size in bytes, at most `maximum`. Raises UsageError."""
    try:
        return parse_size(text, maximum)
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}") from error


def mtu_from(mtu: int | None) -> int:
    """Return --mtu, or 0 for the largest path MTU that all paths carry. Raises UsageError."""
    if mtu is not None and mtu not in MTUS:
        raise UsageError(f"--mtu {mtu}: must be {', '.join(map(str, sorted(MTUS)))}")
    return mtu or 0


@contextmanager
def workplace(out: Path | None, hosts: Hosts | None) -> Iterator[Path]:
    """Yield the folder for traces and runs: a temporary one without -o, where all ranks are on this machine.

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
        except LaunchError as error:  # the folder is removed
            raise LaunchError(error.without_places, error.code) from error


def run_ranks(settings: RunSettings, line: list[str], what: str, limit_s: float | None = None) -> None:
    """Run all ranks to their end, within `limit_s` from when they are set up. Raises LaunchError with the reason."""
    with redirect_stderr(StringIO()):  # the launcher shows the progress of iterations, and there is only one
        outcome = launch(settings, line, limit_s)
    if outcome.code != 0:
        show_progress("")
        raise LaunchError(f"{what}: {outcome.failure}", outcome.code, outcome.places)


@contextmanager
def watched(look: Callable[[], None], interval_s: float) -> Iterator[None]:
    """Call `look` every `interval_s` while ranks run; afterwards remove the progress."""
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


_display: Display | None = None  # of the current bench


def show_progress(text: str) -> None:
    """Show the current step on a terminal; "" removes it. Elsewhere the lines of the table show the progress."""
    global _display
    if _display is not None and not text:
        _display.end()
        _display = None
    elif text:
        # The real standard error, which run_ranks replaces.
        _display = _display or Display(logs=False, file=sys.__stderr__)
        _display.update(text)


def warn_of_retransmits(packets: int) -> None:
    """Print a note when packets were sent again: they cost time."""
    if packets:
        why = "the network or a receiver lost some, or acknowledgements took longer than the timeout"
        note(f"{packets} packets were sent again: {why}")


def save_trace(workload: Workload, folder: Path) -> None:
    """Write the traces of a workload, in place of earlier ones there."""
    save(workload, folder, PREFIX)


def check_json(path: Path | None, kind: str = REPORT_KIND) -> None:
    """Check, before anything runs, that the file can be written. Raises UsageError."""
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        raise UsageError(f"--json {path}: {'is a folder' if path.is_dir() else 'its folder is not there'}: give a file")
    if path is not None and not is_special(path):
        refuse_foreign(path, kind)


def write_json(path: Path, report: dict[str, Any], kind: str = REPORT_KIND) -> None:
    """Write the report as one JSON object."""
    replace_own(path, marked_json(kind, report), kind)
