"""Sockets that ranks of one address share: the right one by local rank, and still so after any of them has died."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import socket
import struct
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genie.live.softroce.shared_port import (
    Giver,
    PortError,
    make_group,
    meeting_name,
    obtain,
    share,
    take_group,
)

pytestmark = pytest.mark.live

PORT = 4791
_numbers = itertools.count(1)


def address() -> str:
    return f"127.{190 + os.getpid() % 50}.{os.getpid() // 50 % 250}.{next(_numbers)}"


def datagram(local_rank: int, payload: int = 0) -> bytes:
    """A BTH to a queue pair of a local rank, with a number after it."""
    return struct.pack("!BBHII", 0x04, 0, 0xFFFF, (local_rank + 1) << 16, 0) + struct.pack("!I", payload)


def numbers(receiver: socket.socket) -> list[int]:
    """Return the numbers in the datagrams that have arrived."""
    found = []
    while True:
        try:
            found.append(struct.unpack("!I", receiver.recv(100)[12:])[0])
        except BlockingIOError:
            return found


@pytest.mark.parametrize("count", [1, 2, 5, 255])
def test_each_local_rank_has_its_socket(count: int) -> None:
    where = address()
    group = make_group(where, PORT, count)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for rank in range(count):
            sender.sendto(datagram(rank, rank), (where, PORT))
    assert [numbers(member) for member in group] == [[rank] for rank in range(count)]
    for member in group:
        member.close()


def test_over_ipv6_packets_without_a_checksum_are_taken() -> None:
    no_checksum_sent = 101  # UDP_NO_CHECK6_TX
    group = make_group("::1", PORT, 2)
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_UDP, no_checksum_sent, 1)
        sender.sendto(datagram(1, 77), ("::1", PORT))
    assert [numbers(member) for member in group] == [[], [77]]
    for member in group:
        member.close()


@pytest.mark.parametrize("shared", [1, 3])
def test_a_port_that_is_taken_is_named(shared: int) -> None:
    where = address()
    held = make_group(where, PORT, shared)
    with pytest.raises(PortError, match=f"^cannot receive on {where}:{PORT}: Address already in use$"):
        make_group(where, PORT, 2)
    for member in held:
        member.close()
    for member in make_group(where, PORT, 2):  # free again: nothing was left open
        member.close()


def test_nobody_to_take_from() -> None:
    with pytest.raises(ConnectionRefusedError):
        obtain("nobody", 2)


def test_all_of_many_sockets_are_given() -> None:
    where, count = address(), 255
    group = make_group(where, PORT, count)
    name = meeting_name(f"many {where}")
    giver = Giver(name, group, takers=1)
    taken = take_group(name, count)
    assert [member.getsockname() for member in taken] == [(where, PORT)] * count
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(datagram(200, 5), (where, PORT))
    assert numbers(taken[200]) == [5]
    giver.close()
    for member in [*group, *taken]:
        member.close()


def test_another_count_of_ranks_is_refused() -> None:
    where = address()
    group, name = make_group(where, PORT, 2), meeting_name(f"count {where}")
    giver = Giver(name, group, takers=1)
    with pytest.raises(OSError, match="not as many sockets as ranks arrived"):
        take_group(name, 3)
    taken = take_group(name, 2)  # the one that was refused does not count
    giver.close()
    for member in [*group, *taken]:
        member.close()


def rank_body(rank: int, count: int, where: str, name: str, pipe: Connection) -> None:
    """A rank in a process of its own: says when it is there, and what it has got when asked."""
    if rank == 0:
        port = share(where, PORT, count, name)
        pipe.send("made")
        pipe.recv()
    else:
        pipe.recv()
        port = obtain(name, count)
    own = socket.socket(fileno=port.take(rank))
    pipe.send("there")
    while pipe.recv() == "look":
        pipe.send(numbers(own))
    port.close()


class Ranks:
    """Processes that share one address."""

    def __init__(self, count: int) -> None:
        self.where = address()
        name = f"ranks of {self.where}"
        context = multiprocessing.get_context("fork")
        pipes = [context.Pipe() for _ in range(count)]
        self.pipes = [pipe[0] for pipe in pipes]
        self.processes = [
            context.Process(target=rank_body, args=(rank, count, self.where, name, pipes[rank][1]), daemon=True)
            for rank in range(count)
        ]
        for process in self.processes:
            process.start()
        assert self.pipes[0].recv() == "made"
        for pipe in self.pipes:
            pipe.send("take")
        assert [pipe.recv() for pipe in self.pipes] == ["there"] * count

    def kill(self, rank: int) -> None:
        pid = self.processes[rank].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        self.processes[rank].join(120)

    def got(self, rank: int) -> list[int]:
        self.pipes[rank].send("look")
        return list(self.pipes[rank].recv())

    def close(self) -> None:
        for rank, process in enumerate(self.processes):
            if process.is_alive():
                self.kill(rank)


@pytest.fixture
def five() -> Iterator[Ranks]:
    ranks = Ranks(5)
    yield ranks
    ranks.close()


def test_no_death_moves_the_others(five: Ranks) -> None:
    """Without sharing, the kernel would put the last member in the dead one's place."""
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    alive, number = {0, 1, 2, 3, 4}, 0
    for dead in (1, 0, 3):  # the first rank too, which has made them all
        five.kill(dead)
        alive.remove(dead)
        sent: dict[int, list[int]] = {rank: [] for rank in range(5)}
        for _ in range(3):
            for rank in range(5):
                number += 1
                sender.sendto(datagram(rank, number), (five.where, PORT))
                sent[rank].append(number)
        time.sleep(0.01)
        assert {rank: five.got(rank) for rank in alive} == {rank: sent[rank] for rank in alive}
    sender.close()


@given(st.text(max_size=40), st.text(max_size=40))
@settings(max_examples=50)
def test_meeting_names_fit_and_differ_by_run(one: str, other: str) -> None:
    names = {meeting_name(run) for run in (one, other)}
    assert len(names) == len({one, other})
    assert all(name.startswith("\0") and len(name) < 108 for name in names)
