"""Run folders that were cut off and damaged since: opened, or refused in one line that names the file."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from genie.live.launch.merge import failures, open_live_run, remove_halves
from genie.live.parts import FAILED, LAUNCH_FILE, PARTS
from genie.live.settings import RunSettings
from genie.record import RecordError

pytestmark = pytest.mark.live


def cut_off(folder: Path) -> RunSettings:
    """A folder with a launch file and parts, as when all processes were killed at once."""
    settings = RunSettings(
        workload="nowhere", out=str(folder), ranks=2, addresses=["127.0.0.1"] * 2, ports=[None] * 2,
        host_names=["h"] * 2,
    )  # fmt: skip
    (folder / PARTS).mkdir(parents=True)
    (folder / LAUNCH_FILE).write_bytes(msgspec.json.encode(settings))
    buffer = io.BytesIO()
    np.savez(buffer, **{"steps.end": np.zeros(3)})
    (folder / PARTS / "00000-00000.npz").write_bytes(buffer.getvalue())
    return settings


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"{}", b"\xff\xfe", b"[" * 100_000, b'{"workload": 1}'],
    ids=lambda text: repr(text[:9]),
)
def test_a_damaged_launch_file_is_named(content: bytes, tmp_path: Path) -> None:
    cut_off(tmp_path)
    (tmp_path / LAUNCH_FILE).write_bytes(content)
    with pytest.raises(RecordError, match=r"launch\.json: cannot be read .*make the run again") as refused:
        open_live_run(tmp_path)
    assert "\n" not in str(refused.value)


def test_a_launch_file_that_is_missing_is_named(tmp_path: Path) -> None:
    cut_off(tmp_path)
    (tmp_path / LAUNCH_FILE).unlink()
    with pytest.raises(RecordError, match=r"launch\.json: cannot be read \(No such file or directory\)"):
        open_live_run(tmp_path)


def test_a_launch_file_whose_ranks_have_no_addresses_is_refused(tmp_path: Path) -> None:
    settings = cut_off(tmp_path)
    (tmp_path / LAUNCH_FILE).write_bytes(msgspec.json.encode(msgspec.structs.replace(settings, ranks=2**62)))
    with pytest.raises(RecordError, match="ranks is 4611686018427387904 and there are 2 addresses"):
        open_live_run(tmp_path)


def test_parts_that_cannot_be_put_together_stay_and_are_named(tmp_path: Path) -> None:
    cut_off(tmp_path)
    with pytest.raises(RecordError, match=r"what was recorded stays in .*parts \(.*nowhere"):
        open_live_run(tmp_path)
    assert (tmp_path / PARTS / "00000-00000.npz").exists()


def test_parts_that_are_no_arrays_are_said(tmp_path: Path) -> None:
    cut_off(tmp_path)
    (tmp_path / PARTS / "00000-00000.npz").write_bytes(b"cut")
    with pytest.raises(RecordError, match="no part in it can be read; make the run again"):
        open_live_run(tmp_path)


@pytest.mark.parametrize(
    "record",
    [[], {}, 7, None, {"rank": "0", "code": 1, "error": "x", "time_ns": 1}, {"rank": 0, "code": 1, "error": "x"}],
    ids=str,
)
def test_a_record_of_failure_that_is_damaged_is_left_out(record: Any, tmp_path: Path) -> None:
    settings = cut_off(tmp_path)
    good = {"rank": 1, "iteration": 0, "error": "lost", "code": 1, "time_ns": 5}
    (tmp_path / PARTS / f"00000{FAILED}").write_text(json.dumps(record))
    (tmp_path / PARTS / f"00001{FAILED}").write_text(json.dumps(good))
    assert [msgspec.to_builtins(record) for record in failures(settings)] == [{**good, "cause": "other", "signal": ""}]


def test_only_halves_of_files_are_removed(tmp_path: Path) -> None:
    for name in ("run.json", "run.json.123.part", "notes.part", "timeline.parquet.9.part"):
        (tmp_path / name).write_text("x")
    remove_halves(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.part", "run.json"]
