"""Fixtures for all rooms. A missing tool skips its test, or fails it where everything is promised to be there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from clean_wheel import CleanWheel, build_clean_wheel

ROOT = Path(__file__).resolve().parent.parent

# What plays in real time, starts machines or builds: one after another, in one process; the rest computes meanwhile.
REAL_TIME = ("cli", "hosts", "live", "rxe", "test_main_job.py", "test_packaging.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """For `pytest -n 2 --dist loadgroup`, as `make test` has it."""
    for item in items:
        if item.path.relative_to(ROOT / "tests").parts[0] in REAL_TIME:
            item.add_marker(pytest.mark.xdist_group("real time"))


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
    """Genie's wheel as a user gets it; tests that ask for it have a time limit for a build."""
    return build_clean_wheel(tmp_path_factory.mktemp("clean-wheel"))
