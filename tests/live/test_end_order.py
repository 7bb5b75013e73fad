"""The kernel's account of which process ended first, and by which signal."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from genie.live.launch.end_order import EndOrder, state_of

pytestmark = pytest.mark.live


@contextmanager
def sleepers(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    processes = [subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) for _ in range(count)]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def end_one(process: subprocess.Popen[bytes], number: int) -> None:
    os.kill(process.pid, number)
    while state_of(process.pid):
        pass


@pytest.mark.parametrize("seed", range(3))
def test_ends_that_are_read_late_are_in_order(seed: int) -> None:
    draw = random.Random(seed)
    with sleepers(8) as processes:
        order = EndOrder()
        for rank, process in enumerate(processes):
            order.watch(rank, process.pid)
        ranks = draw.sample(range(8), 7)
        for rank in ranks:
            end_one(processes[rank], signal.SIGKILL)
        order.look()
        assert [end.who for end in order.ends] == ranks, f"seed {seed}"
        assert all(end.watched for end in order.ends)
        order.close()


def test_a_process_that_had_gone_before_has_no_place_in_the_order() -> None:
    with sleepers(2) as processes:
        order = EndOrder()
        for process in processes:
            end_one(process, signal.SIGKILL)
        processes[1].wait()
        for rank, process in enumerate(processes):
            order.watch(rank, process.pid)
        order.look()
        assert [(end.who, end.watched) for end in order.ends] == [(0, False), (1, False)]
        order.close()


def test_the_signal_that_ended_a_process_is_known() -> None:
    with sleepers(3) as processes:
        order = EndOrder()
        for rank, process in enumerate(processes):
            order.watch(rank, process.pid)
        end_one(processes[0], signal.SIGKILL)
        end_one(processes[1], signal.SIGSEGV)
        processes[2].communicate(b"\n")
        order.look()
        assert order.signal_of(0) == signal.SIGKILL
        assert order.signal_of(1) == signal.SIGSEGV
        processes[0].wait()
        # Of one that has been reaped, the kernel says it since Linux 6.15.
        assert order.signal_of(0) in (signal.SIGKILL, None)
        assert order.signal_of(2) in (0, None)
        order.close()


def test_a_rank_that_signs_with_another_process_is_watched_there() -> None:
    """A wrapper was seen first; its end says nothing about the rank."""
    with sleepers(2) as (wrapper, rank):
        order = EndOrder()
        order.watch(3, wrapper.pid)
        end_one(wrapper, signal.SIGTERM)
        order.look()
        order.watch(3, rank.pid)
        assert order.pids() == {3: rank.pid}
        assert order.ends == []
        end_one(rank, signal.SIGKILL)
        order.look()
        assert [(end.who, end.pid) for end in order.ends] == [(3, rank.pid)]
        order.close()


def test_all_descriptors_are_given_back() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with sleepers(2) as processes:
        inside = len(list(Path("/proc/self/fd").iterdir()))
        order = EndOrder()
        for rank, process in enumerate(processes):
            order.watch(rank, process.pid)
        order.close()
        assert len(list(Path("/proc/self/fd").iterdir())) == inside
    assert len(list(Path("/proc/self/fd").iterdir())) == before
