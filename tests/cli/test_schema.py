"""JSON Schemas: each is valid itself, and the files that commands write fit them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from live_runs import genie, loopback, rings
from synthetic_runs import Fault, Noise, run_pair

from genie.record import marked_json
from genie.report.json_outputs import OUTPUTS, json_schema
from genie.verdict import judge

pytestmark = pytest.mark.live


def fits(name: str, value: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator(json_schema(name)).validate(value)


@pytest.mark.parametrize("name", OUTPUTS)
def test_the_command_prints_a_schema(name: str) -> None:
    printed = genie("schema", name)
    assert printed.code == 0
    schema = json.loads(printed.stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema == json_schema(name)


def test_names_are_listed_and_an_unknown_one_is_refused() -> None:
    listed = genie("schema")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(OUTPUTS)
    wrong = genie("schema", "odd")
    assert wrong.code == 2
    assert wrong.stderr == f"genie: odd: no JSON output: give one of {', '.join(OUTPUTS)}\n"


def test_a_verdict_fits_and_one_that_lacks_a_key_does_not() -> None:
    live, twin = run_pair(3, Noise(), Fault(5, 0.5))
    verdict = judge(live, twin)
    assert verdict.suspects
    written = json.loads(marked_json("verdict", {**verdict.to_dict(), "runs": {}}))
    fits("verdict", written)
    for broken in ({key: value for key, value in written.items() if key != "result"}, {**written, "result": "perhaps"}):
        with pytest.raises(jsonschema.ValidationError):
            fits("verdict", broken)


def test_files_of_commands_fit(tmp_path: Path) -> None:
    trace = rings(tmp_path, size_bytes=65536)
    out = tmp_path / "runs" / "one"
    ended = genie("validate", trace, "-n", "3", "--warmup", "1", "-o", str(out))
    assert ended.code in (0, 1, 4), ended
    other = tmp_path / "runs" / "two"
    assert genie("run", trace, "-n", "3", "--warmup", "1", "-o", str(other)).code == 0
    compared = genie("compare", str(out / "live"), str(other), "-o", str(tmp_path / "compared"))
    assert compared.code in (0, 1, 4), compared
    archive = tmp_path / "archive.json"
    assert genie("runs", str(tmp_path / "runs"), "--json", str(archive)).code == 0
    for name, path in (
        ("verdict", out / "verdict.json"),
        ("live", out / "live" / "run.json"),
        ("twin", out / "twin" / "run.json"),
        ("counters", out / "live" / "counters.json"),
        ("counters", out / "twin" / "counters.json"),
        ("comparison", tmp_path / "compared" / "compare.json"),
        ("archive", archive),
    ):
        fits(name, json.loads(path.read_bytes()))


def test_what_the_verdict_left_open_is_in_its_schema() -> None:
    live, twin = run_pair(3, Noise(), Fault())
    written = json.loads(marked_json("verdict", {**judge(live, twin).to_dict(), "runs": {}}))
    fits("verdict", written)
    for part, key, odd in (("nics", "partly_used", None), ("links", "unfilled", "leaf0->spine1"), ("links", "slow", 3)):
        coverage = written["coverage"]
        lacking = {name: value for name, value in coverage[part].items() if name != key}
        for broken in (lacking, {**lacking, key: odd}):
            with pytest.raises(jsonschema.ValidationError):
                fits("verdict", {**written, "coverage": {**coverage, part: broken}})


def test_files_of_benches_and_of_simulations_at_all_levels_fit(tmp_path: Path) -> None:
    fabric = ("--fabric", "hosts/fabrics/lab-8.toml")
    trace = rings(tmp_path, ranks=8)
    sizes = ("-b", "64K", "-e", "64K", "-n", "3", "-w", "0")
    one, pairs, path = (tmp_path / f"{name}.json" for name in ("one", "pairs", "path"))
    assert genie("bench", "all_reduce", "--simulate", *fabric, *sizes, "-J", str(one)).code == 0
    fits("bench", json.loads(one.read_bytes()))
    assert genie("bench", "pairs", "--simulate", *fabric, "--json", str(pairs)).code == 0
    fits("pairs", json.loads(pairs.read_bytes()))
    assert genie("bench", "pingpong", "-s", "8", "-n", "5", "--json", str(path)).code == 0
    fits("path", json.loads(path.read_bytes()))
    for level in ("packet", "flow", "analytic"):
        out = tmp_path / level
        assert genie("simulate", trace, *fabric, "--level", level, "-o", str(out)).code == 0
        fits("twin", json.loads((out / "run.json").read_bytes()))
        fits("counters", json.loads((out / "counters.json").read_bytes()))
        fits("limits", json.loads((out / "limits.json").read_bytes()))
    inspected = genie("inspect", trace, "--json")
    assert inspected.code == 0
    fits("inspection", json.loads(inspected.stdout))


def test_the_file_of_a_check_fits(tmp_path: Path) -> None:
    report = tmp_path / "check.json"
    hosts = loopback(tmp_path, 2)
    assert genie("check", "--hosts", hosts, "--quick", "--json", str(report)).code in (0, 1)
    fits("check", json.loads(report.read_bytes()))


@pytest.mark.extended
def test_files_of_a_lab_fit(as_root: None, tmp_path: Path) -> None:
    report = tmp_path / "check.json"
    fabric = "hosts/fabrics/lab-8.toml"
    assert genie("check", "--lab", fabric, "--json", str(report)).code == 0
    fits("check", json.loads(report.read_bytes()))
    out = tmp_path / "run"
    words = ("--lab", fabric, "--lab-fault", "leaf0->spine1 dscp=0", "-n", "2", "-o", str(out))
    assert genie("validate", "examples/transformer", *words, limit_s=120).code == 1
    fits("verdict", json.loads((out / "verdict.json").read_bytes()))
    fits("probe", json.loads((out / "probe" / "run.json").read_bytes()))
    fits("lab", json.loads((out / "live" / "lab.json").read_bytes()))
