"""What the launcher decides before anything is started."""

from __future__ import annotations

import pytest

from genie.config.hosts import loopback_hosts, parse_hosts
from genie.live.launcher import remote_hosts


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
