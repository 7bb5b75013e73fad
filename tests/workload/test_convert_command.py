"""`genie convert pytorch` and `genie inspect` as commands: what is refused with which exit code, and what is noted."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from pytorch_samples import Sample, tensor

from genie.cli.main import main
from genie.workload.pytorch import convert as pytorch_convert


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """A folder of the host traces and profiles of 2 ranks, which play one all-reduce together."""
    folder = tmp_path / "traces"
    folder.mkdir()
    for rank in range(2):
        sample = Sample()
        sample.communication("allreduce", 10, 5, [tensor(8)], [tensor(8)], 1)
        sample.write(folder, rank, world_size=2)
    return folder


def genie(*arguments: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code, and what was printed: on stderr if it failed."""
    monkeypatch.setattr(sys, "argv", ["genie", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        main()
    assert isinstance(left.value.code, int)
    printed = capsys.readouterr()
    if left.value.code:
        assert printed.out == ""
        assert len(printed.err.splitlines()) == 1
    return left.value.code, printed.err if left.value.code else printed.out


@pytest.fixture
def convert(traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: object, host: Path = traces, out: Path = tmp_path / "out") -> tuple[int, str]:
        words = ("convert", "pytorch", "--host", host, "-o", out, *arguments)
        return genie(*words, monkeypatch=monkeypatch, capsys=capsys)

    return call


@pytest.mark.parametrize("prefix", ["", "../x", "a/b", "/tmp/x", ".", "..", ".x", "x.", "a\nb"])
def test_a_prefix_is_one_part_of_a_file_name(prefix: str, convert: Any, tmp_path: Path) -> None:
    code, line = convert("--prefix", prefix)
    assert code == 2
    assert f"--prefix {prefix!r}: must be one plain part of a file name" in line
    assert [path.name for path in tmp_path.iterdir()] == ["traces"]


def test_all_ranks_give_no_note(convert: Any, tmp_path: Path) -> None:
    code, text = convert("--prefix", "my job.v1")
    assert code == 0
    assert "have no trace" not in text
    names = ["my job.v1.0.et", "my job.v1.1.et", "my job.v1.json"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names


def test_ranks_of_the_groups_without_a_trace_are_noted(convert: Any, traces: Path) -> None:
    (traces / "host_rank1.json").unlink()
    (traces / "profile_rank1.json").unlink()
    code, text = convert("--device", traces)
    assert code == 0
    note = "note: ranks [1] of the groups have no trace: genie inspect will refuse until they are there"
    assert note in text.splitlines()
    assert "not taken" not in text, "profiles and host traces may lie in one folder"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it is empty"),
        (b"[]", "it is neither a host execution trace nor a profiler"),
        (b"\xff\xfe\x00", "it is not JSON"),
    ],
)
def test_a_host_trace_that_is_none_is_named(content: bytes, why: str, convert: Any, traces: Path) -> None:
    damaged = traces / "host_rank1.json"
    damaged.write_bytes(content)
    code, line = convert("--device", traces)
    assert code == 2
    assert f"ranks [1] have no host trace (not taken: {damaged}: {why}" in line
    code, text = convert()
    assert code == 0
    assert f"note: not taken: {damaged}: {why}" in text


def test_a_folder_that_the_machine_cannot_make(convert: Any, traces: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    assert convert(out=file / "out") == (
        3,
        f"genie: {file / 'out'}: cannot be written: Not a directory; choose another -o\n",
    )
    assert convert(out=file) == (2, f"genie: {file}: is not a folder; choose another -o\n")
    assert file.read_text() == "mine"


def test_a_full_disk_leaves_what_was_there_before(
    convert: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    assert convert()[0] == 0
    (out / "other.0.et").write_text("another workload's")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    write = pytorch_convert.write_trace

    def fill(path: Path, *arguments: Any) -> None:
        write(path, *arguments)
        if ".1." in path.name:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pytorch_convert, "write_trace", fill)
    said = "cannot be written: No space left on device; free some space or choose another -o"
    assert convert("--compress") == (3, f"genie: {out / 'workload.1.et.gz'}: {said}\n")
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_files_already_in_place_are_taken_back(convert: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    replace = os.replace

    def fail_late(source: Path, target: Path) -> None:
        if target.name == "workload.json":
            raise OSError(errno.EIO, "Input/output error")
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail_late)
    assert convert() == (
        3,
        f"genie: {out / 'workload.json'}: cannot be written: Input/output error; choose another -o\n",
    )
    assert list(out.iterdir()) == []


def test_a_folder_of_somebody_else_s_is_refused(convert: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes").write_text("mine")
    said = "holds files that are not traces of an earlier conversion (notes); choose another -o"
    assert convert() == (2, f"genie: {out}: {said}\n")
    assert [path.name for path in out.iterdir()] == ["notes"]


def test_a_folder_of_a_trace_s_name_is_refused(convert: Any, tmp_path: Path) -> None:
    (tmp_path / "out" / "workload.1.et").mkdir(parents=True)
    code, line = convert()
    assert (code, "workload.1.et: is a folder" in line) == (2, True)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["workload.1.et"]


@pytest.mark.parametrize("value", ["", "roofline:1"])
def test_a_wrong_compute_model_is_refused(
    value: str, convert: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert convert()[0] == 0
    given = ("inspect", tmp_path / "out", "--compute", value)
    code, line = genie(*given, monkeypatch=monkeypatch, capsys=capsys)
    assert code == 2
    assert f"--compute {value}: expected roofline:TFLOPS,GBPS" in line
