"""The rendezvous over TCP, with torchrun's variables, for sites without MPI. Rank 0 listens, all others connect.

Like torchrun's, it is for trusted networks: it accepts any caller that reaches the port and sends the greeting.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import struct
import time
from dataclasses import dataclass

import msgspec

from genie.live.failure import Failure
from genie.live.rendezvous.channel import ALARM_TAG, RendezvousError, ranks_text

HELLO = struct.Struct("!8sII")  # greeting, number of ranks, rank
GREETING = b"genie/1\n"
FRAME = struct.Struct("!IB")  # payload bytes, tag
FRAME_MAX_BYTES = 1 << 31  # of a payload; memory is allocated only for received bytes
CHUNK_BYTES = 1 << 20
RETRY_S = 0.1
GREETING_LIMIT_S = 10.0  # for a caller to send its greeting


class TcpChannel:
    """A star of TCP connections with rank 0 in its centre."""

    name = "tcp"

    def __init__(self, rank: int, size: int, host: str, port: int, limit_s: float = 60.0) -> None:
        self.rank, self.size = rank, size
        self._limit_s = limit_s
        self._peers: dict[int, socket.socket] = {}
        self._buffers: dict[int, bytearray] = {}
        self._inbox: dict[int, list[tuple[int, bytes]]] = {}
        self._closed: list[int] = []  # ranks whose connection closed, until `receive` has said so
        deadline = time.monotonic() + limit_s
        if rank == 0:
            for number, peer in _accept_all(size, host, port, deadline, limit_s).items():
                self._add(number, peer)
        else:
            self._add(0, _connect(rank, size, host, port, deadline))

    def _add(self, rank: int, peer: socket.socket) -> None:
        peer.settimeout(self._limit_s)  # for a rank that does not read what is sent; reads never wait
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._peers[rank] = peer
        self._buffers[rank] = bytearray()

    def send(self, to: int, tag: int, payload: bytes) -> None:
        if len(payload) > FRAME_MAX_BYTES:
            raise RendezvousError(f"rank {self.rank}: {len(payload)} bytes of records in one iteration are too many")
        peer = self._peers.get(to)
        if peer is None:
            raise RendezvousError(f"rank {to} is gone: it closed its connection to rank {self.rank}")
        try:
            unsent = memoryview(FRAME.pack(len(payload), tag) + payload)
            while unsent:  # sendall() would apply its time limit to the whole payload
                unsent = unsent[peer.send(unsent) :]
        except OSError as error:
            raise RendezvousError(f"rank {self.rank} lost rank {to}: {error.strerror or error}") from error

    def receive(self, tag: int) -> tuple[int, bytes] | None:
        waiting = self._inbox.get(tag)
        if not waiting:
            self._read_all()
            waiting = self._inbox.get(tag)
        if not waiting and tag == ALARM_TAG and self._closed:
            raise RendezvousError(f"rank {self._closed.pop(0)} is gone: its connection closed")
        return waiting.pop(0) if waiting else None

    def _read_all(self) -> None:
        poll = select.poll()  # select() is limited to file descriptors below 1024
        by_number = {peer.fileno(): rank for rank, peer in self._peers.items()}
        for number in by_number:
            poll.register(number, select.POLLIN)
        for number, _ in poll.poll(0):
            self._read(by_number[number])

    def _read(self, rank: int) -> None:
        peer = self._peers[rank]
        try:
            chunk = peer.recv(CHUNK_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        buffer = self._buffers[rank]
        buffer += chunk
        broken = not chunk
        while len(buffer) >= FRAME.size and not broken:
            size, tag = FRAME.unpack_from(buffer)
            broken = size > FRAME_MAX_BYTES
            if broken or len(buffer) < FRAME.size + size:
                break
            self._inbox.setdefault(tag, []).append((rank, bytes(buffer[FRAME.size : FRAME.size + size])))
            del buffer[: FRAME.size + size]
        if broken:
            peer.close()
            del self._peers[rank]
            self._closed.append(rank)

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()


@dataclass
class _Caller:
    """A connection whose greeting has not arrived in full yet."""

    connection: socket.socket
    until: float  # time.monotonic() at which it is closed
    said: bytes = b""


def _accept_all(size: int, host: str, port: int, deadline: float, limit_s: float) -> dict[int, socket.socket]:
    """Return a connection from each other rank, on rank 0. Other callers are closed. Raise RendezvousError."""
    joined: dict[int, socket.socket] = {}
    callers: dict[int, _Caller] = {}  # by file descriptor
    with _listen(host, port, size) as listener:
        while len(joined) < size - 1:
            for number in _ready([listener.fileno(), *callers], deadline):
                if number == listener.fileno():
                    _let_in(listener, callers)
                    continue
                caller = callers[number]
                caller.said = _hear(caller.connection, caller.said)
                if len(caller.said) < HELLO.size:
                    continue
                del callers[number]
                if (rank := _rank_of(caller.said, size, joined)) is None:
                    caller.connection.close()
                else:
                    joined[rank] = caller.connection
            now = time.monotonic()
            for number in [number for number, caller in callers.items() if now > caller.until]:
                callers.pop(number).connection.close()
            if now > deadline and len(joined) < size - 1:
                text = f"{ranks_text(set(range(1, size)) - set(joined))} did not join rank 0 within {limit_s:g} s"
                text += ": is it running?"
                _tell_all(joined, text)
                raise RendezvousError(text)
    for caller in callers.values():
        caller.connection.close()
    return joined


def _listen(host: str, port: int, size: int) -> socket.socket:
    """Return a socket that listens at MASTER_ADDR's address, or at all addresses where that one is not local."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    address = _own_address(host)
    try:
        try:
            listener.bind((address, port))
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:  # for example behind address translation
                raise
            listener.bind(("", port))
        listener.listen(size)
    except OSError as error:
        listener.close()
        raise RendezvousError(
            f"rank 0 cannot listen on MASTER_PORT {port}: {error.strerror}; choose another"
        ) from error
    listener.setblocking(False)
    return listener


def _own_address(host: str) -> str:
    """Return the IPv4 address of MASTER_ADDR on rank 0; "", all addresses, when other hosts reach it by another."""
    try:
        address = socket.gethostbyname(host or "?")
    except OSError as error:
        raise RendezvousError(f"MASTER_ADDR={host}: no such host: {error.strerror}") from error
    # Many machines resolve their own name to a loopback address, and other machines to the real one.
    return "" if address.startswith("127.") and host not in (address, "localhost") else address


def _ready(numbers: list[int], deadline: float) -> list[int]:
    """Return the file descriptors with something to read; wait for one, for a second at most."""
    poll = select.poll()
    for number in numbers:
        poll.register(number, select.POLLIN)
    wait_s = min(max(deadline - time.monotonic(), 0.0), 1.0)
    return [number for number, _ in poll.poll(wait_s * 1000)]


def _let_in(listener: socket.socket, callers: dict[int, _Caller]) -> None:
    try:
        connection, _ = listener.accept()
    except OSError:  # the caller has hung up, or descriptors have run out until silent callers are closed
        time.sleep(RETRY_S)
        return
    callers[connection.fileno()] = _Caller(connection, time.monotonic() + GREETING_LIMIT_S)


def _tell_all(joined: dict[int, socket.socket], text: str) -> None:
    payload = msgspec.msgpack.encode(Failure(rank=0, error=text))
    for peer in joined.values():
        with contextlib.suppress(OSError):
            peer.sendall(FRAME.pack(len(payload), ALARM_TAG) + payload)


def _hear(caller: socket.socket, said: bytes) -> bytes:
    try:
        chunk = caller.recv(HELLO.size - len(said), socket.MSG_DONTWAIT)
    except BlockingIOError:
        return said
    except OSError:
        chunk = b""
    return said + chunk if chunk else b"\0" * HELLO.size  # closed: an invalid greeting


def _rank_of(said: bytes, size: int, joined: dict[int, socket.socket]) -> int | None:
    """Return the caller's rank, None without a valid greeting. Raise RendezvousError for another launch's rank."""
    greeting, ranks, rank = HELLO.unpack(said)
    if greeting != GREETING:
        return None
    if ranks != size or not 0 < rank < size:
        raise RendezvousError(
            f"rank {rank} of {ranks} called rank 0 of {size}: start all with the same number of ranks"
        )
    if rank in joined:
        raise RendezvousError(f"two processes say that they are rank {rank}: start each rank once")
    return int(rank)


def _connect(rank: int, size: int, host: str, port: int, deadline: float) -> socket.socket:
    while True:
        try:
            peer = socket.create_connection((host, port), timeout=max(min(deadline - time.monotonic(), 5), 0.1))
            # While no process listens, a connection to a port of this machine may reach itself.
            if peer.getsockname() != peer.getpeername():
                peer.sendall(HELLO.pack(GREETING, size, rank))
                return peer
            peer.close()
            problem = "no process listens"
        except OSError as error:
            problem = error.strerror or str(error)
        if time.monotonic() > deadline:
            raise RendezvousError(
                f"rank {rank} cannot reach rank 0 at {host}:{port} (MASTER_ADDR, MASTER_PORT): {problem}"
            )
        time.sleep(RETRY_S)
