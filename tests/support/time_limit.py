"""A limit on the time of extended tests, for CI: those that documents promise, then files in a drawn order.

GENIE_TESTS_UNTIL has two times in seconds since 1970. After the first no extended test begins, but for those of
PROMISED. After the second none of these begins. GENIE_TESTS_SEED draws the order, so that other files come first in
another run. Both are set by .ci/run; without them all tests are played.
"""

from __future__ import annotations

import hashlib
import os
import time

import pytest

# Commands of every page, also on RDMA devices of guests, packages as users get them, the site, and Slurm's scripts.
PROMISED = (
    "tests/test_documented_commands.py",
    "tests/test_packaging.py",
    "tests/test_site.py",
    "tests/hosts/test_real_slurm.py",
    "tests/hosts/test_real_health.py",
    "tests/rxe/test_verbs_validate.py",
    "tests/rxe/test_guest_packages.py",
)
NOT_PLAYED = "not played: the time of this run was over"


def times() -> tuple[float, float] | None:
    """Return when extended tests begin no more, and when those that are promised do not; None: always."""
    given = os.environ.get("GENIE_TESTS_UNTIL", "").split()
    if not given:
        return None
    first, second = map(float, given)
    return first, second


def rank_of(file: str) -> tuple[bool, str]:
    """Return the place of a file in the order of a run with a limit."""
    seed = os.environ.get("GENIE_TESTS_SEED", "")
    return file not in PROMISED, hashlib.sha256(f"{seed} {file}".encode()).hexdigest()


def skip_if_over(item: pytest.Item) -> None:
    """Skip an extended test, before its fixtures are made, where its time is over."""
    until = times()
    is_extended = any(item.get_closest_marker(name) is not None for name in ("extended", "drawn"))
    if until is None or not is_extended:
        return
    if time.time() > until[item.nodeid.split("::")[0] in PROMISED]:
        pytest.skip(NOT_PLAYED)


def words_of(skipped: list[pytest.TestReport]) -> list[str]:
    """Return lines that say how many tests were not played, and which promised files; none where all were."""
    left = [
        report.nodeid for report in skipped if isinstance(report.longrepr, tuple) and NOT_PLAYED in report.longrepr[2]
    ]
    files = {name.split("::")[0] for name in left}
    lines = []
    if left:
        lines.append(f"{len(left)} extended tests of {len(files)} files {NOT_PLAYED}; make test-all plays them")
    if promised := sorted(files.intersection(PROMISED)):
        lines.append(f"PROMISED, BUT NOT PLAYED in full: {', '.join(promised)}")
    return lines
