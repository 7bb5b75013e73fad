"""`genie convert pytorch`: PyTorch's host and device traces of a job become a Chakra workload."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from chakra_protobuf.et_def_pb2 import GlobalMetadata, NodeType

from chakra_schemas.attributes import make_attribute
from chakra_schemas.writer import write_trace
from genie.workload.graph import Op, WorkloadError
from genie.workload.pytorch.communications import Communication, Role, find_communications
from genie.workload.pytorch.device_only import GroupShape, find_device_communications
from genie.workload.pytorch.groups import Members, RankView, agree, members_by_name, world_size
from genie.workload.pytorch.host_only import host_only_nodes
from genie.workload.pytorch.join import join
from genie.workload.pytorch.kineto import DeviceTrace, read_device_trace
from genie.workload.pytorch.nodes import DraftNode, DraftRank, protobuf_nodes
from genie.workload.pytorch.replica import replicate, unequal_parts
from genie.workload.pytorch.timeline import Timeline
from genie.workload.pytorch.trace import HostTrace, read_host_trace
from genie.workload.write import own_attributes, save, trace_name, write_files

SCHEMA_VERSION = "0.0.4"
SHOWN_MAX = 8  # ranks or files in one line


@dataclass
class RankSummary:
    """Summary of one rank's conversion."""

    nodes: int
    device_compute_ns: int  # kernels without communication
    memory_ns: int  # copies and sets on the device
    host_ns: int  # the host's own time, without waits
    span_ns: int  # duration of the recording; 0: it has no times
    unknown_durations: int  # compute nodes that need a compute model
    collectives: dict[str, int]  # count by operation, lower case
    communication_bytes: int  # sum of the sizes of collectives and sends


@dataclass
class ConversionReport:
    """Files and notes of a conversion."""

    files: list[Path]
    groups: dict[str, list[int]]
    ranks: dict[int, RankSummary]
    notes: list[str] = field(default_factory=list)  # one line each: parts left out, and disagreements


def check_prefix(prefix: str) -> None:
    """Raise WorkloadError unless `prefix` is a plain part of a file name, from which workloads can be found."""
    if not prefix or prefix.strip(".") != prefix or "/" in prefix or not prefix.isprintable():
        raise WorkloadError(
            f"--prefix {prefix!r}: must be one plain part of a file name, neither beginning nor ending with a dot; "
            "the folder is given with -o"
        )


def convert(
    host_traces: Mapping[int, Path],
    device_traces: Mapping[int, Path],
    out_folder: Path,
    prefix: str,
    compress: bool = False,
    passed_over: Mapping[Path, str] | None = None,
    replicas: int | None = None,
    shapes: Mapping[int, GroupShape] | None = None,
) -> ConversionReport:
    """Write `{prefix}.{rank}.et[.gz]` for every rank and the groups `{prefix}.json`; create the folder.

    host_traces, device_traces: file by rank. Without device traces, nodes have no durations. Without host traces, the
    device traces tell the communications, and each rank of the job needs one.
    passed_over: files beside them that were not taken, with the reason; for messages.
    replicas: make a job of so many ranks, which all play the one trace that is given (`replica.py`).
    shapes: stream -> groups of its kernels, where a device trace does not name them.
    Raises WorkloadError: one line with the file or rank, the problem and the remedy. Raises OSError with the file's
    name when a file cannot be written. An earlier conversion then stays as it was.
    """
    check_prefix(prefix)
    given = {*host_traces.values(), *device_traces.values()}
    strangers = [f"{path}: {why}" for path, why in (passed_over or {}).items() if path not in given]
    if not host_traces and not device_traces:
        raise WorkloadError("no traces to convert; give the host traces' folder and the device traces' folder")
    without_host = sorted(set(device_traces) - set(host_traces))
    if replicas is not None and len({*host_traces, *device_traces}) > 1:
        raise WorkloadError(
            f"--replicate {replicas}: makes a job of one rank's trace, and there are traces of ranks "
            f"[{_shown(sorted({*host_traces, *device_traces}))}]; give the file of one of them"
        )
    if host_traces and device_traces and (without_host or set(host_traces) - set(device_traces)):
        odd = without_host or sorted(set(host_traces) - set(device_traces))
        kind = "host" if without_host else "device"
        why = f" (not taken: {_shown(strangers)})" if strangers else ""
        raise WorkloadError(
            f"ranks [{_shown(odd)}] have no {kind} trace{why}; give both traces of every rank, or host traces only"
        )
    views, drafts = [], []
    for rank in sorted({*host_traces, *device_traces}):
        view = _read(rank, host_traces.get(rank), device_traces.get(rank))
        drafts.append(_draft(view, _ranks_told(view, device_traces), shapes or {}))
        views.append(view)
    groups = _settle_groups(views)
    if replicas is not None:
        return _replicate(views[0], drafts[0], groups, replicas, out_folder, prefix, compress)
    if not host_traces:
        _refuse_missing(views, groups)
    notes = [f"not taken: {_shown(strangers)}"] if strangers else []
    notes += _notes_of(drafts)
    notes += [*_missing_ranks(views, groups), *_check_sequences(views, groups)]
    _settle_splits(views, groups)
    files = _write(out_folder, prefix, drafts, views, groups, compress)
    summaries = {draft.rank: _summarize(draft) for draft in drafts}
    return ConversionReport(files, {name: list(ranks) for name, ranks in groups.items()}, summaries, notes)


def _read(rank: int, host_path: Path | None, device_path: Path | None) -> RankView:
    host = read_host_trace(host_path) if host_path else None
    device = read_device_trace(device_path) if device_path else None
    if device and device.rank not in (-1, rank):
        raise WorkloadError(f"{device.path}: is of rank {device.rank}, but was given as the trace of rank {rank}")
    return RankView(rank, host, device, find_communications(host) if host else [])


def _ranks_told(view: RankView, traces: Mapping[int, Path]) -> int:
    """Return the number of ranks of the job, as the profile tells it, or else by the files' ranks."""
    told = int(view.device.distributed.get("world_size") or 0) if view.device else 0
    return max(told, 1 + max(traces, default=0))


def _draft(view: RankView, world_size: int, shapes: Mapping[int, GroupShape]) -> DraftRank:
    if view.device is None:
        assert view.host is not None
        return DraftRank(view.rank, host_only_nodes(view.host, view.communications))
    lost, notes = 0, []
    if view.host:
        spans, lost = join(view.host, view.communications, view.device)
    else:
        found = find_device_communications(view.device, view.rank, world_size, shapes)
        if not found.spans and not view.device.device_ops:
            raise WorkloadError(
                f"{view.device.path}: has no kernels, copies or communications: give the profile of a job on a GPU"
            )
        spans, view.listed, notes = found.spans, found.groups, found.notes
        view.communications = [span.communication for span in spans]
    timeline = Timeline(view.device)
    draft = DraftRank(view.rank, timeline.play(spans), _span_ns(view.device), [*timeline.notes], notes)
    if lost:
        draft.notes += ["communication calls outside the profile: left out"] * lost
    kept = {id(node.communication) for node in draft.nodes if node.communication}
    view.communications = [communication for communication in view.communications if id(communication) in kept]
    return draft


def _span_ns(device: DeviceTrace) -> int:
    host_events = (*device.operators, *device.annotations, *device.calls)
    return max([event.end_ns for event in host_events] + [op.end_ns for op in device.device_ops], default=0)


def _counted(notes: list[str]) -> Iterator[str]:
    for note, count in Counter(notes).items():
        yield f"{count} {note}"


def _shown(items: Sequence[object]) -> str:
    return ", ".join(map(str, items[:SHOWN_MAX])) + (", ..." if len(items) > SHOWN_MAX else "")


def _missing_ranks(views: list[RankView], groups: dict[str, Members]) -> list[str]:
    """A note if a rank of the groups, or a rank below another, has no trace, so that the workload is incomplete."""
    present = {view.rank for view in views}
    world = range(1 + max(present.union(*groups.values())))
    missing = [rank for rank in world if rank not in present]
    if not missing:
        return []
    return [f"ranks [{_shown(missing)}] of the groups have no trace: genie inspect will refuse until they are there"]


def _refuse_missing(views: list[RankView], groups: dict[str, Members]) -> None:
    """Raise WorkloadError if a rank of a job without host traces has no trace."""
    world = max(world_size(views), 1 + max((max(ranks) for ranks in groups.values()), default=0))
    present = {view.rank for view in views}
    missing = [rank for rank in range(world) if rank not in present]
    if missing:
        first = views[0].device
        assert first is not None
        raise WorkloadError(
            f"{first.path}: is of a job of {world} ranks, and ranks [{_shown(missing)}] have no trace; give the traces "
            f"of all ranks, or make a job out of one rank's: --device {first.path} --replicate {world}"
        )


def _notes_of(drafts: list[DraftRank]) -> list[str]:
    """Return the notes, each with the ranks that it is of."""
    ranks: dict[str, list[int]] = defaultdict(list)
    for draft in drafts:
        for note in (*_counted(draft.notes), *draft.assumptions):
            ranks[note].append(draft.rank)
    return [f"{'ranks' if len(found) > 1 else 'rank'} {_shown(found)}: {note}" for note, found in ranks.items()]


def _replicate(
    view: RankView, draft: DraftRank, groups: dict[str, Members], ranks: int, folder: Path, prefix: str, compress: bool
) -> ConversionReport:
    """Write a job whose ranks all play one draft."""
    device = view.device or view.host
    assert device is not None
    world, unequal = world_size([view]), unequal_parts(draft)
    workload = replicate(draft, groups, world, ranks, device.path)
    save(workload, folder, prefix, compress, f"genie convert pytorch: {ranks} replicas of rank {view.rank}")
    notes = [
        f"all {ranks} ranks play the trace of rank {view.rank} of a job of {world}: they compute alike, and no rank is "
        "late; sizes and compute times are those of the trace",
        *workload.notes,
        *_notes_of([draft]),
    ]
    if all(len(group.ranks) < ranks for group in workload.groups) and ranks > 1:
        notes.append(f"no group has all {ranks} ranks: these are jobs beside each other")
    if unequal:
        notes.append(f"{unequal} all-to-alls of unequal parts: a replica sends equal parts")
    files = sorted(path for path in folder.iterdir() if path.name.startswith(f"{prefix}."))
    members = {group.name: list(group.ranks) for group in workload.groups}
    return ConversionReport(files, members, {view.rank: _summarize(draft)}, notes)


def _settle_groups(views: list[RankView]) -> dict[str, Members]:
    """Members by name; communications are renamed to the names that all ranks agree on."""
    world = world_size(views)
    by_rank = {view.rank: members_by_name(view, world) for view in views}
    groups, replacements = agree(by_rank)
    for view in views:
        for communication in view.communications:
            communication.group = replacements[view.rank].get(communication.group, communication.group)
    return groups


Collectives = dict[str, list[Communication]]


def _by_group(view: RankView) -> Collectives:
    found: Collectives = defaultdict(list)
    for communication in view.communications:
        if communication.role is Role.COLLECTIVE:
            found[communication.group].append(communication)
    return found


def _check_sequences(views: list[RankView], groups: dict[str, Members]) -> list[str]:
    """A note for each group whose members do not play the same collectives, with the first difference."""
    notes = []
    present = {view.rank: _by_group(view) for view in views}
    for name, members in groups.items():
        ranks = [rank for rank in members if rank in present]
        for rank in ranks[1:]:
            first, other = present[ranks[0]].get(name, []), present[rank].get(name, [])
            at = next((k for k, (a, b) in enumerate(zip(first, other, strict=False)) if a.op is not b.op), None)
            if at is not None:
                what = (
                    f"collective {at} is {first[at].op.name.lower()} on rank {ranks[0]}, {other[at].op.name.lower()} on"
                )
                notes.append(f"group {name!r}: {what} rank {rank}")
            elif len(first) != len(other):
                notes.append(
                    f"group {name!r}: {len(first)} collectives on rank {ranks[0]}, {len(other)} on rank {rank}"
                )
    return notes


def _settle_splits(views: list[RankView], groups: dict[str, Members]) -> None:
    """Keep the split sizes of an all-to-all on all ranks if they are uneven on any rank, else on none."""
    present = {view.rank: _by_group(view) for view in views}
    for name, members in groups.items():
        sequences = [present[rank].get(name, []) for rank in members if rank in present]
        for calls in zip(*sequences, strict=False):
            if calls[0].op is not Op.ALL_TO_ALL:
                continue
            uneven = any(len({*call.to_each, *call.from_each}) > 1 for call in calls)
            told = any(call.to_each or call.from_each for call in calls)
            if not told and len(calls) == len(members) and len({call.size_bytes for call in calls}) > 1:
                for call in calls:  # each member sends equal parts of its own input
                    call.to_each = [call.size_bytes // len(members)] * len(members)
                    call.from_each = [other.size_bytes // len(members) for other in calls]
                continue
            for call in calls:
                call.to_each = (call.to_each or [call.size_bytes // len(members)] * len(members)) if uneven else []
                call.from_each = (call.from_each or list(call.to_each)) if uneven else []


def _write(
    folder: Path,
    prefix: str,
    drafts: list[DraftRank],
    views: list[RankView],
    groups: dict[str, Members],
    compress: bool,
) -> list[Path]:
    members = {name: list(ranks) for name, ranks in groups.items()}

    def write_rank(draft: DraftRank, view: RankView) -> Callable[[Path], None]:
        metadata = _metadata(view.host, view.device, members)
        return lambda path: write_trace(path, metadata, protobuf_nodes(draft, groups), compress)

    traces = {
        trace_name(prefix, draft.rank, compress): write_rank(draft, view)
        for draft, view in zip(drafts, views, strict=True)
    }
    return write_files(folder, prefix, traces, members)


def _metadata(host: HostTrace | None, device: DeviceTrace | None, groups: dict[str, list[int]]) -> GlobalMetadata:
    """Metadata without a time or a path, so that equal traces give equal files."""
    metadata = GlobalMetadata(version=SCHEMA_VERSION, attr=own_attributes("genie convert pytorch", groups))
    if host:
        metadata.attr.append(make_attribute("schema", host.schema))
    metadata.attr.append(make_attribute("durations", "profile" if device else "unknown"))
    return metadata


def _summarize(draft: DraftRank) -> RankSummary:
    def total(nodes: list[DraftNode]) -> int:
        return sum(max(node.duration_ns, 0) for node in nodes)

    compute = [node for node in draft.nodes if node.type == NodeType.COMP_NODE]
    memory = [node for node in draft.nodes if node.type in (NodeType.MEM_LOAD_NODE, NodeType.MEM_STORE_NODE)]
    moved = [node.communication for node in draft.nodes if node.communication is not None]
    return RankSummary(
        nodes=len(draft.nodes),
        device_compute_ns=total([node for node in compute if not node.on_cpu]),
        memory_ns=total(memory),
        host_ns=total([node for node in compute if node.on_cpu]),
        span_ns=draft.span_ns,
        unknown_durations=sum(node.duration_ns < 0 for node in compute),
        collectives=dict(Counter(c.op.name.lower() for c in moved if c.role is Role.COLLECTIVE)),
        communication_bytes=sum(c.size_bytes for c in moved if c.role is not Role.RECV),
    )
