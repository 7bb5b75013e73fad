"""A rank started by the launcher: `python -m genie.live.rank OUT/launch.json`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from genie.live.endings import EXIT_ENVIRONMENT, LAUNCHED, PARTS, SIGN
from genie.live.rendezvous import RendezvousError, join
from genie.live.settings import RunSettings
from genie.live.worker import run_rank


def main(path: str) -> int:
    settings = msgspec.json.decode(Path(path).read_bytes(), type=RunSettings)
    try:
        rendezvous = join(limit_s=settings.join_s)
    except RendezvousError as error:
        print(f"genie: {error}", file=sys.stderr)
        return EXIT_ENVIRONMENT
    return run_and_sign(settings, rendezvous.rank, lambda: run_rank(settings, rendezvous))


def run_and_sign(settings: RunSettings, rank: int, body: Callable[[], int]) -> int:
    """Leave this process's id beside the records while it runs, so that the launcher sees a rank vanish."""
    sign = settings.out_path / PARTS / f"{rank:05d}{SIGN}"
    try:
        sign.parent.mkdir(parents=True, exist_ok=True)
        sign.write_text(f"{os.uname().nodename} {os.getpid()} running")
    except OSError as error:
        print(f"genie: rank {rank}: {sign} cannot be written: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(EXIT_ENVIRONMENT)  # MPI's own end would wait for the others
    code = int(body())
    with contextlib.suppress(OSError):
        sign.write_text(f"{os.uname().nodename} {os.getpid()} finished")
    if code == 0 and rank == 0 and LAUNCHED not in os.environ:
        from genie.live.merge import remove_parts  # here, because it imports much

        remove_parts(settings)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
