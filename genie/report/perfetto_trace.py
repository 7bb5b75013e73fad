"""timeline.pftrace: both worlds side by side for ui.perfetto.dev, a process per world and a thread per rank."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

import polars as pl
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackDescriptor, TrackEvent
from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

from genie.page.lanes import all_there_ns
from genie.record import atomic_file, mark, refuse_foreign

if TYPE_CHECKING:
    from pathlib import Path

    from genie.record import Run

PIDS = {"live": 1, "twin": 2}
TITLES = {"live": "live (measured)", "twin": "twin (simulated)"}
SEQUENCE = 1
KIND = "timeline-trace"
LANES_MAX = 16  # per rank: overlapping nodes need lanes of their own
GAP_NS = 1_000_000  # between iterations, which all start at 0


def write_perfetto(path: Path, live: Run, twin: Run) -> None:
    """Write the trace, iteration after iteration, with one origin for both worlds in each.

    Replaces an earlier trace of two worlds and no other file. Raises OSError, and RecordError for another file.
    """
    offsets = iteration_offsets(live, twin)
    refuse_foreign(path, KIND)
    with atomic_file(path) as part, open(part, "wb") as file:
        writer = _Writer(file)
        for world, run in (("live", live), ("twin", twin)):
            _write_world(writer, world, run, offsets)


def iteration_offsets(live: Run, twin: Run) -> dict[str, dict[int, int]]:
    """World → iteration → its start, in ns. The iterations of a twin that did not follow start beside the first judged
    one.
    """
    spans: dict[int, int] = {}
    beside = {int(i): int(i) for i in twin.timeline["iteration"].unique()}
    if not twin.info.get("follow", False) and beside:
        judged = live.timeline.filter(pl.col("iteration") >= int(live.info.get("warmup", 0)))["iteration"]
        if len(judged):
            first = min(beside)
            beside = {i: int(judged.min()) + i - first for i in beside}  # type: ignore[arg-type]
    for run, place in ((live, None), (twin, beside)):
        for iteration, end in run.timeline.group_by("iteration").agg(pl.col("end_ns").max()).iter_rows():
            at = place[iteration] if place else iteration
            spans[at] = max(spans.get(at, 0), int(end))
    starts, now = {}, 0
    for iteration in sorted(spans):
        starts[iteration] = now
        now += spans[iteration] + GAP_NS
    return {"live": starts, "twin": {i: starts[at] for i, at in beside.items()}}


def lanes_of(rows: list[dict[str, Any]]) -> list[int]:
    """A lane for each row, given in order of start, so that slices of one lane do not overlap; in the last lane they
    may.
    """
    ends: list[int] = []
    result = []
    for row in rows:
        free = next((lane for lane, end in enumerate(ends) if end <= row["start_ns"]), len(ends))
        free = min(free, LANES_MAX - 1)
        if free == len(ends):
            ends.append(0)
        ends[free] = max(ends[free], row["end_ns"])
        result.append(free)
    return result


def _write_world(writer: _Writer, world: str, run: Run, offsets: dict[str, dict[int, int]]) -> None:
    pid = PIDS[world]
    packet = writer.packet()
    packet.track_descriptor.uuid = pid
    packet.track_descriptor.process.pid = pid
    packet.track_descriptor.process.process_name = TITLES[world]
    packet.track_descriptor.child_ordering = TrackDescriptor.EXPLICIT
    writer.write(packet)
    played = run.timeline.filter(
        (pl.col("kind") != "meta") & (pl.col("start_ns") >= 0) & (pl.col("end_ns") >= pl.col("start_ns"))
    ).with_columns(all_there_ns=all_there_ns())
    for (rank,), part in sorted(played.group_by("rank"), key=lambda entry: int(entry[0][0])):
        described: set[int] = set()
        for (iteration,), rows in sorted(part.group_by("iteration"), key=lambda entry: int(entry[0][0])):
            shift = offsets[world].get(int(iteration))
            if shift is None:
                continue
            table = rows.sort("start_ns", "node_id").to_dicts()
            for row, lane in zip(table, lanes_of(table), strict=True):
                track = _describe(writer, pid, int(rank), lane, described)
                _write_slice(writer, track, row, shift)


def _describe(writer: _Writer, pid: int, rank: int, lane: int, described: set[int]) -> int:
    """Number of the track of a rank's lane; writes its descriptor on first use."""
    tid = 1000 * pid + rank * LANES_MAX + lane + 1
    track = (pid << 40) + tid
    if lane not in described:
        described.add(lane)
        packet = writer.packet()
        packet.track_descriptor.uuid = track
        packet.track_descriptor.parent_uuid = pid
        packet.track_descriptor.sibling_order_rank = rank * LANES_MAX + lane
        packet.track_descriptor.thread.pid = pid
        packet.track_descriptor.thread.tid = tid
        packet.track_descriptor.thread.thread_name = f"rank {rank}" if lane == 0 else f"rank {rank} (also)"
        writer.write(packet)
    return track


def _write_slice(writer: _Writer, track: int, row: dict[str, Any], shift: int) -> None:
    start, end = row["start_ns"] + shift, row["end_ns"] + shift
    shown = {key: row[key] for key in ("node_id", "iteration", "op", "group", "seq") if row[key] is not None}
    queued = row["start_ns"] - row["ready_ns"]
    for key, value in (("size_bytes", row["size_bytes"]), ("overshoot_ns", row["overshoot_ns"]), ("queued_ns", queued)):
        if value:
            shown[key] = value
    writer.begin(track, start, row["name"] or row["kind"], row["kind"], shown)
    there = min(row["all_there_ns"], row["end_ns"]) + shift
    if there > start:
        writer.begin(track, start, "wait for the last rank", "wait", {})
        writer.end(track, there)
    writer.end(track, end)


class _Writer:
    """Packets of one sequence; names are written once and then referred to by number."""

    def __init__(self, file: IO[bytes]) -> None:
        self._builder = StreamingTraceProtoBuilder(file)
        self._names: dict[tuple[str, str], int] = {}
        packet = self.packet()
        packet.trusted_packet_sequence_id = SEQUENCE
        packet.sequence_flags = TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        packet.trace_config.unique_session_name = mark(KIND)
        self.write(packet)

    def packet(self) -> Any:
        return self._builder.create_packet()

    def write(self, packet: Any) -> None:
        self._builder.write_packet(packet)

    def begin(self, track: int, at_ns: int, name: str, category: str, shown: dict[str, Any]) -> None:
        packet = self._event(track, at_ns, TrackEvent.TYPE_SLICE_BEGIN)
        event = packet.track_event
        event.name_iid = self._number(packet, "event_names", name)
        event.category_iids.append(self._number(packet, "event_categories", category))
        for key, value in shown.items():
            annotation = event.debug_annotations.add()
            annotation.name_iid = self._number(packet, "debug_annotation_names", key)
            if isinstance(value, int):
                annotation.int_value = value
            else:
                annotation.string_value = str(value)
        self.write(packet)

    def end(self, track: int, at_ns: int) -> None:
        self.write(self._event(track, at_ns, TrackEvent.TYPE_SLICE_END))

    def _event(self, track: int, at_ns: int, kind: int) -> Any:
        packet = self.packet()
        packet.timestamp = at_ns
        packet.trusted_packet_sequence_id = SEQUENCE
        packet.sequence_flags = TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        packet.track_event.type = kind
        packet.track_event.track_uuid = track
        return packet

    def _number(self, packet: Any, table: str, name: str) -> int:
        """Number of a name in a table of interned names; a new name is added to the packet."""
        number = self._names.get((table, name))
        if number is None:
            number = self._names[(table, name)] = len(self._names) + 1
            entry = getattr(packet.interned_data, table).add()
            entry.iid = number
            entry.name = name
        return number
