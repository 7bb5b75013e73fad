from __future__ import annotations

from collections import Counter
from pathlib import Path

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent
from synthetic_runs import run_pair
from tables import run_of

from genie.report.perfetto_trace import lanes_of, write_perfetto


def read(path: Path) -> Trace:
    trace = Trace()
    trace.ParseFromString(path.read_bytes())
    return trace


def test_both_worlds_are_processes_with_a_thread_per_rank(tmp_path: Path) -> None:
    live, twin = run_pair(1, iterations=3, warmup=1)
    write_perfetto(tmp_path / "t.pftrace", live, twin)
    packets = read(tmp_path / "t.pftrace").packet
    processes = {p.track_descriptor.process.pid: p.track_descriptor.process.process_name
                 for p in packets if p.track_descriptor.HasField("process")}  # fmt: skip
    assert processes == {1: "live (measured)", 2: "twin (simulated)"}
    threads = Counter((p.track_descriptor.thread.pid, p.track_descriptor.thread.thread_name)
                      for p in packets if p.track_descriptor.HasField("thread"))  # fmt: skip
    assert threads == {(pid, f"rank {rank}"): 1 for pid in (1, 2) for rank in range(8)}


def test_slices_nest_and_carry_their_facts(tmp_path: Path) -> None:
    live, twin = run_pair(1, iterations=3, warmup=1)
    write_perfetto(tmp_path / "t.pftrace", live, twin)
    open_slices: dict[int, list[tuple[str, int]]] = {}
    names: Counter[str] = Counter()
    interned: dict[int, str] = {}
    for packet in read(tmp_path / "t.pftrace").packet:
        tables = packet.interned_data
        for entry in (*tables.event_names, *tables.event_categories, *tables.debug_annotation_names):
            assert entry.iid not in interned
            interned[entry.iid] = entry.name
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        stack = open_slices.setdefault(event.track_uuid, [])
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            assert not stack or packet.timestamp >= stack[-1][1]
            name = interned[event.name_iid]
            stack.append((name, packet.timestamp))
            names[name] += 1
            facts = {interned[a.name_iid]: a.int_value or a.string_value for a in event.debug_annotations}
            if name == "all_reduce1":
                assert facts["size_bytes"] == 1_580_000
                assert facts["op"] == "all_reduce"
        else:
            assert packet.timestamp >= stack.pop()[1]
    assert all(not stack for stack in open_slices.values())
    assert names["all_reduce1"] == 2 * 3 * 8
    assert names["wait for the last rank"] == 2 * 3 * 4 * 7  # all but the last of 8, in 4 collectives


def test_iterations_of_both_worlds_share_their_origins(tmp_path: Path) -> None:
    live = run_of("live", [{"iteration": i, "start_ns": 0, "end_ns": 100 + i} for i in (0, 1)], follow=False)
    twin = run_of("twin", [{"iteration": i, "start_ns": 0, "end_ns": 500} for i in (0, 1)], follow=True)
    write_perfetto(tmp_path / "t.pftrace", live, twin)
    begins = [p.timestamp for p in read(tmp_path / "t.pftrace").packet
              if p.track_event.type == TrackEvent.TYPE_SLICE_BEGIN]  # fmt: skip
    assert begins[:2] == begins[2:]
    assert begins[1] >= 500


def test_overlapping_nodes_get_lanes_of_their_own() -> None:
    rows = [{"start_ns": s, "end_ns": e} for s, e in ((0, 10), (2, 5), (5, 8), (10, 12))]
    assert lanes_of(rows) == [0, 1, 1, 0]
