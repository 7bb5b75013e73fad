"""The life of a lab: built by a keeper process, found again, taken down."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from genie.inputs.content import ContentError, read_text
from genie.inputs.fault import keep_traceback
from genie.lab import commands, keeper, state
from genie.lab.failure import EXIT_ENVIRONMENT, EXIT_FAULT, LabError
from genie.lab.lab import Lab, environment
from genie.lab.plan import Plan, plan_of
from genie.lab.state import MARK, State
from simtwin.fabric.reading import parse_fabric

BUILD_S = 60.0
END_S = 8.0  # for a keeper to end the processes inside, and itself


def up(fabric: Path) -> tuple[Lab, bool]:
    """Return a fabric file's lab, which stays until down(), and whether it was up. Raise LabError, FabricError."""
    name, text = state.name_of(fabric), _text(fabric)
    plan = _plan(text, fabric)
    with state.locked():
        if (lab := find(fabric, text)) is not None:
            return lab, True
        _remove(name)
        with _built(name, fabric, text, plan, stays=True) as lab:
            return lab, False


@contextmanager
def up_for(fabric: Path) -> Iterator[Lab]:
    """Yield the fabric file's lab if it is up; otherwise build one that ends with the context in every case.

    Raise LabError, FabricError.
    """
    text = _text(fabric)
    if (lab := find(fabric, text)) is not None:
        yield lab
        return
    name = f"{state.name_of(fabric)}-run-{os.getpid()}"
    with _built(name, fabric, text, _plan(text, fabric), stays=False) as lab:
        yield lab


def find(fabric: Path, text: str | None = None) -> Lab | None:
    """Return the lab of a fabric file if it is up. `text`: the file's contents; LabError when the lab's differ."""
    lab = lab_named(state.name_of(fabric))
    if lab is not None and text is not None and lab.state.fabric_text != text:
        raise LabError(f"{fabric}: its lab was built before the file changed: genie lab down {fabric}, then up")
    return lab


def lab_named(name: str) -> Lab | None:
    """Return a lab by its name if it is up, else None."""
    found = state.load(name)
    if found is None or not found.is_built or not state.is_alive(found.pid, found.started):
        return None
    return Lab(_plan(found.fabric_text, Path(found.fabric_path), found.marks), found)


def down(name: str) -> bool:
    """Take a lab down, whatever state it is in; return whether there was any. Raise LabError."""
    with state.locked():
        state.sweep()
        return _remove(name)


def names_of(fabric: Path) -> list[str]:
    """Return the names of a fabric file's labs: the lasting one, and those of ended or unreadable runs."""
    own = state.name_of(fabric)
    return [own, *(name for name in state.all_names() if name.startswith(f"{own}-run-") and not _has_owner(name))]


def _has_owner(name: str) -> bool:
    """Return whether the run that a lab was built for is still running."""
    try:
        found = state.load(name)
    except LabError:
        return False
    return found is not None and found.owner is not None and state.is_alive(found.owner, found.owner_started)


@contextmanager
def _built(name: str, fabric: Path, text: str, plan: Plan, *, stays: bool) -> Iterator[Lab]:
    """Yield a new lab; unless it stays, it ends with the context."""
    known = State(
        name=name,
        fabric_path=str(fabric.resolve()),
        fabric_text=text,
        mark=uuid.uuid4().hex,
        owner=None if stays else os.getpid(),
        owner_started="" if stays else state.started_at(os.getpid()),
    )
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", keeper.__file__],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        env=environment(),
    )  # fmt: skip
    is_kept = False
    try:
        _build(process, known, plan)
        if stays:
            _say(process, "stay")
            is_kept = True
        yield Lab(plan if known.marks else _plan(text, fabric, marks=False), known)
    finally:
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                assert pipe is not None
                pipe.close()
        if not is_kept:
            _end(process)
            state.path_of(name).unlink(missing_ok=True)


def _build(process: subprocess.Popen[bytes], known: State, plan: Plan) -> None:
    """Have the keeper build the lab, after noting in a file that it exists. Raise LabError."""
    known.pid, known.started = process.pid, state.started_at(process.pid)
    state.save(known)
    _say(process, json.dumps(_order(plan, known.name)))
    answer = _answer(process)
    known.in_user_namespace, known.marks = answer["in_user_namespace"], answer["marks"]
    known.missing_settings = answer["missing_settings"]
    known.is_built = True
    state.save(known)


def _say(process: subprocess.Popen[bytes], line: str) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(line.encode() + b"\n")
        process.stdin.flush()
    except BrokenPipeError as error:
        raise LabError("the lab's keeper ended early", EXIT_ENVIRONMENT) from error


def _order(plan: Plan, name: str) -> dict[str, Any]:
    routes = commands.routes(plan)
    cores = sorted(os.sched_getaffinity(0))
    has_fields = Path("/proc/sys", commands.FIELDS).exists()
    nodes = [
        {
            "sysctls": commands.sysctls(plan, node, cores, has_fields=has_fields),
            "ip": "\n".join([*commands.interfaces(plan, node), *routes[node]]) + "\n",
            "tc": "\n".join(commands.buckets(plan, node, {})) + "\n",
            "marks": "\n".join(commands.marks(plan, node, {})),
        }
        for node in range(len(plan.nodes))
    ]
    return {
        "first_fd": commands.FIRST_FD,
        "state": str(state.path_of(name)),
        "cables": "\n".join(commands.cables(plan)) + "\n",
        "nodes": nodes,
    }


def _answer(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Return the keeper's answer once it has built everything. Raise LabError when it has not."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], BUILD_S)
    line = process.stdout.readline() if ready else b""
    if not line:
        what = "ended early" if ready else f"was not done within {BUILD_S:g} s"
        raise LabError(f"the lab's keeper {what}", EXIT_ENVIRONMENT)
    answer: dict[str, Any] = json.loads(line)
    if "fault" in answer:
        kept = keep_traceback(str(answer["fault"]).encode("utf-8", "backslashreplace"))
        raise LabError(f"this is a fault of Genie, in the lab's keeper; {kept}; please report it", EXIT_FAULT)
    if "error" in answer:
        raise LabError(answer["error"], EXIT_ENVIRONMENT)
    return answer


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for a keeper whose input is closed, which ends the processes inside and itself; kill it after END_S."""
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(END_S)


def _remove(name: str) -> bool:
    """End a lab's keeper and its remaining processes; return whether there was a lab. The files must be locked."""
    found = state.load(name)
    if found is None:
        return False
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + END_S
        if state.is_alive(found.pid, found.started):
            with suppress(ProcessLookupError):
                os.kill(found.pid, number)
        while state.is_alive(found.pid, found.started) and time.monotonic() < deadline:
            time.sleep(0.01)
    if state.is_alive(found.pid, found.started):
        raise LabError(f"{name}: its keeper, process {found.pid}, cannot be ended", EXIT_ENVIRONMENT)
    mark = f"{MARK}={found.mark}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in path.read_bytes().split(b"\0"):
                os.kill(int(path.parent.name), signal.SIGKILL)
    state.path_of(name).unlink(missing_ok=True)
    return True


def _text(fabric: Path) -> str:
    try:
        return read_text(fabric)
    except ContentError as error:
        raise LabError(f"{fabric}: {error}") from error
    except OSError as error:
        raise LabError(f"{fabric}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise LabError(f"{fabric}: is not text in UTF-8") from error


def _plan(text: str, fabric: Path, marks: bool = True) -> Plan:
    return plan_of(parse_fabric(text, str(fabric)), marks=marks)
