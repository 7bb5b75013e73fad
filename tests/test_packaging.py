"""What a user gets from `pip install .` in a clean environment, outside the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# The build isolation's own environment is not ours to touch; nothing of the checkout may leak in.
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "GENIE", "VIRTUAL"))}

NEEDED = (
    "genie/_core.pyi",
    "genie/py.typed",
    "simtwin/py.typed",
    "chakra_schemas/py.typed",
    "chakra_schemas/et_def_pb2.py",
    "genie/verdict/page/report.css",
    "genie/verdict/page/report.js",
)


def run(command: list[str | Path], cwd: Path) -> str:
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=CLEAN, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def sources(folder: Path) -> Path:
    """A copy of what is in git: no file that happens to lie in the checkout helps."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_install_in_a_clean_environment(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    run([sys.executable, "-m", "venv", venv], tmp_path)
    python, genie = venv / "bin" / "python", venv / "bin" / "genie"
    headers = (ROOT / ".venv" / "headers").resolve()
    prefix = run([ROOT / ".ci" / "python-headers", "--environment", headers], tmp_path).split()
    wheels = tmp_path / "wheels"
    run(
        [*prefix, python, "-m", "pip", "wheel", "-qq", "--no-deps", "-w", wheels, sources(tmp_path / "source")],
        tmp_path,
    )
    (wheel,) = wheels.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert set(NEEDED) <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"genie", "simtwin", "chakra_schemas"}

    run([python, "-m", "pip", "install", "-qq", f"{wheel}[mpich]"], tmp_path)
    assert "validate" in run([genie, "--help"], tmp_path)
    origin = run(
        [python, "-c", "import genie._core, simtwin.run, chakra_schemas.reader as r; print(r.__file__)"], tmp_path
    )
    assert str(venv) in origin
    out = tmp_path / "run"
    # In the sources' folder, whose `genie` nothing was built in.
    run([genie, "run", ROOT / "examples" / "transformer", "--rate", "200Mb/s", "-o", out], tmp_path / "source")
    assert (out / "run.json").is_file()
