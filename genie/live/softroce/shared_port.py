"""Sockets on the RoCE port of one address, one for each rank that shares it.

The kernel indexes a reuseport group by the order of joining, and moves its last member into the place of one that
closes. So the first rank makes all sockets, in order, and passes all of them to every rank. The death of a rank then
closes no socket, and no other rank's packets go astray.
"""

from __future__ import annotations

import array
import contextlib
import errno
import hashlib
import os
import socket
import struct
import threading
import time
from collections.abc import Sequence

import genie_core

DESCRIPTORS_MAX = 128  # in one message; the kernel permits 253
JOIN_LIMIT_S = 60.0


class PortError(RuntimeError):
    """A port cannot be bound: a phrase that says which and why."""


class SharedPort:
    """All sockets of an address, held by each of its ranks."""

    def __init__(self, group: list[socket.socket], giver: Giver | None = None) -> None:
        self._group, self._giver = group, giver

    def take(self, local_rank: int) -> int:
        """Return a new descriptor of a local rank's socket, which the caller owns."""
        return os.dup(self._group[local_rank].fileno())

    def close(self) -> None:
        """Close the sockets."""
        if self._giver:
            self._giver.close()
        for member in self._group:
            member.close()


def share(address: str, port: int, sharers: int, name: str, limit_s: float = JOIN_LIMIT_S) -> SharedPort:
    """Bind a port, as the first rank of an address, for all of its ranks. Raise PortError when it is taken, or OSError.

    `name`: of the run, by which the others find the sockets with obtain(), within the limit.
    """
    group = make_group(address, port, sharers)
    try:
        return SharedPort(group, Giver(meeting_name(name), group, sharers - 1, limit_s))
    except OSError:
        for member in group:
            member.close()
        raise


def obtain(name: str, sharers: int, limit_s: float = JOIN_LIMIT_S) -> SharedPort:
    """Return the sockets that the first rank of the address shares. Raise OSError when it does not."""
    return SharedPort(take_group(meeting_name(name), sharers, limit_s))


def make_group(address: str, port: int, count: int) -> list[socket.socket]:
    """Return bound sockets for local ranks 0 to count - 1, in that order. Raise PortError when the port is taken."""
    try:
        return [socket.socket(fileno=made) for made in genie_core.open_receivers(address, port, count)]
    except RuntimeError as error:
        raise PortError(str(error)) from error


def meeting_name(name: str) -> str:
    """Return the name of the abstract Unix socket by which ranks of one address meet."""
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return f"\0genie port {digest}"


class Giver:
    """Passes a group of sockets to all other ranks of the address, from a thread of its own."""

    def __init__(self, name: str, group: Sequence[socket.socket], takers: int, limit_s: float = JOIN_LIMIT_S) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._listener.bind(name)
            self._listener.listen(takers)
        except OSError:
            self._listener.close()
            raise
        self._descriptors = [os.dup(member.fileno()) for member in group]
        self._thread = threading.Thread(target=self._give, args=(takers, limit_s), daemon=True)
        self._thread.start()

    def _give(self, takers: int, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        try:
            while takers > 0:
                self._listener.settimeout(max(deadline - time.monotonic(), 0.001))
                taker, _ = self._listener.accept()
                with taker:
                    if _user_of(taker) != os.geteuid():
                        continue
                    taker.settimeout(limit_s)
                    takers -= _send_all(taker, self._descriptors)
        except OSError:
            pass  # too late, or closed: ranks without sockets report it
        finally:
            self._listener.close()
            for descriptor in self._descriptors:
                os.close(descriptor)

    def close(self) -> None:
        """Stop passing sockets."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)


def _user_of(peer: socket.socket) -> int:
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[1])


def _send_all(taker: socket.socket, descriptors: Sequence[int]) -> bool:
    """Send all descriptors; return whether the taker has confirmed them."""
    with contextlib.suppress(OSError):
        for first in range(0, len(descriptors), DESCRIPTORS_MAX):
            part = list(descriptors[first : first + DESCRIPTORS_MAX])
            socket.send_fds(taker, [struct.pack("!HH", len(descriptors), len(part))], part)
        return taker.recv(1) == b"k"
    return False


def take_group(name: str, count: int, limit_s: float = JOIN_LIMIT_S) -> list[socket.socket]:
    """Return the sockets that the first rank of the address has made, in order. Raise OSError."""
    taken: list[int] = []
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as giver:
            giver.settimeout(limit_s)
            giver.connect(name)
            if _user_of(giver) != os.geteuid():
                raise OSError(errno.EPERM, "another user offers them")
            while len(taken) < count:
                taken += _receive_part(giver, count)
            giver.sendall(b"k")
    except OSError:
        for descriptor in taken:
            os.close(descriptor)
        raise
    return [socket.socket(fileno=descriptor) for descriptor in taken]


def _receive_part(giver: socket.socket, count: int) -> list[int]:
    # socket.recv_fds cannot be used: Python 3.11's ignores its flags, and MSG_CMSG_CLOEXEC is needed.
    size = array.array("i").itemsize * DESCRIPTORS_MAX
    data, ancillary, flags, _ = giver.recvmsg(struct.calcsize("!HH"), socket.CMSG_SPACE(size), socket.MSG_CMSG_CLOEXEC)
    got = array.array("i")
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            got.frombytes(payload[: len(payload) - len(payload) % got.itemsize])
    if (
        len(data) < struct.calcsize("!HH")
        or struct.unpack("!HH", data) != (count, len(got))
        or flags & socket.MSG_CTRUNC
    ):
        for descriptor in got:
            os.close(descriptor)
        raise OSError(errno.EPROTO, "not as many sockets as ranks arrived (see ulimit -n)")
    return list(got)
