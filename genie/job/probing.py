"""Probing links after a run: what its traffic could not judge is measured by flows over chosen paths."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

import msgspec

from genie.config.congestion import NoControl, plain
from genie.errors import GenieError
from genie.invocation import detail, note
from genie.job.job import Job
from genie.job.site import ExecutionSite
from genie.job.warnings import warn
from genie.live.launch.launcher import launch, mpirun_line, refuse_running, remote_hosts
from genie.live.settings import RunSettings
from genie.live.transport import VERBS
from genie.probe.settings import LinkProbeSettings
from genie.record import PROBE, launch_mark, prepare_folder
from genie.verdict.probed.probes import Probes, read_probes

MODULE = "genie.probe.rank"
ROCE_CLASS = 104  # DSCP 26, as in most RoCE clusters: a job of class 0 cannot show that its DSCP is rewritten
PATHS = 16  # UDP source ports from each host to each other: they show 4 equally likely paths with P = 0.96


INTERRUPTED = (128 + signal.SIGINT, 128 + signal.SIGTERM)  # exit codes, as shells have them


class ProbesInterruptedError(GenieError):
    """A signal ended the probes. The records of the run are complete."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Targets:
    """Links whose rates are to be measured, and what the run's traffic accuses."""

    links: tuple[str, ...] = ()
    slow_ranks: tuple[int, ...] = ()  # their flows would show the rate of their own NICs
    suspected: tuple[str, ...] = ()  # links of suspects, also those of hosts


def probed_links(
    job: Job, site: ExecutionSite, played: RunSettings, out: Path, targets: Targets, budget_s: float
) -> Probes | None:
    """Test all paths for faults, and measure the rates of the links, within the budget.

    Return None where it cannot. `played`: the settings of the run that is judged.
    """
    if budget_s <= 0 or VERBS in played.kinds or not played.rate_bps or played.trace is None:
        return None
    beside = f", and the rates of {len(targets.links)} links that its traffic does not settle" if targets.links else ""
    note(f"probing the paths after the run{beside}")
    rates = _needed(job, played.rate_bps)
    fabric = job.fabric
    fields = msgspec.structs.asdict(played) | {
        "schema": launch_mark(PROBE),
        "workload": "",
        "out": str(out.resolve()),
        "congestion": {},
        # A rank without congestion control stays one; other faults of a plan are about the job's messages.
        "faults": type(played.faults)(congestion=played.faults.congestion),
        "traffic_class": played.traffic_class or ROCE_CLASS,
        "marks": fabric.ecn is not None,
        "incasts": fabric.ecn is not None and bool(played.congestion) and played.congestion != plain(NoControl()),
        "paths": PATHS,
        "source_ports": "pair",
        "targets": sorted(targets.links),
        "slow_ranks": list(targets.slow_ranks),
        "suspected": sorted(targets.suspected),
        "flows": {link: rates[link] for link in targets.links if link in rates},
        "budget_s": budget_s,
    }
    settings = LinkProbeSettings(**fields)
    refuse_running(out)
    prepare_folder(out, PROBE)
    line = mpirun_line(settings, remote_hosts(job.hosts), MODULE, site.wrapper(job.ranks))
    detail(" ".join(line))
    outcome = launch(settings, line)
    if outcome.code in INTERRUPTED:
        text = f"{outcome.failure} while it probed links: genie diff judges the run without them"
        raise ProbesInterruptedError(text, outcome.code)
    if outcome.code != 0:
        warn(f"links were not probed: {outcome.failure}")
        return None
    return read_probes(out / "run.json")


def _needed(job: Job, rate_bps: int) -> dict[str, int]:
    """Return link -> flows at the line rate that fill it."""
    network = job.network
    rates = network.rate_bps.tolist()
    return {name: max(1, -(-rate // rate_bps)) for name, rate in zip(network.link_names, rates, strict=True)}
