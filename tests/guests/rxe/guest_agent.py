"""Runs in a guest: starts, feeds and ends commands as the host says, over a serial port of its own.

One JSON object a line, both ways; data in base64. From the host:
    {"do": "run", "id": 1, "argv": [...], "env": {...}, "folder": "/", "terminal": false, "warm": ""}
    {"do": "write", "id": 1, "data": "..."}    {"do": "close", "id": 1}    {"do": "kill", "id": 1, "signal": 15}
From the guest:
    {"is": "ready"}   {"is": "out" | "error", "id": 1, "data": "..."}   {"is": "end", "id": 1, "code": 0}
    {"is": "absent", "id": 1, "text": "why it could not be started"}
"""

from __future__ import annotations

import base64
import contextlib
import glob
import json
import os
import pty
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

PORT_NAME = "genie.agent"
PIECE_BYTES = 1 << 16
ANSWER_S = 20.0  # of a warm Python, for a fork


def find_port(limit_s: float = 10) -> str:
    """Device of the serial port with our name."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        for entry in glob.glob("/sys/class/virtio-ports/*"):
            with open(f"{entry}/name") as name:
                if name.read().strip() == PORT_NAME:
                    return f"/dev/{os.path.basename(entry)}"
        time.sleep(0.02)
    raise SystemExit(f"no serial port is named {PORT_NAME}")


class WarmChild:
    """A process that guest_warm.py has forked for a request, in Popen's terms. Raise OSError when it does not."""

    def __init__(self, request: dict[str, Any], environment: dict[str, str], streams: Sequence[int]) -> None:
        self.connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.connection.settimeout(ANSWER_S)
        self.connection.connect(request["warm"])
        words = {"argv": request["argv"], "env": environment, "folder": request.get("folder", "/")}
        socket.send_fds(self.connection, [json.dumps(words).encode()], streams)
        said = self.connection.recv(PIECE_BYTES)
        if not said.isdigit():
            raise OSError(said.decode() or "the warm Python has ended")
        self.pid = int(said)

    def wait(self) -> int:
        with self.connection:
            return int(self.connection.recv(PIECE_BYTES) or -signal.SIGKILL)  # unknown when the warm Python has gone


class Child:
    """A command, what it still has to be fed, and which of its outputs are open."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.number = int(request["id"])
        self.unwritten = bytearray()
        self.closing = False
        self.outputs: dict[int, str] = {}
        self.process: subprocess.Popen[bytes] | WarmChild
        environment = {**os.environ, **request.get("env", {})}
        options: dict[str, Any] = {"env": environment, "cwd": request.get("folder", "/")}
        if request.get("terminal"):  # setsid makes the session, for the terminal to be its own
            ours, theirs = pty.openpty()
            try:
                argv = ["setsid", "--ctty", *request["argv"]]
                self.process = subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, **options)
            finally:
                os.close(theirs)
            self.input = os.dup(ours)
            self.outputs = {ours: "out"}
        else:
            (stdin, self.input), (out, out_end), (error, error_end) = (os.pipe() for _ in range(3))
            given = (stdin, out_end, error_end)
            self.outputs = {out: "out", error: "error"}
            try:
                if request.get("warm"):
                    self.process = WarmChild(request, environment, given)
                else:
                    options |= {"start_new_session": True, "stdin": stdin, "stdout": out_end, "stderr": error_end}
                    self.process = subprocess.Popen(request["argv"], **options)
            except OSError:
                for descriptor in (self.input, *self.outputs):
                    os.close(descriptor)
                raise
            finally:
                for descriptor in given:
                    os.close(descriptor)
        for descriptor in (self.input, *self.outputs):
            os.set_blocking(descriptor, False)
        if isinstance(self.process, WarmChild):
            self.ended = os.dup(self.process.connection.fileno())
        else:
            self.ended = os.pidfd_open(self.process.pid)


class Agent:
    """All commands of a guest, in one loop that waits for the port and for them."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.selector = selectors.DefaultSelector()
        self.children: dict[int, Child] = {}
        self.received = bytearray()
        self.selector.register(port, selectors.EVENT_READ, self.on_port)

    def serve(self) -> None:
        """Until the host has gone."""
        self.say({"is": "ready"})
        while True:
            for key, _ in self.selector.select():
                # An event of this round may be of what an earlier one has closed.
                if self.selector.get_map().get(key.fd) is key:
                    action: Callable[[], None] = key.data
                    action()

    def say(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(self.port, data) :]

    def on_port(self) -> None:
        data = os.read(self.port, PIECE_BYTES)
        if not data:
            raise SystemExit("the host has gone")
        self.received += data
        *lines, rest = self.received.split(b"\n")
        self.received = bytearray(rest)
        for line in lines:
            self.obey(json.loads(line))

    def obey(self, request: dict[str, Any]) -> None:
        if request["do"] == "run":
            self.start(request)
            return
        child = self.children.get(int(request["id"]))
        if child is None:  # it has ended, and the host does not know yet
            return
        if request["do"] == "write":
            child.unwritten += base64.b64decode(request["data"])
            self.feed(child)
        elif request["do"] == "close":
            child.closing = True
            self.feed(child)
        elif request["do"] == "kill":
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.process.pid, int(request["signal"]))

    def start(self, request: dict[str, Any]) -> None:
        try:
            child = Child(request)
        except OSError as error:
            self.say({"is": "absent", "id": request["id"], "text": str(error)})
            return
        self.children[child.number] = child
        for descriptor in child.outputs:
            self.selector.register(descriptor, selectors.EVENT_READ, lambda fd=descriptor: self.on_output(child, fd))
        self.selector.register(child.ended, selectors.EVENT_READ, lambda: self.on_end(child))

    def feed(self, child: Child) -> None:
        """Write what the command takes now; wait for the rest."""
        if child.input < 0:
            return
        watched = child.input in self.selector.get_map()
        try:
            while child.unwritten:
                del child.unwritten[: os.write(child.input, child.unwritten[:PIECE_BYTES])]
        except BlockingIOError:
            if not watched:
                self.selector.register(child.input, selectors.EVENT_WRITE, lambda: self.feed(child))
            return
        except OSError:  # the command reads no more
            child.unwritten.clear()
        if watched:
            self.selector.unregister(child.input)
        if child.closing:
            os.close(child.input)
            child.input = -1

    def on_output(self, child: Child, descriptor: int) -> bool:
        """Pass on what is there; returns whether there may be more."""
        try:
            data = os.read(descriptor, PIECE_BYTES)
        except BlockingIOError:
            return False
        except OSError:  # a terminal whose other end has closed
            data = b""
        if not data:
            self.selector.unregister(descriptor)
            os.close(descriptor)
            del child.outputs[descriptor]
            return False
        text = base64.b64encode(data).decode()
        self.say({"is": child.outputs[descriptor], "id": child.number, "data": text})
        return True

    def on_end(self, child: Child) -> None:
        """Pass on what it had left in its pipes, though something that it started may still hold them open."""
        code = child.process.wait()
        for descriptor in [*child.outputs]:
            while self.on_output(child, descriptor):
                pass
        for descriptor in child.outputs:
            self.selector.unregister(descriptor)
            os.close(descriptor)
        if child.input >= 0:
            if child.input in self.selector.get_map():
                self.selector.unregister(child.input)
            os.close(child.input)
        self.selector.unregister(child.ended)
        os.close(child.ended)
        del self.children[child.number]
        self.say({"is": "end", "id": child.number, "code": code})


if __name__ == "__main__":
    Agent(os.open(find_port(), os.O_RDWR)).serve()
