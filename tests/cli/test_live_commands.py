"""Options of `genie run` and `genie validate`."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_runs import genie, loopback, rings

from genie.record import open_run

pytestmark = pytest.mark.live


@pytest.mark.extended
@pytest.mark.parametrize("command", ["run", "validate"])
def test_ranks_sleep_when_told(command: str, tmp_path: Path) -> None:
    """Two ranks, which would poll on a machine with two cores."""
    out = tmp_path / "out"
    ended = genie(
        command, rings(tmp_path / "trace", 2), "--hosts", loopback(tmp_path, 2), "-n", "2", "--events", "-o", str(out)
    )
    assert ended.code in (0, 4), ended.stderr  # 4: so short a validation may be inconclusive
    info = open_run(out / "live" if command == "validate" else out).info
    assert (info["settings"]["spin"], info["spin"]) == (False, [False])
