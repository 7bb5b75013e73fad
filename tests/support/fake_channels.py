"""Channels among threads, which delay and reorder what they carry, and ranks that play over them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

from genie.live.rendezvous.channel import Channel, RendezvousError
from genie.live.rendezvous.meeting import Rendezvous


class Post:
    """Connects the channels of a test: messages of one sender and tag stay in order, all else is drawn."""

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
        thread.join(120)
        assert not thread.is_alive(), "it hangs"
    return results


def fake(size: int, seed: int = 1, delay_s: float = 0.0) -> list[Channel]:
    post = Post(size, seed, delay_s)
    return [FakeChannel(post, rank, size) for rank in range(size)]
