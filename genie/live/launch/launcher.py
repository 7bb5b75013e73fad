"""Start ranks under mpirun, watch them, and end with one line in every case."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from genie.config.hosts import Hosts
from genie.errors import EXIT_ENVIRONMENT, EXIT_FAILED, EXIT_OK, EXIT_USAGE, GenieError, RankError
from genie.inputs.fault import memory_advice, memory_limit_kib
from genie.live.failure import Cause
from genie.live.launch.blame import told_to_end
from genie.live.launch.endings import launcher_identity, name_rank, reserve
from genie.live.launch.memory import salvage_apart, save_memory
from genie.live.launch.merge import failures, remove_halves, try_to_salvage
from genie.live.launch.watch import Watch, still_running
from genie.live.launched import ENDING_SIGNALS
from genie.live.parts import LAUNCH_FILE, LAUNCHED, LOG_FILE, PARTS, remove_parts
from genie.live.settings import RunSettings
from genie.record import mark, write_atomically

GRACE_S = 4.0  # after the first failure, for the other ranks to leave their records
POLL_S = 0.05
MPIRUN_ENDS_S = 1.0  # for mpirun to end once all ranks have
RANK_MODULE = "genie.live.rank.process"  # the module that each rank runs
LOG_KIND = "mpirun-log"

# In reports of ranks that may have run out of memory.
SHORT_OF_MEMORY = re.compile("memory|alloc|SIGABRT|SIGSEGV|SIGBUS|did not start|did not meet", re.IGNORECASE)


class LaunchError(GenieError):
    """mpirun cannot be found or used, or a run failed: one line to print, and the exit code.

    `places`: of what a failed run recorded.
    """

    def __init__(self, text: str, code: int = EXIT_ENVIRONMENT, places: str = "") -> None:
        super().__init__(f"{text}; {places}" if places else text)
        self.code = code
        self.without_places = text


@dataclass(frozen=True)
class Outcome:
    """The end of a launch: an exit code, and one line when it is not 0."""

    code: int
    failure: str | None = None
    places: str = ""  # of mpirun's output and of the records
    gone: bool = False  # the run folder was removed: there is nothing to clean up

    @property
    def problem(self) -> str | None:
        """The failure, and the places of what was recorded."""
        return f"{self.failure}; {self.places}" if self.failure and self.places else self.failure


def find_mpirun() -> str:
    """Return the mpirun beside this Python, or the first on the PATH. Raise LaunchError when there is none."""
    beside = Path(sys.executable).parent / "mpirun"
    found = str(beside) if beside.exists() else shutil.which("mpirun")
    if found is None:
        raise LaunchError("mpirun is not on the PATH: pip install mpich, or load your site's MPI")
    return found


def remote_hosts(hosts: Hosts) -> str | None:
    """Return the list of hosts for mpirun_line(); None when all ranks are on this machine."""
    return None if set(hosts.names()) <= {"localhost", "127.0.0.1"} else hosts.mpirun_hosts()


def mpirun_line(
    settings: RunSettings, hosts: str | None, module: str = RANK_MODULE, wrapper: Sequence[str] = ()
) -> list[str]:
    """Return the command that starts all ranks. `hosts`: "name:ranks,..." for other machines; None: this machine.

    `module`: the module that each rank runs, with the launch file as its argument. `wrapper`: words put in front of
    that, for ranks that start in another environment, such as a network namespace. Raise LaunchError.
    """
    mpirun = find_mpirun()
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True, timeout=20, check=False).stdout
    line = [mpirun]
    if "Open MPI" in version or "OpenRTE" in version:
        if wrapper:
            raise LaunchError(f"{mpirun}: Open MPI finds no ranks in other network namespaces: pip install mpich")
        line += ["--oversubscribe"] + (["--allow-run-as-root"] if os.geteuid() == 0 else [])
        line += ["-H", hosts] if hosts else []
    else:
        # Other ranks must outlive one that died: they report what they were waiting for.
        line += ["-disable-auto-cleanup"] + (["-hosts", hosts] if hosts else [])
    # -P: do not import `genie` from the current folder, which may be a source tree that was never built.
    rank = [*wrapper, sys.executable, "-P", "-m", module, str(_launch_file(settings))]
    return [*line, "-n", str(settings.ranks), *rank]


def _launch_file(settings: RunSettings) -> Path:
    return (settings.out_path / LAUNCH_FILE).resolve()


def write_launch_file(settings: RunSettings) -> None:
    """Write the settings to the run folder, for ranks and users."""
    write_atomically(_launch_file(settings), msgspec.json.format(msgspec.json.encode(settings), indent=1))


def refuse_running(out: Path) -> None:
    """Raise LaunchError when a rank of an earlier run still writes to this folder or to one in it."""
    for folder in (out, out / "live", out / "calibration"):
        busy = still_running(folder)
        if busy is not None:
            rank, pid = busy
            raise LaunchError(
                f"{folder}: rank {rank} of an earlier run is still running (process {pid}); end it, or choose "
                "another -o",
                EXIT_USAGE,
            )


def launch(settings: RunSettings, line: list[str], limit_s: float | None = None) -> Outcome:
    """Run all ranks to their end. No process is left running, and what was recorded is readable.

    `limit_s`: time limit once the ranks are set up; None: as long as there is progress. Raise LaunchError.
    """
    if problem := save_memory():
        raise LaunchError(problem)
    write_launch_file(settings)
    try:
        for rank in range(settings.ranks):
            reserve(settings, rank)
    except RankError as error:
        remove_parts(settings)
        raise LaunchError(str(error), error.code) from error
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment[LAUNCHED] = launcher_identity()
    log = settings.out_path / PARTS / LOG_FILE
    with _Signals() as told, ExitStack() as stack:
        watch = Watch(settings)
        stack.callback(watch.close)
        with log.open("wb") as output:
            process = subprocess.Popen(
                line, env=environment, start_new_session=True, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        stack.callback(_end, process)
        found = _watch(settings, process, watch, told, limit_s)
    if found is not None and found.gone:
        return found  # the folder must not be made again
    if told.number is None and _complete(settings):
        if found is not None:
            print(f"genie: {found.problem}, after all had been recorded: the run is complete", file=sys.stderr)
        _tidy_up(settings)
        return Outcome(EXIT_OK)
    outcome = _failed(settings, found, process.returncode)
    remove_halves(settings.out_path)
    return outcome


def _complete(settings: RunSettings) -> bool:
    """Return whether rank 0 has written everything: `run.json` is written last, and no rank ends before."""
    try:
        json.loads((settings.out_path / "run.json").read_bytes())
    except (OSError, ValueError):
        return False
    return not failures(settings)


def _tidy_up(settings: RunSettings) -> None:
    remove_parts(settings)
    remove_halves(settings.out_path)


class _Signals:
    """Notes the first signal that would end the launcher, which must clean up first."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Signals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in ENDING_SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        self.number = self.number or number


def _watch(
    settings: RunSettings, process: subprocess.Popen[bytes], watch: Watch, told: _Signals, limit_s: float | None
) -> Outcome | None:
    """Wait for the run's end; return a failure that no rank could report, else None."""
    began = time.monotonic()
    ready_at: float | None = None
    failed_at: float | None = None
    watch.begin(process.pid)
    while process.poll() is None:
        watch.look(POLL_S)
        if told.number is not None:
            name = (
                "interrupted" if told.number == signal.SIGINT else f"told to end by {signal.Signals(told.number).name}"
            )
            return Outcome(128 + told.number, name)  # as shells do
        if removed := watch.removed():
            return Outcome(EXIT_ENVIRONMENT, removed, gone=True)
        now = time.monotonic()
        if limit_s is not None:
            ready_at = now if ready_at is None and watch.anyone_ready() else ready_at
            if ready_at is not None and now - ready_at > limit_s:
                return Outcome(EXIT_FAILED, f"not done in {limit_s:g} s")
        if failed_at is None:
            if watch.vanished() or watch.failed():
                failed_at = now
            elif now - began > settings.join_s and (missing := watch.not_started()):
                return Outcome(EXIT_ENVIRONMENT, f"{missing} within {settings.join_s:g} s")
        elif now - failed_at > GRACE_S or watch.nobody_runs():
            _ends_within(process, MPIRUN_ENDS_S)  # its exit status tells whether it ended first
            break
    found = watch.verdict(process.poll(), told_to_end(failures(settings))) or watch.stopped()
    return Outcome(EXIT_FAILED, found) if found else None


def _ends_within(process: subprocess.Popen[bytes], limit_s: float) -> bool:
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """End mpirun and all processes that it started: wait, then SIGTERM, then SIGKILL."""
    for signal_number, patience_s in ((None, 0.0), (signal.SIGTERM, 2.0), (signal.SIGKILL, 5.0)):
        if signal_number is not None and process.poll() is None:
            try:
                os.killpg(process.pid, signal_number)
            except ProcessLookupError:
                break
        try:
            process.wait(timeout=max(patience_s, 0.01))
        except subprocess.TimeoutExpired:
            continue
    # mpirun may end before its ranks do, and its helpers for other machines are in process groups of their own.
    mark = f"{LAUNCHED}={launcher_identity()}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in path.read_bytes().split(b"\0"):
                os.kill(int(path.parent.name), signal.SIGKILL)


def _last_words(settings: RunSettings) -> str:
    """Return the last line that mpirun passed on from ranks or remote shells; "" when there is none."""
    try:
        lines = (settings.out_path / PARTS / LOG_FILE).read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    of_mpirun = ("[mpiexec@", "[proxy:", "=", "YOUR APPLICATION", "This typically refers", "Please see the FAQ")
    return next((line.strip() for line in reversed(lines) if line.strip() and not line.startswith(of_mpirun)), "")


def _keep_log(settings: RunSettings) -> str:
    """Keep mpirun's output beside the records, since it may say more than one line; return its path, "" when empty."""
    log = settings.out_path / PARTS / LOG_FILE
    try:
        if not log.stat().st_size:
            return ""
        printed = log.read_text(errors="replace")
        (settings.out_path / LOG_FILE).write_text(f"# {mark(LOG_KIND)}\n{printed}")
        log.unlink()
    except OSError:
        return ""
    return str(settings.out_path / LOG_FILE)


def _failed(settings: RunSettings, found: Outcome | None, returncode: int | None) -> Outcome:
    """Return the failure in one line, with the place of the records."""
    causes = [record for record in failures(settings) if record.cause != Cause.PEER]
    # Records of ranks that a signal ended add nothing to what the ends of processes show.
    is_shown = found is not None and bool(told_to_end(causes))
    told = name_rank(causes[0].rank, causes[0].error) if causes and not is_shown else None
    places: list[str] = []
    if found is None and told:
        code, problem = causes[0].code, told
    else:
        found = found or Outcome(
            EXIT_ENVIRONMENT, f"mpirun ended with exit code {returncode} before all ranks were done"
        )
        code, problem = found.code, str(found.failure)
        if told and code == EXIT_FAILED:
            problem += f"; then {told}"
        elif code in (EXIT_FAILED, EXIT_ENVIRONMENT):
            words, log = _last_words(settings), _keep_log(settings)
            problem += f"; last words: {words}" if words else ""
            places += [f"see {log}"] if log else []
    limited = memory_limit_kib() is not None
    if limited and "ulimit" not in problem and SHORT_OF_MEMORY.search(problem):
        problem += f"; {memory_advice()}"
    where = (salvage_apart if limited else try_to_salvage)(settings, "; ".join([problem, *places]))
    return Outcome(code, problem, "; ".join([*places, where] if where else places))
