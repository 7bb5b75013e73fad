"""`genie validate --collectives`: a job without a trace."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_runs import genie

from genie.job.collectives import OPERATIONS, operations_from, save_traces
from genie.record import VALIDATION, RecordError, prepare_folder
from genie.workload.graph import Kind, Op
from genie.workload.load import load
from genie.workload.synthetic import collectives

pytestmark = pytest.mark.live


def test_every_operation_at_every_size_one_after_another() -> None:
    workload = collectives([Op.ALL_REDUCE, Op.ALL_TO_ALL], 4, [1024, 4096])
    assert workload.world_size == 4
    for graph in workload.ranks.values():
        assert (graph.kind == Kind.COLL).all()
        assert graph.op.tolist() == [Op.ALL_REDUCE] * 2 + [Op.ALL_TO_ALL] * 2
        assert graph.size_bytes.tolist() == [1024, 4096] * 2


def test_names_of_operations() -> None:
    assert [op.name.lower() for op in operations_from(",".join(OPERATIONS))] == list(OPERATIONS)
    assert operations_from(" all_reduce , broadcast ") == [Op.ALL_REDUCE, Op.BROADCAST]


def test_its_traces_are_kept_and_replaced_and_nothing_else_is(tmp_path: Path) -> None:
    workload = collectives([Op.ALL_REDUCE], 2, [1024])
    for _ in range(2):
        prepare_folder(tmp_path, VALIDATION)
        save_traces(workload, tmp_path, "all_reduce")
    assert load(tmp_path / "collectives").world_size == 2
    (tmp_path / "collectives" / "notes.txt").write_text("mine")
    with pytest.raises(RecordError, match=r"notes\.txt"):
        prepare_folder(tmp_path, VALIDATION)
    (tmp_path / "collectives" / "notes.txt").unlink()
    (tmp_path / "collectives" / "collectives.about.json").unlink()
    with pytest.raises(RecordError, match=r"collectives\.0\.et"):
        prepare_folder(tmp_path, VALIDATION)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--collectives", "all_reduce,foo", "--ranks", "4"], "foo is unknown: give all_reduce, reduce"),
        (["--collectives", "", "--ranks", "4"], "an empty name is unknown"),
        (["--collectives", "all_reduce"], "give --ranks N, --hosts, --fabric or --lab"),
        (["--collectives", "all_reduce", "--ranks", "1"], "needs 2 ranks or more"),
        (["traces", "--collectives", "all_reduce", "--ranks", "4"], "takes the place of a trace: leave traces out"),
        ([], "give WORKLOAD, the folder of a trace, or --collectives"),
    ],
)
def test_it_refuses_by_name(given: list[str], words: str, tmp_path: Path) -> None:
    ended = genie("validate", *given, "-o", str(tmp_path / "out"))
    assert ended.code == 2
    assert words in ended.stderr
    assert not (tmp_path / "out").exists()


def test_a_launcher_cannot_start_it(tmp_path: Path) -> None:
    words = ("validate", "--collectives", "all_reduce", "--ranks", "2", "-o", str(tmp_path / "out"))
    ended = genie(*words, environment={"PMI_RANK": "0"})
    assert ended.code == 2
    assert "--collectives: starts the ranks itself" in ended.stderr


@pytest.mark.extended
def test_a_validation_without_a_trace(tmp_path: Path) -> None:
    ended = genie(
        "validate", "--collectives", "all_reduce", "--ranks", "2", "-n", "3", "-o", str(tmp_path / "out"), limit_s=120
    )
    assert ended.code in (0, 4), ended.stderr
    again = genie("simulate", str(tmp_path / "out" / "collectives"), "--rate", "1Gb/s", "-o", str(tmp_path / "twin"))
    assert again.code == 0, again.stderr
