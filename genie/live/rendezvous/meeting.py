"""Rendezvous and agreement of ranks: a star through rank 0, over MPI or over TCP. It carries no payload.

A waiting rank calls `idle`, so that its engine keeps answering peers. Every wait has a time limit.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from genie.live.failure import Failure
from genie.live.launched import tcp_variables
from genie.live.rendezvous.channel import (
    AGREE_TAG,
    ALARM_TAG,
    ALIVE_TAG,
    ANSWER_TAG,
    Channel,
    PeerError,
    RendezvousError,
    ranks_text,
)

Idle = Callable[[], None]
CLOSE_LIMIT_S = 10.0
SEGMENT = "/dev/shm/mpich_shm_"


def _sleep_a_little() -> None:
    time.sleep(0.0005)


def decoded(source: int, payload: bytes, kind: Any = Any) -> Any:
    """Decode a message of another rank. Raise RendezvousError when it is not one of Genie's."""
    try:
        return msgspec.msgpack.decode(payload, type=kind)
    except (ValueError, RecursionError) as error:
        raise RendezvousError(f"rank {source} sent what is not a message of this Genie: {error}") from error


class Rendezvous:
    """Agreement among all ranks, by one primitive: `agree`."""

    def __init__(self, channel: Channel, limit_s: float = 60.0) -> None:
        self.channel = channel
        self.rank = channel.rank
        self.size = channel.size
        self.limit_s = limit_s
        self._early: list[tuple[int, bytes]] = []  # messages for a later agreement than the present one
        self._told = time.monotonic()  # time at which this rank last reported that it is alive
        self._received = self._told  # time at which it last received a message that it waited for

    def agree(
        self, value: Any, decide: Callable[[list[Any]], Any] | None = None, *, idle: Idle = _sleep_a_little
    ) -> Any:
        """Give every rank's `value` (plain data) to rank 0, let it `decide`, and return the answer on all ranks.

        Without `decide` the answer is the list of values. It is also the only barrier. Raise RendezvousError when a
        rank is silent beyond the limit, or has raised the alarm.
        """
        if self.rank != 0:
            self.channel.send(0, AGREE_TAG, msgspec.msgpack.encode(value))
            return decoded(*self._wait(ANSWER_TAG, self._heard({0}), idle))
        values: list[Any] = [None] * self.size
        values[0] = msgspec.msgpack.decode(msgspec.msgpack.encode(value))
        missing = self._heard(range(1, self.size))
        while missing:
            source, payload = self._wait(AGREE_TAG, missing, idle)
            values[source] = decoded(source, payload)
            del missing[source]
        answer = msgspec.msgpack.encode(decide(values) if decide else values)
        for rank in range(1, self.size):
            self.channel.send(rank, ANSWER_TAG, answer)
        return msgspec.msgpack.decode(answer)

    def collect(self, payload: bytes, *, idle: Idle = _sleep_a_little) -> list[bytes] | None:
        """Give every rank's bytes to rank 0: return the list there, None on other ranks. Raise RendezvousError."""
        if self.rank != 0:
            self.channel.send(0, AGREE_TAG, payload)
            return None
        payloads = [payload] + [b""] * (self.size - 1)
        missing = self._heard(range(1, self.size))
        while missing:
            source, received = self._wait(AGREE_TAG, missing, idle)
            payloads[source] = received
            del missing[source]
        return payloads

    def alarm(self, failure: Failure) -> bool:
        """Tell rank 0, or as rank 0 all others, that a rank has failed; they raise PeerError.

        Return whether the message reached the channel for at least one rank.
        """
        return self._tell(ALARM_TAG, msgspec.msgpack.encode(failure))

    def alive(self) -> None:
        """Report now and then to waiting ranks that this rank is busy and not gone. Cheap: call it often."""
        now = time.monotonic()
        if now - self._told > self.limit_s / 4:
            self._told = now
            self._tell(ALIVE_TAG, b"")

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Report that this rank is alive during work that cannot call `alive` and does not use the channel itself."""
        done = threading.Event()

        def say_so() -> None:
            while not done.wait(self.limit_s / 8):
                self.alive()

        thread = threading.Thread(target=say_so, daemon=True)
        self.alive()
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def alarmed(self) -> Failure | None:
        """Return the failure of the first alarm that has arrived; None while there is none.

        Rank 0 passes it on to all others. Raise RendezvousError when a rank is gone.
        """
        try:
            alarm = self.channel.receive(ALARM_TAG)
        except RendezvousError as error:
            if self.rank == 0:
                self.alarm(Failure(rank=0, error=str(error)))
            raise
        if alarm is None:
            return None
        if self.rank == 0:
            self._tell(ALARM_TAG, alarm[1], but=alarm[0])
        failure: Failure = decoded(*alarm, Failure)
        return failure

    def wait_for(self, tag: int, ranks: Iterable[int], idle: Idle = _sleep_a_little) -> tuple[int, bytes]:
        """Return the next message of this tag from one of the ranks. Raise RendezvousError like `agree`."""
        return self._wait(tag, self._heard(ranks), idle)

    def _heard(self, ranks: Iterable[int]) -> dict[int, float]:
        return dict.fromkeys(ranks, time.monotonic())

    def _tell(self, tag: int, payload: bytes, but: int = -1) -> bool:
        told = False
        for rank in [0] if self.rank else range(1, self.size):
            if rank != but:
                with suppress(RendezvousError):  # the others must learn of it although one is gone
                    self.channel.send(rank, tag, payload)
                    told = True
        return told

    def _wait(self, tag: int, missing: dict[int, float], idle: Idle) -> tuple[int, bytes]:
        """Return a message from one of `missing`: rank -> time at which it was last heard of."""
        for at, (source, _) in enumerate(self._early):
            if tag == AGREE_TAG and source in missing:
                return self._early.pop(at)
        while True:
            message = self.channel.receive(tag)
            if message is not None:
                self._received = time.monotonic()
                if self.rank == 0:
                    self.alive()  # large records take time, and the others wait for rank 0
                if message[0] in missing:
                    return message
                if tag == AGREE_TAG:
                    self._early.append(message)
                continue
            failure = self.alarmed()
            if failure is not None:
                raise PeerError(failure)
            now = time.monotonic()
            while (sign := self.channel.receive(ALIVE_TAG)) is not None:
                if sign[0] in missing:
                    missing[sign[0]] = now
                if self.rank == 0:
                    self.alive()  # the others wait for rank 0, which waits for this rank
            # A rank whose messages are still unread is not silent.
            silent = [rank for rank, heard in missing.items() if now - max(heard, self._received) > self.limit_s]
            if silent:
                raise RendezvousError(
                    f"rank {self.rank} heard nothing of {ranks_text(silent)} for {self.limit_s:g} s: is it running?"
                )
            idle()


class MpiChannel:
    """Channel over mpi4py, under mpirun or srun."""

    name = "mpi"

    def __init__(self) -> None:
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            raise RendezvousError(
                f"MPI cannot be loaded: {error}; pip install mpich, or load your site's MPI"
            ) from error
        self._mpi = MPI
        self._world = MPI.COMM_WORLD
        self.rank = self._world.Get_rank()
        self.size = self._world.Get_size()
        self._pending: list[tuple[Any, bytes]] = []
        _unname_segments(self._world)

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
        deadline = time.monotonic() + CLOSE_LIMIT_S
        while self._pending and time.monotonic() < deadline:
            self._pending = [entry for entry in self._pending if not entry[0].Test()]
            _sleep_a_little()


def _unname_segments(world: Any) -> None:
    """Remove the names of MPICH's shared-memory segments on this node, once all its ranks have mapped them.

    MPICH removes the names at its end, which failing ranks do not reach: they would stay in /dev/shm.
    """
    world.Barrier()
    with suppress(OSError):
        mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if SEGMENT in line}
        for path in mapped:
            Path(path).unlink(missing_ok=True)


def join(environment: Mapping[str, str] = os.environ, limit_s: float = 60.0) -> Rendezvous:
    """Meet the other ranks of this launch. Raise RendezvousError."""
    tcp = tcp_variables(environment)
    if tcp is None:
        return Rendezvous(MpiChannel(), limit_s)
    from genie.live.rendezvous.tcp import TcpChannel

    rank_name, size_name = tcp
    rank = _number(environment, rank_name)
    size = _number(environment, size_name)
    port = _number(environment, "MASTER_PORT", "29500")
    if not 0 < port < 65536:
        raise RendezvousError(f"MASTER_PORT={port}: must be in 1..65535")
    if not 0 <= rank < size:
        raise RendezvousError(f"{rank_name} is {rank} and {size_name} is {size}: ranks are 0 to {size_name} - 1")
    return Rendezvous(TcpChannel(rank, size, environment["MASTER_ADDR"], port, limit_s), limit_s)


def _number(environment: Mapping[str, str], name: str, default: str | None = None) -> int:
    text = environment.get(name, default)
    if text is None:
        raise RendezvousError(f"{name} is not set: give RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT")
    if not text.isdecimal():
        raise RendezvousError(f"{name}={text}: must be a number")
    return int(text)
