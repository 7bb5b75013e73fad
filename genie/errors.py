"""Failures that a user can correct, each with the exit code of the command that it ends."""

from __future__ import annotations

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_ENVIRONMENT, EXIT_INCONCLUSIVE, EXIT_FAULT = 0, 1, 2, 3, 4, 70


class GenieError(Exception):
    """A failure that is not a fault of Genie: its text is one line that says what is wrong, where, and what to do."""

    code = EXIT_FAILED  # of the command


class InputError(GenieError):
    """An option or a file that cannot be used."""

    code = EXIT_USAGE


class UsageError(InputError):
    """An option that cannot be used, alone or together with others."""


class MachineError(GenieError):
    """The machine, or a launcher on it, cannot do what a command needs."""

    code = EXIT_ENVIRONMENT


class RankError(GenieError):
    """This rank cannot go on. `agreed`: all ranks raise the same error."""

    def __init__(self, text: str, code: int = EXIT_FAILED, *, agreed: bool = False) -> None:
        super().__init__(text)
        self.code = code
        self.agreed = agreed


def exit_code_of(error: BaseException) -> int | None:
    """Return the exit code for a failure that a user can correct; None for a fault of Genie."""
    if isinstance(error, GenieError):
        return error.code
    return EXIT_ENVIRONMENT if isinstance(error, OSError) else None


def import_problem(error: ImportError) -> str:
    """The line for native code that was not built, or that was built from another version."""
    # Import errors of Python name a module; those of the native packages say what to do.
    hint = "" if error.name is None else ": run pip install . in the checkout, or make build"
    return f"{error}{hint}"
