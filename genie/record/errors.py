"""Errors of run folders."""

from __future__ import annotations

from genie.errors import EXIT_ENVIRONMENT, InputError


class RecordError(InputError):
    """A run folder that cannot be used; the message names it and gives advice."""


class RecordWriteError(RecordError):
    """A run folder that cannot be written, for example because the disk is full."""

    code = EXIT_ENVIRONMENT
