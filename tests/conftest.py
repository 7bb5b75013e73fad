"""Fixtures for all rooms. A missing tool skips its test, or fails it where everything is promised to be there."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clean_wheel import CleanWheel, build_clean_wheel

ROOT = Path(__file__).resolve().parent.parent

# Many containers forbid bytecode: each of the thousands of Pythons that tests start would compile all of Genie again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# What plays in real time: one after another, in one process; the rest computes meanwhile, the emulated machines too.
REAL_TIME = ("cli", "hosts", "live", "test_main_job.py")
MACHINES = "rxe"
# Of these rooms, what plays in no real time.
COMPUTES = (
    "cli/test_convert_fabric.py",
    "cli/test_convert_workloads.py",
    "cli/test_help.py",
    "cli/test_sweep.py",
    "cli/test_usage.py",
)


def scope_of(nodeid: str) -> str:
    """What stays together in one process."""
    file = nodeid.split("::")[0].removeprefix("tests/")
    if file.startswith(f"{MACHINES}/"):
        return MACHINES
    return "real time" if file.split("/")[0] in REAL_TIME and file not in COMPUTES else file


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """First what takes longest, and beside it the wheel and then the guests that want it."""
    first = ("real time", "test_packaging.py", MACHINES)
    items.sort(key=lambda item: [scope_of(item.nodeid) != scope for scope in first])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """For `pytest -n 2`, as `make test` has it. (Marks for `--dist loadgroup` are not seen with pytest 9.2.)"""
    from xdist.scheduler import LoadScopeScheduling

    class Rooms(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

    config.option.loadscopereorder = False  # by number of tests: the wheel would be the last
    return Rooms(config, log)


def need(present: bool, what: str) -> None:
    """Skip with the reason, or fail under GENIE_REQUIRE_ALL=1, when something a test needs is absent."""
    if present:
        return
    if os.environ.get("GENIE_REQUIRE_ALL") == "1":
        pytest.fail(f"{what} is missing and GENIE_REQUIRE_ALL=1")
    pytest.skip(f"{what} is missing")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of third-party test data (GENIE_SHARED_DATA)."""
    path = Path(os.environ.get("GENIE_SHARED_DATA", ROOT.parent / "shared" / "data")).resolve()
    need((path / "MANIFEST.md").is_file(), f"shared test data ({path})")
    return path


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a headless-capable Chromium."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    need(path is not None, "Chromium")
    assert path is not None
    return path


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Any]:
    """A Chromium without a window that asks nobody for anything."""
    playwright = pytest.importorskip("playwright.sync_api")
    quiet = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync")  # fmt: skip
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=chromium, args=quiet)
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def tshark() -> str:
    """Path of tshark."""
    path = shutil.which("tshark")
    need(path is not None, "tshark")
    assert path is not None
    return path


@pytest.fixture(scope="session")
def as_root() -> None:
    """The test makes network namespaces or sets scheduling classes."""
    need(os.geteuid() == 0, "root")


@pytest.fixture(scope="session")
def clean_wheel(tmp_path_factory: pytest.TempPathFactory) -> CleanWheel:
    """Genie's wheel as a user gets it, one for all processes; tests that ask for it have a time limit for a build."""
    folder = tmp_path_factory.getbasetemp()
    return build_clean_wheel((folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "clean-wheel")
