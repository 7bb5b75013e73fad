"""Files that ranks leave in the run folder while they run, and what the launcher and the ranks tell each other."""

from __future__ import annotations

import shutil
import signal

from genie.live.settings import RunSettings

LAUNCH_FILE = "launch.json"

PARTS = "parts"  # the folder in which ranks leave, while they run:

CUT = ".cut"  # in the name of an iteration's records that were not played to the end

FACTS, FAILED, SIGN, RESERVE = ".facts.json", ".failed.json", ".pid", ".reserve"

STARTING, RUNNING, FINISHED = "starting", "running", "finished"  # states in a rank's sign: "NODE PID STATE"

LOG_FILE = "mpirun.log"  # what mpirun and the ranks print: shown only when no rank says what went wrong

LAUNCHED = "GENIE_LAUNCHED"  # set by the launcher, which speaks for all ranks: "NODE PID NAMESPACE" of it

LAUNCHER_GONE = "the launcher was killed"

TOLD = "told to end by "  # a signal's name follows

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def remove_parts(settings: RunSettings) -> None:
    """Remove what ranks left while they ran, once the run folder holds it all."""
    shutil.rmtree(settings.out_path / PARTS, ignore_errors=True)
