"""Exit codes of every command."""

from __future__ import annotations

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_ENVIRONMENT, EXIT_INCONCLUSIVE, EXIT_FAULT = 0, 1, 2, 3, 4, 70


class RankError(Exception):
    """This rank cannot go on: what to print, and the exit code. `agreed`: all ranks know and raise the same."""

    def __init__(self, text: str, code: int = EXIT_FAILED, *, agreed: bool = False) -> None:
        super().__init__(text)
        self.code = code
        self.agreed = agreed
