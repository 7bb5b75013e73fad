"""Run folders: what is written is what is read, damage is named, only what is Genie's own is ever replaced."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from genie.record import (
    BENCH,
    CALIBRATION,
    CHECK,
    LIVE,
    RUN_FILES,
    TWIN,
    VALIDATION,
    RecordError,
    RecordWriteError,
    kind_of,
    launch_mark,
    mark,
    marked_json,
    open_run,
    prepare_folder,
    refuse_inputs_in,
    replace_own,
    write_atomically,
    write_run,
)  # fmt: skip
from genie.record.schemas import PATHS_SCHEMA, TIMELINE_SCHEMA, TRANSFERS_SCHEMA


def row(schema: pl.Schema) -> pl.DataFrame:
    values: dict[str, Any] = {name: "x" if kind == pl.String else 1 for name, kind in schema.items()}
    return pl.DataFrame([values], schema=schema)


INFO = {"world": "live"}


def write(path: Path, kind: str = LIVE, fabric: str | None = None) -> None:
    info = {"world": "twin" if kind == TWIN else "live"}
    write_run(
        path, info, row(TIMELINE_SCHEMA), row(TRANSFERS_SCHEMA), {"ranks": [{}]}, fabric=fabric, kind=kind
    )  # fmt: skip


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    write(tmp_path / "run")
    run = open_run(tmp_path / "run")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == sorted(RUN_FILES)
    assert (run.info, run.counters) == (INFO, {"ranks": [{}]})
    assert run.timeline.equals(row(TIMELINE_SCHEMA))
    assert run.transfers.equals(row(TRANSFERS_SCHEMA))
    assert run.timeline.schema == TIMELINE_SCHEMA


def test_columns_are_cast_and_ordered(tmp_path: Path) -> None:
    loose = row(TIMELINE_SCHEMA).with_columns(pl.col("rank").cast(pl.Int64)).select(sorted(TIMELINE_SCHEMA))
    write_run(tmp_path, {"world": "live"}, loose, row(TRANSFERS_SCHEMA), {})
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


def write_validation(out: Path) -> None:
    """A validation that a crash has ended while ranks ran, with what each part leaves."""
    write(out / "live")
    write(out / "twin", TWIN, "name = 'made'\n")
    write(out / "calibration", CALIBRATION)
    (out / "verdict.json").write_text(marked_json("verdict", {"result": "pass"}))
    (out / "report.html").write_text(f'<meta name="generator" content="{mark("verdict-page")}">')
    (out / "timeline.pftrace").write_bytes(b"\x0a\x12" + mark("timeline-trace").encode())
    for folder, kind in ((out / "live", LIVE), (out / "calibration", CALIBRATION)):
        (folder / "launch.json").write_text(json.dumps({"schema": launch_mark(kind)}))
        (folder / "mpirun.log").write_text(f"# {mark('mpirun-log')}\nsaid")
    for name in (
        "live/parts/00000-00001.npz", "live/parts/00000-00002.cut.npz", "live/parts/00003.pid",
        "live/parts/00003.reserve", "live/parts/00003.facts.json", "live/parts/00003.next.facts.json",
        "live/parts/00001.failed.json", "live/parts/lines.facts.json", "live/parts/mpirun.log",
        "calibration/rings/rings.0.et", "calibration/rings/rings.json",
    ):  # fmt: skip
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text("")


def test_an_earlier_validation_is_removed_whole(tmp_path: Path) -> None:
    write_validation(tmp_path / "out")
    prepare_folder(tmp_path / "out", VALIDATION)
    assert list((tmp_path / "out").iterdir()) == []


# A user's file, by its place in a validation -> what it holds. Each has a name that Genie gives to a file of its own.
USERS_FILES = {
    "verdict.json": '{"result": "mine"}',
    "report.html": "<html>mine</html>",
    "timeline.pftrace": "mine",
    "live/run.json": '{"world": "live"}',
    "live/counters.json": "{}",
    "live/timeline.parquet": "PAR1mine",
    "live/transfers.parquet": "mine" * 10 + "\xff\xff\xff\x7fPAR1",
    "live/launch.json": '{"ranks": 4}',
    "live/lab.json": '{"schema": "mine"}',
    "live/mpirun.log": "mine",
    "live/parts/my-data.npz": "mine",
    "live/parts/00001.pid.txt": "mine",
    "calibration/rings/rings.txt": "mine",
    "twin/fabric.toml": "name = 'mine'\n",
    "twin/series.parquet": "",
    "twin/report.html": '<meta name="generator" content="genie.verdict-page.1">',
}


@pytest.mark.parametrize("name", USERS_FILES)
def test_a_user_s_file_under_a_name_of_genie_s_stops_it(name: str, tmp_path: Path) -> None:
    write_validation(tmp_path)
    (tmp_path / name).write_text(USERS_FILES[name], encoding="latin-1")
    before = contents(tmp_path)
    with pytest.raises(RecordError, match="holds files that are not an earlier validation") as caught:
        prepare_folder(tmp_path, VALIDATION)
    assert name in str(caught.value)
    assert contents(tmp_path) == before


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_fabric_file_that_was_edited_is_the_user_s(tmp_path: Path) -> None:
    write(tmp_path, TWIN, "name = 'made'\n[switch]\nbuffer = '1MB'\n")
    file = tmp_path / "fabric.toml"
    assert kind_of(file) == "fabric"
    file.write_text(file.read_text().replace("1MB", "2MB"))
    with pytest.raises(RecordError, match=r"\(fabric\.toml\)"):
        prepare_folder(tmp_path, TWIN)


@pytest.mark.parametrize("kind", [CALIBRATION, TWIN, VALIDATION, CHECK, BENCH])
def test_a_folder_of_another_kind_is_kept(kind: str, tmp_path: Path) -> None:
    write(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(RecordError, match="holds files that are not an earlier"):
        prepare_folder(tmp_path, kind)
    assert contents(tmp_path) == before


def test_parts_without_their_launch_file_are_not_genie_s(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "00000-00001.npz").write_text("mine")
    with pytest.raises(RecordError, match="parts"):
        prepare_folder(tmp_path, LIVE)


@pytest.mark.parametrize("name", ["run.json", "parts", "other"])
def test_a_link_is_kept_and_so_is_what_it_leads_to(name: str, tmp_path: Path) -> None:
    write(tmp_path / "out")
    (tmp_path / "out" / "launch.json").write_text(json.dumps({"schema": launch_mark(LIVE)}))
    write(tmp_path / "precious")
    link = tmp_path / "out" / name
    link.unlink(missing_ok=True)
    link.symlink_to(tmp_path / "precious" / ("" if name == "parts" else "run.json"))
    with pytest.raises(RecordError, match=name):
        prepare_folder(tmp_path / "out", LIVE)
    assert link.is_symlink()
    assert open_run(tmp_path / "precious").info == INFO


def test_an_input_in_the_output_is_named(tmp_path: Path) -> None:
    out, link = tmp_path / "out", tmp_path / "link"
    out.mkdir()
    link.symlink_to(out)
    refuse_inputs_in(out, [("--fabric", tmp_path / "fabric.toml"), ("--hosts", tmp_path / "outer" / "hosts.toml")])
    for path in (out, out / "fabric.toml", out / "a" / ".." / "fabric.toml", link / "fabric.toml"):
        with pytest.raises(RecordError) as caught:
            refuse_inputs_in(out, [("--fabric", path)])
        assert str(caught.value) == f"--fabric {path}: lies in -o {out}, which the results replace; choose another -o"


def test_a_single_file_is_replaced_by_one_of_its_kind_only(tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    for result in ("pass", "fail"):
        replace_own(file, marked_json("verdict", {"result": result}), "verdict")
    for content in ("{}", marked_json("bench-report", {})):
        file.write_text(content)
        with pytest.raises(RecordError, match="is not a file that Genie wrote there"):
            replace_own(file, marked_json("verdict", {}), "verdict")
        assert file.read_text() == content
    replace_own(Path("/dev/null"), "nothing", "verdict")


def test_a_new_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    prepare_folder(tmp_path / "a" / "b", LIVE)
    assert list((tmp_path / "a" / "b").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "content"),
    [("timeline.parquet", b"PAR1half"), ("counters.json", b'{"schema": "genie.counters.1", '), ("run.json", b"")],
)
def test_what_a_killed_process_left_half_written_is_replaced(name: str, content: bytes, tmp_path: Path) -> None:
    """As it is named by `write_atomically`, which is killed in the middle here."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            write_atomically(tmp_path / name, content)
    (left,) = tmp_path.iterdir()
    assert left.name != name
    (tmp_path / "launch.json").write_text(json.dumps({"schema": launch_mark(LIVE)}))
    prepare_folder(tmp_path, LIVE)
    assert not left.exists()


@pytest.mark.parametrize("name", ["timeline.parquet.2024.part", "run.json.7.part", "launch.json.7.part"])
def test_a_user_s_file_with_the_name_of_a_half_written_one_is_kept(name: str, tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / name).write_text("mine")
    with pytest.raises(RecordError, match=name):
        prepare_folder(tmp_path, LIVE)
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize(
    "name", ["notes", "live/notes", "live/twin/notes", "parts/notes.npz.bak", "hosts.toml", "run.json.part"]
)
def test_a_file_of_somebody_elses_stops_it(name: str, tmp_path: Path) -> None:
    write(tmp_path)
    stranger = tmp_path / name
    stranger.parent.mkdir(parents=True, exist_ok=True)
    stranger.write_text("mine")
    with pytest.raises(RecordError, match="holds files that are not an earlier run of Genie's") as caught:
        prepare_folder(tmp_path, LIVE)
    assert name.split("/")[0] in str(caught.value)
    assert stranger.read_text() == "mine"
    assert open_run(tmp_path).info == INFO, "the run is still there"


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(RecordError, match="is not a folder"):
        prepare_folder(tmp_path / "out", LIVE)


def test_a_disk_that_is_full_is_an_error_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(RecordWriteError, match="No space left on device; free some space"):
        write(tmp_path)
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(RecordWriteError, match="No space left on device"):
        prepare_folder(tmp_path / "out", LIVE)


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
        write_atomically(link, content)
        assert file.read_text() == content
    write_atomically(Path("/dev/null"), "nothing")
    assert Path("/dev/null").is_char_device()

    def fail(path: Path, _: bytes) -> int:
        path.write_text("th")
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(file, "third")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link"]
    assert file.read_text() == "second"


def test_paths_are_kept_where_there_are_any(tmp_path: Path) -> None:
    write(tmp_path / "without")
    assert open_run(tmp_path / "without").paths is None
    paths = pl.DataFrame([(0, 1, 50000, 0, "a->b", None)], schema=PATHS_SCHEMA, orient="row")
    write_run(tmp_path / "with", {"world": "live"}, row(TIMELINE_SCHEMA), row(TRANSFERS_SCHEMA), {}, paths)
    read = open_run(tmp_path / "with").paths
    assert read is not None
    assert read.equals(paths)
    prepare_folder(tmp_path / "with", LIVE)
    assert not list((tmp_path / "with").iterdir())


def test_a_folder_without_marks_opens_and_one_of_a_later_genie_is_named(tmp_path: Path) -> None:
    write(tmp_path)
    path = tmp_path / "run.json"
    path.write_text('{"world": "live"}')
    assert open_run(tmp_path).info == INFO
    path.write_text('{"schema": "genie.live.2", "world": "live"}')
    with pytest.raises(RecordError, match=r"was written by a later Genie \(schema 2\)"):
        open_run(tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "is of no live run and no simulation"),
        ('{"world": "moon"}', "is of no live run and no simulation"),
        ('{"schema": "foo.1", "world": "live"}', "has the schema 'foo.1', which is none of Genie's"),
    ],
)
def test_a_record_of_nothing_that_genie_runs_is_refused(tmp_path: Path, text: str, said: str) -> None:
    write(tmp_path)
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(RecordError, match=said):
        open_run(tmp_path)
