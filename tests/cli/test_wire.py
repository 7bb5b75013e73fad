"""What NCCL's files say of messages, where one of them may not be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from genie.cli.resolve import Play
from genie.cli.wire import lowering_of
from genie.config.nccl import NcclVariables


def test_a_file_that_is_passed_over_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    variables = NcclVariables({}, ())
    variables.unread.append(tmp_path / "nccl.conf")
    for _ in range(2):
        lowering_of(Play("", wire="nccl"), variables)
    said = capsys.readouterr().err
    assert (
        said == f"genie: {tmp_path}/nccl.conf: may not be read, and is passed over, as NCCL does: see its permissions\n"
    )
