"""Decisions of the launcher before anything is started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from genie.config.hosts import loopback_hosts, parse_hosts
from genie.live.launch.launcher import mpirun_line, remote_hosts
from genie.live.settings import RunSettings

pytestmark = pytest.mark.live


@pytest.mark.parametrize(
    ("names", "remote"),
    [
        (["localhost", "127.0.0.1"], None),
        (["gpu01", "gpu02"], "gpu01:2,gpu02:2"),
        (["localhost", "gpu02"], "localhost:2,gpu02:2"),
    ],
)
def test_mpirun_is_told_of_hosts_only_when_one_is_another_machine(names: list[str], remote: str | None) -> None:
    tables = [
        f'[[host]]\nname = "{name}"\nranks = "{2 * at}-{2 * at + 1}"\naddress = "10.0.{at}.{{index+1}}"\n'
        for at, name in enumerate(names)
    ]
    assert remote_hosts(parse_hosts("".join(tables))) == remote
    assert remote_hosts(loopback_hosts(4)) is None


def test_a_wrapper_stands_before_each_ranks_command(tmp_path: Path) -> None:
    settings = RunSettings(
        workload="w", out=str(tmp_path), ranks=2, addresses=["127.0.0.1"] * 2, ports=[None] * 2, host_names=["a"] * 2
    )
    plain, wrapped = mpirun_line(settings, None), mpirun_line(settings, None, wrapper=("env", "A=1"))
    at = plain.index(sys.executable)
    assert wrapped == [*plain[:at], "env", "A=1", *plain[at:]]
