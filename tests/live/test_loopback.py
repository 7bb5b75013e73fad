"""Blocks of loopback addresses: a run that has taken one keeps it from others until it ends."""

from __future__ import annotations

import subprocess
import sys

import pytest

from genie.live.launch.loopback import free_loopback_hosts

pytestmark = pytest.mark.live

UDP_PORT = 4802  # of no other test
ASK = f"from genie.live.launch.loopback import free_loopback_hosts as f; print(f(2, {UDP_PORT}).places[0].address)"


def block_of_another_process() -> str:
    return subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True).stdout.strip()


def test_two_runs_never_take_the_same_block() -> None:
    before = block_of_another_process()
    mine = free_loopback_hosts(2, UDP_PORT).places[0].address
    assert mine == before  # that process has ended
    assert free_loopback_hosts(2, UDP_PORT).places[0].address == mine  # one process plays one run at a time
    other = block_of_another_process()
    assert other not in (mine, "")
    assert other.rpartition(".")[0] != mine.rpartition(".")[0]
