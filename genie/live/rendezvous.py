"""How ranks find each other and agree: a star through rank 0, over MPI or over TCP. No payload goes this way.

While a rank waits it calls `idle`, so that its engine goes on answering peers, and it never waits for ever.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

Idle = Callable[[], None]
AGREE_TAG, ANSWER_TAG, ALARM_TAG = 1, 2, 3
FRAME = struct.Struct("!IBI")  # payload bytes, tag, rank
FRAME_MAX_BYTES = 1 << 31


class RendezvousError(Exception):
    """Ranks that cannot find each other, or one that is gone; the message names it and what to do."""


class Channel(Protocol):
    """Tagged messages between rank 0 and the others. `receive` does not wait."""

    rank: int
    size: int
    name: str

    def send(self, to: int, tag: int, payload: bytes) -> None: ...
    def receive(self, tag: int) -> tuple[int, bytes] | None: ...
    def close(self) -> None: ...


def _sleep_a_little() -> None:
    time.sleep(0.0005)


class Rendezvous:
    """Agreement among all ranks, by one primitive: `agree`."""

    def __init__(self, channel: Channel, limit_s: float = 60.0) -> None:
        self.channel = channel
        self.rank = channel.rank
        self.size = channel.size
        self.limit_s = limit_s
        self._early: list[tuple[int, bytes]] = []  # what ranks sent for a later agreement than the present one

    def agree(
        self, value: Any, decide: Callable[[list[Any]], Any] | None = None, *, idle: Idle = _sleep_a_little
    ) -> Any:
        """Give every rank's `value` (plain data) to rank 0, let it `decide`, and give the answer to all.

        Without `decide` the answer is the list of values. Also the only barrier there is. Raises RendezvousError when
        a rank does not come within the limit, or has raised the alarm.
        """
        deadline = time.monotonic() + self.limit_s
        if self.rank != 0:
            self.channel.send(0, AGREE_TAG, msgspec.msgpack.encode(value))
            return msgspec.msgpack.decode(self._wait(ANSWER_TAG, deadline, idle, {0})[1])
        values: list[Any] = [None] * self.size
        values[0] = msgspec.msgpack.decode(msgspec.msgpack.encode(value))
        missing = set(range(1, self.size))
        while missing:
            source, payload = self._wait(AGREE_TAG, deadline, idle, missing)
            values[source] = msgspec.msgpack.decode(payload)
            missing.discard(source)
        answer = msgspec.msgpack.encode(decide(values) if decide else values)
        for rank in range(1, self.size):
            self.channel.send(rank, ANSWER_TAG, answer)
        return msgspec.msgpack.decode(answer)

    def collect(self, payload: bytes, *, idle: Idle = _sleep_a_little) -> list[bytes] | None:
        """Give every rank's bytes to rank 0: the list there, None elsewhere."""
        deadline = time.monotonic() + self.limit_s
        if self.rank != 0:
            self.channel.send(0, AGREE_TAG, payload)
            return None
        payloads = [payload] + [b""] * (self.size - 1)
        missing = set(range(1, self.size))
        while missing:
            source, received = self._wait(AGREE_TAG, deadline, idle, missing)
            payloads[source] = received
            missing.discard(source)
        return payloads

    def alarm(self, text: str) -> None:
        """Tell rank 0, or as rank 0 all others, that this rank has failed."""
        payload = text.encode()
        for rank in [0] if self.rank else range(1, self.size):
            self.channel.send(rank, ALARM_TAG, payload)

    def alarmed(self) -> str | None:
        """The first alarm that has come, passed on by rank 0 to all others; None while there is none."""
        alarm = self.channel.receive(ALARM_TAG)
        if alarm is None:
            return None
        if self.rank == 0:
            for rank in range(1, self.size):
                if rank != alarm[0]:
                    self.channel.send(rank, ALARM_TAG, alarm[1])
        return alarm[1].decode()

    def _wait(self, tag: int, deadline: float, idle: Idle, missing: set[int]) -> tuple[int, bytes]:
        for at, (source, _) in enumerate(self._early):
            if tag == AGREE_TAG and source in missing:
                return self._early.pop(at)
        while True:
            message = self.channel.receive(tag)
            if message is not None:
                if message[0] in missing:
                    return message
                self._early.append(message)
                continue
            text = self.alarmed()
            if text is not None:
                raise RendezvousError(text)
            if time.monotonic() > deadline:
                raise RendezvousError(
                    f"rank {self.rank} waited {self.limit_s:.0f} s for rank {', '.join(map(str, sorted(missing)[:8]))}: "
                    "is it running? (see the launcher's output)"
                )
            idle()


class MpiChannel:
    """Over mpi4py, under mpirun or srun."""

    name = "mpi"

    def __init__(self) -> None:
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            raise RendezvousError(f"MPI cannot be loaded: {error}; pip install mpich, or load your site's MPI") from error
        self._mpi = MPI
        self._world = MPI.COMM_WORLD
        self.rank = self._world.Get_rank()
        self.size = self._world.Get_size()
        self._pending: list[tuple[Any, bytes]] = []

    def send(self, to: int, tag: int, payload: bytes) -> None:
        self._pending = [entry for entry in self._pending if not entry[0].Test()]
        self._pending.append((self._world.Isend([payload, self._mpi.BYTE], dest=to, tag=tag), payload))

    def receive(self, tag: int) -> tuple[int, bytes] | None:
        status = self._mpi.Status()
        if not self._world.Iprobe(source=self._mpi.ANY_SOURCE, tag=tag, status=status):
            return None
        payload = bytearray(status.Get_count(self._mpi.BYTE))
        self._world.Recv([payload, self._mpi.BYTE], source=status.Get_source(), tag=tag)
        return status.Get_source(), bytes(payload)

    def close(self) -> None:
        for request, _ in self._pending:
            request.Wait()


class TcpChannel:
    """Over TCP with torchrun's variables, for places without MPI. Rank 0 listens."""

    name = "tcp"

    def __init__(self, rank: int, size: int, host: str, port: int, limit_s: float = 60.0) -> None:
        self.rank, self.size = rank, size
        self._peers: dict[int, socket.socket] = {}
        self._buffers: dict[int, bytearray] = {}
        self._inbox: dict[int, list[tuple[int, bytes]]] = {}
        deadline = time.monotonic() + limit_s
        if rank == 0:
            self._listen(port, deadline)
        else:
            self._join(host, port, deadline)

    def _listen(self, port: int, deadline: float) -> None:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", port))
        except OSError as error:
            raise RendezvousError(f"rank 0 cannot listen on MASTER_PORT {port}: {error.strerror}") from error
        listener.listen(self.size)
        with listener:
            while len(self._peers) < self.size - 1:
                listener.settimeout(max(deadline - time.monotonic(), 0.01))
                try:
                    peer, _ = listener.accept()
                    peer.settimeout(5)
                    _, _, rank = FRAME.unpack(_exactly(peer, FRAME.size))
                except TimeoutError:
                    missing = sorted(set(range(1, self.size)) - set(self._peers))
                    raise RendezvousError(
                        f"rank {', '.join(map(str, missing[:8]))} did not join within the limit: is it running?"
                    ) from None
                except (OSError, struct.error):
                    continue
                self._add(rank, peer)

    def _join(self, host: str, port: int, deadline: float) -> None:
        while True:
            try:
                peer = socket.create_connection((host, port), timeout=5)
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    raise RendezvousError(
                        f"rank {self.rank} cannot reach rank 0 at {host}:{port} (MASTER_ADDR, MASTER_PORT): {error}"
                    ) from error
                time.sleep(0.1)
        peer.sendall(FRAME.pack(0, 0, self.rank))
        self._add(0, peer)

    def _add(self, rank: int, peer: socket.socket) -> None:
        peer.settimeout(None)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._peers[rank] = peer
        self._buffers[rank] = bytearray()

    def send(self, to: int, tag: int, payload: bytes) -> None:
        try:
            self._peers[to].sendall(FRAME.pack(len(payload), tag, self.rank) + payload)
        except OSError as error:
            raise RendezvousError(f"rank {self.rank} lost rank {to}: {error.strerror}; see that rank's output") from error

    def receive(self, tag: int) -> tuple[int, bytes] | None:
        readable, _, _ = select.select(list(self._peers.values()), [], [], 0)
        for rank, peer in list(self._peers.items()):
            if peer in readable:
                self._read(rank, peer)
        waiting = self._inbox.get(tag)
        return waiting.pop(0) if waiting else None

    def _read(self, rank: int, peer: socket.socket) -> None:
        try:
            chunk = peer.recv(1 << 20)
        except OSError:
            chunk = b""
        if not chunk:
            del self._peers[rank]
            self._inbox.setdefault(ALARM_TAG, []).append((rank, f"rank {rank} is gone: it closed its connection".encode()))
            return
        buffer = self._buffers[rank]
        buffer += chunk
        while len(buffer) >= FRAME.size:
            size, tag, source = FRAME.unpack_from(buffer)
            if size > FRAME_MAX_BYTES or len(buffer) < FRAME.size + size:
                return
            self._inbox.setdefault(tag, []).append((source, bytes(buffer[FRAME.size : FRAME.size + size])))
            del buffer[: FRAME.size + size]

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()


def _exactly(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = peer.recv(size - len(data))
        if not chunk:
            raise OSError("closed")
        data += chunk
    return data


# Variables by which launchers tell a process its rank; the first of each that is set counts.
MPI_RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")
TCP_RANK_VARIABLES = (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"))


def launched_by(environment: Mapping[str, str] = os.environ) -> str | None:
    """"mpi" or "tcp" when this process is a rank that a launcher started, None when a person started it."""
    if any(name in environment for name in MPI_RANK_VARIABLES):
        return "mpi"
    if "MASTER_ADDR" in environment and any(rank in environment for rank, _ in TCP_RANK_VARIABLES):
        return "tcp"
    if "SLURM_PROCID" in environment and "SLURM_STEP_ID" in environment and int(environment.get("SLURM_NTASKS", "1")) > 1:
        return "mpi"
    return None


def join(environment: Mapping[str, str] = os.environ, limit_s: float = 60.0) -> Rendezvous:
    """Meet the other ranks of this launch. Raises RendezvousError."""
    if launched_by(environment) != "tcp":
        return Rendezvous(MpiChannel(), limit_s)
    for rank_name, size_name in TCP_RANK_VARIABLES:
        if rank_name in environment:
            try:
                rank, size = int(environment[rank_name]), int(environment[size_name])
                port = int(environment.get("MASTER_PORT", "29500"))
            except (KeyError, ValueError) as error:
                raise RendezvousError(f"{rank_name} is set, but {size_name} or MASTER_PORT is not a number") from error
            return Rendezvous(TcpChannel(rank, size, environment["MASTER_ADDR"], port, limit_s), limit_s)
    raise RendezvousError("MASTER_ADDR is set without RANK and WORLD_SIZE: set all of torchrun's variables")
