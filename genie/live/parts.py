"""Files that ranks leave in the run folder while they run, and constants shared by the launcher and the ranks."""

from __future__ import annotations

import shutil

from genie.live.settings import RunSettings

LAUNCH_FILE = "launch.json"

PARTS = "parts"  # the folder for files that ranks leave while they run

CUT = ".cut"  # in the file name of an iteration's records when the iteration was not played to its end

FACTS, FAILED, SIGN, RESERVE = ".facts.json", ".failed.json", ".pid", ".reserve"

STARTING, RUNNING, FINISHED = "starting", "running", "finished"  # states in a rank's SIGN file: "NODE PID STATE"

LOG_FILE = "mpirun.log"  # output of mpirun and the ranks: shown only when no rank reports a failure

LAUNCHED = "GENIE_LAUNCHED"  # set by the launcher, which reports for all ranks: its "NODE PID NAMESPACE"


def remove_parts(settings: RunSettings) -> None:
    """Remove the files that ranks left while they ran, once the run folder holds their contents."""
    shutil.rmtree(settings.out_path / PARTS, ignore_errors=True)
