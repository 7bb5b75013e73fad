"""Run folders: what is written is what is read, damage is named, only what is Genie's own is ever replaced."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from genie.record import RUN_FILES, RecordError, RecordWriteError, open_run, prepare_folder, write_run, write_whole
from genie.record.schemas import PATHS_SCHEMA, TIMELINE_SCHEMA, TRANSFERS_SCHEMA


def row(schema: pl.Schema) -> pl.DataFrame:
    values: dict[str, Any] = {name: "x" if kind == pl.String else 1 for name, kind in schema.items()}
    return pl.DataFrame([values], schema=schema)


def write(path: Path) -> None:
    write_run(path, {"world": "live"}, row(TIMELINE_SCHEMA), row(TRANSFERS_SCHEMA), {"ranks": [{}]})


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    write(tmp_path / "run")
    run = open_run(tmp_path / "run")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == sorted(RUN_FILES)
    assert (run.info, run.counters) == ({"world": "live"}, {"ranks": [{}]})
    assert run.timeline.equals(row(TIMELINE_SCHEMA))
    assert run.transfers.equals(row(TRANSFERS_SCHEMA))
    assert run.timeline.schema == TIMELINE_SCHEMA


def test_columns_are_cast_and_ordered(tmp_path: Path) -> None:
    loose = row(TIMELINE_SCHEMA).with_columns(pl.col("rank").cast(pl.Int64)).select(sorted(TIMELINE_SCHEMA))
    write_run(tmp_path, {}, loose, row(TRANSFERS_SCHEMA), {})
    assert open_run(tmp_path).timeline.schema == TIMELINE_SCHEMA


@pytest.mark.parametrize("name", RUN_FILES)
def test_a_missing_file_is_named(name: str, tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(RecordError, match=f"is not a run folder, {name} is missing"):
        open_run(tmp_path)


@pytest.mark.parametrize("name", RUN_FILES)
@pytest.mark.parametrize("keep", [0, 10])
def test_a_cut_file_is_one_line(name: str, keep: int, tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:keep])
    with pytest.raises(RecordError) as caught:
        open_run(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_table_of_another_schema_is_named(tmp_path: Path) -> None:
    write(tmp_path)
    row(TIMELINE_SCHEMA).drop("overshoot_ns").write_parquet(tmp_path / "timeline.parquet")
    with pytest.raises(RecordError, match=r"timeline\.parquet: has no column overshoot_ns"):
        open_run(tmp_path)


@pytest.mark.parametrize("name", ["timeline", "transfers"])
def test_a_column_of_another_type_is_named(name: str, tmp_path: Path) -> None:
    write(tmp_path)
    table = row(TIMELINE_SCHEMA if name == "timeline" else TRANSFERS_SCHEMA)
    path = tmp_path / f"{name}.parquet"
    table.with_columns(pl.col("node_id").cast(pl.String)).write_parquet(path)
    with pytest.raises(RecordError) as caught:
        open_run(tmp_path)
    assert str(caught.value) == f"{path}: column node_id is String, must be UInt64"


@pytest.mark.parametrize("name", ["run.json", "counters.json"])
@pytest.mark.parametrize("text", ["[]", "null", '"run"'])
def test_json_that_is_no_object_is_named(name: str, text: str, tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / name).write_text(text)
    with pytest.raises(RecordError) as caught:
        open_run(tmp_path)
    assert str(caught.value) == f"{tmp_path / name}: is not a JSON object; make the run again"


def test_an_earlier_run_is_removed_whole(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for folder in (out, out / "live", out / "twin", out / "calibration"):
        write(folder)
    for name in ("verdict.json", "report.html", "timeline.pftrace", "launch.json", "twin/fabric.toml"):
        (out / name).write_text("")
    for name in ("parts/00000-00001.npz", "parts/00003.pid", "parts/mpirun.log", "calibration/rings/rings.0.et"):
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text("")
    prepare_folder(out)
    assert list(out.iterdir()) == []


def test_a_new_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    prepare_folder(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_what_a_killed_process_left_half_written_is_replaced(tmp_path: Path) -> None:
    """As it is named by `write_whole`, which is killed in the middle here."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            write_whole(tmp_path / "timeline.parquet", b"half")
    (left,) = tmp_path.iterdir()
    assert left.name != "timeline.parquet"
    prepare_folder(tmp_path)
    assert not left.exists()


@pytest.mark.parametrize(
    "name", ["notes", "live/notes", "live/twin/notes", "parts/notes.npz.bak", "hosts.toml", "run.json.part"]
)
def test_a_file_of_somebody_elses_stops_it(name: str, tmp_path: Path) -> None:
    write(tmp_path)
    stranger = tmp_path / name
    stranger.parent.mkdir(parents=True, exist_ok=True)
    stranger.write_text("mine")
    with pytest.raises(RecordError, match="holds files that are no run of Genie's") as caught:
        prepare_folder(tmp_path)
    assert name in str(caught.value)
    assert stranger.read_text() == "mine"
    assert open_run(tmp_path).info == {"world": "live"}, "the run is still there"


def test_links_are_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    write(precious)
    out = tmp_path / "out"
    out.mkdir()
    (out / "live").symlink_to(precious)
    with pytest.raises(RecordError, match="live"):
        prepare_folder(out)
    assert open_run(precious).info == {"world": "live"}


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(RecordError, match="is not a folder"):
        prepare_folder(tmp_path / "out")


def test_a_disk_that_is_full_is_an_error_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(RecordWriteError, match="No space left on device; free some space"):
        write(tmp_path)
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(RecordWriteError, match="No space left on device"):
        prepare_folder(tmp_path / "out")


def test_a_run_that_has_no_room_leaves_nothing_of_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_bytes = Path.write_bytes

    def fill(path: Path, data: bytes) -> int:
        write_bytes(path, data[:10])
        if path.name.startswith("counters.json"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return len(data)

    monkeypatch.setattr(Path, "write_bytes", fill)
    with pytest.raises(RecordWriteError, match=r"counters\.json: cannot be written: No space left on device; free"):
        write(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_written_whole_or_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    link.symlink_to(file)
    for content in ("first", "second"):
        write_whole(link, content)
        assert file.read_text() == content
    write_whole(Path("/dev/null"), "nothing")
    assert Path("/dev/null").is_char_device()

    def fail(path: Path, _: bytes) -> int:
        path.write_text("th")
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(KeyboardInterrupt):
        write_whole(file, "third")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link"]
    assert file.read_text() == "second"


def test_paths_are_kept_where_there_are_any(tmp_path: Path) -> None:
    write(tmp_path / "without")
    assert open_run(tmp_path / "without").paths is None
    paths = pl.DataFrame([(0, 1, 50000, 0, "a->b", None)], schema=PATHS_SCHEMA, orient="row")
    write_run(tmp_path / "with", {}, row(TIMELINE_SCHEMA), row(TRANSFERS_SCHEMA), {}, paths)
    read = open_run(tmp_path / "with").paths
    assert read is not None
    assert read.equals(paths)
    prepare_folder(tmp_path / "with")
    assert not list((tmp_path / "with").iterdir())
