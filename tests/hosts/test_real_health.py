"""Slurm's health check under real munged, slurmctld and slurmd: the node drains, and only where it is told to."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from real_slurm import NODES, Slurm, cluster

pytestmark = [pytest.mark.live, pytest.mark.extended, pytest.mark.timeout(900)]

CHECK = Path(__file__).resolve().parents[2] / "hosts" / "health-check.sh"
REASON = "genie: mpirun is missing: pip install mpich"


def state_of(slurm: Slurm, node: str) -> tuple[str, str]:
    """The state of a node, and the reason of an administrator or a program."""
    shown = slurm.call("scontrol", "--oneliner", "show", "node", node)
    found = re.search(r"State=(\S+)", shown)
    reason = re.search(r"Reason=(.*?) \[", shown)
    assert found is not None
    return found[1], reason[1] if reason else ""


def wait(is_true: Callable[[], bool], slurm: Slurm) -> None:
    deadline = time.monotonic() + 120
    while not is_true():
        assert time.monotonic() < deadline, slurm.logs()
        time.sleep(0.2)


@pytest.mark.parametrize("drain", ["yes", "no"])
def test_an_unhealthy_node_drains_where_it_is_told_to(
    slurm_programs: None, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, drain: str
) -> None:
    folder = tmp_path_factory.mktemp("health")
    log, conf, program, genie, sick = (tmp_path / name for name in ("log", "conf", "program", "genie", "sick"))
    # The real doctor, until one node has a fault.
    genie.write_text(
        f'#!/bin/sh\nif [ -e {sick} ] && [ "$SLURMD_NODENAME" = {NODES[1]} ]; then\n'
        "  echo 'missing mpirun: pip install mpich'; exit 3\nfi\n"
        f'exec {Path(sys.executable).parent / "genie"} "$@"\n'
    )
    conf.write_text(f"GENIE={genie}\nGENIE_LOG={log}\nGENIE_DRAIN={drain}\nexport SLURM_CONF={folder}/slurm.conf\n")
    # Slurm starts a check each second, whether or not the last one has ended: on a slow machine they would pile up.
    program.write_text(
        f"#!/bin/bash\nGENIE_CONF={conf} exec flock --nonblock --conflict-exit-code 0 {tmp_path}/$SLURMD_NODENAME.lock"
        f" bash {CHECK}\n"
    )
    genie.chmod(0o755)
    program.chmod(0o755)
    more = f"HealthCheckProgram={program}\nHealthCheckInterval=1\nHealthCheckNodeState=ANY"

    def wait_for(text: str, times: int, slurm: Slurm) -> None:
        before = log.read_text().count(text) if log.exists() else 0
        wait(lambda: log.exists() and log.read_text().count(text) >= before + times, slurm)

    with cluster(folder, more, port=16837) as slurm:
        wait_for("genie: healthy: ", 1, slurm)
        sick.touch()
        wait_for(REASON, 1, slurm)
        if drain == "yes":
            wait(lambda: state_of(slurm, NODES[1]) == ("IDLE+DRAIN", REASON), slurm)
            slurm.call("scontrol", "update", f"NodeName={NODES[1]}", "State=DRAIN", "Reason=repaired soon")
            wait_for(REASON, 2, slurm)
            assert state_of(slurm, NODES[1]) == ("IDLE+DRAIN", "repaired soon"), "an administrator's reason stays"
            sick.unlink()
            wait_for("genie: healthy: ", 6, slurm)  # the checks that saw the fault have ended
            slurm.call("scontrol", "update", f"NodeName={NODES[1]}", "State=RESUME")
            slurm.call("scontrol", "reconfigure")  # the node registers at once, rather than at the next ping
            wait(lambda: state_of(slurm, NODES[1])[0] == "IDLE", slurm)
        else:
            wait_for(REASON, 2, slurm)
            assert state_of(slurm, NODES[1])[0] == "IDLE"
        assert state_of(slurm, NODES[0])[0] == "IDLE"
