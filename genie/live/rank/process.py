"""A rank started by the launcher: `python -m genie.live.rank.process OUT/launch.json`."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from genie.errors import EXIT_ENVIRONMENT, EXIT_FAULT, EXIT_USAGE
from genie.inputs.content import read_bytes
from genie.inputs.fault import fault_line, install_thread_handler, memory_line
from genie.inputs.printable import safe_streams
from genie.live.failure import Failure
from genie.live.launch.endings import launcher_gone, record_failure, unwritable_part
from genie.live.launched import expected_rank
from genie.live.parts import FINISHED, LAUNCHED, LOG_FILE, PARTS, RUNNING, SIGN, STARTING
from genie.live.rank.worker import run_rank
from genie.live.rendezvous.channel import RendezvousError
from genie.live.rendezvous.meeting import Rendezvous, join
from genie.live.settings import RunSettings

S = TypeVar("S", bound=RunSettings)


def main(path: str) -> int:
    return start(path, RunSettings, run_rank)


def start(path: str, kind: type[S], body: Callable[[S, Rendezvous], int]) -> int:
    """Run this process as a rank: read the launch file, meet the other ranks, and call `body`. Return the exit code.

    `kind`: the type of the settings in the launch file.
    """
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # MPICH's signal to ranks that another rank has gone
    install_thread_handler()
    try:
        with safe_streams():
            return _start(path, kind, body)
    except SystemExit:
        raise
    except MemoryError:
        print(f"genie: {memory_line()}", file=sys.stderr)
        return EXIT_ENVIRONMENT
    except BaseException as error:
        print(f"genie: {fault_line(error)}", file=sys.stderr)
        return EXIT_FAULT


def _start(path: str, kind: type[S], body: Callable[[S, Rendezvous], int]) -> int:
    try:
        settings = msgspec.json.decode(read_bytes(path), type=kind)
    except (OSError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", None) or error
        print(f"genie: {path}: is not a launch file of genie run: {why}", file=sys.stderr)
        return EXIT_USAGE
    try:
        early = expected_rank()
        if early is not None:
            _sign(settings, early, STARTING)
        rendezvous = join(limit_s=settings.join_s)
    except RendezvousError as error:
        print(f"genie: {error}", file=sys.stderr)
        return EXIT_ENVIRONMENT
    return run_and_sign(settings, rendezvous.rank, lambda: body(settings, rendezvous))


def run_and_sign(settings: RunSettings, rank: int, body: Callable[[], int]) -> int:
    """Run `body` and return its exit code. Keep this process's id in a file: so the launcher sees a rank vanish."""
    sign = _sign(settings, rank, RUNNING)
    code = int(body())
    if code == 0:
        with contextlib.suppress(OSError):
            _sign(settings, rank, FINISHED)
    if code == 0 and (LAUNCHED not in os.environ or launcher_gone()):  # otherwise the launcher cleans up
        with contextlib.suppress(OSError):
            for path in [*sign.parent.glob(f"{rank:05d}*"), sign.parent / LOG_FILE]:
                path.unlink(missing_ok=True)
            sign.parent.rmdir()  # succeeds for the last rank of each disk
    return code


def _sign(settings: RunSettings, rank: int, state: str) -> Path:
    path = settings.out_path / PARTS / f"{rank:05d}{SIGN}"
    try:
        if state != FINISHED:  # a folder that was removed during the run is not made again
            path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{os.uname().nodename} {os.getpid()} {state}")
    except OSError as error:
        failure = Failure(rank=rank, error=str(unwritable_part(settings, path, error)))
        if not record_failure(settings, failure, -1, EXIT_ENVIRONMENT) or LAUNCHED not in os.environ:
            print(f"genie: rank {rank}: {failure.error}", file=sys.stderr, flush=True)
        os._exit(EXIT_ENVIRONMENT)  # an ordinary exit would wait in MPI's finalization for the others
    return path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
