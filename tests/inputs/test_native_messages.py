"""Standard error is silent inside the block, for native code too, and works again after it."""

from __future__ import annotations

import os

import pytest

from genie.inputs.native_messages import without_native_messages


def test_only_what_is_printed_meanwhile_is_dropped(capfd: pytest.CaptureFixture[str]) -> None:
    def panic() -> None:
        os.write(2, b"panicked")
        raise ValueError("damaged")

    os.write(2, b"before ")
    with pytest.raises(ValueError, match="damaged"), without_native_messages():
        panic()
    os.write(2, b"after")
    assert capfd.readouterr().err == "before after"


def test_a_closed_standard_error_is_no_problem() -> None:
    kept = os.dup(2)
    os.close(2)
    try:
        with without_native_messages():
            pass
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(2)
    finally:
        os.dup2(kept, 2)
        os.close(kept)
