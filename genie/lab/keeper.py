"""The process that holds a lab: the lab's namespaces are its file descriptors, and end with it.

It runs as a script (`python -I -S keeper.py`) with only the standard library. It reads an order as one line of JSON,
builds the lab, answers with one line, and waits. On "stay" it continues alone; at the end of its input it ends. The
namespaces have no names and no way out: nothing of a lab can outlive it or meet another lab.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

NEW_NETWORK = 0x40000000  # CLONE_NEWNET, CLONE_NEWUSER of sched.h
NEW_USER = 0x10000000
LIMIT_S = 30.0  # per command
SWEEP_S = 3.0
NOT_ALLOWED = 77  # exit code of marker.py
_libc = ctypes.CDLL(None, use_errno=True)


class BuildError(Exception):
    """A failed build, in one line. `status`: of the command that failed."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


def main() -> None:
    """Build the lab that the order describes, answer, and hold the lab until told otherwise."""
    os.chdir("/")
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # its starter closes its input instead
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    order = json.loads(sys.stdin.readline() or "null")
    if order is None:
        return
    held: list[int] = []
    try:
        try:
            answer: dict[str, Any] = {**_build(order, held)}
        except BuildError as failure:
            answer = {"error": str(failure)}
        except (OSError, subprocess.SubprocessError) as error:
            answer = {"error": f"the lab cannot be built: {error}"}
        except Exception:  # an error of Genie: the starter keeps the traceback and names its file
            answer = {"error": "the lab cannot be built", "fault": traceback.format_exc()}
        print(json.dumps(answer), flush=True)
        if "error" not in answer and _told_to_stay():
            while True:
                signal.pause()
    finally:
        _end_processes_inside(held)
        if order["state"]:
            Path(order["state"]).unlink(missing_ok=True)


def _told_to_stay() -> bool:
    if sys.stdin.readline().strip() != "stay":
        return False
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    return True


def _build(order: dict[str, Any], held: list[int]) -> dict[str, Any]:
    """Build namespaces, then cables, then each node's settings; return what this machine allows and lacks."""
    is_allowed = _libc.unshare(NEW_NETWORK) == 0
    if not is_allowed:
        _become_root_of_a_user_namespace()
    first, nodes, marks = order["first_fd"], order["nodes"], True
    missing: set[str] = set()
    for number, node in enumerate(nodes):
        _check(_libc.unshare(NEW_NETWORK), "network namespaces cannot be made")
        for path, value in node["sysctls"].items():
            if not _is_set(Path("/proc/sys") / path, value):
                missing.add(path)
        made = os.open("/proc/self/ns/net", os.O_RDONLY)
        os.dup2(made, first + number)
        os.close(made)
        held.append(first + number)
    _check(_libc.unshare(NEW_NETWORK), "network namespaces cannot be made")  # the keeper's own, not a node's
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    _run(held, order["cables"], "ip", "-batch", "-")
    for number, node in enumerate(nodes):
        _go_on()
        _check(_libc.setns(first + number, NEW_NETWORK), "a namespace cannot be entered")
        _run(held, node["ip"], "ip", "-batch", "-")
        _run(held, node["tc"], "tc", "-batch", "-")
        if node["marks"] and marks:
            marks = _marks(held, node["marks"])
    _check(_libc.setns(home, NEW_NETWORK), "a namespace cannot be entered")
    os.close(home)
    return {"in_user_namespace": not is_allowed, "marks": marks, "missing_settings": sorted(missing)}


def _is_set(setting: Path, value: str) -> bool:
    """Write a setting; return False where this kernel or user does not have it."""
    try:
        setting.write_text(value)
    except FileNotFoundError:
        return False
    return True


def _marks(held: list[int], lines: str) -> bool:
    """Make a switch's ports set ECN marks; return False where this user may not."""
    try:
        _run(held, lines, sys.executable, "-I", "-S", str(Path(__file__).with_name("marker.py")))
    except BuildError as refused:
        if refused.status != NOT_ALLOWED:
            raise
        return False
    return True


def _become_root_of_a_user_namespace() -> None:
    user, group = os.geteuid(), os.getegid()
    try:
        _check(_libc.unshare(NEW_USER), "user namespaces")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
        _check(_libc.unshare(NEW_NETWORK), "network namespaces")
    except (OSError, BuildError) as refused:
        raise BuildError(
            f"only root may make a lab here: {refused}; be root, or allow user namespaces: sysctl "
            "user.max_user_namespaces (above 0), kernel.unprivileged_userns_clone (1) and "
            "kernel.apparmor_restrict_unprivileged_userns (0), as far as they are there"
        ) from refused


def _go_on() -> None:
    """Raise BuildError in mid-build when the starter is gone."""
    ready, _, _ = select.select([sys.stdin], [], [], 0)
    if ready:
        raise BuildError("the process that asked for the lab is gone")


def _run(held: list[int], text: str, *argv: str) -> None:
    """Run a command of iproute2 or nftables with its input. Raise BuildError when it fails."""
    try:
        done = subprocess.run(
            argv, input=text, text=True, capture_output=True, pass_fds=held, timeout=LIMIT_S, check=False
        )
    except FileNotFoundError as error:
        raise BuildError(f"{argv[0]} is not on the PATH: apt-get install iproute2") from error
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split())[:400]
        raise BuildError(f"{' '.join(argv)}: {said or f'exit code {done.returncode}'}", done.returncode)


def _check(result: int, text: str) -> None:
    if result != 0:
        raise BuildError(f"{text} ({os.strerror(ctypes.get_errno())})")


def _end_processes_inside(held: list[int]) -> None:
    """Kill processes that still run in the namespaces: they would keep these alive."""
    inside = {os.fstat(number).st_ino for number in held}
    deadline = time.monotonic() + SWEEP_S
    while inside and time.monotonic() < deadline:
        found = [pid for pid in _processes() if _network_of(pid) in inside and pid != os.getpid()]
        if not found:
            return
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        time.sleep(0.02)


def _processes() -> list[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]


def _network_of(pid: int) -> int | None:
    """Return the inode of a process's network namespace; None when the process is gone or another user's."""
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino
    except OSError:
        return None


if __name__ == "__main__":
    main()
