"""Genie's wheel in the guests, under Debian's own Python, pyverbs and NumPy: a job of two machines without MPI."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from roce_pcaps import judge
from rxe.rig import Rig

from genie.record import open_run
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, Workload
from genie.workload.write import save

pytestmark = [pytest.mark.guests, pytest.mark.extended]

SIZE_BYTES = 65536
COLLECTIVES = 4
WRITE = range(0x06, 0x0C)


@pytest.mark.slow
@pytest.mark.timeout(600)  # a session's first to need guests, and Genie in them: the image and the wheel may be built
def test_the_wheel_runs_on_what_debian_has(rig: Rig, guest_environment: dict[str, str]) -> None:
    code = "import sys, numpy, pyverbs, genie.live.rank.process, genie_core.native as core\n"
    code += "print(sys.version_info[:2], numpy.__file__, pyverbs.__file__, core.__file__)"
    done = rig.guests[0].run(["python3", "-c", code], env=guest_environment, timeout_s=60, check=True)
    version, numpy, pyverbs, core = done.stdout.rsplit(maxsplit=3)
    assert version == "(3, 11)"
    assert numpy.startswith("/usr/lib/python3/dist-packages/")
    assert pyverbs.startswith("/usr/lib/python3/dist-packages/")
    assert core.startswith("/packages/genie_core/native.cpython-311")


def rings(folder: Path) -> None:
    """All-reduces of two ranks with a pause before each."""
    workload = Workload("rings", 2, [Group("world", (0, 1))], {})
    for rank in range(2):
        builder = RankBuilder(rank)
        last: tuple[int, ...] = ()
        for number in range(COLLECTIVES):
            last = (builder.add(2 * number, "pause", Kind.COMP, last, duration_ns=200_000),)
            ring = builder.add(
                2 * number + 1, "ring", Kind.COLL, last, size_bytes=SIZE_BYTES, op=Op.ALL_REDUCE, group=0
            )
            last = (ring,)
        workload.ranks[rank], _ = builder.finish()
    save(workload, folder, "rings")


def play(rig: Rig, environment: dict[str, str]) -> Path:
    """One rank a guest, which meet over TCP; returns the run folder."""
    assert rig.share is not None
    out = rig.share / "run"
    rings(rig.share / "trace")
    out.mkdir()
    launch = {
        "workload": "/share/trace", "out": f"/share/{out.name}", "ranks": 2, "ports": [None, None],
        "addresses": [guest.ipv4 for guest in rig.guests], "host_names": [guest.name for guest in rig.guests],
        "mtu": 1024, "transport": "verbs", "stall_s": 60.0, "join_s": 90.0, "verify": True,
    }  # fmt: skip
    (out / "launch.json").write_text(json.dumps(launch))
    ranks = [
        guest.start(
            ["python3", "-m", "genie.live.rank.process", f"/share/{out.name}/launch.json"],
            env={**environment, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": rig.guests[0].ipv4},
        )
        for rank, guest in enumerate(rig.guests)
    ]
    ended = [rank.wait(120) for rank in ranks]
    assert [each.returncode for each in ended] == [0, 0], [each.stderr for each in ended]
    return out


def assert_complete(out: Path) -> None:
    run = open_run(out)
    assert run.info["complete"]
    rows = run.timeline.filter(run.timeline["kind"] == "coll")
    assert rows.height == 2 * COLLECTIVES
    assert (rows["end_ns"] > rows["start_ns"]).all()
    assert run.transfers["size_bytes"].sum() == 2 * COLLECTIVES * SIZE_BYTES  # a ring of two: each sends half twice


@pytest.mark.slow
def test_verbs_between_two_machines(rig: Rig, guest_environment: dict[str, str], tshark: str, tmp_path: Path) -> None:
    with rig.capture(tmp_path / "verbs.pcap") as capture:
        out = play(rig, guest_environment)
    assert_complete(out)
    seen = judge(capture.path, tshark).distinct
    assert sum(seen[opcode] for opcode in WRITE) == 2 * COLLECTIVES * SIZE_BYTES // 1024
