"""Exit codes, which error means which, and how a line for a person says it."""

from __future__ import annotations

import signal

from chakra_schemas.errors import TraceError
from genie.config.nccl import NcclVariableError
from genie.config.strict_toml import SettingsError
from genie.errors import EXIT_ENVIRONMENT, EXIT_FAILED, EXIT_USAGE
from genie.inputs.printable import one_line
from genie.job.resolve import UsageError
from genie.lab.failure import LabError
from genie.live.launch.launcher import LaunchError
from genie.live.rendezvous.channel import RendezvousError
from genie.record import RecordError, RecordWriteError
from genie.workload.graph import WorkloadError
from simtwin.fabric.routing import RoutingError
from simtwin.imports.astra.files import AstraError
from simtwin.play.twin import FollowError, LevelError, SimulationError
from simtwin.play.wire import WireError

CODES: tuple[tuple[type[Exception], int], ...] = (
    (UsageError, EXIT_USAGE),
    (WireError, EXIT_USAGE),
    (NcclVariableError, EXIT_USAGE),
    (TraceError, EXIT_USAGE),
    (WorkloadError, EXIT_USAGE),
    (SettingsError, EXIT_USAGE),
    (RoutingError, EXIT_USAGE),
    (AstraError, EXIT_USAGE),
    (FollowError, EXIT_USAGE),
    (LevelError, EXIT_USAGE),
    (SimulationError, EXIT_FAILED),
    (RecordWriteError, EXIT_ENVIRONMENT),
    (RecordError, EXIT_USAGE),  # a verdict's error is one
    (LaunchError, EXIT_ENVIRONMENT),
    (LabError, EXIT_USAGE),
    (RendezvousError, EXIT_ENVIRONMENT),
    (OSError, EXIT_ENVIRONMENT),
)


def text_of(error: BaseException) -> str:
    """One line for a person."""
    if isinstance(error, OSError) and error.strerror:
        return one_line(f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
    return one_line(" ".join(str(error).split()))


def signal_in_words(number: int) -> str:
    """What ended a command."""
    return "interrupted" if number == signal.SIGINT else f"told to end by {signal.Signals(number).name}"


def counted(count: int, what: str, plural: str = "s") -> str:
    """`1 host`, `2 hosts`."""
    return f"{count} {what}" + plural * (count != 1)


def exit_code_of(error: BaseException) -> int | None:
    """The code for an error that a user can mend; None for a fault of ours."""
    for kind, code in CODES:
        if isinstance(error, kind):
            return error.code if isinstance(error, LaunchError | LabError) else code
    return None
