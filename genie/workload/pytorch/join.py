"""Joining of the host trace's communications with the profile's events.

The profile has the time of each communication call, the host trace its content. New traces share a number (record
function id). In old ones the calls of a thread are the same in both, in the same order.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from genie.workload.graph import WorkloadError
from genie.workload.pytorch.communications import OPERATOR_PREFIX, RECORD_NAME, Communication, is_communication
from genie.workload.pytorch.kineto import DeviceTrace, HostEvent, Thread
from genie.workload.pytorch.trace import HostTrace

RECORD_FUNCTION_ID = "Record function id"


@dataclass(slots=True)
class Span:
    """A communication and the time of its call."""

    event: HostEvent
    communication: Communication


def join(host: HostTrace, communications: list[Communication], device: DeviceTrace) -> tuple[list[Span], int]:
    """(spans in the order of their calls, number of communications that are missing in the profile).

    Raises WorkloadError when the two traces do not show the same communications.
    """
    events = _communication_events(device)
    if events and all(event.args.get(RECORD_FUNCTION_ID) for event in events):
        spans = _join_by_number(host, communications, device, events)
    else:
        spans = _join_by_order(host, communications, device, events)
    return sorted(spans, key=lambda span: span.event.start_ns), len(communications) - len(spans)


def _communication_events(device: DeviceTrace) -> list[HostEvent]:
    """Records, and operators that contain none; `operators` are sorted by thread and start, outer before inner."""
    candidates = [event for event in device.operators if is_communication(event.name)]
    found = []
    for index, event in enumerate(candidates):
        following = candidates[index + 1] if index + 1 < len(candidates) else None
        holds_next = (
            event.name.startswith(OPERATOR_PREFIX)
            and following is not None
            and following.thread == event.thread
            and following.end_ns <= event.end_ns
        )
        if not holds_next:
            found.append(event)
    return found


def _join_by_number(
    host: HostTrace, communications: list[Communication], device: DeviceTrace, events: list[HostEvent]
) -> list[Span]:
    by_number = {communication.node.rf_id: communication for communication in communications}
    spans = []
    for event in events:
        communication = by_number.get(int(event.args[RECORD_FUNCTION_ID]))
        if communication is None or communication.node.name != event.name:
            raise WorkloadError(
                f"{device.path}: {event.name} with record function id {event.args[RECORD_FUNCTION_ID]} is not in "
                f"{host.path}; both traces must be of the same iteration of the same rank"
            )
        spans.append(Span(event, communication))
    return spans


def _join_by_order(
    host: HostTrace, communications: list[Communication], device: DeviceTrace, events: list[HostEvent]
) -> list[Span]:
    by_host_thread: dict[int, list[Communication]] = defaultdict(list)
    for communication in communications:
        by_host_thread[communication.node.thread].append(communication)
    by_thread: dict[Thread, list[HostEvent]] = defaultdict(list)
    for event in events:
        by_thread[event.thread].append(event)
    spans = []
    for thread, calls in by_host_thread.items():
        match = next((found for found, members in by_thread.items() if _same(calls, members)), None)
        if match is None:
            found = ", ".join(f"{len(members)} on thread {name[1]}" for name, members in by_thread.items()) or "none"
            raise WorkloadError(
                f"{device.path}: thread {thread} of {host.path} made {len(calls)} communication calls, here {found}, "
                f"none of them the same; both traces must be of the same iteration of the same rank"
            )
        spans += [Span(event, call) for event, call in zip(by_thread.pop(match), calls, strict=True)]
    if by_thread:
        missing = sum(map(len, by_thread.values()))
        raise WorkloadError(
            f"{device.path}: {missing} communication calls are not in {host.path}; both traces must be of the same "
            f"iteration of the same rank"
        )
    return spans


def _same(calls: list[Communication], events: list[HostEvent]) -> bool:
    """Whether two lists have the same calls: names, and numbers of arguments where the profile has shapes."""
    if len(calls) != len(events):
        return False
    for call, event in zip(calls, events, strict=True):
        if call.node.name != event.name:
            return False
        types = event.args.get("Input type") or event.args.get("Input Dims")
        if event.name == RECORD_NAME and types is not None and len(types) != len(call.node.inputs):
            return False
    return True
