"""Several ranks on one address and one UDP port: the local rank in the queue pair number picks the socket."""

from __future__ import annotations

import itertools
import os
import re
import socket
import struct
import time
from pathlib import Path

import genie_core
import pytest
from live_runs import genie, loopback, played, rings, started

from genie.live.softroce.shared_port import obtain, share
from genie.record import open_run

pytestmark = pytest.mark.live

PORT = 4791
SEND_ONLY = 0x04
_numbers = itertools.count(1)


def datagram(queue_pair: int) -> bytes:
    """A SEND of nothing to a queue pair: BTH and an ICRC that is wrong."""
    return struct.pack("!BBHII", SEND_ONLY, 0, 0xFFFF, queue_pair, 0) + bytes(4)


def to_local_rank(local_rank: int, peer: int) -> int:
    return (local_rank + 1) << 16 | peer


def engines(count: int, *, shared: bool = True) -> tuple[str, list[genie_core.Engine]]:
    """Opened engines of `count` ranks on one address."""
    address = f"127.{130 + os.getpid() % 100}.{os.getpid() // 100 % 250}.{next(_numbers)}"
    made = []
    sockets = genie_core.open_receivers(address, PORT, count) if shared else []
    for rank in range(count):
        config, nic = genie_core.EngineConfig(), genie_core.NicConfig()
        nic.address, nic.local_rank = address, rank
        config.rank, config.nic = rank, nic
        engine = genie_core.Engine(config)
        if shared:
            engine.open_with(sockets[rank])
        else:
            engine.open()
        made.append(engine)
    return address, made


def counted(engine: genie_core.Engine) -> dict[str, int]:
    engine.serve(engine.now_ps + 20_000_000_000)
    return dict(engine.counters())


def test_each_rank_gets_what_is_meant_for_it() -> None:
    address, ranks = engines(4)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for local_rank in range(4):
            for peer in range(local_rank + 1):  # one for rank 0, two for rank 1, ...
                sender.sendto(datagram(to_local_rank(local_rank, peer)), (address, PORT))
    for local_rank, engine in enumerate(ranks):
        counters = counted(engine)
        assert counters["datagrams_received"] == local_rank + 1
        assert counters["wrong_rank"] == 0
        assert [engine.qpn(peer) for peer in range(5)] == [to_local_rank(local_rank, peer) for peer in range(5)]


def test_a_datagram_for_a_rank_that_is_not_there_is_dropped_and_counted() -> None:
    address, ranks = engines(2)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for queue_pair in (to_local_rank(7, 0), to_local_rank(250, 1), 0):
            sender.sendto(datagram(queue_pair), (address, PORT))
    counters = [counted(engine) for engine in ranks]
    assert sum(each["datagrams_received"] for each in counters) == 3
    assert sum(each["wrong_rank"] for each in counters) == 3
    assert sum(each["data_received"] for each in counters) == 0


def test_a_datagram_for_another_rank_is_dropped_whatever_socket_it_came_in_by() -> None:
    address, ranks = engines(1, shared=False)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(datagram(to_local_rank(1, 0)), (address, PORT))
        sender.sendto(b"no RoCE", (address, PORT))
    counters = counted(ranks[0])
    assert (counters["wrong_rank"], counters["malformed"]) == (1, 1)


def test_another_run_cannot_join_the_group() -> None:
    address, _ranks = engines(2)
    with pytest.raises(RuntimeError, match=f"cannot receive on {address}:{PORT}: Address already in use"):
        genie_core.open_receivers(address, PORT, 2)


def test_a_rank_that_dies_leaves_the_others_their_sockets() -> None:
    """The kernel would put the last member of the group in its place: as all hold all, the group never changes."""
    address, name = f"127.99.{os.getpid() // 250 % 250}.{os.getpid() % 250 + 1}", f"test {os.getpid()}"
    shared = share(address, PORT, 4, name)
    held = [shared, *(obtain(name, 4) for _ in range(3))]
    engines = []
    for rank in range(4):
        config, nic = genie_core.EngineConfig(), genie_core.NicConfig()
        nic.address, nic.local_rank = address, rank
        config.rank, config.nic = rank, nic
        engines.append(genie_core.Engine(config))
        engines[-1].open_with(held[rank].take(rank))
    for dead in (1, 0):
        engines[dead] = None
        held[dead].close()
        living = [engine for engine in engines if engine is not None]
        before = [counted(engine) for engine in living]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for rank in range(4):
                sender.sendto(datagram(to_local_rank(rank, 0)), (address, PORT))
        for engine, was in zip(living, before, strict=True):
            now = counted(engine)
            assert now["datagrams_received"] == was["datagrams_received"] + 1
            assert now["wrong_rank"] == 0


def test_a_run_of_four_ranks_on_one_address_among_strays(tmp_path: Path) -> None:
    """Strays for local ranks that are not there arrive all the time; the run does not mind."""
    hosts = loopback(tmp_path, shared=True)
    address = re.search(r'address = "([\d.]+)"', Path(hosts).read_text())
    assert address is not None
    out = tmp_path / "out"
    job = ("run", rings(tmp_path / "rings"), "--hosts", hosts, "--rate", "200Mb/s", "-n", "40", "-o", str(out))
    strays = 0
    with started(*job) as command, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        command.until(lambda: played(out, 0, 0))
        while command.process.poll() is None and not played(out, 0, 30):
            sender.sendto(datagram(to_local_rank(9, strays % 4)), (address[1], PORT))
            strays += 1
            time.sleep(0.002)
        ended = command.end()
    assert (ended.code, ended.said) == (0, [])
    counters = open_run(out).counters["ranks"]
    assert strays > 10
    assert sum(each["wrong_rank"] for each in counters) == strays
    # A stalled host sends a few packets again; strays that a rank takes for its own would send many.
    assert sum(each["retransmitted"] for each in counters) <= sum(each["data_sent"] for each in counters) / 20


def test_strangers_do_not_keep_a_stalled_run_alive(tmp_path: Path) -> None:
    """A datagram of nobody's is no progress."""
    from trace_files import RECV, node, trace

    folder = tmp_path / "trace"
    folder.mkdir()
    trace(folder, [node(0, RECV, comm_src=1, comm_tag=7, comm_size=64)], [node(0, duration_micros=10)])
    hosts = loopback(tmp_path, 2)
    base = re.search(r'"(127\.[\d.]+)\.\{', Path(hosts).read_text())
    assert base is not None
    with (
        started("run", str(folder), "--hosts", hosts, "--stall", "1", "-o", str(tmp_path / "out")) as command,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        command.until(lambda: (tmp_path / "out" / "parts" / "00000.facts.json").exists())  # it is about to play
        until = time.monotonic() + 10
        while command.process.poll() is None and time.monotonic() < until:
            sender.sendto(datagram(to_local_rank(0, 1)), (f"{base[1]}.1", PORT))
            time.sleep(0.05)
        assert command.process.poll() is not None, "it did not give up"
        assert "nothing came for 1 s" in command.end().stderr


def test_genie_uses_one_port_for_all(tmp_path: Path) -> None:
    hosts = loopback(tmp_path, shared=True)
    ended = genie(
        "run", rings(tmp_path / "rings"), "--hosts", hosts, "--udp-port", "4900", "-n", "1", "-o", str(tmp_path / "out")
    )
    assert (ended.code, ended.said) == (0, [])
    run = open_run(tmp_path / "out")
    assert run.info["settings"]["udp_port"] == 4900
    assert len({host["address"] for host in run.info["hosts"]}) == 1
