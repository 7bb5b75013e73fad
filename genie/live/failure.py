"""A rank's failure: its cause, as ranks tell each other and as each leaves it for the launcher."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from genie.errors import RankError


class Cause(StrEnum):
    """Causes of failures that other ranks or the launcher treat in a way of their own."""

    OTHER = "other"
    PEER = "another rank"  # another rank raised an alarm
    SIGNAL = "signal"  # a signal told the rank to end
    LAUNCHER = "launcher"  # the launcher was killed
    CONNECTION = "connection"  # the rank refused a peer's packet and ended their connection


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The failure of a rank, in one line."""

    rank: int
    error: str
    cause: Cause = Cause.OTHER
    signal: str = ""  # name of the signal, with Cause.SIGNAL

    @property
    def text(self) -> str:
        """The line for ranks that end because of it."""
        return f"rank {self.rank} stopped: {self.error}"


class FailureRecord(Failure, frozen=True, kw_only=True):
    """The failure as a rank leaves it for the launcher."""

    iteration: int  # being played; -1: before the first
    code: int  # exit code
    time_ns: int  # since the epoch


class SignalError(RankError):
    """A signal told this rank to end."""

    def __init__(self, signal_name: str) -> None:
        super().__init__(f"told to end by {signal_name}")
        self.signal_name = signal_name


class LauncherError(RankError):
    """The launcher of this rank was killed."""

    def __init__(self) -> None:
        super().__init__("the launcher was killed")


class ConnectionEndedError(RankError):
    """This rank refused a peer's packet and ended their connection."""
