"""Fixtures of all tests. A missing tool skips its test, or fails it where GENIE_REQUIRE_ALL is set."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import time_limit
from browsed import Opened, opening
from clean_wheel import CleanWheel, build_clean_wheel
from hypothesis import settings
from real_slurm import PROGRAMS

ROOT = Path(__file__).resolve().parent.parent

# Many containers forbid bytecode: each of the thousands of Pythons that tests start would compile Genie again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Drawn examples are the same in each run, and no machine is too slow for them.
settings.register_profile("genie", deadline=None, derandomize=True)
settings.load_profile("genie")

MARKS = re.compile(r"^pytestmark = .*", re.MULTILINE)


@cache
def scope_of(file: str) -> str:
    """The tests that stay together in one process: guests, tests on sockets and clocks, and each other file.

    xdist distributes tests by name, so that the marks are read from the file.
    """
    found = MARKS.search((ROOT / file).read_text())
    marks = found[0] if found else ""
    if "mark.guests" in marks:
        return "guests"
    return "live" if "mark.live" in marks or "mark.exclusive" in marks else file


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that take longest: beside the live ones the wheel, then the guests that want it."""
    first = ["live", "tests/test_packaging.py", "guests"]
    if time_limit.times() is not None:
        items.sort(key=lambda item: time_limit.rank_of(item.nodeid.split("::")[0]))
        first.insert(1, "tests/test_site.py")  # before guests, as it is promised
    items.sort(key=lambda item: [scope_of(item.nodeid.split("::")[0]) != scope for scope in first])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    time_limit.skip_if_over(item)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for line in time_limit.words_of(terminalreporter.stats.get("skipped", [])):
        terminalreporter.write_line(line)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Scheduler of `pytest -n 2`, as in `make test`. (Marks for `--dist loadgroup` are not seen with pytest 9.2.)"""
    from xdist.scheduler import LoadScopeScheduling

    class Rooms(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid.split("::")[0])

    config.option.loadscopereorder = False  # sorting groups by number of tests would put the wheel last
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
def slurm_programs(as_root: None) -> None:
    """The programs of a Slurm cluster, and root, which starts them."""
    for name in PROGRAMS:
        need(any(Path(folder, name).exists() for folder in ("/usr/bin", "/usr/sbin")), f"Slurm's {name}")


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a headless-capable Chromium."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    need(path is not None, "Chromium")
    assert path is not None
    return path


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Any]:
    """A Chromium without a window and without network requests of its own."""
    playwright = pytest.importorskip("playwright.sync_api")
    quiet = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync")  # fmt: skip
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=chromium, args=quiet)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def opened(browser: Any) -> Iterator[Opened]:
    """A function that opens a page in a tab; see `browsed.opening`."""
    with opening(browser) as opened:
        yield opened


@pytest.fixture(scope="session")
def sphinx() -> None:
    """Sphinx and what docs/site/conf.py names, the extra `docs`."""
    for name in ("sphinx", "myst_parser", "pydata_sphinx_theme", "nbclient", "ipykernel"):
        need(find_spec(name) is not None, name)


@pytest.fixture(scope="session")
def notebooks() -> None:
    """The packages that execute a notebook, in the extra `docs`."""
    for name in ("nbclient", "ipykernel"):
        need(find_spec(name) is not None, name)


@pytest.fixture(scope="session")
def shellcheck() -> None:
    """ShellCheck on the path."""
    need(shutil.which("shellcheck") is not None, "shellcheck")


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
