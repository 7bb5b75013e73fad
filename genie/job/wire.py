"""What --wire, NCCL's variables and their like say of the messages of collectives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from genie import record
from genie.config.hosts import load_hosts
from genie.config.nccl import NcclVariables, Setting, changes_of_files, warnings_of
from genie.live.rendezvous.meeting import speaks
from genie.plan.lowering import Lowering
from genie.workload.graph import Workload
from simtwin.play.wire import lowering_from, nccl_record, ranks_per_server

if TYPE_CHECKING:
    from genie.job.resolve import Play


def lowering_of(play: Play, variables: NcclVariables | None = None) -> Lowering:
    """How collectives become messages. Raises WireError, and ValueError of NCCL's variables."""
    variables = NcclVariables() if variables is None else variables
    lowering = lowering_from(play, lambda: _ranks_per_node(play), variables)
    for text in warnings_of(variables) if lowering.nccl else ():
        warn(text)
    return lowering


def nccl_settings(
    play: Play,
    lowering: Lowering,
    workload: Workload,
    verbs: bool,
    overruled: Mapping[str, str],
    variables: NcclVariables | None = None,
) -> list[dict[str, str]]:
    """NCCL's variables as run.json lists them, and a line for each file that changes something (`nccl_record`)."""
    variables = NcclVariables() if variables is None else variables
    listed = nccl_record(play, lowering, workload, verbs, overruled, variables)
    for text in changes_of_files(Setting(**each) for each in listed):
        warn(text)
    return listed


def warn(text: str) -> None:
    """Say it once, and of a launch's ranks one; keep it for the run's record."""
    record.warn(text, aloud=speaks())


def _ranks_per_node(play: Play) -> int:
    """Those of each host of the hosts file, where it has several; those of each server of the fabric; otherwise 1."""
    if play.hosts is not None:
        counts = Counter(place.host for place in load_hosts(play.hosts).places)
        if len(counts) > 1 and len(set(counts.values())) == 1:
            return next(iter(counts.values()))
    return 1 if play.fabric is None else ranks_per_server(play.fabric_file)
