"""Waits for gloo's collectives, which PyTorch does not record: they are inferred from silence.

Gloo works on its own threads, where the profiler shows each collective as an annotation `gloo:...`. The calling thread
is silent while it waits. So a collective is waited for where its caller is silent when the collective ends. If the
caller is busy then, the first silence after it counts.
"""

from __future__ import annotations

from collections.abc import Iterator

from genie.workload.pytorch.actions import Action, Silence, Step
from genie.workload.pytorch.communications import Role
from genie.workload.pytorch.join import Span
from genie.workload.pytorch.kineto import DeviceTrace, HostEvent

WORK_PREFIX = "gloo:"


def inferred_waits(device: DeviceTrace, spans: list[Span]) -> list[Action]:
    """A wait for each communication that gloo carried out and that no record waits for."""
    recorded = {(s.communication.group, s.communication.sequence) for s in spans if s.communication.role is Role.WAIT}
    actions = []
    silences: dict[object, Silence] = {}
    for span, work in _works(device, spans):
        communication, thread = span.communication, span.event.thread
        if communication.sequence >= 0 and (communication.group, communication.sequence) in recorded:
            continue
        silence = silences.setdefault(thread, Silence(device, thread))
        stretch = silence.first_after(max(work.end_ns, span.event.end_ns))
        if stretch is None:
            continue
        start_ns, end_ns = max(stretch[0], span.event.end_ns), stretch[1]
        waited = HostEvent(work.name, start_ns, max(start_ns, min(work.end_ns, end_ns)), thread, {})
        actions.append(
            Action(start_ns, Step.WAIT, thread, span=Span(waited, communication), waits_for=communication.node.id)
        )
    return actions


def _works(device: DeviceTrace, spans: list[Span]) -> Iterator[tuple[Span, HostEvent]]:
    """Each communication with gloo's work for it; both are in the order of the calls."""
    works = sorted((e for e in device.annotations if e.name.startswith(WORK_PREFIX)), key=lambda event: event.start_ns)
    for span in spans:
        if span.communication.moves_data and not span.communication.on_device:
            at = next((at for at, work in enumerate(works) if work.start_ns >= span.event.start_ns), None)
            if at is not None:
                yield span, works.pop(at)
