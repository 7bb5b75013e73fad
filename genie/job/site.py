"""Where a command's ranks run: on the hosts that were given, or in a lab, with all that follows from that."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from genie.config.hosts import Calibration, Hosts
from genie.job.resolve import Live, Play, UsageError, hosts_of
from genie.lab import Lab, Plan, changed, find, parse_change, plan_of, up_for
from genie.live.settings import RunSettings
from genie.record import kept_warnings, marked_json, unwritable, warn
from simtwin.fabric.reading import load_fabric

LAB_FILE = "lab.json"  # in the folder of a run
RECORDED = ("name", "fabric", "faults", "cannot")  # of it, in run.json too


@dataclass(frozen=True)
class ExecutionSite:
    """Where ranks run. Without a lab everything is as the options say."""

    play: Play
    live: Live
    lab: Lab | None = None
    faults: tuple[str, ...] = ()  # for the run, beside those that the lab has

    def hosts(self, ranks: int) -> Hosts:
        """The places of so many ranks."""
        return hosts_of(self.play, ranks, self.live.udp_port) if self.lab is None else self.lab.places(ranks)

    def wrapper(self, ranks: int) -> tuple[str, ...]:
        """What is put before each rank's command."""
        return () if self.lab is None else self.lab.wrapper(ranks)

    @contextmanager
    def faults_injected(self) -> Iterator[None]:
        """With the faults of this run."""
        if self.lab is None:
            yield
            return
        changes = {text: parse_change(text, self.lab.plan.links) for text in self.faults}
        for text, change in changes.items():
            if changed(self.lab.faults, [change], self.lab.plan.links) == dict(self.lab.faults):
                warn(f"--lab-fault '{text}': has no effect: the link is so already")
        with self.lab.faults_injected(list(changes.values())):
            yield

    @contextmanager
    def without_faults(self) -> Iterator[None]:
        """Without any faults: what hosts cost is measured on links as their file has them."""
        if self.lab is None or not (self.lab.faults or self.lab.state.is_in_doubt):
            yield
            return
        print("genie: the lab's faults are lifted meanwhile", file=sys.stderr, flush=True)
        with self.lab.without_faults():
            yield

    def keep(self, calibration: Calibration) -> None:
        """Note what the hosts cost where later runs find it."""
        if self.lab is not None:
            self.lab.keep_calibration(calibration)

    def with_lab_facts(self, settings: RunSettings) -> RunSettings:
        """The settings, with what a run's record says of the lab; all of it is left in the run's folder."""
        if self.lab is None:
            return settings
        facts = self.lab.facts()
        try:
            (settings.out_path / LAB_FILE).write_text(marked_json("lab", facts))
        except OSError as error:
            raise unwritable(settings.out, error) from error
        return msgspec.structs.replace(settings, lab={key: facts[key] for key in RECORDED}, warnings=kept_warnings())


@contextmanager
def execution_site(play: Play, live: Live, lab: Path | None, faults: Sequence[str] | None) -> Iterator[ExecutionSite]:
    """Where the ranks of a command run, for as long as this: a lab that is not up is built, and taken down afterwards.

    Raises UsageError, LabError, FabricError.
    """
    if lab is None:
        if faults:
            raise UsageError("--lab-fault: is about a lab's links: give --lab FABRIC.toml too")
        yield ExecutionSite(play, live)
        return
    _refuse_beside(play, lab)
    with up_for(lab) as built:
        for text in faults or ():
            parse_change(text, built.plan.links)  # what is wrong with it is said before anything runs
        # A token bucket would take an offloaded send of many packets for one.
        yield ExecutionSite(_as_built(play, lab, built.plan), replace(live, offload=False), built, tuple(faults or ()))


def planned(play: Play, lab: Path) -> tuple[Play, Calibration | None]:
    """For the twin alone: the fabric as the lab of its file is built, and what its hosts cost where that is up and
    was calibrated. Nothing is built.

    Raises UsageError, LabError, FabricError.
    """
    _refuse_beside(play, lab)
    fabric = load_fabric(lab)
    built = find(lab, lab.read_text())
    if built is None:
        return _as_built(play, lab, plan_of(fabric)), None
    return _as_built(play, lab, built.plan), built.state.calibration


def _refuse_beside(play: Play, lab: Path) -> None:
    if play.hosts is not None:
        raise UsageError(f"--lab {lab}: has its own hosts: leave --hosts out")
    if play.fabric is not None and play.fabric.resolve() != lab.resolve():
        raise UsageError(f"--lab {lab}: is the fabric too: leave --fabric out")


def _as_built(play: Play, lab: Path, plan: Plan) -> Play:
    """With the network that a lab is, whose nodes' addresses name the paths that ranks learn."""
    return replace(play, fabric=lab, as_built=msgspec.structs.replace(plan.fabric, addresses=plan.addresses))
