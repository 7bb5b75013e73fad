"""Runs over a cable that loses packets: at random, all for two seconds, for ever. Every byte is checked."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cable import Cable, cable
from live_runs import GENIE, Command, played, rings, started

from genie.record import open_run

pytestmark = [pytest.mark.live, pytest.mark.extended]

MPIRUN = str(Path(sys.executable).parent / "mpirun")
TO_ROCE = "udp dport 4791"
FABRIC = """
[topology]
kind = "single-switch"
hosts = 4

[link]
rate = "200Mb/s"
delay = "1us"

[transport]
mtu = 4096
{transport}
"""


@pytest.fixture(scope="module")
def wire(as_root: None) -> Iterator[Cable]:
    with cable() as made:
        yield made


def line(wire: Cable, folder: Path, *given: str, transport: str = "", hosts: str = "ipv4") -> list[str]:
    """mpirun of two ranks at each end of the cable."""
    addresses = getattr(wire, hosts)
    (folder / "hosts.toml").write_text(
        "".join(
            f'[[host]]\nname = "end{end}"\nranks = "{2 * end}-{2 * end + 1}"\naddress = "{addresses[end]}"\n'
            for end in (0, 1)
        )
    )
    (folder / "fabric.toml").write_text(FABRIC.format(transport=transport))
    near, far = (f'exec ip netns exec {name} "$@"' for name in wire.names)
    wrapper = f"case $PMI_RANK in 0|1) {near};; *) {far};; esac"
    job = ["run", rings(folder / "rings"), "--hosts", str(folder / "hosts.toml"), "--fabric",
           str(folder / "fabric.toml"), "--verify", "--ranks-per-node", "1", "-o", str(folder / "out")]  # fmt: skip
    return [MPIRUN, "-n", "4", "sh", "-c", wrapper, "sh", str(GENIE), *job, *given]


@contextmanager
def losing(wire: Cable, rule: str) -> Iterator[None]:
    """Both ends lose what the rule says of the RoCE packets that come."""
    for end in (0, 1):
        wire.rule(end, f"{TO_ROCE} {rule}")
    try:
        yield
    finally:
        for end in (0, 1):
            wire.clear(end)


def counted(folder: Path, name: str) -> int:
    return sum(int(counters[name]) for counters in open_run(folder / "out").counters["ranks"])


@pytest.mark.parametrize("hosts", ["ipv4", "ipv6"])
@pytest.mark.parametrize("spread", [[], ["--queue-pairs", "4"], ["--queue-pairs", "4", "--split"]])
def test_collectives_complete_under_one_percent_of_random_loss(
    wire: Cable, tmp_path: Path, hosts: str, spread: list[str]
) -> None:
    with (
        losing(wire, "numgen random mod 100 < 1 drop"),
        started(line=line(wire, tmp_path, "-n", "8", *spread, hosts=hosts)) as command,
    ):
        ended = command.end()
    assert (ended.code, ended.said, ended.left) == (0, [], [])
    assert counted(tmp_path, "retransmitted") > 0
    assert counted(tmp_path, "wrong_bytes") == 0
    # Ranks 0 and 1, 2 and 3 are neighbours by loopback: a ring of four, 4 collectives of 64 KiB, 8 times.
    assert counted(tmp_path, "verified_bytes") >= 8 * 4 * 4 * 2 * 3 * (65536 // 4)


def begun(command: Command, folder: Path) -> None:
    command.until(lambda: played(folder / "out", 0, 1))


def test_a_run_resumes_after_two_seconds_without_a_packet(wire: Cable, tmp_path: Path) -> None:
    with started(line=line(wire, tmp_path, "-n", "40")) as command:
        begun(command, tmp_path)
        with losing(wire, "drop"):
            time.sleep(2)
            assert command.process.poll() is None
        ended = command.end()
    assert (ended.code, ended.said, ended.left) == (0, [], [])
    assert counted(tmp_path, "timeouts") > 0
    assert counted(tmp_path, "wrong_bytes") == 0


def test_a_path_that_is_gone_for_good_ends_the_run_by_name(wire: Cable, tmp_path: Path) -> None:
    """Three retries after 20 ms, 40 ms, ...: 0.3 s after the last acknowledgement, long before --stall would end it."""
    transport = 'ack_timeout = "20ms"\nretry_limit = 3'
    with started(line=line(wire, tmp_path, "-n", "400", transport=transport)) as command:
        begun(command, tmp_path)
        with losing(wire, "drop"):
            ended = command.end()
    assert ended.code in (1, 9)  # 9 is mpirun's: it ends the others as soon as one has gone
    assert ended.left == []
    said = " ".join(ended.said)
    assert "gave up sending to rank" in said
    assert "queue pair 0x" in said
    assert "PSN " in said
    assert "syndrome 0x" in said
    assert "3 retries, the first after 20 ms" in said


def test_with_defaults_too_a_path_that_is_gone_is_named(wire: Cable, tmp_path: Path) -> None:
    """All retries take 8.5 s, less than --stall: who gave up says so, and not that nothing came."""
    with started(line=line(wire, tmp_path, "-n", "400")) as command:
        begun(command, tmp_path)
        with losing(wire, "drop"):
            ended = command.end()
    assert ended.code in (1, 9)  # 9 is mpirun's: it ends the others as soon as one has gone
    assert "gave up sending to rank" in " ".join(ended.said)
    assert "7 retries, the first after 67 ms" in " ".join(ended.said)


def test_a_path_that_is_gone_ends_the_run_when_nothing_comes(wire: Cable, tmp_path: Path) -> None:
    with started(line=line(wire, tmp_path, "-n", "400", "--stall", "2")) as command:
        begun(command, tmp_path)
        with losing(wire, "drop"):
            ended = command.end()
    assert ended.code in (1, 9)  # 9 is mpirun's: it ends the others as soon as one has gone
    assert ended.left == []
    assert "nothing came for 2 s: rank " in " ".join(ended.said), ended.said
    assert "genie check --hosts FILE tries every path" in " ".join(ended.said), ended.said
