"""Warnings about NCCL's variables and their files, and their record."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_runs import genie, rings

from genie.config.hosts import Hosts
from genie.config.nccl import NcclVariables
from genie.job.job import Job
from genie.job.options import LiveOptions, TrafficOptions
from genie.plan.lowering import Lowering, unequal_groups
from genie.record import open_run
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, Workload

pytestmark = pytest.mark.live


def lowering_of(variables: NcclVariables) -> Lowering:
    nothing = Workload("nothing", 2, [], {})
    return Job(TrafficOptions(wire="nccl"), LiveOptions(), nothing, Hosts(()), variables=variables).lowering


def test_a_file_that_is_passed_over_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    variables = NcclVariables({}, ())
    passed_over = f"{tmp_path}/nccl.conf: may not be read, and is passed over, as NCCL does: see its permissions"
    variables.warnings.append(passed_over)
    for _ in range(2):
        lowering_of(variables)
    said = capsys.readouterr().err
    assert said == f"genie: {passed_over}\n"


def test_channels_at_least_above_channels_at_most_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    variables = NcclVariables({"NCCL_MIN_NCHANNELS": "8", "NCCL_MAX_NCHANNELS": "2"}, ())
    lowering = lowering_of(variables)
    assert lowering.nccl is not None
    assert lowering.nccl.channels == 8
    said = capsys.readouterr().err
    assert said == "genie: NCCL_MIN_NCHANNELS=8 is above NCCL_MAX_NCHANNELS=2: the former holds, as for NCCL\n"


def test_groups_with_unequal_numbers_of_ranks_on_nodes_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    groups = [
        Group("even", (0, 1, 2, 3)),
        Group("spread", (0, 2, 4)),
        Group("odd", (0, 1, 2)),
        Group("mixed", (0, 2, 1)),
    ]
    for number, said in (
        (2, ""),
        (3, "group odd has unequal numbers of ranks on nodes of 2, or ranks out of order"),
        (4, "2 groups, such as odd, have unequal numbers of ranks on nodes of 2, or ranks out of order"),
    ):
        job = Job(
            TrafficOptions(wire="nccl", ranks_per_node=2),
            LiveOptions(),
            Workload("job", 6, groups[:number], {}),
            Hosts(()),
        )
        assert job.lowering.nccl is not None
        more = ": data between their ranks of one node crosses the network too"
        assert capsys.readouterr().err == (f"genie: {said}{more}\n" if said else "")
    workload = Workload("job", 6, groups, {})
    for group, name in ((0, ""), (3, "mixed")):
        builder = RankBuilder(0)
        builder.add(0, "sum", Kind.COLL, (), op=Op.ALL_REDUCE, group=group, size_bytes=8)
        workload.ranks[0], _ = builder.finish()
        assert unequal_groups(workload, 2)[:16] == (f"group {name} has " if name else ""), "others send nothing"


def test_a_file_that_is_named_and_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = tmp_path / "nowhere.conf"
    lowering_of(NcclVariables({"NCCL_CONF_FILE": str(named)}))
    assert capsys.readouterr().err == f"genie: NCCL_CONF_FILE={named}: there is no such file: correct it, or unset it\n"


def test_the_twin_s_record_has_what_a_file_says(tmp_path: Path) -> None:
    """One line names the file's settings, which the command line does not show."""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".nccl.conf").write_text("NCCL_ALGO=Tree\nNCCL_DEBUG=WARN\n")
    ended = genie(
        "simulate", rings(tmp_path / "trace", collectives=1), "--rate", "1Gb/s", "-o", str(tmp_path / "run"),
        environment={"HOME": str(home)},
    )  # fmt: skip
    assert ended.code == 0, ended
    assert ended.stderr == f"genie: {home}/.nccl.conf: changes this run: NCCL_ALGO=Tree (tree for all-reduce)\n"
    assert open_run(tmp_path / "run").info["nccl_variables"] == [
        {"name": "NCCL_ALGO", "value": "Tree", "source": f"{home}/.nccl.conf", "effect": "tree for all-reduce"},
        {
            "name": "NCCL_DEBUG",
            "value": "WARN",
            "source": f"{home}/.nccl.conf",
            "effect": "none: Genie does not read it",
        },
    ]


REDUCING = """[topology]
kind = "single-switch"
hosts = 4
[link]
rate = "1Gb/s"
[switch]
reduces = true
"""


def test_switches_that_reduce_are_for_simulations(tmp_path: Path) -> None:
    fabric, trace = tmp_path / "reducing.toml", rings(tmp_path / "trace", collectives=1)
    simulate = ("simulate", trace, "--fabric", str(fabric), "-o", str(tmp_path / "run"))
    fabric.write_text(REDUCING)
    collnet = {"NCCL_COLLNET_ENABLE": "1", "NCCL_ALGO": "CollnetDirect"}
    assert genie(*simulate, environment=collnet).code == 0
    found = open_run(tmp_path / "run").info
    assert found["lowering"]["collnet"] is True
    assert {each["name"]: each["effect"] for each in found["nccl_variables"]}["NCCL_COLLNET_ENABLE"] == "CollNet"
    ended = genie("run", trace, "--fabric", str(fabric), "-o", str(tmp_path / "live"), environment=collnet)
    assert ended.code == 2
    assert "no switch of a live run reduces: unset NCCL_COLLNET_ENABLE, or simulate it" in ended.stderr
