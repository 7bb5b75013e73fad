"""Start ranks under mpirun, watch them, and end with one line whatever happens."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from genie.live.merge import failures, remove_parts, salvage
from genie.live.settings import RunSettings
from genie.live.worker import EXIT_ENVIRONMENT, EXIT_FAILED, EXIT_OK, LAUNCHED, PARTS

GRACE_S = 4.0  # for the other ranks to leave their records after the first failure
POLL_S = 0.05
LAUNCH_FILE = "launch.json"
LOG_FILE = "mpirun.log"  # what mpirun and the ranks print: shown only when nobody says what went wrong


class LaunchError(Exception):
    """mpirun cannot be found or used; the message says what to install."""


@dataclass(frozen=True)
class Outcome:
    """How a launch ended: an exit code, and one line when it is not 0."""

    code: int
    problem: str | None = None
    salvaged: Path | None = None


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
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", LAUNCHED: "1"}
    log = settings.out_path / PARTS / LOG_FILE
    with log.open("wb") as output:
        process = subprocess.Popen(
            line, env=environment, start_new_session=True, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        problem = _watch(settings, process)
    except KeyboardInterrupt:
        problem = "interrupted"
    finally:
        _end(process)
    if problem is None and process.returncode == 0 and (settings.out_path / "run.json").exists():
        remove_parts(settings)
        return Outcome(EXIT_OK)
    return _failed(settings, problem, process.returncode)


def _watch(settings: RunSettings, process: subprocess.Popen[bytes]) -> str | None:
    """Wait for the end; what went wrong with a rank that could not say so itself."""
    folder = settings.out_path / PARTS
    first_failure: float | None = None
    gone: str | None = None
    progress = _Progress(settings)
    while process.poll() is None:
        time.sleep(POLL_S)
        progress.look()
        if first_failure is None:
            gone = _vanished(settings)
            if gone or any(folder.glob("*.failed.json")):
                first_failure = time.monotonic()
        elif time.monotonic() - first_failure > GRACE_S:
            break
    return gone


class _Progress:
    """A line on standard error about once in a tenth of the run; on a terminal one line that changes."""

    def __init__(self, settings: RunSettings) -> None:
        self._folder = settings.out_path / PARTS
        self._total = settings.iterations + settings.warmup
        self._shown = 0

    def look(self) -> None:
        done = self._shown
        while (self._folder / f"00000-{done:05d}.npz").exists():
            done += 1
        terminal = sys.stderr.isatty()
        step = 1 if terminal else max(1, self._total // 10)
        if done == self._shown or (done - self._shown < step and done < self._total):
            return
        self._shown = done
        end = "\r" if terminal and done < self._total else "\n"
        print(f"genie: iteration {done}/{self._total} played", end=end, file=sys.stderr, flush=True)


def _vanished(settings: RunSettings) -> str | None:
    """A rank of this machine whose process is gone although it has neither finished nor failed."""
    here = os.uname().nodename
    for path in (settings.out_path / PARTS).glob("*.pid"):
        try:
            node, pid, state = path.read_text().split()
        except (OSError, ValueError):
            continue
        if node != here or state == "finished" or Path(f"/proc/{pid}").exists():
            continue
        rank = int(path.stem)
        if not (path.parent / f"{path.stem}.failed.json").exists() and path.exists():
            done = len(list(path.parent.glob(f"{rank:05d}-*.npz")))
            return f"rank {rank} died in iteration {done}: its process {pid} was killed or crashed"
    return None


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


def _failed(settings: RunSettings, gone: str | None, returncode: int | None) -> Outcome:
    records = failures(settings)
    code = EXIT_FAILED
    if gone:
        problem = gone
        others = [record for record in records if "stopped:" not in record["error"]]
        if others:
            problem += f"; rank {others[0]['rank']} then: {others[0]['error']}"
    elif records:
        problem = f"rank {records[0]['rank']}: {records[0]['error']}"
        code = records[0]["code"]
    else:
        problem = f"mpirun ended with exit code {returncode} before all ranks were done: {_last_words(settings)}"
        code = EXIT_ENVIRONMENT
    try:
        salvaged = salvage(settings, problem)
        if salvaged is not None:
            remove_parts(settings)
    except Exception as error:
        salvaged = None
        problem += f" (what was recorded stays in {settings.out_path / PARTS}: {error})"
    if salvaged is None:
        leftovers = settings.out_path / PARTS
        if leftovers.exists() and not any(leftovers.glob("*.npz")):
            shutil.rmtree(leftovers, ignore_errors=True)
    return Outcome(code, problem, salvaged)
