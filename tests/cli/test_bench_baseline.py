"""`genie bench --baseline` and `--junit`: an earlier bench, the newest one of the job, and what pipelines read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from live_runs import Ended, genie

from genie.bench.baseline import SizeChange, changes_of, in_words, newest_bench, read_baseline
from genie.record import RecordError, marked_json

pytestmark = pytest.mark.live

FABRIC = "hosts/fabrics/lab-8.toml"


def bench(*words: str, ranks: int = 4) -> Ended:
    sizes = ("-b", "64K", "-e", "256K", "-n", "3", "-w", "0")
    return genie("bench", "all_reduce", "--simulate", "--fabric", FABRIC, "--ranks", str(ranks), *sizes, *words)


def changed(path: Path, to: Path, **keys: Any) -> None:
    """Write a report with other top-level keys."""
    report = json.loads(path.read_text()) | keys
    to.write_text(json.dumps({"schema": report.pop("schema"), **report}))


def faster(path: Path, to: Path, by: float) -> None:
    """Write a report whose times are shorter."""
    report = json.loads(path.read_text())
    for result in report["results"]:
        times = result["out_of_place_per_iter"]
        times["times_us"] = [each / by for each in times["times_us"]]
    changed(path, to, results=report["results"])


def test_the_newest_bench_of_the_job_is_compared(tmp_path: Path) -> None:
    one, two, xml = tmp_path / "one.json", tmp_path / "two.json", tmp_path / "two.xml"
    first = bench("-J", str(one), "--baseline", "last")
    assert first.code == 0, first
    assert f"no bench of this job in {tmp_path} has passed: this bench is compared with none" in first.stderr
    same = bench("-J", str(two), "--baseline", "last", "--junit", str(xml))
    assert same.code == 0, same
    assert f"SAME none of 3 sizes takes 10 % longer than in {one}" in same.stdout
    root = ElementTree.parse(xml).getroot()
    assert (root.attrib["tests"], root.attrib["failures"], root.attrib["errors"]) == ("3", "0", "0")
    assert len(json.loads(two.read_text())["genie"]["baseline"]["sizes"]) == 3

    before = tmp_path / "before.json"
    faster(one, before, 1.5)
    slower = bench("-J", str(two), "--baseline", str(before), "--junit", str(xml))
    assert slower.code == 1, slower
    assert f"SLOWER 3 of 3 sizes take longer than in {before}" in slower.stdout
    assert ElementTree.parse(xml).getroot().attrib["failures"] == "3"


def test_a_bench_of_another_job_is_refused_as_a_file_and_passed_over_as_the_last(tmp_path: Path) -> None:
    eight, four = tmp_path / "eight.json", tmp_path / "four.json"
    assert bench("-J", str(eight), ranks=8).code == 0
    given = bench("--baseline", str(eight))
    assert given.code == 2
    assert f"--baseline {eight}: is of another job: it differs in ranks" in given.stderr
    assert given.stdout == "", "nothing is measured"
    last = bench("-J", str(four), "--baseline", "last")
    assert last.code == 0
    assert "has passed: this bench is compared with none" in last.stderr


@pytest.mark.parametrize("option", [("--mtu", "1024"), ("--congestion", "dcqcn"), ("--queue-pairs", "2")])
def test_the_settings_of_a_twin_are_facts_of_its_job(tmp_path: Path, option: tuple[str, str]) -> None:
    one = tmp_path / "one.json"
    assert bench("-J", str(one)).code == 0
    given = bench("--baseline", str(one), *option)
    assert given.code == 2
    fact = option[0].removeprefix("--").replace("-", "_")
    assert f"--baseline {one}: is of another job: it differs in {fact}" in given.stderr
    assert given.stdout == "", "nothing is simulated"


def test_a_link_to_a_report_is_a_baseline(tmp_path: Path) -> None:
    one, link, junction = tmp_path / "one.json", tmp_path / "accepted.json", tmp_path / "loop.json"
    assert bench("-J", str(one)).code == 0
    link.symlink_to(one)
    junction.symlink_to(junction)
    assert read_baseline(link).job["operation"] == "all_reduce"
    with pytest.raises(RecordError, match="cannot be read"):
        read_baseline(junction)


def test_reports_of_other_benches_and_versions_are_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    for kind, fields, said in (
        ("bench-report", {"pairs": []}, "is a report of `genie bench` on paths: a baseline is one of a collective"),
        ("check-report", {"findings": []}, "is no report of `genie bench -J`"),
    ):
        path.write_text(marked_json(kind, fields))
        with pytest.raises(RecordError, match=said):
            read_baseline(path)
    path.write_text('{\n "schema": "genie.bench-report.2",\n "results": []\n}\n')
    with pytest.raises(RecordError, match="was written by a later Genie"):
        read_baseline(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [(None, "cannot be read"), ("{}", "is no report of `genie bench -J`"), ("no JSON", "is no report of")],
)
def test_a_baseline_that_is_no_report_is_refused_before_anything_runs(
    tmp_path: Path, text: str | None, said: str
) -> None:
    path = tmp_path / "odd.json"
    if text is not None:
        path.write_text(text)
    ended = bench("--baseline", str(path))
    assert ended.code == 2, ended
    assert said in ended.stderr
    assert ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1


def test_a_bench_that_failed_is_no_baseline(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    assert bench("-J", str(good)).code == 0
    job = {"operation": "all_reduce"}
    earlier = read_baseline(good)
    assert earlier.passed
    for keys in ({"errors": ["rank 3 died"]}, {"out_of_bounds": {"count": 1, "okay": "false"}}):
        changed(good, bad, **keys)
        assert not read_baseline(bad).passed
    assert newest_bench(tmp_path, job) is None, "other facts"


def test_a_report_with_a_key_of_another_type_is_refused(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    assert bench("-J", str(good)).code == 0
    changed(good, bad, results=7)
    with pytest.raises(RecordError, match="is damaged"):
        read_baseline(bad)


def test_a_change_counts_beyond_noise_and_a_tenth(tmp_path: Path) -> None:
    assert SizeChange(1024, "-1", 100, 111, 0.05).is_slower
    assert not SizeChange(1024, "-1", 100, 109, 0.05).is_slower
    assert not SizeChange(1024, "-1", 100, 119, 0.2).is_slower
    assert in_words(tmp_path, [], 3).startswith("INCONCLUSIVE")
    one = SizeChange(1024, "-1", 100, 100, 0.05)
    assert in_words(tmp_path, [one], 1).endswith("of both")
    assert in_words(tmp_path, [one], 3).endswith(f"; {tmp_path} lacks 2 other sizes")
    assert bench("-J", str(tmp_path / "one.json")).code == 0
    report = json.loads((tmp_path / "one.json").read_text())
    assert {change.fraction for change in changes_of(read_baseline(tmp_path / "one.json"), report)} == {0.0}
