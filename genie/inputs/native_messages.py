"""Suppression of messages that native libraries print about damaged files; Genie reports these in its own line."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

STANDARD_ERROR = 2  # its descriptor, whatever sys.stderr is


@contextmanager
def without_native_messages() -> Iterator[None]:
    """Drop all that this process writes to the descriptor of standard error inside the context."""
    if sys.stderr is not None:
        sys.stderr.flush()
    try:
        kept = os.dup(STANDARD_ERROR)
    except OSError:  # it is closed
        yield
        return
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), STANDARD_ERROR)
        yield
    finally:
        os.dup2(kept, STANDARD_ERROR)
        os.close(kept)
