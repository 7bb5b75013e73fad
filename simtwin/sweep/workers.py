"""Processes that play a sweep's runs: of this machine, or those of mpiexec."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager, redirect_stderr, suppress
from functools import lru_cache
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from genie.config.strict_toml import SettingsError, Tables
from genie.inputs.fault import fault_line
from genie.plan.facts import commit
from genie.record import RecordError, forget_warnings
from genie.workload.graph import Workload, WorkloadError
from genie.workload.load import load
from simtwin.api import play
from simtwin.fabric.reading import FabricError, fabric_from
from simtwin.fabric.routing import RoutingError
from simtwin.play.traffic import workload_on
from simtwin.play.twin import SimulationError
from simtwin.sweep.grid import SweepRun
from simtwin.sweep.rows import results_of
from simtwin.sweep.training_job import workload_of_job

EXPECTED = (SettingsError, WorkloadError, SimulationError, RoutingError, RecordError, ValueError, OSError)
KILLED = "its process was killed; if memory was short, give it more, or fewer --jobs"


def play_run(run: SweepRun, keep: Path | None = None) -> dict[str, Any]:
    """Return a run's row: results, or in `error` the reason for none. `keep`: path of its run folder."""
    os.environ.setdefault("POLARS_MAX_THREADS", "1")  # the other cores play other runs
    row: dict[str, Any] = {"id": run.identity, "parameters": run.parameters, "error": "", "commit": commit()}
    began = time.perf_counter()
    forget_warnings()  # each run has its own warnings
    with redirect_stderr(io.StringIO()) as said:
        try:
            row |= _results(run, keep)
        except EXPECTED as error:
            row["error"] = " ".join(str(error).split())
        except MemoryError:
            row["error"] = "memory was short"
        except Exception as error:  # a fault in Genie ends one run and not the sweep
            row["error"] = fault_line(error)
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # polars' own, which is not an Exception
                raise
            row["error"] = fault_line(error)
    return row | {"wall_s": round(time.perf_counter() - began, 6), "warnings": said.getvalue().splitlines()}


def _results(run: SweepRun, keep: Path | None) -> dict[str, Any]:
    base = run.base
    fabric = fabric_from(Tables(run.fabric, "the fabric", FabricError))
    if base.workload is not None:
        workload = _loaded(base.workload, base.compute)
    elif base.job is not None:
        workload = workload_of_job(base.job)
    else:
        assert base.traffic is not None
        workload = workload_on(fabric, base.traffic, run.folder)
    name = base.workload or workload.name
    result = play(fabric, workload, base, workload_path=name, hosts=base.hosts)
    if keep is not None:
        result.write(keep)
    return results_of(result)


@lru_cache(maxsize=1)
def _loaded(location: str, compute: str | None) -> Workload:
    """Load a trace with the durations that `compute` gives; playing fills them in."""
    return load(location)


def played(runs: Sequence[SweepRun], jobs: int | None, keep: Path | None = None) -> Generator[dict[str, Any]]:
    """Yield rows as runs end.

    `jobs`: processes of this machine; None: those of mpi4py.futures. `keep`: parent of the run folders. When a process
    dies, the runs that it may have had are played one at a time. The run that ends its process again becomes a row with
    an error.
    """
    left = {run.identity: run for run in runs}
    careful = 0  # number of first runs left to play one at a time
    while left:
        batch = list(left.values())[: careful or None]
        with _mpi_processes() if jobs is None else _processes(1 if careful else min(jobs, len(batch))) as executor:
            for future in as_completed(_submitted(executor, batch, keep)):
                with suppress(BrokenExecutor):
                    row = future.result()
                    del left[row["id"]]
                    yield row
        lost = [run for run in batch if run.identity in left]
        if careful and lost:
            del left[lost[0].identity]
            yield {"id": lost[0].identity, "parameters": lost[0].parameters, "error": KILLED}
            careful = len(lost) - 1
        elif lost:
            careful = min(2 * (jobs or 1) + 1, len(lost))
        else:
            careful = 0


def _submitted(executor: Executor, runs: Sequence[SweepRun], keep: Path | None) -> list[Future[dict[str, Any]]]:
    futures = []
    # Processes that start here inherit the blocked SIGINT: a terminal's Ctrl-C is for this process alone.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with suppress(BrokenExecutor):
            for run in runs:
                futures.append(executor.submit(play_run, run, None if keep is None else keep / run.identity))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return futures


@contextmanager
def _processes(jobs: int) -> Iterator[Executor]:
    """Processes that end at once when this one leaves the block or is killed: they wait for the end of a pipe."""
    context = get_context("spawn")
    reader, writer = context.Pipe(duplex=False)
    executor = ProcessPoolExecutor(jobs, context, _begin, (reader,))
    try:
        yield executor
    finally:
        writer.close()
        executor.shutdown(cancel_futures=True)
        reader.close()


def _begin(reader: Connection) -> None:
    threading.Thread(target=_end_with, args=(reader,), daemon=True).start()


def _end_with(reader: Connection) -> None:
    with suppress(EOFError, OSError):
        reader.recv_bytes()
    os._exit(0)


@contextmanager
def _mpi_processes() -> Iterator[Executor]:
    """The processes that `mpiexec -n K python -m mpi4py.futures` has started beside this one."""
    from mpi4py.futures import MPIPoolExecutor

    executor = MPIPoolExecutor(main=False)
    yield executor
    executor.shutdown()


def abandon_mpi() -> None:
    """End all processes of this launch, which would otherwise play their runs to the end."""
    from mpi4py import MPI

    sys.stdout.flush()
    sys.stderr.flush()
    MPI.COMM_WORLD.Abort(1)


def under_mpi() -> bool:
    """Return whether this process was started by `python -m mpi4py.futures`."""
    return "mpi4py.futures" in sys.orig_argv


def mpi_workers() -> int:
    """Return the number of processes that play runs under MPI."""
    from mpi4py import MPI

    return max(MPI.COMM_WORLD.Get_size() - 1, 1)
