"""The numbers that the page of a simulation and the last lines of the command share, made once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from genie.record.played import iteration_ends
from simtwin.report.collectives import CollectiveRow, collective_rows
from simtwin.report.critical_path import Segment, critical_path
from simtwin.report.limits_file import with_recorded_limits
from simtwin.report.rank_time import longest_iteration

if TYPE_CHECKING:
    from genie.record import Run
    from simtwin.fabric.network import Network
    from simtwin.levels.part_times import PartTimes


@dataclass(frozen=True)
class Digest:
    """Collectives by operation, group and size, and the critical path of the longest iteration.

    An iteration in which the simulation stopped has no path: what ends last in it is not known.
    """

    collectives: list[CollectiveRow]
    longest: int  # number of the iteration
    path: list[Segment]


def digest_of(run: Run, network: Network, parts: PartTimes | None = None) -> Digest:
    """Return the digest of a run. `parts`: of the job's collectives, for limits; None: the run folder has them.

    Raises RecordError.
    """
    longest = longest_iteration(iteration_ends(run))
    rows = collective_rows(run, network, parts)
    if parts is None:
        rows = with_recorded_limits(run.path, rows)
    was_cut = longest == run.info.get("stopped_iteration")
    return Digest(rows, longest, [] if was_cut else critical_path(run, longest))
