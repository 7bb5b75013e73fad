"""`genie metrics` and `--metrics`: a whole file at the end, whatever the result."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_runs import GENIE, genie, loopback, pid_of, rings, started
from prometheus_client.parser import text_string_to_metric_families

from genie.record import open_run

pytestmark = pytest.mark.live

MPIRUN = str(GENIE.parent / "mpirun")


def values(path: Path) -> dict[str, float]:
    """Name -> value, of metrics with the common labels only; those labels must name the run and the workload."""
    found = {}
    for family in text_string_to_metric_families(path.read_text()):
        for sample in family.samples:
            assert (sample.labels["run"], sample.labels["workload"]) == ("out", "rings")
            if len(sample.labels) == 3:
                found[sample.name] = sample.value
    return found


def job(folder: Path, *given: str) -> list[str]:
    return [rings(folder / "rings"), "--hosts", loopback(folder), "-o", str(folder / "out"),
            "--metrics", str(folder / "genie.prom"), *given]  # fmt: skip


def test_run_and_metrics_say_the_same(tmp_path: Path) -> None:
    ended = genie("run", *job(tmp_path, "--rate", "200Mb/s", "-n", "2", "--warmup", "1"))
    assert (ended.code, ended.said) == (0, [])
    at_the_end = values(tmp_path / "genie.prom")
    assert at_the_end["genie_run_complete"] == 1
    assert (at_the_end["genie_run_iterations"], at_the_end["genie_run_ranks"]) == (2, 4)
    assert at_the_end.pop("genie_exit_code") == 0
    later = genie("metrics", str(tmp_path / "out"), "-o", str(tmp_path / "later.prom"))
    assert (later.code, later.stdout, later.stderr) == (0, "", "")
    assert values(tmp_path / "later.prom") == at_the_end
    text = (tmp_path / "later.prom").read_text()
    assert 'op="all_reduce",run="out",size_bucket="64KiB"' in text
    assert 'genie_counter_total{counter="tx_bytes",device="lo"' in text


def test_validate_leaves_the_verdict(tmp_path: Path) -> None:
    ended = genie("validate", *job(tmp_path, "-n", "4", "--warmup", "1"), limit_s=120)
    found = values(tmp_path / "genie.prom")
    assert found["genie_exit_code"] == ended.code
    assert found["genie_run_complete"] == 1
    assert "genie_excess_ratio" in found
    result = ended.stdout.split(maxsplit=1)[0].lower()
    text = (tmp_path / "genie.prom").read_text()
    fabric = open_run(tmp_path / "out" / "twin").info["fabric"]
    assert f'genie_verdict_result{{fabric="{fabric}",result="{result}",run="out",workload="rings"}} 1.0' in text


@pytest.mark.extended
def test_a_run_that_dies(tmp_path: Path) -> None:
    plan = tmp_path / "faults.toml"
    plan.write_text("[[loss]]\nrank = 1\nevery = 1\n")
    ended = genie("run", *job(tmp_path, "--rate", "200Mb/s", "--stall", "1", "--faults", str(plan)))
    assert ended.code == 1
    found = values(tmp_path / "genie.prom")
    assert (found["genie_run_complete"], found["genie_exit_code"]) == (0, 1)
    assert found["genie_run_ranks"] == 4  # the metrics have the part that was recorded


@pytest.mark.extended
def test_a_command_that_does_not_begin_is_not_taken_for_the_run_before(tmp_path: Path) -> None:
    arguments = job(tmp_path, "--rate", "200Mb/s")
    assert genie("run", *arguments).code == 0
    ended = genie("run", *arguments, "--ranks", "3")
    assert ended.code == 2
    found = values(tmp_path / "genie.prom")
    assert (found["genie_run_complete"], found["genie_exit_code"]) == (0, 2)
    assert "genie_run_ranks" not in found


def test_told_to_end(tmp_path: Path) -> None:
    with started("run", *job(tmp_path, "--rate", "200Mb/s", "-n", "100000")) as command:
        command.until(lambda: pid_of(tmp_path / "out", 0) is not None)
        command.process.terminate()
        ended = command.end()
    assert (ended.code, ended.left) == (143, [])
    found = values(tmp_path / "genie.prom")
    assert (found["genie_run_complete"], found["genie_exit_code"]) == (0, 143)


@pytest.mark.extended
@pytest.mark.parametrize("dies", [False, True])
def test_under_somebody_elses_mpirun(dies: bool, tmp_path: Path) -> None:
    plan = tmp_path / "faults.toml"
    plan.write_text("[[loss]]\nrank = 0\nevery = 1\n")
    more = ["--faults", str(plan), "--stall", "1"] if dies else []
    line = [MPIRUN, "-n", "4", str(GENIE), "run", *job(tmp_path, "--rate", "200Mb/s", *more)]
    with started(line=line) as command:
        ended = command.end()
    assert (ended.code != 0) == dies
    found = values(tmp_path / "genie.prom")
    assert found["genie_run_complete"] == float(not dies)
    assert (found["genie_exit_code"] != 0) == dies


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("genie.txt", 2, "node_exporter reads only files that end in .prom"),
        ("no/genie.prom", 3, "is not a folder that can be written"),
    ],
)
def test_a_file_that_is_of_no_use_is_said_first(name: str, code: int, says: str, tmp_path: Path) -> None:
    for line in (["run", rings(tmp_path / "rings")], ["metrics", str(tmp_path)]):
        option = "-o" if line[0] == "metrics" else "--metrics"
        more = [] if line[0] == "metrics" else ["-o", str(tmp_path / "out")]
        ended = genie(*line, *more, option, str(tmp_path / name))
        assert ended.code == code
        assert len(ended.said) == 1
        assert says in ended.said[0]
        assert not (tmp_path / "out").exists()


@pytest.mark.extended
def test_a_launched_run_with_a_file_of_no_use_ends_at_once(tmp_path: Path) -> None:
    line = [MPIRUN, "-n", "4", str(GENIE), "run", *job(tmp_path), "--metrics", str(tmp_path / "no" / "genie.prom")]
    with started(line=line) as command:
        ended = command.end()
    assert ended.code == 3
    (said,) = [line for line in ended.stderr.splitlines() if line.startswith("genie: ")]
    assert "is not a folder that can be written" in said
    assert ended.wall_s < 30  # no rank waits until --join is over


def test_a_file_in_the_folder_that_each_run_empties(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    ended = genie("run", rings(tmp_path / "rings"), "-o", str(out), "--metrics", str(out / "genie.prom"))
    assert ended.code == 2
    assert "lies in -o" in ended.stderr
    assert list(out.iterdir()) == []


def test_no_folder_of_a_run(tmp_path: Path) -> None:
    ended = genie("metrics", str(tmp_path), "-o", str(tmp_path / "genie.prom"))
    assert ended.code == 2
    assert "has neither run.json nor verdict.json" in ended.stderr
    assert not (tmp_path / "genie.prom").exists()
