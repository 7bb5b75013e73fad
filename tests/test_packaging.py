"""The result of `pip install .` in a clean environment, outside the checkout, and the scripts of CI."""

from __future__ import annotations

import re
import subprocess
import zipfile
from pathlib import Path

import pytest
from clean_wheel import CLEAN, ROOT, CleanWheel, run

pytestmark = pytest.mark.extended

SHELL_SCRIPTS = sorted(
    each for each in (ROOT / ".ci").iterdir() if each.read_text().startswith(("#!/bin/sh", "#!/usr/bin/env bash"))
)
README_SNIPPET = re.compile(r"```python\n(.*?)```", re.DOTALL)
NEEDED = (
    "genie_core/native.pyi",
    "genie_core/py.typed",
    "genie/py.typed",
    "simtwin/py.typed",
    "chakra_schemas/py.typed",
    "chakra_protobuf/et_def_pb2.py",
    "genie/live/counters/meanings.toml",
    "genie/page/assets/base.css",
    "genie/page/assets/lanes.js",
    "genie/report/assets/report.css",
    "genie/report/assets/report.js",
    "simtwin/report/assets/report.js",
    "genie/lab/keeper.py",
)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_install_in_a_clean_environment(clean_wheel: CleanWheel, tmp_path: Path) -> None:
    venv, wheel = clean_wheel.environment, clean_wheel.wheel
    python, genie = venv / "bin" / "python", venv / "bin" / "genie"
    names = zipfile.ZipFile(wheel).namelist()
    assert set(NEEDED) <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "genie", "simtwin", "chakra_schemas", "genie_core", "chakra_protobuf",
    }  # fmt: skip

    run([python, "-m", "pip", "install", "-qq", f"{wheel}[mpich]"], tmp_path)
    assert "validate" in run([genie, "--help"], tmp_path)
    origin = run(
        [python, "-c", "import genie_core, simtwin.play.run, chakra_schemas.reader as r; print(r.__file__)"], tmp_path
    )
    assert str(venv) in origin
    out = tmp_path / "run"
    run([genie, "run", ROOT / "examples" / "transformer", "--rate", "200Mb/s", "-o", out], tmp_path)
    assert (out / "run.json").is_file()
    in_the_clone(python, clean_wheel.sources, tmp_path)


def in_the_clone(python: Path, clone: Path, out: Path) -> None:
    """Python started in the clone finds the clone's own `genie`, in which nothing was built, and the installed core."""
    snippet = README_SNIPPET.search((clone / "README.md").read_text())
    assert snippet is not None
    where = "import genie, genie_core; print(genie.__file__, genie_core.__file__)\n"
    said = run([python, "-c", where + snippet[1]], clone)
    assert said.split()[0] == str(clone / "genie" / "__init__.py")
    assert str(python.parent.parent) in said.split()[1]
    assert "PASS" in run([python, "-m", "genie", "validate", "examples/transformer", "-o", out / "verdict"], clone)
    sweep = [python.parent / "mpiexec", "-n", "2", python, "-m", "mpi4py.futures", "-m", "genie", "sweep"]
    run([*sweep, "examples/sweep.toml", "-o", out / "sweep"], clone)
    assert (out / "sweep" / "sweep.csv").is_file()

    # A clone that has moved on since the installation.
    binding = clone / "native" / "bindings" / "module.cpp"
    text = binding.read_text()
    binding.write_text(f"{text}// moved on\n")
    assert "does not match native/bindings/*.cpp beside genie" in refused(python, clone)
    binding.write_text(text)
    version = clone / "genie" / "__init__.py"
    version.write_text(version.read_text().replace('"0.1.0"', '"9.9.9"'))
    assert "does not match genie 9.9.9" in refused(python, clone)


def refused(python: Path, clone: Path) -> str:
    """Return the error of a clone's Genie beside a native core that another version has built."""
    line = [python, "-m", "genie", "doctor"]
    done = subprocess.run(line, cwd=clone, env=CLEAN, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "pip install ." in done.stderr
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


@pytest.mark.usefixtures("shellcheck")
def test_shellcheck_finds_nothing() -> None:
    assert len(SHELL_SCRIPTS) >= 10
    line = ["shellcheck", "--severity=warning", *map(str, SHELL_SCRIPTS)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
