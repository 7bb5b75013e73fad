"""Labs: built, found, changed while they run, taken down."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genie.config.hosts import Calibration, Hosts, Place
from genie.config.units import format_rate
from hosts.lab import commands, keeper, marker, state
from hosts.lab.failure import EXIT_ENVIRONMENT, LabError
from hosts.lab.faults import Change, Fault, Faults, changed
from hosts.lab.plan import Plan, plan_of
from hosts.lab.state import State
from simtwin.fabric import parse_fabric

BUILD_S = 60.0
END_S = 8.0  # for a keeper to end what runs inside, and itself
COMMAND_S = 30.0
_MARKER = (sys.executable, "-I", "-S", marker.__file__)
MARK = "GENIE_LAB"  # in the environment of what is started in a lab


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
        """Sentences: what of its fabric file it does without, or has otherwise."""
        return self.plan.built.cannot

    @property
    def addresses(self) -> dict[str, list[str]]:
        """By node name: its IP addresses, in the order of its cables."""
        return self.plan.addresses

    @property
    def faults(self) -> Faults:
        """By link name, as they were last set."""
        return self.state.faults

    def places(self, ranks: int) -> Hosts:
        """Rank r on host r, or as many ranks on each host as it takes. Raises LabError when that is no whole number."""
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
        """What is put before each rank's command, so that it starts on its host."""
        host = f"$((${{PMI_RANK:-$OMPI_COMM_WORLD_RANK}} / {self._ranks_a_host(ranks)} + {commands.FIRST_FD}))"
        return ("sh", "-c", f'exec {" ".join(self._entry(host))} "$@"', "sh")

    def inside(self, node: str, *argv: str) -> list[str]:
        """The command line that runs `argv` on a host or switch. Raises LabError when there is none of that name."""
        if node not in self.plan.nodes:
            raise LabError(f"{node}: no host or switch of {self.name}: give one of {', '.join(self.plan.nodes)}")
        return [*self._entry(str(commands.FIRST_FD + self.plan.nodes.index(node))), *argv]

    def set(self, changes: Sequence[Change]) -> None:
        """Change links' faults while it runs. Raises LabError."""
        self._set(lambda faults: changed(faults, changes, self.plan.links))

    @contextmanager
    def spoiled(self, changes: Sequence[Change]) -> Iterator[None]:
        """Other faults for a while: the links that changes name have theirs back afterwards."""
        before = dict(self.faults)
        names = {name for change in changes for name in change.links}
        try:
            if changes:
                self.set(changes)
            yield
        finally:
            if changes:
                self._set(lambda faults: _with(faults, before, names))

    @contextmanager
    def sound(self) -> Iterator[None]:
        """No faults for a while."""
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
            after = change(now.faults)
            self._apply(now.faults, after)
            now.faults = after
            state.save(now)
            self.state = now

    def keep_calibration(self, calibration: Calibration) -> None:
        """Note what a packet costs on its hosts, for the runs to come."""
        with state.locked():
            if (now := state.load(self.name)) is not None:
                now.calibration = calibration
                state.save(now)
                self.state = now

    def facts(self) -> dict[str, Any]:
        """What a run's record says of the lab it was in."""
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

    def _apply(self, before: Faults, after: Faults) -> None:
        """Make every node what it would be with other faults: only what differs is run."""
        plan = self.plan
        old_routes, new_routes = (commands.routes(plan, _down(faults)) for faults in (before, after))
        for node, name in enumerate(plan.nodes):
            for argv, was, now in (
                (("tc", "-batch", "-"), commands.buckets(plan, node, before), commands.buckets(plan, node, after)),
                (("ip", "-batch", "-"), old_routes[node], new_routes[node]),
                (_MARKER, commands.marks(plan, node, before), commands.marks(plan, node, after)),
            ):
                if lines := [line for line in now if line not in was]:
                    _call(self.inside(name, *argv), "\n".join(lines) + "\n", name)
            filters = commands.filters(plan, node, after)
            if filters != commands.filters(plan, node, before):
                _call(self.inside(name, "nft", "-f", "-"), filters, name)


def up(fabric: Path) -> tuple[Lab, bool]:
    """The lab of a fabric file, which stays until down(); whether it was up before. Raises LabError, FabricError."""
    name, text = state.name_of(fabric), _text(fabric)
    plan = _plan(text, fabric)
    with state.locked():
        if (lab := find(fabric, text)) is not None:
            return lab, True
        _remove(name)
        with _built(name, fabric, text, plan, stays=True) as lab:
            return lab, False


@contextmanager
def up_for(fabric: Path) -> Iterator[Lab]:
    """The lab of a fabric file as it is, or one that is built for this and ends with it, whatever happens."""
    text = _text(fabric)
    if (lab := find(fabric, text)) is not None:
        yield lab
        return
    name = f"{state.name_of(fabric)}-run-{os.getpid()}"
    with _built(name, fabric, text, _plan(text, fabric), stays=False) as lab:
        yield lab


def find(fabric: Path, text: str | None = None) -> Lab | None:
    """The lab of a fabric file that is up. `text`: what the file must hold. Raises LabError when it held otherwise."""
    lab = lab_named(state.name_of(fabric))
    if lab is not None and text is not None and lab.state.fabric_text != text:
        raise LabError(f"{fabric}: its lab was built before the file changed: genie lab down {fabric}, then up")
    return lab


def lab_named(name: str) -> Lab | None:
    """A lab that is up, by its name."""
    found = state.load(name)
    if found is None or not found.is_built or not state.is_alive(found.pid, found.started):
        return None
    return Lab(_plan(found.fabric_text, Path(found.fabric_path), found.marks), found)


def down(name: str) -> bool:
    """Take a lab down, whatever state it is in; whether there was anything. Raises LabError."""
    with state.locked():
        return _remove(name)


def names_of(fabric: Path) -> list[str]:
    """Labs of a fabric file: the one that stays, and those of runs that are gone."""
    own = state.name_of(fabric)
    left = []
    for name in state.all_names():
        if name.startswith(f"{own}-run-") and (found := state.load(name)) is not None:
            left += [name for _ in range(not state.started_at(found.owner or 0))]
    return [own, *left]


@contextmanager
def _built(name: str, fabric: Path, text: str, plan: Plan, *, stays: bool) -> Iterator[Lab]:
    """A new lab; unless it stays it ends with this."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", keeper.__file__],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        env={"PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin", "LC_ALL": "C"},
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    kept = False
    try:
        known = State(
            name=name,
            fabric_path=str(fabric.resolve()),
            fabric_text=text,
            pid=process.pid,
            started=state.started_at(process.pid),
            mark=uuid.uuid4().hex,
            owner=None if stays else os.getpid(),
        )
        state.save(known)
        process.stdin.write(json.dumps(_order(plan, name)).encode() + b"\n")
        process.stdin.flush()
        answer = _answer(process)
        known.in_user_namespace, known.marks = answer["in_user_namespace"], answer["marks"]
        known.is_built = True
        state.save(known)
        if stays:
            process.stdin.write(b"stay\n")
            process.stdin.flush()
            kept = True
        yield Lab(plan if known.marks else _plan(text, fabric, marks=False), known)
    except BrokenPipeError as error:
        raise LabError("the lab's keeper ended early", EXIT_ENVIRONMENT) from error
    finally:
        with suppress(OSError):
            process.stdin.close()
        process.stdout.close()
        if not kept:
            _end(process)
            state.path_of(name).unlink(missing_ok=True)


def _order(plan: Plan, name: str) -> dict[str, Any]:
    routes = commands.routes(plan)
    nodes = [
        {
            "sysctls": commands.sysctls(plan, node),
            "ip": "\n".join([*commands.interfaces(plan, node), *routes[node]]) + "\n",
            "tc": "\n".join(commands.buckets(plan, node, {})) + "\n",
            "marks": "\n".join(commands.marks(plan, node, {})),
        }
        for node in range(len(plan.nodes))
    ]
    return {
        "first_fd": commands.FIRST_FD,
        "state": str(state.path_of(name)),
        "cables": "\n".join(commands.cables(plan)) + "\n",
        "nodes": nodes,
    }


def _answer(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """What a keeper says when it has built everything. Raises LabError when it has not."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], BUILD_S)
    line = process.stdout.readline() if ready else b""
    if not line:
        what = "ended early" if ready else f"was not done within {BUILD_S:g} s"
        raise LabError(f"the lab's keeper {what}", EXIT_ENVIRONMENT)
    answer: dict[str, Any] = json.loads(line)
    if "error" in answer:
        raise LabError(answer["error"], EXIT_ENVIRONMENT)
    return answer


def _end(process: subprocess.Popen[bytes]) -> None:
    """A keeper whose input is closed ends what runs inside, and itself; one that does not is ended."""
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(END_S)


def _remove(name: str) -> bool:
    """End a lab's keeper, and what it had no time to end. The labs' files must be locked."""
    found = state.load(name)
    if found is None:
        return False
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + END_S
        if state.is_alive(found.pid, found.started):
            with suppress(ProcessLookupError):
                os.kill(found.pid, number)
        while state.is_alive(found.pid, found.started) and time.monotonic() < deadline:
            time.sleep(0.01)
    if state.is_alive(found.pid, found.started):
        raise LabError(f"{name}: its keeper, process {found.pid}, cannot be ended", EXIT_ENVIRONMENT)
    mark = f"{MARK}={found.mark}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in path.read_bytes().split(b"\0"):
                os.kill(int(path.parent.name), signal.SIGKILL)
    state.path_of(name).unlink(missing_ok=True)
    return True


def _with(faults: Faults, others: Faults, names: set[str]) -> dict[str, Fault]:
    """Faults, with other ones on some links."""
    kept = {name: fault for name, fault in faults.items() if name not in names}
    return kept | {name: others[name] for name in names if name in others}


def _down(faults: Faults) -> frozenset[str]:
    return frozenset(name for name, fault in faults.items() if fault.is_down)


def _text(fabric: Path) -> str:
    try:
        return fabric.read_text()
    except OSError as error:
        raise LabError(f"{fabric}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise LabError(f"{fabric}: is not text in UTF-8") from error


def _plan(text: str, fabric: Path, marks: bool = True) -> Plan:
    return plan_of(parse_fabric(text, str(fabric)), marks=marks)


def _call(argv: list[str], text: str, node: str) -> None:
    try:
        done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise LabError(f"{node}: {error}", EXIT_ENVIRONMENT) from error
    if done.returncode != 0:
        said = " ".join(done.stderr.split())[:400] or f"exit code {done.returncode}"
        hint = ": apt-get install iproute2 nftables" if "failed to execute" in said else ""
        raise LabError(f"{node}: cannot be set: {said}{hint}", EXIT_ENVIRONMENT)
