"""Old names of keys are read for one release, with a line that says the new ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import simtwin
from genie.record import forget_warnings, open_run
from simtwin.fabric.reading import FabricError, parse_fabric
from simtwin.sweep.grid import load_sweep

HEAD = 'name = "old"\n[topology]\nkind = "single-switch"\nhosts = 2\n[link]\nrate = "100Gb/s"\n'
OLD = f'{HEAD}[transport]\ncongestion_control = "dcqcn"\n[congestion_control]\nkind = "dcqcn"\nalpha_timer = "55us"\n'
LINE = "the next release no longer reads"


@pytest.fixture(autouse=True)
def fresh() -> None:
    forget_warnings()


def test_old_keys_of_a_fabric_file_mean_the_new_ones(capsys: pytest.CaptureFixture[str]) -> None:
    old = parse_fabric(OLD)
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"genie: fabric.toml:9: congestion_control is called congestion now; {LINE} congestion_control",
        f"genie: fabric.toml:8: transport.congestion_control is called transport.congestion now; {LINE} "
        "transport.congestion_control",
    ]
    assert old == parse_fabric(OLD.replace("congestion_control", "congestion"))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (OLD.replace("55us", "0ns"), "fabric.toml:11: congestion.alpha_timer = 0ns: give 1ns or more"),
        (
            f'{OLD}[congestion]\nkind = "swift"\n',
            "fabric.toml:9: congestion_control is the old name of congestion, which",
        ),
    ],
)
def test_an_error_is_placed_where_the_file_has_the_old_name(text: str, words: str) -> None:
    with pytest.raises(FabricError) as caught:
        parse_fabric(text)
    assert str(caught.value).startswith(words)


def test_scripts_may_use_the_old_names(capsys: pytest.CaptureFixture[str]) -> None:
    fabric = simtwin.Fabric.make(topology={"kind": "single-switch", "hosts": 2}, link={"rate": "100Gb/s"}).replace(
        {"transport.congestion_control": "swift"}
    )
    assert fabric.transport.congestion == "swift"
    assert "transport.congestion_control is called transport.congestion now" in capsys.readouterr().err
    workload = simtwin.permutation(fabric, "64KiB")
    runs = [simtwin.simulate(fabric, workload, **{name: "dcqcn"}) for name in ("congestion_control", "congestion")]  # type: ignore[arg-type]
    assert runs[0].transfers.equals(runs[1].transfers)
    assert "simulate: congestion_control is called congestion now" in capsys.readouterr().err


def test_a_sweep_may_use_the_old_names(tmp_path: Path) -> None:
    (tmp_path / "fabric.toml").write_text(f'{HEAD}[transport]\ncongestion_control = "dcqcn"\n')
    text = (
        '[base]\nfabric = "fabric.toml"\n{}traffic = {{kind = "permutation", size = "64KiB"}}\n'
        '[grid]\n{} = ["dcqcn", "swift"]\n'
    )
    (tmp_path / "old.toml").write_text(text.format("", "fabric.transport.congestion_control"))
    (tmp_path / "new.toml").write_text(text.format("", "fabric.transport.congestion"))
    old, new = (list(load_sweep(tmp_path / name).runs()) for name in ("old.toml", "new.toml"))
    assert [run.identity for run in old] == [run.identity for run in new]
    assert [run.parameters for run in old] == [{"fabric.transport.congestion": name} for name in ("dcqcn", "swift")]
    (tmp_path / "old.toml").write_text(
        text.format('congestion_control = "swift"\n', "seed").replace('"dcqcn", "swift"', "1, 2")
    )
    assert [run.base.congestion for run in load_sweep(tmp_path / "old.toml").runs()] == ["swift", "swift"]


def test_run_folders_of_older_versions_open(tmp_path: Path) -> None:
    fabric = parse_fabric(HEAD)
    simtwin.simulate(fabric, simtwin.permutation(fabric, "64KiB"), out=tmp_path / "run")
    record = tmp_path / "run" / "run.json"
    info = json.loads(record.read_bytes())
    info["remarks"] = ["said then"]
    del info["warnings"]
    record.write_text(json.dumps(info))
    assert open_run(tmp_path / "run").info["warnings"] == ["said then"]
