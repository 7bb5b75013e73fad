"""Agreement among ranks, over a channel of this test's own that delays and reorders; who launched a process."""

from __future__ import annotations

import time
from typing import Any

import pytest
from fake_channels import Body, FakeChannel, Post, fake, play
from hypothesis import given, settings
from hypothesis import strategies as st

from genie.live.failure import Failure
from genie.live.launched import expected_rank, launched_by
from genie.live.rendezvous.channel import ALARM_TAG, RendezvousError, ranks_text
from genie.live.rendezvous.meeting import Rendezvous, join

pytestmark = pytest.mark.live


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
    results = play(fake(4), [lambda meet: meet.agree(1)] * 3 + [lambda _: "away"], limit_s=1.0)
    assert "rank 0 heard nothing of rank 3 for 1 s" in str(results[0])
    assert all(isinstance(result, RendezvousError) for result in results[:3])


def test_a_busy_rank_that_says_so_is_waited_for() -> None:
    """Rank 2 plays for three times the limit; rank 0 passes its signs of life on to rank 1."""

    def busy(meet: Rendezvous) -> Any:
        until = time.monotonic() + 3.0
        while time.monotonic() < until:
            meet.alive()
            time.sleep(0.01)
        return meet.agree(meet.rank)

    results = play(fake(3), [lambda meet: meet.agree(meet.rank)] * 2 + [busy], limit_s=1.0)
    assert results == [[0, 1, 2]] * 3


@pytest.mark.extended
def test_a_rank_that_cannot_say_so_itself_says_it_from_a_thread() -> None:
    """Rank 0 is busy for three times the limit and calls nothing; so the others wait in vain without `busy`."""

    def first(meet: Rendezvous) -> Any:
        with meet.busy():
            time.sleep(3.0)
        return meet.agree(meet.rank)

    def silent(meet: Rendezvous) -> Any:
        time.sleep(3.0)

    others: list[Body] = [lambda meet: meet.agree(meet.rank)] * 2
    assert play(fake(3), [first, *others], limit_s=1.0) == [[0, 1, 2]] * 3
    for result in play(fake(3), [silent, *others], limit_s=1.0)[1:]:
        assert "heard nothing of rank 0 for 1 s" in str(result)


def test_ranks_wait_for_their_turn_to_give_large_records() -> None:
    """Each rank's records take half of the limit, one after another; the others hear of rank 0 meanwhile."""

    def giving(meet: Rendezvous) -> Any:
        time.sleep(0.5 * meet.rank)
        return meet.collect(b"records"), meet.agree("end")

    results = play(fake(5), [giving] * 5, limit_s=1.0)
    assert results == [([b"records"] * 5, ["end"] * 5), *[(None, ["end"] * 5)] * 4]


def test_a_busy_rank_does_not_hide_a_dead_one() -> None:
    def busy(meet: Rendezvous) -> Any:
        until = time.monotonic() + 3.0
        while time.monotonic() < until:
            meet.alive()
            if failure := meet.alarmed():
                return failure.text
            time.sleep(0.01)
        return "nobody told"

    def first(meet: Rendezvous) -> Any:
        try:
            return meet.agree(0)
        except RendezvousError as error:
            meet.alarm(Failure(rank=0, error=str(error)))
            raise

    results = play(fake(3), [first, busy, lambda _: "dead"], limit_s=1.0)
    assert "heard nothing of rank 2" in str(results[0])
    assert "heard nothing of rank 2" in results[1]


def test_an_alarm_reaches_all_with_its_source() -> None:
    def alarming(meet: Rendezvous) -> Any:
        meet.alarm(Failure(rank=2, error="the disk is full"))
        return "told"

    results = play(fake(4), [lambda meet: meet.agree(1)] * 2 + [alarming, lambda meet: meet.agree(1)])
    assert results[2] == "told"
    for rank in (0, 1, 3):
        assert "rank 2 stopped: the disk is full" in str(results[rank])


def test_an_alarm_goes_on_to_the_others_although_one_is_gone() -> None:
    class Broken(FakeChannel):
        def send(self, to: int, tag: int, payload: bytes) -> None:
            if to == 1:
                raise RendezvousError("rank 1 is gone")
            super().send(to, tag, payload)

    post = Post(3)
    Rendezvous(Broken(post, 0, 3)).alarm(Failure(rank=0, error="out"))
    assert post.boxes[2][0][1:3] == (0, ALARM_TAG)


def test_ranks_in_words() -> None:
    assert ranks_text([3]) == "rank 3"
    assert ranks_text({5, 3}) == "ranks 3, 5"
    assert ranks_text(range(64)) == "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 56 more"


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
        ({**SLURM, "MASTER_ADDR": "node1", "PMI_RANK": "1"}, "tcp", 1),
        ({**TORCHRUN, "PMI_RANK": "0"}, "tcp", 1),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "MASTER_ADDR": "node1"}, None, 0),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, None, 0),  # a batch script's own shell
        ({**SLURM, "SLURM_STEP_ID": "4294967290", "SLURM_PROCID": "0"}, None, 0),  # a shell of salloc
        ({**SLURM, "SLURM_STEP_ID": "4294967290", "MASTER_ADDR": "node1", "SLURM_PROCID": "0"}, None, 0),
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
