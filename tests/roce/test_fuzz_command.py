"""The command that runs the fuzzers, with programs in their places that say what libFuzzer says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).resolve().parent.parent.parent / "native" / "fuzz" / "fuzz.py"
NAMES = ("parser", "queue_pair", "connection")
GOOD = "echo stat::number_of_executed_units: 12 >&2"
BROKEN = """for word; do
  case $word in -artifact_prefix=*) echo x > "${word#*=}crash" ;; esac
done
echo AddressSanitizer says no >&2
exit 77"""
# Ends once two have begun; alone it waits in vain.
MEETS = f"""touch "$0.begun"
for _ in $(seq 100); do
  [ "$(ls "$(dirname "$0")" | grep -c begun)" -ge 2 ] && {{ {GOOD}; exit 0; }}
  sleep 0.1
done
exit 1"""


def run(build: Path, *words: str, **scripts: str) -> subprocess.CompletedProcess[str]:
    """`fuzz.py run` with these scripts for fuzzers, GOOD where none is given."""
    for name in NAMES:
        program = build / f"fuzz_{name}"
        program.write_text(f"#!/bin/sh\n{scripts.get(name, GOOD)}\n")
        program.chmod(0o755)
    argv = [sys.executable, str(FUZZ), "run", "--build", str(build), *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("words", [("--seconds", "0"), ("--seconds", "-1"), ("--seed", "0")])
def test_what_libfuzzer_takes_for_no_limit_is_refused(tmp_path: Path, words: tuple[str, str]) -> None:
    done = run(tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"fuzz: {words[0]} {words[1]}: give 1 or more\n"


def test_each_fuzzer_says_a_line(tmp_path: Path) -> None:
    done = run(tmp_path, "--seconds", "7", "--seed", "3")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "".join(f"{name}: 12 inputs in 7 s, seed 3: nothing broke\n" for name in NAMES)


def test_a_broken_one_is_said_with_the_way_to_play_it_again(tmp_path: Path) -> None:
    done = run(tmp_path, queue_pair=BROKEN, connection="exit 9")
    assert done.returncode == 1
    assert done.stdout == "parser: 12 inputs in 20 s, seed 1: nothing broke\n"
    again = f"play it again: {tmp_path / 'fuzz_queue_pair'} {tmp_path / 'broken-queue_pair-crash'}"
    assert done.stderr.splitlines() == [
        "AddressSanitizer says no",
        f"queue_pair: broken (seed 1); {again}",
        "connection: broken (seed 1); it ended with 9",
    ]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core: one fuzzer after another")
def test_as_many_run_at_once_as_there_are_cores(tmp_path: Path) -> None:
    done = run(tmp_path, parser=MEETS, queue_pair=MEETS)
    assert done.returncode == 0, done.stderr
