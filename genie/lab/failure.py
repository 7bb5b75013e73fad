"""Errors of a lab: one line and an exit code."""

from __future__ import annotations

from genie.errors import GenieError

EXIT_USAGE = 2
EXIT_ENVIRONMENT = 3
EXIT_FAULT = 70


class LabError(GenieError):
    """A lab cannot be built or used: one line that says what to do, and the exit code."""

    def __init__(self, text: str, code: int = EXIT_USAGE) -> None:
        super().__init__(text)
        self.code = code
