"""Help that people read: examples keep their lines, nothing is cut, all commands are there."""

from __future__ import annotations

import subprocess
import sys

import pytest
from live_runs import genie, in_this_process

from genie.cli.compare import VALIDATE_EXAMPLES
from genie.cli.inspecting import CONVERT_EXAMPLES
from genie.cli.lab_commands import SET_EXAMPLES, UP_EXAMPLES
from genie.cli.live_commands import CALIBRATE_EXAMPLES, RUN_EXAMPLES
from genie.cli.twin_commands import SIMULATE_EXAMPLES

WIDTH = 100
COMMANDS = {
    ("run",): RUN_EXAMPLES,
    ("calibrate",): CALIBRATE_EXAMPLES,
    ("simulate",): SIMULATE_EXAMPLES,
    ("validate",): VALIDATE_EXAMPLES,
    ("convert", "pytorch"): CONVERT_EXAMPLES,
    ("lab", "up"): UP_EXAMPLES,
    ("lab", "down"): "",
    ("lab", "status"): "",
    ("lab", "set"): SET_EXAMPLES,
    ("lab", "exec"): "",
    ("diff",): "",
    ("inspect",): "",
    ("doctor",): "",
}


def test_the_overview_names_every_command() -> None:
    shown = genie("--help")
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


def test_python_runs_it_as_a_module() -> None:
    shown = subprocess.run([sys.executable, "-m", "genie", "doctor", "--help"], capture_output=True, text=True)
    assert shown.returncode == 0
    assert "Usage: python -m genie doctor" in shown.stdout


def test_without_arguments_it_explains_itself() -> None:
    shown = genie()
    assert "Usage: genie" in shown.stdout + shown.stderr
    assert "genie:" not in shown.stderr
