"""State of labs on disk: a file for each, written before the lab is built."""

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

LOCK_S = 60.0  # longer than a lab takes to build
MARK = "GENIE_LAB"  # in the environment of processes started in a lab


class Forwarder(Struct):
    """A process that holds the packets of a link."""

    pid: int
    started: str
    delay_ns: int
    reorder: float


class State(Struct, kw_only=True):
    """The contents of a lab's file."""

    name: str
    fabric_path: str
    fabric_text: str  # when the lab was built
    mark: str  # value of MARK in the environment of processes inside
    pid: int = 0  # of its keeper
    started: str = ""  # the keeper's start, which distinguishes processes of one id
    is_built: bool = False
    in_user_namespace: bool = False
    marks: bool = True  # whether its switches may set ECN marks
    owner: int | None = None  # process of the run that the lab was built for; None: it stays until it is taken down
    owner_started: str = ""  # start of that process
    missing_settings: list[str] = []  # paths below /proc/sys that this kernel does not have
    faults: dict[str, Fault] = {}
    is_in_doubt: bool = False  # a change of faults was cut short: links may have other faults
    forwarders: dict[str, Forwarder] = {}  # by link name
    calibration: Calibration | None = None  # of its hosts, measured without faults


def folder() -> Path:
    """Return the folder of a user's lab files; make it if needed. Raise LabError when it is another user's."""
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
    """Return a lab's name: the fabric file's, and a hash that distinguishes files of one name."""
    path = fabric.resolve()
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", path.stem)[:32]
    return f"{plain}-{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"


def path_of(name: str) -> Path:
    """Return the path of a lab's file."""
    return folder() / f"{name}.json"


def save(state: State) -> None:
    """Write a lab's file atomically. Raise LabError."""
    path = path_of(state.name)
    part = path.with_suffix(f".{os.getpid()}.part")
    try:
        part.write_bytes(msgspec.json.encode(state))
        os.replace(part, path)
    except OSError as error:
        raise LabError(f"{path}: cannot be written: {error.strerror}", EXIT_ENVIRONMENT) from error


def load(name: str) -> State | None:
    """Return the contents of a lab's file, None when there is none. Raise LabError."""
    try:
        return msgspec.json.decode(path_of(name).read_bytes(), type=State)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise LabError(f"{path_of(name)}: cannot be read ({error}): remove it", EXIT_ENVIRONMENT) from error


def sweep() -> None:
    """Remove unfinished files of processes that were killed while writing a lab's file."""
    for part in folder().glob("*.part"):
        if not started_at(int(part.stem.rpartition(".")[2])):
            part.unlink(missing_ok=True)


def all_names() -> list[str]:
    """Return the names of all labs of this user."""
    return sorted(path.stem for path in folder().glob("*.json"))


@contextmanager
def locked() -> Iterator[None]:
    """Lock the labs' files for the context. Raise LabError when another process holds the lock for LOCK_S."""
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
    """Return whether a process is the given one, and not another with its id."""
    return bool(started) and started_at(pid) == started


def started_at(pid: int) -> str:
    """Return when a process started, as boot id and ticks since boot from /proc/PID/stat; "" when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else f"{boot} {fields[19]}"
