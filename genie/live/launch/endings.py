"""A rank's early end: which errors, which exit code, and a record of the failure even on a full disk."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import msgspec

from genie.errors import EXIT_ENVIRONMENT, EXIT_FAILED, EXIT_FAULT, EXIT_OK, EXIT_USAGE, RankError
from genie.inputs.fault import fault_line, memory_line
from genie.live.failure import Cause, ConnectionEndedError, Failure, FailureRecord, LauncherError, SignalError
from genie.live.launched import ENDING_SIGNALS
from genie.live.parts import FAILED, LAUNCHED, PARTS, RESERVE, remove_parts
from genie.live.rendezvous.channel import PeerError, RendezvousError
from genie.live.rendezvous.meeting import Rendezvous
from genie.live.settings import RunSettings
from genie.workload.graph import WorkloadError

FREE_SPACE = "free some space or choose another -o"
RESERVE_BYTES = 8192  # disk space that a rank reserves for its failure record, which may report a full disk
ALARM_LEAVES_S = 0.2
SIGNAL_SPREADS_S = 0.05  # for mpirun to pass a signal to all ranks of a machine
SALVAGE_LIMIT_S = 8.0
SALVAGE_WAIT_S = 1.0  # for other ranks' last records, where no launcher waits for them


def unexpected(error: BaseException) -> RankError:
    """Return memory exhaustion as such, and an error of Genie as one line that names the file with its traceback."""
    if isinstance(error, MemoryError):
        return RankError(memory_line(), EXIT_ENVIRONMENT)
    return RankError(fault_line(error), EXIT_FAULT)


def unwritable_part(settings: RunSettings, path: Path, error: OSError) -> RankError:
    """Return the error for a part file that cannot be written: mostly a full disk or a removed folder."""
    if isinstance(error, FileNotFoundError) and not path.parent.is_dir():
        folder = path.parent if settings.out_path.is_dir() else settings.out_path
        return RankError(f"{folder} was removed during the run", EXIT_ENVIRONMENT)
    return RankError(f"{path} cannot be written: {error.strerror}; {FREE_SPACE}", EXIT_ENVIRONMENT)


def check_size(settings: RunSettings, size: int) -> None:
    """Raise RankError when the number of started ranks differs from the run's."""
    if size == settings.ranks:
        return
    text = f"{size} rank{'s' if size > 1 else ''} started and the run has {settings.ranks}: start that many"
    if size == 1:
        text += " (MPI sees this one alone: under srun set MASTER_ADDR to do without MPI)"
    raise RankError(text, EXIT_USAGE, agreed=True)


def launcher_identity() -> str:
    """Return this process as the value of LAUNCHED: machine, process id, and PID namespace."""
    return f"{os.uname().nodename} {os.getpid()} {_pid_namespace()}"


def launcher_process() -> Path | None:
    """Return the launcher's folder in /proc when the launcher is or was a process of this machine; else None."""
    node, pid, namespace = (*os.environ.get(LAUNCHED, "").split(), "", "", "")[:3]
    here = node == os.uname().nodename and pid.isdecimal() and namespace == _pid_namespace()
    return Path("/proc") / pid if here else None


def launcher_gone() -> bool:
    """Return whether the launcher of this rank has ended: then no other process cleans up."""
    launcher = launcher_process()
    return launcher is not None and not launcher.exists()


def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return "unknown"


def reserve(settings: RunSettings, rank: int) -> None:
    """Reserve disk space for a failure record. Raise RankError when it cannot be written."""
    path = settings.out_path / PARTS / f"{rank:05d}{RESERVE}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_bytes(b" " * RESERVE_BYTES)
    except OSError as error:
        raise RankError(f"{path} cannot be written: {error.strerror}; {FREE_SPACE}", EXIT_ENVIRONMENT) from error


def heed_signals() -> None:
    """Raise RankError on a signal that tells this rank to end, so that records are saved."""
    for number in ENDING_SIGNALS:
        signal.signal(number, _told_to_end)


def _told_to_end(number: int, _: object) -> None:
    _only_note_signals()  # one error is enough
    raise SignalError(signal.Signals(number).name)


_noted: list[int] = []  # signals that came while this rank was already ending


def _only_note_signals() -> None:
    for number in ENDING_SIGNALS:
        signal.signal(number, lambda number, _: _noted.append(number))


def failure_of(rank: int, error: Exception) -> Failure:
    """Return the failure of a rank that cannot go on because of `error`."""
    match error:
        case PeerError():
            return Failure(rank=rank, error=str(error), cause=Cause.PEER)
        case SignalError():
            return Failure(rank=rank, error=str(error), cause=Cause.SIGNAL, signal=error.signal_name)
        case LauncherError():
            return Failure(rank=rank, error=str(error), cause=Cause.LAUNCHER)
        case ConnectionEndedError():
            return Failure(rank=rank, error=str(error), cause=Cause.CONNECTION)
    return Failure(rank=rank, error=str(error))


def code_of(error: Exception, played: bool) -> int:
    """Return the exit code for an error of a rank. `played`: the rank had begun to play."""
    if isinstance(error, RankError):
        return error.code
    if isinstance(error, WorkloadError):
        return EXIT_USAGE
    return EXIT_FAILED if played and isinstance(error, RendezvousError) else EXIT_ENVIRONMENT


def run_to_the_end(settings: RunSettings, rendezvous: Rendezvous, work: Callable[[], None]) -> int:
    """Run one rank of a command that plays no iterations, and return its exit code; errors as in `leave`."""
    heed_signals()
    try:
        reserve(settings, rendezvous.rank)
        work()
        rendezvous.channel.close()
        return EXIT_OK
    except (RankError, RendezvousError, OSError) as error:
        return leave(settings, rendezvous, error, -1)
    except BaseException as error:  # an error of Genie: the other ranks must learn of it
        return leave(settings, rendezvous, unexpected(error), -1)


def leave(settings: RunSettings, rendezvous: Rendezvous, error: Exception, iteration: int) -> int:
    """Report the error to the launcher and the other ranks, then end this process; return only when all ranks agreed.

    Return the exit code.
    """
    _only_note_signals()
    error, rank = _told_too(error), rendezvous.rank
    failure, code = failure_of(rank, error), code_of(error, iteration >= 0)
    agreed = isinstance(error, RankError) and error.agreed
    recorded = record_failure(settings, failure, iteration, code)
    # Where no launcher reports for all ranks, the rank that knows the cause reports it.
    others_say_it = recorded if LAUNCHED in os.environ else failure.cause == Cause.PEER or (agreed and rank != 0)
    if not others_say_it:
        print(f"genie: {name_rank(rank, failure.error)}", file=sys.stderr, flush=True)
    first = error.failure if isinstance(error, PeerError) else failure
    alone = LAUNCHED not in os.environ or first.cause == Cause.LAUNCHER
    heard = agreed or rendezvous.alarm(first)
    if not agreed:
        time.sleep(ALARM_LEAVES_S)
    if alone and rank == 0:
        _gather(settings, name_rank(0, failure.error), iteration, 0.0 if agreed else SALVAGE_WAIT_S)
    elif alone and heard and iteration >= 0:
        _wait_for_salvage(settings)  # mpirun ends all ranks as soon as one has failed
    if agreed:
        return code
    sys.stdout.flush()
    os._exit(code)  # an ordinary exit would wait in MPI's finalization for ranks that are gone


def _told_too(error: Exception) -> Exception:
    """Return the error, or that a signal told this rank to end: another rank's alarm may precede mpirun's signal."""
    if isinstance(error, PeerError) and error.failure.cause == Cause.SIGNAL:
        time.sleep(SIGNAL_SPREADS_S)
        if _noted:
            return SignalError(signal.Signals(_noted[0]).name)
    return error


def _gather(settings: RunSettings, problem: str, iteration: int, wait_s: float) -> None:
    """Complete the run folder in place of the launcher."""
    time.sleep(wait_s)
    if iteration < 0:
        remove_parts(settings)
        return
    from genie.live.launch.merge import try_to_salvage  # imported here because it imports much

    try_to_salvage(settings, problem)


def _wait_for_salvage(settings: RunSettings) -> None:
    deadline = time.monotonic() + SALVAGE_LIMIT_S
    while (settings.out_path / PARTS).exists() and time.monotonic() < deadline:
        time.sleep(0.02)


def record_failure(settings: RunSettings, failure: Failure, iteration: int, code: int) -> bool:
    """Leave a failure record for the launcher; return False when it cannot be written."""
    record = FailureRecord(**msgspec.structs.asdict(failure), iteration=iteration, code=code, time_ns=time.time_ns())
    folder = settings.out_path / PARTS
    kept = folder / f"{failure.rank:05d}{RESERVE}"
    try:
        # Overwrites the reserved blocks, which needs no free disk space; JSON permits trailing blanks.
        with kept.open("r+b") as file:
            file.write(msgspec.json.encode(record))
        kept.rename(folder / f"{failure.rank:05d}{FAILED}")
    except OSError:
        return False
    return True


def name_rank(rank: int, text: str) -> str:
    """Return a rank's error, prefixed with the rank unless the text names it."""
    words = text.replace(":", " ").replace(",", " ").replace(";", " ").split()
    is_named = any(word == "rank" and after == str(rank) for word, after in pairwise(words))
    return text if is_named else f"rank {rank}: {text}"
