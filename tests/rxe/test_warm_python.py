"""Starts from a warm Python in a guest: a start gives what a cold one gives, and what cannot be so is refused."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from rxe.command import Command
from rxe.failure import RigError
from rxe.guest import SHARE, Guest
from rxe.rig import Rig
from rxe.warm import WarmPython

pytestmark = [pytest.mark.guests, pytest.mark.extended]

# Says all that a start gives a program, and ends as it is told.
PROBE = """
import atexit, json, os, random, signal, sys, threading
import numpy

DRAWN = random.random(), numpy.random.random()

def main():
    streams = sys.stdin, sys.stdout, sys.stderr
    identities = os.getpid(), os.getpgid(0), os.getsid(0)
    print(json.dumps({
        "argv": sys.argv, "line": sys.orig_argv, "path": sys.path, "flags": list(sys.flags), "name": __name__,
        "main": sys.modules["__main__"].__dict__ is globals(), "package": __package__,
        "environment": dict(os.environ), "folder": os.getcwd(), "leads": len({*identities}) == 1,
        "threads": threading.active_count(), "descriptors": sorted(os.listdir("/proc/self/fd")),
        "streams": [(each.encoding, each.errors, each.line_buffering, each.isatty()) for each in streams],
        "signals": {str(each): str(signal.getsignal(each)) for each in signal.valid_signals()}, "umask": os.umask(0o22),
    }))
    print(*DRAWN)
    atexit.register(print, "left")
    if sys.argv[1] == "wait":
        print("waits", flush=True)
        signal.pause()
    if sys.argv[1] == "raise":
        raise ValueError("wrong")
    print(sys.stdin.read(), file=sys.stderr)
    sys.exit(int(sys.argv[1]))

if __name__ == "__main__":
    main()
"""
LINE = ["python3", "-P", "-m", "package.probe"]
Ended = tuple[int, dict[str, Any], list[str], list[str]]


@pytest.fixture
def environment(rig: Rig, tmp_path: Path) -> dict[str, str]:
    """With the probe and a module that leaves a thread behind."""
    assert rig.share
    folder = rig.share / "probes"
    (folder / "package").mkdir(parents=True, exist_ok=True)
    (folder / "package" / "__init__.py").touch()
    (folder / "package" / "probe.py").write_text(PROBE)
    (folder / "threaded.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=[99], daemon=True).start()\n"
    )
    return {"PYTHONPATH": f"{SHARE}/probes", "OPENBLAS_NUM_THREADS": "1"}


@pytest.fixture
def warm(rig: Rig, environment: dict[str, str]) -> WarmPython:
    started = WarmPython(rig.guests[0], ["package.probe"], {**environment, "OF_THE_WARM_ONE": "1"})
    started.wait_ready(60)
    return started


def ended(command: Command, ending: int = 0) -> Ended:
    """Exit code, what the probe says of itself, the rest of its standard output, its standard error."""
    if ending:
        while command.read_line(120) != "waits":
            pass
        command.kill(ending)
    else:
        command.write("told\n")
        command.close_input()
    done = command.wait(120)
    facts, *rest = done.stdout.splitlines()
    return done.returncode, json.loads(facts), rest, done.stderr.splitlines()


def test_a_warm_start_gives_what_a_cold_one_gives(rig: Rig, environment: dict[str, str], warm: WarmPython) -> None:
    """Started while others are under way, of which it knows nothing."""
    sibling = warm.start([*LINE, "wait"], env=environment)
    cases = (
        (["7", "a b", "--c"], 0, 7),
        (["raise"], 0, 1),
        (["wait"], signal.SIGTERM, -signal.SIGTERM),
        (["wait"], signal.SIGKILL, -signal.SIGKILL),
        (["wait"], signal.SIGINT, -signal.SIGINT),
    )
    started = []
    for words, _, _ in cases:
        env = {**environment, "OF_ITS_OWN": words[0]}
        line = [*LINE, *words]
        started.append([each.start(line, env=env, folder="/var/tmp") for each in (rig.guests[0], warm)])
    drawn = set()
    for (words, ending, code), pair in zip(cases, started, strict=True):
        of_cold, of_warm = (ended(command, ending) for command in pair)
        assert of_warm[:2] == of_cold[:2]
        assert of_warm[0] == code
        assert of_warm[1]["argv"][1:] == words
        assert of_warm[2][1:] == of_cold[2][1:]
        first = -1 if words == ["raise"] or ending == signal.SIGINT else 0  # tracebacks begin in other places
        assert of_warm[3][first:] == of_cold[3][first:]
        assert bool(of_warm[3]) is (ending in (0, signal.SIGINT))
        drawn |= {*of_cold[2][0].split(), *of_warm[2][0].split()}
    assert len(drawn) == 2 * 2 * len(cases)  # no two have the same random state
    assert sibling.code is None
    sibling.kill()
    assert sibling.wait(120).returncode == -signal.SIGKILL


def test_what_cannot_start_warm_is_refused(rig: Rig, environment: dict[str, str], warm: WarmPython) -> None:
    def refused(argv: list[str], folder: str = "/", **more: str) -> str:
        with pytest.raises(RigError) as caught:
            warm.start(argv, env={**environment, **more}, folder=folder).wait(120)
        return str(caught.value)

    assert "was started with other PYTHONHASHSEED" in refused([*LINE, "0"], PYTHONHASHSEED="0")
    assert "begins with python3 -P -m MODULE" in refused(["python3", "-m", "package.probe", "0"])
    assert "No such file or directory: '/none'" in refused([*LINE, "0"], folder="/none")
    assert ended(warm.start([*LINE, "0"], env=environment))[0] == 0  # it still serves
    guest: Guest = rig.guests[0]
    with pytest.raises(RigError, match="these imports leave 1 threads running: threaded"):
        WarmPython(guest, ["threaded"], environment).wait_ready(60)
