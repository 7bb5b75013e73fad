"""`genie demo`: the commands that it runs, and its exit code. `.ci/wheel-roots` runs it for real."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from genie.cli import demo
from genie.errors import EXIT_FAILED, EXIT_OK, MachineError, UsageError

CLEAN, SLOW = "PASS 8 of 8 NICs judged", "FAIL rank 5: its NIC (host5/nic0) sends 2.0x slower"


class Recorded:
    """Takes the place of the commands that the demo runs; answers by the name of their output folder."""

    def __init__(self, answers: dict[str, tuple[int, str]]) -> None:
        self.answers = answers
        self.lines: list[list[str]] = []

    def run(self, line: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.lines.append(line)
        code, text = self.answers[Path(line[line.index("-o") + 1]).name]
        return subprocess.CompletedProcess(line, code, f"{text}\nreport: x\n" if text else "")


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        ({"calibration": (0, ""), "clean": (0, CLEAN), "slow-nic": (1, SLOW)}, EXIT_OK),
        ({"calibration": (0, ""), "clean": (1, "FAIL rank 2"), "slow-nic": (1, SLOW)}, EXIT_FAILED),
        ({"calibration": (0, ""), "clean": (0, CLEAN), "slow-nic": (0, CLEAN)}, EXIT_FAILED),
        ({"calibration": (0, ""), "clean": (0, CLEAN), "slow-nic": (1, "FAIL rank 4: its NIC")}, EXIT_FAILED),
        ({"calibration": (0, ""), "clean": (0, CLEAN), "slow-nic": (4, "INCONCLUSIVE rank 5")}, EXIT_FAILED),
        ({"calibration": (3, "")}, 3),
        ({"calibration": (-9, "")}, 137),
        ({"calibration": (0, ""), "clean": (3, "")}, 3),
    ],
)
def test_exit_codes(
    answers: dict[str, tuple[int, str]],
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    recorded = Recorded(answers)
    monkeypatch.setattr(subprocess, "run", recorded.run)
    assert demo.demo(tmp_path / "out") == code
    said = capsys.readouterr().out
    for line in recorded.lines:
        assert line[line.index("-m") + 1] == "genie"
    if "slow-nic" in answers:
        assert f"clean:    {answers['clean'][1]}" in said
        assert f"slow-nic: {answers['slow-nic'][1]}" in said
        assert str(tmp_path / "out" / "slow-nic" / "report.html") in said


def test_a_package_without_the_trace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "genie").mkdir()
    monkeypatch.setattr(demo.genie, "__file__", str(tmp_path / "genie" / "__init__.py"))
    with pytest.raises(MachineError, match="lacks the trace: install the package again"):
        demo.demo(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_trace_of_a_package_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for folder in ("genie/demo", "examples/transformer"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "transformer.json").touch()
    monkeypatch.setattr(demo.genie, "__file__", str(tmp_path / "genie" / "__init__.py"))
    assert demo._trace() == tmp_path / "genie" / "demo" / "transformer"


def test_files_of_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", Recorded({}).run)
    (tmp_path / "hosts.toml").write_text("# mine\n")
    with pytest.raises(UsageError, match=r"hosts\.toml: the demo would replace what is not its own; choose another -o"):
        demo.demo(tmp_path)
    assert (tmp_path / "hosts.toml").read_text() == "# mine\n"
    assert not (tmp_path / "slow-nic.toml").exists()
    with pytest.raises(UsageError, match="is not a folder; choose another -o"):
        demo.demo(tmp_path / "hosts.toml")
