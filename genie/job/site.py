"""Where a command's ranks run: on the hosts that options name, or in a lab."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from genie.config.hosts import Calibration, Hosts
from genie.errors import UsageError
from genie.job.job import Job, fabric_file, hosts_of, resolve
from genie.job.options import LabOptions, LiveOptions, TrafficOptions
from genie.lab import Lab, Plan, changed, find, parse_change, plan_of, up_for
from genie.live.settings import RunSettings
from genie.record import kept_warnings, marked_json, unwritable, warn
from genie.workload.graph import Workload
from simtwin.fabric.reading import load_fabric
from simtwin.fabric.schema import Fabric

LAB_FILE = "lab.json"  # in the folder of a run
RECORDED = ("name", "fabric", "faults", "cannot")  # keys of it that run.json has too


@dataclass(frozen=True)
class ExecutionSite:
    """The hosts on which ranks run. `traffic` and `live`: the options as they hold there.

    `written`: the fabric as the lab builds it, in place of its file's; None without a lab.
    """

    traffic: TrafficOptions
    live: LiveOptions
    lab: Lab | None = None
    faults: tuple[str, ...] = ()  # of this run, beside those that the lab has already
    written: Fabric | None = None

    def job(self, *, default_rate: str | None = None, workload: Workload | None = None) -> Job:
        """The job that the options describe, on the hosts of this site. `workload`: in place of the traces."""
        return resolve(
            self.traffic,
            self.live,
            written=self.written,
            default_rate=default_rate,
            hosts_on=self.hosts,
            workload=workload,
        )

    def hosts(self, ranks: int) -> Hosts:
        """The places of this number of ranks."""
        return hosts_of(self.traffic, ranks, self.live.udp_port) if self.lab is None else self.lab.places(ranks)

    def fabric_as_written(self) -> Fabric | None:
        """The lab's fabric, or that of the fabric file; None without either."""
        return fabric_file(self.traffic) if self.written is None else self.written

    def wrapper(self, ranks: int) -> tuple[str, ...]:
        """The words before each rank's command."""
        return () if self.lab is None else self.lab.wrapper(ranks)

    @contextmanager
    def faults_injected(self) -> Iterator[None]:
        """Context in which the links have the faults of this run."""
        if self.lab is None:
            yield
            return
        changes = {text: parse_change(text, self.lab.plan.links) for text in self.faults}
        for text, change in changes.items():
            if changed(self.lab.faults, [change], self.lab.plan.links) == dict(self.lab.faults):
                warn(f"--lab-fault '{text}': has no effect: the link is in this state already")
        with self.lab.faults_injected(list(changes.values())):
            yield

    @contextmanager
    def without_faults(self) -> Iterator[None]:
        """Context in which the links have no faults: a calibration measures links as their file describes them."""
        if self.lab is None or not (self.lab.faults or self.lab.state.is_in_doubt):
            yield
            return
        print("genie: the lab's faults are lifted during the calibration", file=sys.stderr, flush=True)
        with self.lab.without_faults():
            yield

    def keep(self, calibration: Calibration) -> None:
        """Keep a calibration where later runs in the lab find it."""
        if self.lab is not None:
            self.lab.keep_calibration(calibration)

    def with_lab_facts(self, settings: RunSettings) -> RunSettings:
        """Return the settings with the lab's facts for run.json, and write all facts into the run's folder."""
        if self.lab is None:
            return settings
        facts = self.lab.facts()
        try:
            (settings.out_path / LAB_FILE).write_text(marked_json("lab", facts))
        except OSError as error:
            raise unwritable(settings.out, error) from error
        return msgspec.structs.replace(settings, lab={key: facts[key] for key in RECORDED}, warnings=kept_warnings())


@contextmanager
def execution_site(traffic: TrafficOptions, live: LiveOptions, given: LabOptions) -> Iterator[ExecutionSite]:
    """Yield the place where the ranks of a command run. A lab that is not up is built, and taken down afterwards.

    Raises UsageError, LabError, FabricError.
    """
    if given.lab is None:
        if given.lab_fault:
            raise UsageError("--lab-fault: is about a lab's links: give --lab FABRIC.toml too")
        yield ExecutionSite(traffic, live)
        return
    _refuse_beside(traffic, given.lab)
    with up_for(given.lab) as built:
        for text in given.lab_fault:
            parse_change(text, built.plan.links)  # a mistake in it is reported before anything runs
        # A token bucket would count an offloaded send of many packets as one packet.
        traffic, live = replace(traffic, fabric=given.lab), replace(live, offload=False)
        yield ExecutionSite(traffic, live, built, given.lab_fault, _as_built(built.plan))


def planned(traffic: TrafficOptions, lab: Path) -> tuple[TrafficOptions, Fabric, Calibration | None]:
    """Return, for the twin of a lab, the options, the fabric as the lab builds it, and its hosts' calibration.

    The calibration is that of a lab that is up, if it has one. No lab is built.
    Raises UsageError, LabError, FabricError.
    """
    _refuse_beside(traffic, lab)
    fabric = load_fabric(lab)
    built = find(lab, lab.read_text())
    traffic = replace(traffic, fabric=lab)
    if built is None:
        return traffic, _as_built(plan_of(fabric)), None
    return traffic, _as_built(built.plan), built.state.calibration


def _refuse_beside(traffic: TrafficOptions, lab: Path) -> None:
    if traffic.hosts is not None:
        raise UsageError(f"--lab {lab}: has its own hosts: leave --hosts out")
    if traffic.fabric is not None and traffic.fabric.resolve() != lab.resolve():
        raise UsageError(f"--lab {lab}: is the fabric too: leave --fabric out")


def _as_built(plan: Plan) -> Fabric:
    """Return the fabric as a lab builds it; the addresses of its nodes name the paths that ranks learn."""
    return msgspec.structs.replace(plan.fabric, addresses=plan.addresses)
