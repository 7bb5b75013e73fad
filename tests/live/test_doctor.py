"""`genie doctor` tells the truth about this machine, and runs work with less than it would like."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

import pytest
from live_runs import GENIE, genie, loopback, rings, started

from genie.live.launch import doctor
from genie.record import open_run

pytestmark = pytest.mark.live

LESS = ["setpriv", "--bounding-set", "-net_admin,-sys_nice,-sys_resource"]


def test_every_line_has_a_state_and_a_name() -> None:
    ended = genie("doctor")
    assert (ended.code, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert len(lines) == len(doctor.findings())
    for line in lines:
        state, rest = line.split(maxsplit=1)
        assert state in ("ok", "limited")
        name, detail = rest.split(": ", 1)
        assert name
        assert detail
    assert any(line.startswith("ok      mpirun: ") for line in lines)
    assert any(line.startswith("ok      counters: of ") for line in lines)


def test_a_port_in_use_is_seen() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        with suppress(OSError):  # another program has it already: in use all the same
            taken.bind(("127.0.0.1", doctor.ROCE_PORT))
        found = {finding.what: finding for finding in doctor.findings()}
    assert found["UDP port 4791"].state == "limited"
    assert "Address already in use" in found["UDP port 4791"].detail


def test_without_mpirun_nothing_can_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("genie.live.launch.launcher.sys.executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    found = {finding.what: finding for finding in doctor.findings()}
    assert found["mpirun"].state == "missing"
    assert "pip install mpich" in found["mpirun"].detail


@pytest.mark.extended
@pytest.mark.skipif(os.geteuid() != 0, reason="it drops root's privileges; without root it is every other test")
def test_a_run_without_privileges(tmp_path: Path) -> None:
    """No real-time class, no larger socket buffers: doctor says so, and the run works and records it."""
    with started(line=[*LESS, str(GENIE), "doctor"]) as command:
        said = command.end()
    assert said.code == 0
    assert "limited SCHED_FIFO: not allowed" in said.stdout
    out = tmp_path / "out"
    job = ["run", rings(tmp_path / "rings"), "--hosts", loopback(tmp_path), "--rate", "200Mb/s", "-o", str(out)]
    with started(line=[*LESS, str(GENIE), *job]) as command:
        ended = command.end()
    assert (ended.code, ended.said) == (0, [])
    assert open_run(out).info["scheduling"] == ["SCHED_OTHER"]
