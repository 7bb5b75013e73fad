"""Names of MPICH's shared memory: an orphan of a launch is removed, and another job's stays."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from genie.live.launch import segments
from genie.live.launch.segments import Segments
from genie.live.rendezvous.meeting import SEGMENT

pytestmark = pytest.mark.live

MAPPER = """
import mmap, sys
with open(sys.argv[1], "xb+") as file:
    file.truncate(4096)
    memory = mmap.mmap(file.fileno(), 4096)
print("mapped", flush=True)
input()
"""
# A launcher that starts, and gives up when it is told to, before any rank has met the others.
LAUNCHER = """
import sys
from pathlib import Path
from types import SimpleNamespace
from genie.live.launch.watch import Watch

out = Path(sys.argv[1])
(out / "parts").mkdir()
watch = Watch(SimpleNamespace(out_path=out, ranks=2, iterations=1, warmup=0))
print("watching", flush=True)
input()
watch.close()
"""
NEW_NAMESPACE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


@contextmanager
def child(*line: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has said that it is ready, and ends when it gets a line."""
    process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline(), "it did not start"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def name() -> Iterator[str]:
    path = f"{SEGMENT}{uuid.uuid4().hex}"
    yield path
    Path(path).unlink(missing_ok=True)


def test_a_job_of_another_namespace_keeps_its_segment(as_root: None, name: str, tmp_path: Path) -> None:
    line = [*NEW_NAMESPACE, sys.executable, "-c", LAUNCHER, str(tmp_path)]
    with child(*line) as launcher, child(sys.executable, "-c", MAPPER, name):
        launcher.communicate("\n", timeout=120)
        assert launcher.returncode == 0
        assert Path(name).exists(), "the segment of a job that starts in another PID namespace was removed"


@pytest.mark.parametrize(
    ("noted", "all_visible", "stays"), [(True, False, False), (False, False, True), (False, True, False)]
)
def test_only_what_is_known_to_be_an_orphan_is_removed(
    noted: bool, all_visible: bool, stays: bool, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "_namespace", lambda: segments.FIRST_NAMESPACE if all_visible else "pid:[1]")
    ours = Segments()
    with child(sys.executable, "-c", MAPPER, name) as rank:
        ours.note([rank.pid] if noted else [os.getpid()])
        ours.remove()
        assert Path(name).exists(), "a process uses it"
    ours.remove()
    assert Path(name).exists() is stays
