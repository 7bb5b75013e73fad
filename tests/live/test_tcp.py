"""The rendezvous over real TCP: what it carries, who may join, and how it ends."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from fake_channels import Body

from genie.live.rendezvous import tcp
from genie.live.rendezvous.channel import AGREE_TAG, RendezvousError
from genie.live.rendezvous.meeting import Rendezvous
from genie.live.rendezvous.tcp import GREETING, HELLO, TcpChannel

pytestmark = pytest.mark.live


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def over_tcp(size: int, bodies: list[Body], limit_s: float = 5.0, port: int | None = None) -> list[Any]:
    port = port or free_port()

    def with_channel(rank: int) -> Callable[[], Any]:
        def run() -> Any:
            channel = TcpChannel(rank, size, "127.0.0.1", port, limit_s)
            try:
                return bodies[rank](Rendezvous(channel, limit_s))
            finally:
                channel.close()

        return run

    results: list[Any] = [None] * len(bodies)

    def run(rank: int) -> None:
        try:
            results[rank] = with_channel(rank)()
        except RendezvousError as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(len(bodies))]
    for thread in reversed(threads):  # rank 0 comes last
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "it hangs"
    return results


def test_tcp_carries_agreements_and_large_records() -> None:
    def body(meet: Rendezvous) -> Any:
        everyone = meet.agree(meet.rank)
        return everyone, meet.collect(bytes([meet.rank]) * 3_000_000), meet.agree("end")

    results = over_tcp(4, [body] * 4)
    assert results[0][1] == [bytes([rank]) * 3_000_000 for rank in range(4)]
    assert all(result[0] == [0, 1, 2, 3] and result[2] == ["end"] * 4 for result in results)


def test_tcp_names_the_rank_that_is_missing() -> None:
    def patient(meet: Rendezvous) -> Any:
        return Rendezvous(meet.channel, 5.0).agree(1)

    results = over_tcp(3, [patient] * 2, limit_s=0.5)
    assert "rank 2 did not join rank 0 within 0.5 s" in str(results[0])
    assert "rank 0 stopped: rank 2 did not join" in str(results[1])


def test_tcp_tells_of_a_rank_that_is_gone() -> None:
    results = over_tcp(3, [lambda meet: meet.agree(1)] * 2 + [lambda meet: "leaves"])
    assert "rank 2 is gone: its connection closed" in str(results[0])
    assert "rank 2 is gone" in str(results[1])


def test_tcp_sends_strangers_away_and_goes_on() -> None:
    port = free_port()

    def nuisance() -> None:
        for said in (b"", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"half", HELLO.pack(b"genie/9\n", 2, 1)):
            for _ in range(100):
                with socket.socket() as caller:
                    if caller.connect_ex(("127.0.0.1", port)) == 0:
                        caller.sendall(said)
                        break
                time.sleep(0.01)

    def late(meet: Rendezvous) -> Any:
        return meet.agree("here")

    stranger = threading.Thread(target=nuisance, daemon=True)
    stranger.start()
    assert over_tcp(2, [late, late], port=port) == [["here", "here"]] * 2
    stranger.join(120)


def test_tcp_callers_that_stay_and_say_nothing_do_not_hold_up_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """They come before the ranks, keep their connections, and are sent away after their time."""
    monkeypatch.setattr(tcp, "GREETING_LIMIT_S", 0.3)
    port = free_port()
    sent_away: list[bool] = []

    def stay(said: bytes) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=120) as caller:
            caller.sendall(said)
            try:
                sent_away.append(caller.recv(1) == b"")
            except ConnectionError:
                sent_away.append(True)

    def rank_1() -> None:
        strangers = [threading.Thread(target=stay, args=(said,), daemon=True) for said in (b"", b"g", b"\xff" * 4096)]
        while socket.socket().connect_ex(("127.0.0.1", port)) != 0:
            time.sleep(0.01)
        for stranger in strangers:
            stranger.start()
        for stranger in strangers:
            stranger.join(120)
        channels[1] = TcpChannel(1, 2, "127.0.0.1", port, 5.0)

    channels: dict[int, TcpChannel] = {}
    late = threading.Thread(target=rank_1, daemon=True)
    late.start()
    channels[0] = TcpChannel(0, 2, "127.0.0.1", port, 5.0)
    late.join(120)
    assert sent_away == [True] * 3
    channels[1].send(0, AGREE_TAG, b"here")
    assert Rendezvous(channels[0]).wait_for(AGREE_TAG, [1]) == (1, b"here")
    for channel in channels.values():
        channel.close()


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.3.2.1", "127.3.2.1"),
        ("localhost", "127.0.0.1"),
        ("192.0.2.1", "0.0.0.0"),  # kept for documentation: no machine has it
        ("own-name", "0.0.0.0"),
    ],
)
def test_tcp_listens_at_the_address_of_rank_0_alone(host: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"own-name": "127.0.1.1", "localhost": "127.0.0.1"}

    monkeypatch.setattr(socket, "gethostbyname", lambda name: known.get(name, name))
    with tcp._listen(host, 0, 2) as listener:
        assert listener.getsockname()[0] == address


def test_tcp_names_a_master_that_nobody_knows() -> None:
    for host in ("no.such.machine.invalid", ""):
        with pytest.raises(RendezvousError, match=f"MASTER_ADDR={host}: no such host"):
            tcp._listen(host, 0, 2)


@pytest.mark.parametrize(
    ("size", "rank", "words"),
    [(5, 1, "rank 1 of 5 called rank 0 of 2"), (2, 7, "rank 7 of 2 called rank 0 of 2")],
)
def test_tcp_refuses_ranks_of_another_launch(size: int, rank: int, words: str) -> None:
    port = free_port()
    caught: list[str] = []

    def listen() -> None:
        try:
            TcpChannel(0, 2, "127.0.0.1", port, 5.0)
        except RendezvousError as error:
            caught.append(str(error))

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    for _ in range(200):
        with socket.socket() as caller:
            if caller.connect_ex(("127.0.0.1", port)) == 0:
                caller.sendall(HELLO.pack(GREETING, size, rank))
                listener.join(120)
                break
        time.sleep(0.01)
    assert len(caught) == 1
    assert words in caught[0]


def test_tcp_ends_a_stream_that_makes_no_sense() -> None:
    port = free_port()

    def nonsense(meet: Rendezvous) -> Any:
        channel = meet.channel
        assert isinstance(channel, TcpChannel)
        channel._peers[0].sendall(struct.pack("!IB", 0xFFFFFFFF, 1))
        with pytest.raises(RendezvousError):
            meet.agree(1)

    results = over_tcp(2, [lambda meet: meet.agree(1), nonsense], port=port)
    assert "rank 1 is gone" in str(results[0])


@pytest.mark.parametrize(
    "payload", [b"\x91" * 100_000 + b"\xc0", b"\xc1", b"\xdf\xff\xff\xff\xff"], ids=["nested", "none", "long"]
)
def test_tcp_refuses_what_is_no_message_whoever_sends_it(payload: bytes) -> None:
    """From a stranger who knows the greeting: nested as deep as a stack, not MessagePack, or of 2^32 pairs."""
    port = free_port()

    def stranger(meet: Rendezvous) -> None:
        meet.channel.send(0, AGREE_TAG, payload)
        time.sleep(0.5)

    refused, _ = over_tcp(2, [lambda meet: meet.agree("x"), stranger], port=port)
    assert isinstance(refused, RendezvousError)
    assert str(refused).startswith("rank 1 sent what is not a message of this Genie: ")


def test_tcp_port_in_use() -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            RendezvousError, match=f"rank 0 cannot listen on MASTER_PORT {port}: Address already in use"
        ):
            TcpChannel(0, 2, "127.0.0.1", port, 1.0)


def test_tcp_send_to_a_rank_that_takes_nothing_has_a_limit() -> None:
    gave_up = threading.Event()

    def stuck(meet: Rendezvous) -> Any:
        return gave_up.wait(120)  # takes nothing

    def sender(meet: Rendezvous) -> Any:
        with pytest.raises(RendezvousError, match="rank 1 lost rank 0"):
            meet.channel.send(0, 1, bytes(64 << 20))
        gave_up.set()

    assert over_tcp(2, [stuck, sender], limit_s=0.5)[0] is True
