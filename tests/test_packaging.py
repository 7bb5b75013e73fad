"""What a user gets from `pip install .` in a clean environment, outside the checkout."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from clean_wheel import ROOT, CleanWheel, run

NEEDED = (
    "genie/_core.pyi",
    "genie/py.typed",
    "simtwin/py.typed",
    "chakra_schemas/py.typed",
    "chakra_schemas/et_def_pb2.py",
    "genie/live/counters/meanings.toml",
    "genie/page/assets/base.css",
    "genie/page/assets/lanes.js",
    "genie/verdict/page/report.css",
    "genie/verdict/page/report.js",
    "simtwin/report/assets/report.js",
    "hosts/lab/keeper.py",
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
    assert {top for top in tops if not top.endswith(".dist-info")} == {"genie", "simtwin", "chakra_schemas", "hosts"}
    assert {"/".join(name.split("/")[:2]) for name in names if name.startswith("hosts/")} == {
        "hosts/__init__.py", "hosts/lab",
    }  # fmt: skip

    run([python, "-m", "pip", "install", "-qq", f"{wheel}[mpich]"], tmp_path)
    assert "validate" in run([genie, "--help"], tmp_path)
    origin = run(
        [python, "-c", "import genie._core, simtwin.run, chakra_schemas.reader as r; print(r.__file__)"], tmp_path
    )
    assert str(venv) in origin
    out = tmp_path / "run"
    # In the sources' folder, whose `genie` nothing was built in.
    run([genie, "run", ROOT / "examples" / "transformer", "--rate", "200Mb/s", "-o", out], clean_wheel.sources)
    assert (out / "run.json").is_file()
