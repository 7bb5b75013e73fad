"""Pipeline schedules: against PyTorch's file, published warm-up counts, and files that cannot be played."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genie.errors import UsageError
from genie.generate.pipeline import NAMES, Action, Schedule, as_csv, played, read_schedule, schedule_of

SCHEDULES = "pytorch-schedules"


def passes(row: str) -> list[str]:
    return [cell.strip() for cell in row.split(",") if cell.strip()]


def test_the_zero_bubble_schedule_is_pytorch_s_action_for_action(shared_data: Path) -> None:
    """Two ranks with two stages each, and eight micro-batches. Empty cells, in which a rank waits, are not compared."""
    rows = (shared_data / SCHEDULES / "zb1p_2rank_2stagep_compute.csv").read_text().splitlines()
    own = as_csv(schedule_of("zero-bubble", 2, 2, 8)).splitlines()
    assert [passes(row) for row in own] == [passes(row) for row in rows]


def test_pytorch_s_files_are_read_with_and_without_messages(shared_data: Path) -> None:
    compute = read_schedule(shared_data / SCHEDULES / "zb1p_2rank_2stagep_compute.csv")
    assert (compute.ranks, compute.stages, compute.micro_batches) == (2, 4, 8)
    assert compute.actions == schedule_of("zero-bubble", 2, 2, 8).actions
    whole = read_schedule(shared_data / SCHEDULES / "zb1p_2rank_2stagep_comms.csv")
    assert (whole.ranks, whole.stages) == (2, 4)
    assert {action.what for own in whole.actions for action in own} == {"F", "B", "W", "BW"}


@pytest.mark.parametrize(("ranks", "chunks"), [(4, 1), (4, 2), (8, 3)])
def test_warm_up_counts_are_the_published_ones(ranks: int, chunks: int) -> None:
    """Forward passes before the first backward pass: 1F1B pp-r; interleaved 2(pp-r-1) + (vp-1)pp, and one more."""
    made = schedule_of("1f1b" if chunks == 1 else "interleaved", ranks, chunks, 4 * ranks)
    for rank, own in enumerate(made.actions):
        forward = next(at for at, action in enumerate(own) if action.what != "F")
        warm_up = ranks - rank - 1 if chunks == 1 else 2 * (ranks - rank - 1) + (chunks - 1) * ranks
        assert forward == warm_up + 1


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.sampled_from(NAMES), st.integers(1, 8), st.integers(1, 3), st.integers(1, 24))
def test_every_schedule_plays_each_pass_once_and_to_its_end(
    name: str, ranks: int, chunks: int, micro_batches: int
) -> None:
    try:
        made = schedule_of(name, ranks, chunks, micro_batches)
    except UsageError:
        return  # tests below say which
    turns = played(made)  # raises for a pass that is missing, twice, or never ready
    assert len(turns) == ranks
    assert made.stages == ranks * chunks
    again = "\n".join(as_csv(made).splitlines())
    assert again.count("F") == ranks * chunks * micro_batches


def test_bubbles_are_as_short_as_published() -> None:
    """Turns in which rank 0 waits, in passes of equal time: 1F1B pp-1 forward and as many backward ones."""

    def waits(name: str, chunks: int) -> int:
        return sum(action is None for action in played(schedule_of(name, 4, chunks, 16))[0])

    assert waits("1f1b", 1) == waits("gpipe", 1) == 6
    assert waits("zero-bubble", 1) == 3
    assert waits("dualpipe-v", 2) == 0


@pytest.mark.parametrize(
    ("name", "chunks", "micro_batches"),
    [("gpipe", 2, 8), ("1f1b", 2, 8), ("interleaved", 1, 8), ("interleaved", 2, 6), ("dualpipe-v", 1, 8),
     ("dualpipe-v", 2, 7), ("zero-bubble", 1, 9)],
)  # fmt: skip
def test_a_schedule_that_cannot_be_is_refused_by_name(name: str, chunks: int, micro_batches: int) -> None:
    with pytest.raises(UsageError, match=rf"^--schedule {name}: .*, and not "):
        schedule_of(name, 4, chunks, micro_batches)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0F0,0B0\n1F0,1X0\n", ":2: column 2: '1X0' is no action"),
        ("0F0,0BW0,0F0\n1F0,1BW0\n", "rank 0 plays 0F0 twice"),
        ("0F0\n1F0,1BW0\n", "0B0 is missing"),
        ("0BW0,0F0\n1F0,1BW0\n", "deadlock: rank 0: 0BW0 waits for 0F0"),
        ("0F0,0F1,0BW0,0BW1\n1F1,1BW1,1F0,1BW0\n0F2\n", "both play stage 0"),
        ("0F0,2BW0,0BW0,2F0\n1F0,1BW0\n", "deadlock: rank 0: 2BW0 waits for 2F0, which rank 0 plays after"),
        ("", "has no actions"),
        ("0F0,0BW0\n2F0,2BW0\n", "no rank plays stage 1 of 3"),
    ],
)
def test_a_file_that_cannot_be_played_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(text)
    with pytest.raises(UsageError) as wrong:
        read_schedule(path)
    assert said in str(wrong.value)
    assert "mine.csv" in str(wrong.value)


def test_a_deadlock_names_both_ends() -> None:
    crossed = Schedule(
        "crossed",
        (
            (Action(0, "F", 0), Action(0, "BW", 1), Action(0, "F", 1), Action(0, "BW", 0)),
            (Action(1, "F", 0), Action(1, "F", 1), Action(1, "BW", 0), Action(1, "BW", 1)),
        ),
        2,
    )
    with pytest.raises(UsageError, match="rank 0: 0BW1 waits for 0F1, which rank 0 plays after"):
        played(crossed)
