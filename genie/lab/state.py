"""What is known of labs outside of them: a file for each, written before anything is built."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from genie.config.hosts import Calibration
from genie.lab.failure import EXIT_ENVIRONMENT, LabError
from genie.lab.faults import Fault

LOCK_S = 60.0  # longer than a lab takes to be built
MARK = "GENIE_LAB"  # in the environment of what is started in a lab


class State(Struct, kw_only=True):
    """A lab's file."""

    name: str
    fabric_path: str
    fabric_text: str  # as it was when the lab was built
    mark: str  # in the environment of what runs inside
    pid: int = 0  # of its keeper
    started: str = ""  # when the keeper did, as the kernel tells processes of one number apart
    is_built: bool = False
    in_user_namespace: bool = False
    marks: bool = True  # whether its switches may
    owner: int | None = None  # the process of the run that it was built for; None: it stays until it is taken down
    owner_started: str = ""  # when that process did
    missing_settings: list[str] = []  # that this kernel does not have: paths below /proc/sys
    faults: dict[str, Fault] = {}
    is_in_doubt: bool = False  # a change of faults was cut short: links may have others
    calibration: Calibration | None = None  # of its hosts, measured without faults


def folder() -> Path:
    """Where a user's labs are noted; made when it is not there. Raises LabError when it is somebody else's."""
    if os.geteuid() == 0:
        path = Path("/run/genie/labs")
    elif runtime := os.environ.get("XDG_RUNTIME_DIR"):
        path = Path(runtime) / "genie" / "labs"
    else:
        path = Path(f"/tmp/genie-{os.geteuid()}") / "labs"
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        top = path.parent.lstat()
    except OSError as error:
        raise LabError(f"{path}: cannot be made: {error.strerror}", EXIT_ENVIRONMENT) from error
    if top.st_uid != os.geteuid():
        raise LabError(f"{path.parent}: belongs to another user: remove it, or set XDG_RUNTIME_DIR", EXIT_ENVIRONMENT)
    return path


def name_of(fabric: Path) -> str:
    """A lab's name: the fabric file's, and a part that tells files of one name apart."""
    path = fabric.resolve()
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", path.stem)[:32]
    return f"{plain}-{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"


def path_of(name: str) -> Path:
    """Of a lab's file."""
    return folder() / f"{name}.json"


def save(state: State) -> None:
    """Write a lab's file, whole or not at all."""
    path = path_of(state.name)
    part = path.with_suffix(f".{os.getpid()}.part")
    try:
        part.write_bytes(msgspec.json.encode(state))
        os.replace(part, path)
    except OSError as error:
        raise LabError(f"{path}: cannot be written: {error.strerror}", EXIT_ENVIRONMENT) from error


def load(name: str) -> State | None:
    """A lab's file, None when there is none."""
    try:
        return msgspec.json.decode(path_of(name).read_bytes(), type=State)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise LabError(f"{path_of(name)}: cannot be read ({error}): remove it", EXIT_ENVIRONMENT) from error


def sweep() -> None:
    """Remove what processes have left that were killed while they wrote a lab's file."""
    for part in folder().glob("*.part"):
        if not started_at(int(part.stem.rpartition(".")[2])):
            part.unlink(missing_ok=True)


def all_names() -> list[str]:
    """Of all labs that this user has."""
    return sorted(path.stem for path in folder().glob("*.json"))


@contextmanager
def locked() -> Iterator[None]:
    """Alone with the labs' files. Raises LabError when somebody else has them for long."""
    path = folder()
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        deadline = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise LabError(f"{path}: another genie lab has been at work for long", EXIT_ENVIRONMENT) from None
                time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)


def is_alive(pid: int, started: str) -> bool:
    """Whether a process is the one that it was, and not another of its number."""
    return bool(started) and started_at(pid) == started


def started_at(pid: int) -> str:
    """When a process started, "" when it is gone: boot and ticks since then, as /proc/PID/stat has them."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else f"{boot} {fields[19]}"
