"""A rank started by the launcher: `python -m genie.live.rank OUT/launch.json`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from genie.live.rendezvous import RendezvousError, join
from genie.live.settings import RunSettings
from genie.live.worker import EXIT_ENVIRONMENT, PARTS, run_rank


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
    folder = settings.out_path / PARTS
    folder.mkdir(parents=True, exist_ok=True)
    sign = folder / f"{rank:05d}.pid"
    sign.write_text(f"{os.uname().nodename} {os.getpid()} running")
    code = int(body())
    if sign.exists():
        sign.write_text(f"{os.uname().nodename} {os.getpid()} finished")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
