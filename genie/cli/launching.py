"""Checks before a command starts ranks, and a command that a launcher has started as a rank."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from genie.cli.exits import text_of
from genie.errors import EXIT_FAILED, RankError, UsageError, exit_code_of
from genie.job.options import LabOptions, LiveOptions
from genie.job.playing import print_end
from genie.live.launch.launcher import write_launch_file
from genie.live.launched import launched_by
from genie.live.rendezvous.meeting import join
from genie.live.settings import RunSettings
from genie.live.transport import VERBS
from genie.record import LIVE, VALIDATION, prepare_folder


def check_live(live: LiveOptions, given: LabOptions) -> None:
    """Raises UsageError for a lab with RDMA devices, or under a launcher."""
    if given.lab is not None and live.transport == VERBS:
        raise UsageError("--lab: namespaces have no RDMA devices: leave --transport verbs out")
    if given.lab is not None and launched_by() is not None:
        raise UsageError("--lab: starts the ranks itself: start it by hand, not under a launcher")


def refuse_half_a_launch() -> None:
    """Raises UsageError where a launcher without MPI gave no address: each process would start the whole run."""
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        raise UsageError("RANK and WORLD_SIZE are set and MASTER_ADDR is not: set it to be a rank, or unset RANK")


def refuse_launched() -> None:
    """Raises UsageError under a launcher: a command that starts ranks itself cannot be a rank."""
    if launched_by() is not None:
        raise UsageError("this command starts ranks itself: start it by hand; under mpirun or srun give genie run")


def be_a_rank(live: LiveOptions, ready: Callable[[], RunSettings], around: Path | None = None) -> tuple[int, int]:
    """Be one rank of a run that a launcher has started; return the rank and its exit code.

    `ready` checks the options and returns the settings: when it fails on one rank, all leave together. `around`: the
    folder of the validation of which this is the live run.
    """
    from genie.live.launch.endings import check_size, unexpected
    from genie.live.rank.process import run_and_sign
    from genie.live.rank.worker import run_rank

    rendezvous = join(limit_s=live.join)
    problem: tuple[int, str] | None = None
    settings: RunSettings | None = None
    try:
        settings = ready()
        check_size(settings, rendezvous.size)
        if rendezvous.rank == 0:
            if around is not None:
                prepare_folder(around, VALIDATION)
            prepare_folder(settings.out_path, LIVE)
            write_launch_file(settings)
    except RankError as error:
        problem = (error.code, str(error))
    except Exception as error:
        code = exit_code_of(error)
        fault = unexpected(error) if code is None else None
        problem = (fault.code, str(fault)) if fault else (code or EXIT_FAILED, text_of(error))
    problems = [each for each in rendezvous.agree(problem) if each]
    if problems or settings is None:
        code, text = problems[0]
        if rendezvous.rank == 0:
            print(f"genie: {text}", file=sys.stderr)
        rendezvous.channel.close()
        return rendezvous.rank, int(code)
    agreed = settings
    code = run_and_sign(agreed, rendezvous.rank, lambda: run_rank(agreed, rendezvous))
    if code == 0 and rendezvous.rank == 0:
        print_end(agreed.out_path, is_complete=True)
    return rendezvous.rank, code
