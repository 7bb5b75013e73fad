"""timeline.pftrace: both worlds side by side for ui.perfetto.dev, a process per world and a thread per rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackDescriptor, TrackEvent
from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

if TYPE_CHECKING:
    from pathlib import Path

    from genie.record import Run

PIDS = {"live": 1, "twin": 2}
TITLES = {"live": "live (measured)", "twin": "twin (simulated)"}
SEQUENCE = 1
LANES_MAX = 16  # per rank: nodes that overlap in time need lanes of their own
GAP_NS = 1_000_000  # between iterations, which all start at 0


def write_perfetto(path: Path, live: Run, twin: Run) -> None:
    """Write the trace; iteration after iteration, both worlds from one origin in each. Raises OSError."""
    offsets = iteration_offsets(live, twin)
    with open(path, "wb") as file:
        builder = StreamingTraceProtoBuilder(file)
        for world, run in (("live", live), ("twin", twin)):
            _write_world(builder, world, run, offsets)


def iteration_offsets(live: Run, twin: Run) -> dict[str, dict[int, int]]:
    """World → iteration → where it starts, in ns. A twin that did not follow stands beside the first judged one."""
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
    """A lane for each row (in order of start) such that slices of one lane do not overlap; the last lane may."""
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


def _write_world(builder: StreamingTraceProtoBuilder, world: str, run: Run, offsets: dict[str, dict[int, int]]) -> None:
    pid = PIDS[world]
    packet = builder.create_packet()
    packet.track_descriptor.uuid = pid
    packet.track_descriptor.process.pid = pid
    packet.track_descriptor.process.process_name = TITLES[world]
    packet.track_descriptor.child_ordering = TrackDescriptor.EXPLICIT
    builder.write_packet(packet)
    played = run.timeline.filter(
        (pl.col("kind") != "meta") & (pl.col("start_ns") >= 0) & (pl.col("end_ns") >= pl.col("start_ns"))
    ).with_columns(
        pl.when(pl.col("kind") == "coll")
        .then(pl.col("start_ns").max().over("iteration", "group", "seq"))
        .otherwise(pl.col("start_ns"))
        .alias("all_there_ns")
    )
    for (rank,), part in sorted(played.group_by("rank"), key=lambda entry: int(entry[0][0])):
        described: set[int] = set()
        for (iteration,), rows in sorted(part.group_by("iteration"), key=lambda entry: int(entry[0][0])):
            shift = offsets[world].get(int(iteration))
            if shift is None:
                continue
            table = rows.sort("start_ns", "node_id").to_dicts()
            for row, lane in zip(table, lanes_of(table), strict=True):
                track = _describe(builder, pid, int(rank), lane, described)
                _write_slice(builder, track, row, shift)


def _describe(builder: StreamingTraceProtoBuilder, pid: int, rank: int, lane: int, described: set[int]) -> int:
    """The track of a rank's lane, written when it is first used."""
    tid = 1000 * pid + rank * LANES_MAX + lane + 1
    track = (pid << 40) + tid
    if lane not in described:
        described.add(lane)
        packet = builder.create_packet()
        packet.track_descriptor.uuid = track
        packet.track_descriptor.parent_uuid = pid
        packet.track_descriptor.sibling_order_rank = rank * LANES_MAX + lane
        packet.track_descriptor.thread.pid = pid
        packet.track_descriptor.thread.tid = tid
        packet.track_descriptor.thread.thread_name = f"rank {rank}" if lane == 0 else f"rank {rank} (also)"
        builder.write_packet(packet)
    return track


def _write_slice(builder: StreamingTraceProtoBuilder, track: int, row: dict[str, Any], shift: int) -> None:
    start, end = row["start_ns"] + shift, row["end_ns"] + shift
    keys = ("node_id", "kind", "op", "group", "seq", "size_bytes", "overshoot_ns", "iteration")
    shown = {key: row[key] for key in keys if row[key] is not None}
    shown["queued_ns"] = row["start_ns"] - row["ready_ns"]
    _write_event(builder, track, start, TrackEvent.TYPE_SLICE_BEGIN, row["name"] or row["kind"], row["kind"], shown)
    there = min(row["all_there_ns"], row["end_ns"]) + shift
    if there > start:
        _write_event(builder, track, start, TrackEvent.TYPE_SLICE_BEGIN, "wait for the last rank", "wait", {})
        _write_event(builder, track, there, TrackEvent.TYPE_SLICE_END)
    _write_event(builder, track, end, TrackEvent.TYPE_SLICE_END)


def _write_event(
    builder: StreamingTraceProtoBuilder,
    track: int,
    at_ns: int,
    kind: int,
    name: str = "",
    category: str = "",
    shown: dict[str, Any] | None = None,
) -> None:
    packet = builder.create_packet()
    packet.timestamp = at_ns
    packet.trusted_packet_sequence_id = SEQUENCE
    packet.track_event.type = kind
    packet.track_event.track_uuid = track
    if name:
        packet.track_event.name = name
        packet.track_event.categories.append(category)
    for key, value in (shown or {}).items():
        annotation = packet.track_event.debug_annotations.add()
        annotation.name = key
        if isinstance(value, int):
            annotation.int_value = value
        else:
            annotation.string_value = str(value)
    builder.write_packet(packet)
