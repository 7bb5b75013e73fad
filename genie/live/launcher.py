"""Start ranks under mpirun, watch them, and end with one line whatever happens."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from genie.live.endings import (
    ENDING_SIGNALS,
    EXIT_ENVIRONMENT,
    EXIT_FAILED,
    EXIT_OK,
    LAUNCH_FILE,
    LAUNCHED,
    PARTS,
    STOPPED,
    name_rank,
)
from genie.live.merge import failures, remove_parts, try_to_salvage
from genie.live.settings import RunSettings
from genie.live.watch import Watch

GRACE_S = 4.0  # for the other ranks to leave their records after the first failure
POLL_S = 0.05
LOG_FILE = "mpirun.log"  # what mpirun and the ranks print: shown only when nobody says what went wrong


class LaunchError(Exception):
    """mpirun cannot be found or used, or a run failed: what to print, and the exit code."""

    def __init__(self, text: str, code: int = EXIT_ENVIRONMENT) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Outcome:
    """How a launch ended: an exit code, and one line when it is not 0."""

    code: int
    problem: str | None = None  # what went wrong, and where what was recorded is


def find_mpirun() -> str:
    """The mpirun beside this Python, or the first on the PATH. Raises LaunchError."""
    beside = Path(sys.executable).parent / "mpirun"
    found = str(beside) if beside.exists() else shutil.which("mpirun")
    if found is None:
        raise LaunchError("mpirun is not on the PATH: pip install mpich, or load your site's MPI")
    return found


def mpirun_line(settings: RunSettings, hosts: str | None) -> list[str]:
    """The command that starts all ranks; `hosts`: "name:ranks,..." for machines other than this one."""
    mpirun = find_mpirun()
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True, timeout=20, check=False).stdout
    line = [mpirun]
    if "Open MPI" in version or "OpenRTE" in version:
        line += ["--oversubscribe"] + (["--allow-run-as-root"] if os.geteuid() == 0 else [])
        line += ["-H", hosts] if hosts else []
    else:
        # Other ranks must live on after one has died: they say what they were waiting for.
        line += ["-disable-auto-cleanup"] + (["-hosts", hosts] if hosts else [])
    return [*line, "-n", str(settings.ranks), sys.executable, "-m", "genie.live.rank", str(_launch_file(settings))]


def _launch_file(settings: RunSettings) -> Path:
    return (settings.out_path / LAUNCH_FILE).resolve()


def launch(settings: RunSettings, line: list[str]) -> Outcome:
    """Run all ranks to their end. Nothing is left running, and what was recorded is readable."""
    _launch_file(settings).write_bytes(msgspec.json.format(msgspec.json.encode(settings), indent=1))
    (settings.out_path / PARTS).mkdir(exist_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment[LAUNCHED] = f"{os.uname().nodename} {os.getpid()}"
    log = settings.out_path / PARTS / LOG_FILE
    with _Signals() as told:
        with log.open("wb") as output:
            process = subprocess.Popen(
                line, env=environment, start_new_session=True, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        try:
            problem = _watch(settings, process, told)
        finally:
            _end(process)
    if problem is None and process.returncode == 0 and (settings.out_path / "run.json").exists():
        remove_parts(settings)
        return Outcome(EXIT_OK)
    return _failed(settings, problem, told.code, process.returncode)


class _Signals:
    """Notes the first signal that would end the launcher, which has tidying up to do."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._before: dict[int, Any] = {}

    @property
    def code(self) -> int | None:
        """The exit code, as shells give it."""
        return None if self.number is None else 128 + self.number

    def __enter__(self) -> _Signals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in ENDING_SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        self.number = self.number or number


def _watch(settings: RunSettings, process: subprocess.Popen[bytes], told: _Signals) -> str | None:
    """Wait for the end; what went wrong with a rank that could not say so itself."""
    watch = Watch(settings)
    began = time.monotonic()
    failed_at: float | None = None
    gone: str | None = None
    while process.poll() is None:
        time.sleep(POLL_S)
        watch.look()
        if told.number is not None:
            return (
                "interrupted" if told.number == signal.SIGINT else f"told to end by {signal.Signals(told.number).name}"
            )
        now = time.monotonic()
        if failed_at is None:
            gone = watch.vanished()
            if gone is None and now - began > settings.join_s and (missing := watch.not_started()):
                gone = f"{missing} did not start within {settings.join_s:g} s: {_last_words(settings)}"
            if gone or watch.failed():
                failed_at = now
        elif now - failed_at > GRACE_S or watch.nobody_runs():
            break
    return gone or watch.stopped()


def _end(process: subprocess.Popen[bytes]) -> None:
    """End mpirun and all that it started, politely first."""
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
    # mpirun may have gone before its ranks.
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _last_words(settings: RunSettings) -> str:
    """The last line of mpirun's own output."""
    try:
        lines = (settings.out_path / PARTS / LOG_FILE).read_text(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines else "it said nothing"


def _failed(settings: RunSettings, gone: str | None, code: int | None, returncode: int | None) -> Outcome:
    """One line for what went wrong, and where what was recorded is."""
    causes = [record for record in failures(settings) if STOPPED not in record["error"]]
    told = f"{name_rank(causes[0]['rank'], causes[0]['error'])}" if causes else None
    if code is not None:
        problem = gone or "ended"
    elif gone:
        problem, code = gone + (f"; then {told}" if told else ""), EXIT_FAILED
    elif told:
        problem, code = told, int(causes[0]["code"])
    else:
        problem = f"mpirun ended with exit code {returncode} before all ranks were done: {_last_words(settings)}"
        code = EXIT_ENVIRONMENT
    where = try_to_salvage(settings, problem)
    return Outcome(code, f"{problem}; {where}" if where else problem)
