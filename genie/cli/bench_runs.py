"""What all benches do: where ranks run, where they leave their runs, and what goes wrong in one line."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Annotated, Any

import typer

from genie.cli.live_commands import refuse_half_a_launch, refuse_launched
from genie.cli.resolve import Play, UsageError, check_live, hosts_of
from genie.config.hosts import Hosts, load_hosts
from genie.live.bench.sizes import parse_size
from genie.live.launcher import LaunchError, launch, remote_hosts
from genie.live.settings import RunSettings
from genie.plan.facts import facts_of_build
from genie.workload.graph import Workload
from genie.workload.write import save

SHARED_FOLDER = Path("runs/bench")  # where ranks are on other machines, which must see it

UNLIMITED = "unlimited"
PREFIX = "bench"  # of traces

LineRate = Annotated[
    str, typer.Option("--rate", help="Line rate of every rank's soft NIC, such as 200Mb/s, or unlimited.")
]
AsJson = Annotated[Path | None, typer.Option("--json", help="Write all figures and the settings here.")]
Kept = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--out",
        help="Keep runs here, in a folder that all hosts see.  [default: a temporary one; "
        f"{SHARED_FOLDER} with ranks on other machines]",
    ),
]


def check_started_by_hand(transport: str) -> None:
    """Benches start ranks themselves."""
    check_live(transport, "plain", None)
    refuse_launched()
    refuse_half_a_launch()


def places_of(hosts: Path | None, ranks: int | None, udp_port: int) -> Hosts:
    """Where the ranks are."""
    if hosts is None and ranks is None:
        raise UsageError("give --ranks N for loopback, or --hosts FILE")
    wanted = load_hosts(hosts).ranks if ranks is None and hosts is not None else ranks or 0
    if wanted < 2:
        raise UsageError(f"{hosts}: places {wanted} rank: a bench needs 2")
    return hosts_of(Play("", hosts=hosts), wanted, udp_port)


def size_from(option: str, text: str) -> int:
    """An option's size in bytes."""
    try:
        return parse_size(text)
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}") from error


@contextmanager
def workplace(out: Path | None, hosts: Hosts) -> Iterator[Path]:
    """The folder for traces and runs; a temporary one where nobody asked for it and only this machine needs it."""
    if out is None and remote_hosts(hosts) is None:
        with tempfile.TemporaryDirectory(prefix="genie-bench-") as folder:
            try:
                yield Path(folder)
            except LaunchError as error:  # what it says of files in the folder is true no more
                kept = [part for part in str(error).split("; ") if folder not in part]
                raise LaunchError("; ".join(kept) or "the run failed", error.code) from error
        return
    folder_kept = out or SHARED_FOLDER
    folder_kept.mkdir(parents=True, exist_ok=True)
    yield folder_kept.resolve()


def run_ranks(settings: RunSettings, line: list[str], what: str) -> None:
    """Run all ranks to their end. Raises LaunchError with what went wrong."""
    with redirect_stderr(StringIO()):  # the launcher's progress is that of iterations, of which there is one
        outcome = launch(settings, line)
    if outcome.code != 0:
        show_progress("")
        raise LaunchError(f"{what}: {outcome.problem}", outcome.code)


def show_progress(text: str) -> None:
    """What is being measured, in one line that changes, on a terminal only: lines of tables say it elsewhere."""
    terminal = sys.__stderr__  # not what run_ranks puts in its place
    if terminal is not None and terminal.isatty():
        print(f"\r\x1b[K{text}", end="", file=terminal, flush=True)


def remark_on_retransmits(packets: int) -> None:
    """Say so when packets were lost: they cost time."""
    if packets:
        print(f"genie: {packets} packets were sent again: the network, or a receiver, lost some", file=sys.stderr)


def save_trace(workload: Workload, folder: Path) -> None:
    """Write what is played, in place of an earlier one there."""
    for stale in folder.glob(f"{PREFIX}.*"):
        stale.unlink()
    save(workload, folder, PREFIX)


def check_json(path: Path | None) -> None:
    """Raises UsageError before anything runs when there is no place for the file."""
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        raise UsageError(f"--json {path}: {'is a folder' if path.is_dir() else 'its folder is not there'}: give a file")


def write_json(path: Path, report: dict[str, Any]) -> None:
    """One JSON object, with what was built."""
    path.write_text(json.dumps({**report, **facts_of_build()}, indent=1) + "\n")
