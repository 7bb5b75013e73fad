"""The processes that hold packets of links with a delay or reordering: one for each such link."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable
from contextlib import suppress

from genie.lab import commands, forwarder, state
from genie.lab.failure import EXIT_ENVIRONMENT, LabError
from genie.lab.faults import Fault, Faults
from genie.lab.plan import LabLink, Plan
from genie.lab.state import Forwarder, State

READY_S = 10.0
HOLD_NS = 2_000_000  # beyond the delay, for packets that others overtake


def start_missing(plan: Plan, known: State, faults: Faults, inside: Callable[..., list[str]]) -> None:
    """Start the forwarders that these faults need and that do not run. Raise LabError.

    `inside`: returns the command line that runs a program on a node.
    """
    for link in plan.links:
        fault = faults.get(link.name, Fault())
        if fault.is_held and not _runs(known.forwarders.get(link.name), fault):
            _end(known.forwarders.pop(link.name, None))
            known.forwarders[link.name] = _started(plan, known, link, fault, inside)


def end_others(known: State, faults: Faults) -> None:
    """End the forwarders that these faults do not need."""
    for name in list(known.forwarders):
        if not faults.get(name, Fault()).is_held:
            _end(known.forwarders.pop(name))


def _runs(own: Forwarder | None, fault: Fault) -> bool:
    if own is None or (own.delay_ns, own.reorder) != (fault.delay_ns, fault.reorder):
        return False
    return state.is_alive(own.pid, own.started)


def _end(own: Forwarder | None) -> None:
    if own is not None and state.is_alive(own.pid, own.started):
        with suppress(OSError):
            os.kill(own.pid, signal.SIGKILL)


def _started(plan: Plan, known: State, link: LabLink, fault: Fault, inside: Callable[..., list[str]]) -> Forwarder:
    order = {
        "source_namespace": f"/proc/{known.pid}/fd/{commands.FIRST_FD + link.source}",
        "source_device": link.device,
        "target_device": link.device,
        "delay_ns": fault.delay_ns,
        "reorder": fault.reorder,
        "hold_ns": HOLD_NS,
        "seed": zlib.crc32(link.name.encode()),
    }
    argv = inside(plan.nodes[link.target], sys.executable, "-I", "-S", forwarder.__file__)
    process = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], READY_S)
        answer = json.loads(process.stdout.readline() or b"{}") if ready else {}
    finally:
        process.stdin.close()
        process.stdout.close()
    if "ready" not in answer:
        process.kill()
        said = answer.get("error", "the process that holds packets did not start")
        raise LabError(f"{link.name}: packets cannot be delayed: {said}", EXIT_ENVIRONMENT)
    pid = int(answer["ready"])
    return Forwarder(pid, state.started_at(pid), fault.delay_ns, fault.reorder)
