"""The end of a run: all ranks send their records to rank 0, which writes the run folder."""

from __future__ import annotations

from typing import Any

import msgspec

from genie.errors import EXIT_ENVIRONMENT, RankError
from genie.live.launch.endings import unexpected
from genie.live.rendezvous.channel import RendezvousError
from genie.live.rendezvous.meeting import Idle, Rendezvous, decoded
from genie.live.settings import RunSettings
from genie.record import RecordError


def gather(settings: RunSettings, meet: Rendezvous, facts: dict[str, Any], parts: list[bytes], idle: Idle) -> None:
    """Give rank 0 this rank's facts and its records by iteration; return once the run folder is written.

    All ranks wait for that, however long it takes: they delete their files on disk only after it. Raise RankError on
    all ranks when the folder cannot be written, or RendezvousError.
    """
    everyone = meet.collect(msgspec.msgpack.encode(facts), idle=idle)
    collected = [meet.collect(part, idle=idle) for part in parts]
    problem: tuple[int, str] | None = None
    if everyone is not None:
        from genie.live.launch.merge import write_live_run  # imported here because it imports much

        try:
            with meet.busy():
                write_live_run(settings, [decoded(rank, each) for rank, each in enumerate(everyone)], collected)
        except RankError:
            raise
        except (RecordError, RendezvousError, OSError) as error:
            problem = (EXIT_ENVIRONMENT, str(error))
        except BaseException as error:  # all ranks must learn of it
            fault = unexpected(error)
            problem = (fault.code, str(fault))
    agreed = meet.agree(problem, lambda problems: problems[0], idle=idle)
    if agreed:
        raise RankError(str(agreed[1]), int(agreed[0]), agreed=True)
