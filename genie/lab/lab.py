"""A lab that is up: the places of its ranks, its links' faults, and its facts for a run's record."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from genie.config.hosts import Calibration, Hosts, Place
from genie.config.units import format_rate
from genie.lab import commands, forwarder_processes, marker, state
from genie.lab.failure import EXIT_ENVIRONMENT, LabError
from genie.lab.faults import Change, Fault, Faults, changed
from genie.lab.plan import Plan
from genie.lab.state import MARK, State
from genie.lab.timetable import followed

COMMAND_S = 30.0
_MARKER = (sys.executable, "-I", "-S", marker.__file__)


@dataclass
class Lab:
    """A lab that is up."""

    plan: Plan
    state: State

    @property
    def name(self) -> str:
        return self.state.name

    @property
    def cannot(self) -> tuple[str, ...]:
        """Sentences on what of its fabric file the lab leaves out or models differently."""
        return (*self.plan.built.cannot, *commands.without(self.state.missing_settings))

    @property
    def addresses(self) -> dict[str, list[str]]:
        """Node name -> its IP addresses, in the order of its cables."""
        return self.plan.addresses

    @property
    def faults(self) -> Faults:
        """Link name -> fault, as last set."""
        return self.state.faults

    def places(self, ranks: int) -> Hosts:
        """Place rank r on host r, or equally many ranks on each host. Raise LabError when that is not possible."""
        hosts = self.plan.hosts
        if ranks > hosts and ranks % hosts:
            raise LabError(f"{self.state.fabric_path}: {ranks} ranks cannot be shared out among {hosts} hosts")
        each = self._ranks_a_host(ranks)
        places = []
        for rank in range(ranks):
            host = self.plan.nodes[rank // each]
            own = self.addresses[host]
            places.append(Place(rank, "localhost", own[rank % each % len(own)], port=host))
        return Hosts(tuple(places), self.state.calibration, f"the lab of {self.state.fabric_path}")

    def wrapper(self, ranks: int) -> tuple[str, ...]:
        """Return the words in front of each rank's command that start it on its host."""
        host = f"$((${{PMI_RANK:-$OMPI_COMM_WORLD_RANK}} / {self._ranks_a_host(ranks)} + {commands.FIRST_FD}))"
        return ("sh", "-c", f'exec {" ".join(self._entry(host))} "$@"', "sh")

    def inside(self, node: str, *argv: str) -> list[str]:
        """Return the command line that runs `argv` on a host or switch. Raise LabError when there is no such node."""
        if node not in self.plan.nodes:
            raise LabError(f"{node}: no host or switch of {self.name}: give one of {', '.join(self.plan.nodes)}")
        return [*self._entry(str(commands.FIRST_FD + self.plan.nodes.index(node))), *argv]

    def set(self, changes: Sequence[Change]) -> None:
        """Change links' faults while the lab runs. Raise LabError."""
        self._set(lambda faults: changed(faults, changes, self.plan.links))

    @contextmanager
    def faults_injected(self, changes: Sequence[Change]) -> Iterator[None]:
        """Inject faults for the duration of the context; afterwards the changed links have their former faults."""
        before = dict(self.faults)
        names = {name for change in changes for name in change.links}
        timed = [change.times for change in changes if change.times is not None]

        def switch(is_on: list[bool]) -> None:
            """Set the changes whose time it is."""
            states = iter(is_on)
            now = [change for change in changes if change.times is None or next(states)]
            self._set(lambda faults: changed(_with(faults, before, names), now, self.plan.links))

        try:
            if timed:
                with followed(timed, switch):
                    yield
            else:
                if changes or self.state.is_in_doubt:
                    self.set(changes)
                yield
        finally:
            if changes:
                self._set(lambda faults: _with(faults, before, names))

    @contextmanager
    def without_faults(self) -> Iterator[None]:
        """Remove all faults for the duration of the context."""
        before = dict(self.faults)
        try:
            self._set(lambda _: {})
            yield
        finally:
            self._set(lambda faults: _with(faults, before, set(before)))

    def _set(self, change: Callable[[Faults], dict[str, Fault]]) -> None:
        with state.locked():
            now = state.load(self.name)
            if now is None or not state.is_alive(now.pid, now.started):
                raise LabError(f"{self.name}: is down: genie lab up {self.state.fabric_path}")
            self.state = now
            after, known = change(now.faults), None if now.is_in_doubt else now.faults
            now.is_in_doubt = True  # on disk first: if this is cut short, the next change sets everything anew
            state.save(now)
            try:
                forwarder_processes.start_missing(self.plan, now, after, self.inside)
                self._apply(known, after)
                forwarder_processes.end_others(now, after)
            except BaseException:
                with suppress(LabError):
                    forwarder_processes.start_missing(self.plan, now, now.faults, self.inside)
                    self._apply(None, now.faults)
                    forwarder_processes.end_others(now, now.faults)
                    now.is_in_doubt = False
                    state.save(now)
                raise
            now.faults, now.is_in_doubt = after, False
            state.save(now)

    def keep_calibration(self, calibration: Calibration) -> None:
        """Keep the measured latency of the lab's hosts, for later runs."""
        with state.locked():
            if (now := state.load(self.name)) is not None:
                now.calibration = calibration
                state.save(now)
                self.state = now

    def facts(self) -> dict[str, Any]:
        """Return the facts about the lab for a run's record."""
        return {
            "name": self.name,
            "fabric": self.state.fabric_path,
            "nodes": {name: "host" if n < self.plan.hosts else "switch" for n, name in enumerate(self.plan.nodes)},
            "addresses": self.addresses,
            "links": {
                link.name: {
                    "rate": format_rate(link.rate_bps),
                    "burst_bytes": link.burst_bytes,
                    "queue_bytes": link.queue_bytes,
                    "from": link.source_address,
                    "to": link.target_address,
                }
                for link in self.plan.links
            },
            "faults": {name: fault.words() for name, fault in self.faults.items()},
            "cannot": list(self.cannot),
        }

    def _ranks_a_host(self, ranks: int) -> int:
        return max(ranks // self.plan.hosts, 1)

    def _entry(self, descriptor: str) -> list[str]:
        pid = self.state.pid
        words = ["env", f"{MARK}={self.state.mark}", "nsenter"]
        if self.state.in_user_namespace:
            words += ["--preserve-credentials", f"--user=/proc/{pid}/ns/user"]
        return [*words, f"--net=/proc/{pid}/fd/{descriptor}", "--"]

    def _apply(self, before: Faults | None, after: Faults) -> None:
        """Run the commands that differ between two sets of faults; all commands where the former faults are unknown.

        Raise LabError.
        """
        known = _texts(self.plan, before) if before is not None else [{}] * len(self.plan.nodes)
        for name, was, now in zip(self.plan.nodes, known, _texts(self.plan, after), strict=True):
            for argv, lines in now.items():
                if changed_lines := [line for line in lines if line not in was.get(argv, ())]:
                    _call(self.inside(name, *argv), "\n".join(changed_lines) + "\n", name)


def _texts(plan: Plan, faults: Faults) -> list[dict[tuple[str, ...], list[str]]]:
    """Return, by node, command line -> its input, in parts that can be run independently."""
    routes = commands.routes(plan, frozenset(name for name, fault in faults.items() if fault.is_down))
    return [
        {
            ("tc", "-batch", "-"): commands.buckets(plan, node, faults),
            ("ip", "-batch", "-"): routes[node],
            _MARKER: commands.marks(plan, node, faults),
            ("nft", "-f", "-"): [commands.filters(plan, node, faults)],
        }
        for node in range(len(plan.nodes))
    ]


def _with(faults: Faults, others: Faults, names: set[str]) -> dict[str, Fault]:
    """Return faults, with those of some links replaced."""
    kept = {name: fault for name, fault in faults.items() if name not in names}
    return kept | {name: others[name] for name in names if name in others}


def environment() -> dict[str, str]:
    """Return the environment of commands that build and change labs: on Debian a user's PATH lacks them."""
    return {"PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin", "LC_ALL": "C"}


def _call(argv: list[str], text: str, node: str) -> None:
    try:
        done = subprocess.run(
            argv, input=text, capture_output=True, text=True, timeout=COMMAND_S, check=False, env=environment()
        )
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise LabError(f"{node}: {error}", EXIT_ENVIRONMENT) from error
    if done.returncode != 0:
        said = " ".join(done.stderr.split())[:400] or f"exit code {done.returncode}"
        hint = ": apt-get install iproute2 nftables" if "failed to execute" in said else ""
        raise LabError(f"{node}: cannot be set: {said}{hint}", EXIT_ENVIRONMENT)
