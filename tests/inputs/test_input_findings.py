"""Files that once ended with a traceback, took all memory or never ended: each has its line and exit code."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tomllib
from pathlib import Path
from typing import Any

import input_seeds as seeds
import pytest
import yaml
from input_cases import CONTROLS
from live_runs import Ended, in_this_process

FINDINGS = Path(__file__).resolve().parent / "findings"
LISTED: list[dict[str, Any]] = tomllib.loads((FINDINGS / "findings.toml").read_text())["finding"]


def good_files() -> None:
    """Write the files that commands take besides the one that was found."""
    seeds.write_workload(Path("w"))
    Path("j").mkdir()
    Path("j/t.0.json").write_text(json.dumps(seeds.graph_json()))
    Path("network.yml").write_text(yaml.safe_dump(seeds.ASTRA_NETWORK))
    Path("host").mkdir()
    Path("host/rank0.json").write_text(json.dumps({"schema": "1.1.0", "nodes": []}))
    link = '[link]\nrate = "10Gb/s"\ndelay = "1us"\n'
    Path("fabric.toml").write_text(f'[topology]\nkind = "single-switch"\nhosts = 4\n\n{link}')
    traffic = 'traffic = {kind = "poisson", duration = "1ms", sizes = "64KiB", load = 0.5}'
    Path("sweep.toml").write_text(f'[base]\nfabric = "fabric.toml"\n{traffic}\n\n[grid]\nseed = [1, 2]\n')


def refused(ended: Ended, words: str, code: int = 2) -> None:
    assert ended.code == code, ended
    lines = ended.stderr.splitlines()
    assert lines[-1].startswith("genie: ")
    assert words in lines[-1]
    assert not any(CONTROLS.search(line) for line in (*lines, *ended.stdout.splitlines()))


@pytest.mark.parametrize("finding", LISTED, ids=[Path(finding["file"]).stem for finding in LISTED])
def test_a_finding_stays_mended(finding: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    good_files()
    place = Path(finding["at"])
    place.parent.mkdir(exist_ok=True)
    shutil.copyfile(FINDINGS / finding["file"], place)
    ended = in_this_process(*finding["command"].split())
    if finding.get("code", 2) == 0:
        assert ended.code == 0, ended
        return
    refused(ended, finding["words"])


def test_all_findings_are_listed() -> None:
    assert {path.name for path in FINDINGS.iterdir()} - {"findings.toml"} == {finding["file"] for finding in LISTED}


@pytest.mark.parametrize("command", ["inspect w", "convert pytorch --host host --device device -o out"])
def test_little_that_becomes_much_stops_at_the_limit(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    good_files()
    Path("device").mkdir()
    bomb = gzip.compress(bytes(8 << 20), 1)
    for place in ("w/t.0.et", "device/rank0.json"):
        Path(place).write_bytes(bomb)
    monkeypatch.setenv("GENIE_READ_LIMIT", "1MiB")
    refused(
        in_this_process(*command.split()), f"the content of {len(bomb)} compressed bytes is longer than 1048576 bytes"
    )
    monkeypatch.setenv("GENIE_READ_LIMIT", "64MiB")
    raised = in_this_process(*command.split())
    assert "longer than" not in raised.stderr, "a limit that was raised"
    monkeypatch.delenv("GENIE_READ_LIMIT")
    refused(
        in_this_process("--read-limit", "2MiB", *command.split()),
        f"the content of {len(bomb)} compressed bytes is longer than 2097152 bytes: "
        "give genie --read-limit 8GiB COMMAND",
    )
    assert "longer than" not in in_this_process("--read-limit", "64MiB", *command.split()).stderr
    refused(in_this_process("--read-limit", "much", *command.split()), "--read-limit much: give bytes, or a size")
    assert "GENIE_READ_LIMIT" not in os.environ, "the option is for one command"
    monkeypatch.setenv("GENIE_READ_LIMIT", "much")
    refused(in_this_process(*command.split()), "GENIE_READ_LIMIT='much': give bytes, or a size such as 8GiB")


def test_json_has_a_lower_limit_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    good_files()
    Path("device").mkdir()
    for module in ("pytorch.files", "pytorch.trace"):
        monkeypatch.setattr(f"genie.workload.{module}.JSON_MAX_BYTES", 1 << 20)
    Path("device/rank0.json").write_bytes(gzip.compress(bytes(2 << 20), 1))
    refused(in_this_process("convert", "pytorch", "--host", "host", "--device", "device", "-o", "out"), "1048576 bytes")


def damage(folder: Path, name: str, **cells: Any) -> None:
    """A column of a run's table with another first value."""
    import polars as pl

    table = pl.read_parquet(folder / name)
    for column, value in cells.items():
        values = [value, *table[column].to_list()[1:]]
        table = table.with_columns(pl.Series(column, values, dtype=table.schema[column]))
    table.write_parquet(folder / name)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    seeds.write_runs(folder)
    return folder


TABLES = [
    ("transfers.parquet", {"src": None}, "transfers.parquet: column src has no value in row 0"),
    ("transfers.parquet", {"dst": -1}, "transfers.parquet: column dst has the value -1; it is from 0 to 1048575"),
    ("timeline.parquet", {"start_ns": 1 << 62}, "timeline.parquet: column start_ns has the value 4611686018427387904"),
    (
        "timeline.parquet",
        {"kind": "coll", "op": "all_reduce", "group": None},
        "timeline.parquet: a collective has no group",
    ),
    ("timeline.parquet", {"iteration": -5}, "timeline.parquet: column iteration has the value -5"),
]


@pytest.mark.parametrize(("name", "cells", "words"), TABLES, ids=[words[:50] for _, _, words in TABLES])
@pytest.mark.parametrize("command", ["diff", "metrics"])
def test_a_value_that_no_run_has_is_named(
    name: str, cells: dict[str, Any], words: str, command: str, runs: Path, tmp_path: Path
) -> None:
    shutil.copytree(runs, tmp_path / "runs")
    live, twin = tmp_path / "runs" / "live", tmp_path / "runs" / "twin"
    damage(live, name, **cells)
    arguments = [live, twin] if command == "diff" else [live, "-o", tmp_path / "m.prom"]
    refused(in_this_process(command, *map(str, arguments)), words)


OBJECTS = [
    ("run.json", "ranks", -1, "run.json: is damaged: Expected `int` >= 0 - at `$.ranks`"),
    ("run.json", "hosts", [7], "run.json: is damaged: Expected `object`, got `int` - at `$.hosts[0]`"),
    ("run.json", "warmup", "x", "run.json: is damaged: Expected `int`, got `str` - at `$.warmup`"),
    ("run.json", "wall_s", float("nan"), "run.json: cannot be read: NaN is not a JSON number"),
    ("counters.json", "ranks", [[]], "counters.json: is damaged: Expected `object | null`, got `array`"),
    ("counters.json", "devices", [{"host": "h"}], "counters.json: is damaged: Object missing required field `device`"),
]


@pytest.mark.parametrize(("name", "key", "value", "words"), OBJECTS, ids=[f"{o[0]} {o[1]}" for o in OBJECTS])
def test_a_record_that_no_run_has_is_named(
    name: str, key: str, value: object, words: str, runs: Path, tmp_path: Path
) -> None:
    shutil.copytree(runs, tmp_path / "runs")
    path = tmp_path / "runs" / "live" / name
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    refused(in_this_process("metrics", str(path.parent), "-o", str(tmp_path / "m.prom")), words)


def test_a_table_of_more_rows_than_its_bytes_can_hold_is_refused(runs: Path, tmp_path: Path) -> None:
    """A column of one value is a few bytes, whatever its length."""
    import polars as pl

    shutil.copytree(runs, tmp_path / "runs")
    path = tmp_path / "runs" / "live" / "transfers.parquet"
    rows = 40_000_000
    pl.select(iteration=pl.repeat(0, rows, dtype=pl.Int32)).write_parquet(path, row_group_size=rows)
    assert path.stat().st_size < 100_000
    words = f"transfers.parquet: claims {rows} rows in {path.stat().st_size} bytes: it is damaged"
    refused(in_this_process("metrics", str(path.parent), "-o", str(tmp_path / "m.prom")), words)
