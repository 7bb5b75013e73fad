"""What can be wrong with a run folder."""

from __future__ import annotations


class RecordError(Exception):
    """A run folder that cannot be used; the message names it and says what to do."""


class RecordWriteError(RecordError):
    """A run folder that the machine cannot write: its disk is full, for example."""
