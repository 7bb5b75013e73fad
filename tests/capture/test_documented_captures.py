"""The commands of the documents that capture a script of PyTorch, and those that play what they write."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from documented_commands import Machine, Place, Source, judge, needs_pytorch, of_block, of_project, place
from documents import PAGES, ROOT, Command

pytestmark = [pytest.mark.pytorch, pytest.mark.timeout(900)]

FILES: dict[str, Source] = {
    "FABRIC.toml": of_block('name = "v3"', page="simulate-a-large-model.md"),
    "train.py": of_project("examples/capture/llama.py"),
}
TO_RUN = {page.name: commands for page in PAGES if (commands := needs_pytorch(page))}


@pytest.mark.parametrize("page", TO_RUN)
def test_captures_of_a_page_run(page: str, tmp_path: Path) -> None:
    commands: list[Command] = TO_RUN[page]
    python = os.environ["GENIE_TORCH_PYTHON"]
    where = "import sysconfig; print(sysconfig.get_path('platlib'))"
    packages = subprocess.run([python, "-c", where], capture_output=True, text=True, check=True).stdout.strip()
    at = Place(tmp_path, commands[0].page, ROOT)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    place(FILES, at)
    machine = Machine(variables={"PYTHONPATH": packages})  # as if Genie's Python had PyTorch
    for command in commands:
        judge(command, machine.run(command.line, tmp_path), at)
