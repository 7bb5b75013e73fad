"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from genie.record import RecordWriteError, write_atomically


def test_a_file_keeps_its_mode_and_a_new_one_has_the_usual(tmp_path: Path) -> None:
    ours, new = tmp_path / "ours", tmp_path / "new"
    ours.write_text("before")
    ours.chmod(0o640)
    write_atomically(ours, "after")
    write_atomically(new, b"after")
    (tmp_path / "usual").touch()
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("ours", "new", "usual")]
    assert modes == [0o640, modes[2], modes[2]]
    assert (ours.read_text(), new.read_text()) == ("after", "after")


def test_only_the_file_itself_changes(tmp_path: Path) -> None:
    """The link's target is written; a file of the same name with .part belongs to another process."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real" / "file")
    (tmp_path / "real" / "file.part").write_text("mine")
    write_atomically(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert {path.name: path.read_text() for path in (tmp_path / "real").iterdir()} == {
        "file": "text", "file.part": "mine"
    }  # fmt: skip


def test_what_is_no_file_is_written_in_place(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with target.open("w+") as file:
        file.write("before ")
        file.flush()
        os.lseek(file.fileno(), 0, os.SEEK_END)
        write_atomically(Path(f"/dev/fd/{file.fileno()}"), "after")
        assert target.stat().st_ino == os.fstat(file.fileno()).st_ino


def test_what_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    for path in (tmp_path / "none" / "file", Path("/dev/full")):
        with pytest.raises(RecordWriteError, match=f"{path}: cannot be written: .*choose another -o"):
            write_atomically(path, "text")
    assert list(tmp_path.iterdir()) == []
