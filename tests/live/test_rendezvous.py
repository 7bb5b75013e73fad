"""Agreement among ranks, over a channel of this test's own that delays and reorders, and over real TCP."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genie.live.rendezvous import (
    ALARM_TAG,
    STOPPED,
    Channel,
    Rendezvous,
    RendezvousError,
    expected_rank,
    join,
    launched_by,
    ranks_text,
)
from genie.live.tcp import GREETING, HELLO, TcpChannel


class Post:
    """What connects the channels of a test: messages of one sender and tag stay in order, all else is drawn."""

    def __init__(self, size: int, seed: int = 1, delay_s: float = 0.0) -> None:
        self.boxes: list[list[tuple[float, int, int, bytes]]] = [[] for _ in range(size)]  # due, source, tag, payload
        self.lock = threading.Lock()
        self.draw = random.Random(seed)
        self.delay_s = delay_s
        self.last_due: dict[tuple[int, int, int], float] = {}

    def send(self, source: int, to: int, tag: int, payload: bytes) -> None:
        with self.lock:
            due = time.monotonic() + self.draw.random() * self.delay_s
            due = max(due, self.last_due.get((source, to, tag), 0.0))
            self.last_due[(source, to, tag)] = due
            self.boxes[to].append((due, source, tag, payload))

    def receive(self, rank: int, tag: int) -> tuple[int, bytes] | None:
        with self.lock:
            box = self.boxes[rank]
            now = time.monotonic()
            ready = [entry for entry in box if entry[2] == tag and entry[0] <= now]
            if not ready:
                return None
            sources = sorted({entry[1] for entry in ready})
            source = self.draw.choice(sources)
            entry = next(entry for entry in ready if entry[1] == source)
            box.remove(entry)
            return source, entry[3]


class FakeChannel:
    name = "fake"

    def __init__(self, post: Post, rank: int, size: int) -> None:
        self.post, self.rank, self.size = post, rank, size

    def send(self, to: int, tag: int, payload: bytes) -> None:
        self.post.send(self.rank, to, tag, payload)

    def receive(self, tag: int) -> tuple[int, bytes] | None:
        return self.post.receive(self.rank, tag)

    def close(self) -> None:
        pass


Body = Callable[[Rendezvous], Any]


def play(channels: list[Channel], bodies: list[Body], limit_s: float = 5.0) -> list[Any]:
    """Run each rank's body in a thread; results or the errors that they raised."""
    results: list[Any] = [None] * len(bodies)

    def run(rank: int) -> None:
        try:
            results[rank] = bodies[rank](Rendezvous(channels[rank], limit_s))
        except RendezvousError as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive(), "it hangs"
    return results


def fake(size: int, seed: int = 1, delay_s: float = 0.0) -> list[Channel]:
    post = Post(size, seed, delay_s)
    return [FakeChannel(post, rank, size) for rank in range(size)]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    size=st.integers(1, 5),
    steps=st.lists(st.sampled_from(["all", "max", "collect"]), min_size=1, max_size=8),
    seed=st.integers(0, 1000),
)
def test_every_rank_gets_the_same_answers_whatever_comes_early(size: int, steps: list[str], seed: int) -> None:
    def body(meet: Rendezvous) -> list[Any]:
        answers: list[Any] = []
        for number, step in enumerate(steps):
            value = 100 * number + meet.rank
            if step == "all":
                answers.append(meet.agree(value))
            elif step == "max":
                answers.append(meet.agree(value, max))
            else:
                answers.append(meet.collect(str(value).encode()))
        return answers

    results = play(fake(size, seed, 0.004), [body] * size)
    for rank, answers in enumerate(results):
        for number, (step, answer) in enumerate(zip(steps, answers, strict=True)):
            values = [100 * number + other for other in range(size)]
            if step == "all":
                assert answer == values
            elif step == "max":
                assert answer == values[-1]
            else:
                assert answer == ([str(value).encode() for value in values] if rank == 0 else None)


def test_plain_data_survives_the_way() -> None:
    value = {"psn": [1, 2**24 - 1], "name": "gpu01", "none": None, "offset": -1.5, "big": 2**60}
    assert play(fake(2), [lambda meet: meet.agree(value)] * 2) == [[value, value]] * 2


def test_a_rank_that_does_not_come_is_named() -> None:
    results = play(fake(4), [lambda meet: meet.agree(1)] * 3 + [lambda _: "away"], limit_s=0.3)
    assert "rank 0 heard nothing of rank 3 for 0.3 s" in str(results[0])
    assert all(isinstance(result, RendezvousError) for result in results[:3])


def test_a_busy_rank_that_says_so_is_waited_for() -> None:
    """Rank 2 plays for three times the limit; rank 0 passes its signs of life on to rank 1."""

    def busy(meet: Rendezvous) -> Any:
        until = time.monotonic() + 0.9
        while time.monotonic() < until:
            meet.alive()
            time.sleep(0.01)
        return meet.agree(meet.rank)

    results = play(fake(3), [lambda meet: meet.agree(meet.rank)] * 2 + [busy], limit_s=0.3)
    assert results == [[0, 1, 2]] * 3


def test_a_busy_rank_does_not_hide_a_dead_one() -> None:
    def busy(meet: Rendezvous) -> Any:
        until = time.monotonic() + 0.9
        while time.monotonic() < until:
            meet.alive()
            if text := meet.alarmed():
                return text
            time.sleep(0.01)
        return "nobody told"

    def first(meet: Rendezvous) -> Any:
        try:
            return meet.agree(0)
        except RendezvousError as error:
            meet.alarm(str(error))
            raise

    results = play(fake(3), [first, busy, lambda _: "dead"], limit_s=0.3)
    assert "heard nothing of rank 2" in str(results[0])
    assert "heard nothing of rank 2" in results[1]


def test_an_alarm_reaches_all_with_its_source() -> None:
    def alarming(meet: Rendezvous) -> Any:
        meet.alarm("the disk is full")
        return "told"

    results = play(fake(4), [lambda meet: meet.agree(1)] * 2 + [alarming, lambda meet: meet.agree(1)])
    assert results[2] == "told"
    for rank in (0, 1, 3):
        assert f"rank 2{STOPPED}the disk is full" in str(results[rank])


def test_an_alarm_goes_on_to_the_others_although_one_is_gone() -> None:
    class Broken(FakeChannel):
        def send(self, to: int, tag: int, payload: bytes) -> None:
            if to == 1:
                raise RendezvousError("rank 1 is gone")
            super().send(to, tag, payload)

    post = Post(3)
    Rendezvous(Broken(post, 0, 3)).alarm("out")
    assert post.boxes[2][0][1:3] == (0, ALARM_TAG)


def test_ranks_in_words() -> None:
    assert ranks_text([3]) == "rank 3"
    assert ranks_text({5, 3}) == "ranks 3, 5"
    assert ranks_text(range(64)) == "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 56 more"


# -- TCP -------------------------------------------------------------------------------------------------------


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
        thread.join(20)
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
    assert f"rank 0{STOPPED}rank 2 did not join" in str(results[1])


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
    stranger.join(10)


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
                listener.join(5)
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
    def stuck(meet: Rendezvous) -> Any:
        time.sleep(1.5)  # takes nothing

    def sender(meet: Rendezvous) -> Any:
        began = time.monotonic()
        with pytest.raises(RendezvousError, match="rank 1 lost rank 0"):
            meet.channel.send(0, 1, bytes(64 << 20))
        return time.monotonic() - began

    results = over_tcp(2, [stuck, sender], limit_s=0.5)
    assert results[1] < 1.4


# -- which launcher --------------------------------------------------------------------------------------------

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
SLURM = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0"}


@pytest.mark.parametrize(
    ("environment", "launcher", "rank"),
    [
        ({}, None, None),
        ({"PMI_RANK": "3"}, "mpi", 3),
        ({"OMPI_COMM_WORLD_RANK": "2"}, "mpi", 2),
        (TORCHRUN, "tcp", 1),
        (SLURM, "mpi", 1),
        ({**SLURM, "MASTER_ADDR": "node1"}, "tcp", 1),
        ({**SLURM, "MASTER_ADDR": "node1", "PMI_RANK": "1"}, "mpi", 1),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, None, 0),  # a batch script's own shell
        ({"MASTER_ADDR": "node1"}, None, None),
    ],
)
def test_who_started_this_process(environment: dict[str, str], launcher: str | None, rank: int | None) -> None:
    assert launched_by(environment) == launcher
    assert expected_rank(environment) == rank


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"WORLD_SIZE": None}, "WORLD_SIZE is not set"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE=two: must be a number"),
        ({"RANK": "2"}, "RANK is 2 and WORLD_SIZE is 2"),
        ({"MASTER_PORT": "http"}, "MASTER_PORT=http: must be a number"),
        ({}, "rank 1 cannot reach rank 0 at 127.0.0.1:1 (MASTER_ADDR, MASTER_PORT): Connection refused"),
    ],
)
def test_wrong_variables_are_named(change: dict[str, str | None], words: str) -> None:
    environment = {name: value for name, value in {**TORCHRUN, **change}.items() if value is not None}
    with pytest.raises(RendezvousError) as caught:
        join(environment, 0.2)
    assert words in str(caught.value)
