"""The help: examples keep their lines, no text is cut, and all commands are listed."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from live_runs import genie, in_this_process

from genie.cli.bench.collective import COLLECTIVE_EXAMPLES
from genie.cli.bench.pairs import PAIRS_EXAMPLES
from genie.cli.bench.paths import PINGPONG_EXAMPLES, WRITE_EXAMPLES
from genie.cli.calibrate import CALIBRATE_EXAMPLES
from genie.cli.check import EXAMPLES as CHECK_EXAMPLES
from genie.cli.convert.command import CONVERT_EXAMPLES, NS3_EXAMPLES
from genie.cli.convert.fabric import FABRIC_EXAMPLES
from genie.cli.convert.workloads import AICB_EXAMPLES, MSCCL_EXAMPLES
from genie.cli.lab import DOWN_EXAMPLES, EXEC_EXAMPLES, SET_EXAMPLES, STATUS_EXAMPLES, UP_EXAMPLES
from genie.cli.results.metrics import METRICS_EXAMPLES
from genie.cli.run import RUN_EXAMPLES
from genie.cli.simulate import SIMULATE_EXAMPLES
from genie.cli.sweep import SWEEP_EXAMPLES
from genie.cli.validate import VALIDATE_EXAMPLES

WIDTH = 80
COMMANDS = {
    ("run",): RUN_EXAMPLES,
    ("calibrate",): CALIBRATE_EXAMPLES,
    ("simulate",): SIMULATE_EXAMPLES,
    ("validate",): VALIDATE_EXAMPLES,
    ("convert", "pytorch"): CONVERT_EXAMPLES,
    ("lab", "up"): UP_EXAMPLES,
    ("convert", "ns3"): NS3_EXAMPLES,
    ("convert", "fabric"): FABRIC_EXAMPLES,
    ("convert", "aicb"): AICB_EXAMPLES,
    ("convert", "msccl"): MSCCL_EXAMPLES,
    ("lab", "down"): DOWN_EXAMPLES,
    ("lab", "status"): STATUS_EXAMPLES,
    ("lab", "set"): SET_EXAMPLES,
    ("lab", "exec"): EXEC_EXAMPLES,
    ("check",): CHECK_EXAMPLES,
    ("metrics",): METRICS_EXAMPLES,
    ("sweep",): SWEEP_EXAMPLES,
    ("bench", "all_reduce"): COLLECTIVE_EXAMPLES,
    ("bench", "pairs"): PAIRS_EXAMPLES,
    ("bench", "pingpong"): PINGPONG_EXAMPLES,
    ("bench", "write"): WRITE_EXAMPLES,
    ("diff",): "",
    ("inspect",): "",
    ("doctor",): "",
}


def test_the_overview_names_every_command() -> None:
    shown = genie("--help", environment={"COLUMNS": str(WIDTH)})
    assert shown.code == 0
    for command in COMMANDS:
        assert f"│ {command[0]} " in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= WIDTH


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_examples_keep_their_lines(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    shown = in_this_process(*command, "--help")
    assert (shown.code, shown.stderr) == (0, "")
    lines = [line.strip() for line in shown.stdout.splitlines()]
    assert max(map(len, shown.stdout.splitlines())) <= WIDTH
    written = [line.strip() for line in COMMANDS[command].splitlines() if line.strip() and "```" not in line]
    at = 0
    for line in written:
        assert line in lines[at:], f"'{line}' is not a line of its own"
        at = lines.index(line, at) + 1
    assert "[[" not in shown.stdout or "[[rate]]" in shown.stdout  # no markup was eaten


def test_defaults_of_one_and_zero_are_shown() -> None:
    shown = in_this_process("generate", "--help")
    assert shown.code == 0
    for option in ("--tp", "--micro-batch ", "--compute-scale"):
        words = re.split(r"│ --|╰", shown.stdout.partition(f"│ {option}")[2])[0]
        assert "[default: 1" in words, option


def test_python_runs_it_as_a_module() -> None:
    shown = subprocess.run([sys.executable, "-m", "genie", "doctor", "--help"], capture_output=True, text=True)
    assert shown.returncode == 0
    assert "Usage: python -m genie doctor" in shown.stdout


def test_without_arguments_it_explains_itself() -> None:
    shown = genie()
    assert "Usage: genie" in shown.stdout + shown.stderr
    assert "genie:" not in shown.stderr


def test_the_version_is_one_line() -> None:
    shown = genie("--version")
    assert (shown.code, shown.stderr) == (0, "")
    assert re.fullmatch(r"genie \S+( installed\))?, native core .+, Python 3\.\S+(, commit \S+)?\n", shown.stdout)
