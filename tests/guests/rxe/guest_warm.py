"""Runs in a guest: a Python that has imported the ranks' modules, and forks a child for each start of a rank.

A rank's imports take an emulated processor 3 s at every start; a child has them already. In all else a child is like
`python3 -P -m MODULE ARGS`: it has a session, argv, environment, folder and streams of its own. It shares nothing with
another child, since the fork comes before any thread and before anything is opened. Only in /proc its command line and
environment are the warm Python's, and all children hash strings with the same secret.

    python3 -P guest_warm.py DOOR MODULE ...    imports, makes the Unix socket DOOR, says "warm" and serves

A connection is a start: guest_agent.py sends {"argv": [...], "env": {...}, "folder": "/"} with the three streams. It
receives the child's process id, then how the child ended (minus the signal, when one ended it). If the child cannot be
started it receives the reason instead.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import selectors
import socket
import sys
from contextlib import suppress
from typing import Any

LINE = ["python3", "-P", "-m"]  # how a start's argv begins
# Variables that Python and libraries read when they are loaded, and no more: a child's must be as they were then.
READ_EARLY = ("PYTHON", "LD_", "LC_", "LANG", "OMP_", "OPENBLAS_", "POLARS_", "RUST_")


def prepare(modules: list[str]) -> None:
    """Import. A thread would not come along into a child."""
    for module in modules:
        importlib.import_module(module)
    if (threads := len(os.listdir("/proc/self/task"))) > 1:
        raise SystemExit(f"these imports leave {threads - 1} threads running: {' '.join(modules)}")
    gc.collect()
    gc.freeze()  # else a child's first collection would write to, and so copy, all of it


def read_early(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(READ_EARLY)}


def refusal(request: dict[str, Any]) -> str:
    """The reason for which this start cannot be a warm one; "" when it can."""
    if request["argv"][:3] != LINE or len(request["argv"]) < 4:
        return f"a warm start begins with {' '.join(LINE)} MODULE"
    here, there = read_early(dict(os.environ)), read_early(request["env"])
    if different := sorted(name for name in {*here, *there} if here.get(name) != there.get(name)):
        return f"the warm Python was started with other {' '.join(different)}"
    return ""


class Nursery:
    """Forks, and tells how children end."""

    def __init__(self, door: str) -> None:
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(door)
        self.listener.listen()
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.children: dict[int, tuple[int, socket.socket]] = {}  # by pidfd

    def serve(self) -> list[str]:
        """Returns in children alone, with their argv."""
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is not self.listener:
                    self.tell(key.fd)
                elif argv := self.start():
                    return argv

    def start(self) -> list[str]:
        """Take a connection and fork; returns argv in the child, nothing here."""
        connection, _ = self.listener.accept()
        data, streams, _, _ = socket.recv_fds(connection, 1 << 16, 3)
        request = json.loads(data)
        if why := refusal(request):
            connection.send(why.encode())
            connection.close()
        elif child := os.fork():
            pidfd = os.pidfd_open(child)
            self.children[pidfd] = child, connection
            self.selector.register(pidfd, selectors.EVENT_READ)
        else:
            self.forget()
            become(request, connection, streams)
            return list(request["argv"])
        for stream in streams:
            os.close(stream)
        return []

    def tell(self, pidfd: int) -> None:
        """How a child ended."""
        child, connection = self.children.pop(pidfd)
        self.selector.unregister(pidfd)
        os.close(pidfd)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with connection, suppress(OSError):  # the requester may have gone
            connection.send(str(code).encode())

    def forget(self) -> None:
        """In a child: leave what is not its own."""
        self.selector.close()
        self.listener.close()
        for pidfd, (_, connection) in self.children.items():
            os.close(pidfd)
            connection.close()


def become(request: dict[str, Any], connection: socket.socket, streams: list[int]) -> None:
    """In a child: have what the start gives, then say who we are; from then on signals are for us alone."""
    os.setsid()
    with connection:
        try:
            os.chdir(request["folder"])
        except OSError as error:
            connection.send(str(error).encode())
            os._exit(1)
        connection.send(str(os.getpid()).encode())
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["env"])
    if numpy_random := sys.modules.get("numpy.random"):
        numpy_random.seed()  # as Python's own `random` does after a fork
    sys.orig_argv[:] = request["argv"]


if __name__ == "__main__":
    door, *modules = sys.argv[1:]
    prepare(modules)
    nursery = Nursery(door)
    print("warm", flush=True)
    sys.argv = nursery.serve()[len(LINE) :]
    sys.modules.pop(sys.argv[0], None)  # it is run anew, under the name of a program
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
