"""Writing a workload: one `.et` file per rank and a groups file."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
from chakra_protobuf.et_def_pb2 import AttributeProto, GlobalMetadata, Node, NodeType
from numpy.typing import NDArray

from chakra_schemas.attributes import AttributeValue, make_attribute, make_attributes
from chakra_schemas.writer import write_trace
from genie.inputs.content import GZIP_MAGIC
from genie.workload.class_files import classes_text
from genie.workload.classes import RankViews
from genie.workload.decode import DURATION_ORIGIN, PEER_COLUMN, ROOTED
from genie.workload.files import TRACE_NAME, binary_traces, classes_name
from genie.workload.graph import Group, Kind, Op, RankGraph, Workload, WorkloadError

SCHEMA_VERSION = "0.0.4"
OWN_GENERATOR = re.compile(rb"generator.{1,8}genie", re.DOTALL)  # in the metadata at the beginning of a trace
HEAD_BYTES = 4096
CLASSES_MARK = b'{"schema":"genie.classes.'
PART = ".part"  # in the suffix, with the process number, of a file that is being written
PART_NAME = re.compile(r"(?P<name>.+)\.[0-9]+\.part")
GROUPS_DIGEST = re.compile(rb"groups_sha256.{1,8}?([0-9a-f]{64})", re.DOTALL)
TYPE_OF_KIND = {
    Kind.META: NodeType.METADATA_NODE,
    Kind.COMP: NodeType.COMP_NODE,
    Kind.MEM: NodeType.MEM_LOAD_NODE,
    Kind.SEND: NodeType.COMM_SEND_NODE,
    Kind.RECV: NodeType.COMM_RECV_NODE,
    Kind.COLL: NodeType.COMM_COLL_NODE,
}


def save(
    workload: Workload,
    folder: str | Path,
    prefix: str = "workload",
    compress: bool = False,
    generator: str = "genie",
) -> None:
    """Write `{prefix}.{rank}.et[.gz]` for every rank and the groups `{prefix}.json`; create the folder.

    `load` returns the same graphs, except for notes and the names of nodes' original types. `generator` is
    written into the traces. Raises as `write_files`.
    """
    groups = {group.name: list(group.ranks) for group in workload.groups}
    metadata = GlobalMetadata(version=SCHEMA_VERSION, attr=own_attributes(generator, groups))

    def write_rank(graph: RankGraph, columns: NDArray[np.int32] | None = None) -> Callable[[Path], None]:
        return lambda path: write_trace(path, metadata, graph_nodes(graph, workload.groups, columns), compress)

    if isinstance(workload.ranks, RankViews):
        classes = workload.ranks.classes
        traces = {}
        for number, template in enumerate(classes.templates):
            rank = int(classes.members(number)[0])
            traces[trace_name(prefix, rank, compress)] = write_rank(classes.graph(rank), template.peer)
        write_files(Path(folder), prefix, traces, groups, classes_text(workload, classes))
        return
    traces = {trace_name(prefix, rank, compress): write_rank(graph) for rank, graph in workload.ranks.items()}
    write_files(Path(folder), prefix, traces, groups)


def trace_name(prefix: str, rank: int, compress: bool) -> str:
    return f"{prefix}.{rank}.et{'.gz' if compress else ''}"


def write_files(
    folder: Path,
    prefix: str,
    traces: Mapping[str, Callable[[Path], None]],
    groups: Mapping[str, list[int]],
    classes: str = "",
) -> list[Path]:
    """Write traces (name -> function that writes one) and their groups, replacing all earlier traces of the prefix.

    `classes`: text of the classes file; "": all ranks have a trace.

    All files are written beside their places first, so that a failure leaves the earlier files. A failure during the
    replacement removes all of them, as a mixture is not a workload. Raises WorkloadError, and OSError with the file's
    name when a file cannot be written.
    """
    check_folder(folder)
    refuse_foreign(folder, prefix)

    def write_groups(path: Path) -> None:
        path.write_text(groups_text(groups), encoding="utf-8")

    writers = {**traces, f"{prefix}.json": write_groups}
    if classes:
        writers[classes_name(prefix)] = lambda path: _write_text(path, classes)
    files = [folder / name for name in writers]
    if taken := [path for path in files if path.is_dir()]:
        raise WorkloadError(f"{taken[0]}: is a folder; choose another -o or --prefix")
    at = folder  # the file that an error is about
    made: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for at, write in zip(files, writers.values(), strict=True):
            part = _part_of(at)
            os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))  # an existing file is never reused
            made.append(part)
            write(part)
        for at in binary_traces(folder, prefix):  # earlier traces may be of more ranks, or compressed
            at.unlink()
        (folder / classes_name(prefix)).unlink(missing_ok=True)
        for at in files:
            os.replace(_part_of(at), at)
            made.append(at)
        for at in folder.glob(f"{glob.escape(prefix)}.*{PART}"):
            if _is_left_over(at):
                at.unlink()
    except BaseException as error:
        for path in made:
            path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(at)
        raise
    return files


def check_folder(folder: Path) -> None:
    """Raise WorkloadError if the path exists and is not a folder."""
    if folder.exists() and not folder.is_dir():
        raise WorkloadError(f"{folder}: is not a folder; choose another -o")


def refuse_foreign(folder: Path, prefix: str) -> None:
    """Raise WorkloadError if a trace of the prefix, or its groups file, is not a file that Genie wrote."""
    traces = binary_traces(folder, prefix) if folder.is_dir() else []
    foreign = [path for path in traces if not _is_own(path)]
    classes = folder / classes_name(prefix)
    if (classes.exists() or classes.is_symlink()) and not _head(classes).startswith(CLASSES_MARK):
        foreign.append(classes)
    groups = folder / f"{prefix}.json"
    if (groups.exists() or groups.is_symlink()) and not (traces and _is_of(groups, traces[0])):
        foreign.append(groups)
    if foreign:
        raise WorkloadError(f"{foreign[0]}: is not a file that Genie wrote there; move it, or choose another -o")


def _is_own(path: Path) -> bool:
    """Whether a trace's metadata names Genie as its generator."""
    return not path.is_symlink() and OWN_GENERATOR.search(_head(path)) is not None


def _head(path: Path) -> bytes:
    """The first bytes of a trace, decompressed."""
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    if head.startswith(GZIP_MAGIC):
        with suppress(zlib.error):
            head = zlib.decompressobj(31).decompress(head, HEAD_BYTES)
    return head


def _is_left_over(path: Path) -> bool:
    """Whether a file is an unfinished trace of a killed conversion: empty, or with the beginning of Genie's traces."""
    match = PART_NAME.fullmatch(path.name)
    return match is not None and not path.is_symlink() and (path.stat().st_size == 0 or _is_own(path))


def _is_of(groups: Path, trace: Path) -> bool:
    """Whether a groups file is unchanged since it was written beside a trace, whose metadata has its digest."""
    digest = GROUPS_DIGEST.search(_head(trace))
    if digest is None or groups.is_symlink() or not groups.is_file():
        return False
    return hashlib.sha256(groups.read_bytes()).hexdigest() == digest[1].decode()


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def groups_text(groups: Mapping[str, list[int]]) -> str:
    """Text of the groups file."""
    return json.dumps(groups) + "\n"


def own_attributes(generator: str, groups: Mapping[str, list[int]]) -> list[AttributeProto]:
    """Metadata that marks a trace, and the groups file beside it, as written by Genie."""
    digest = hashlib.sha256(groups_text(groups).encode()).hexdigest()
    return [make_attribute("generator", generator), make_attribute("groups_sha256", digest)]


def refuse_strangers(folder: Path, prefix: str) -> None:
    """Raise WorkloadError if a folder contains anything but Genie's traces and their groups; OSError."""
    check_folder(folder)
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    prefixes, others = {prefix}, []
    for name in (path.name for path in paths if not _is_left_over(path)):
        match = TRACE_NAME.fullmatch(name)
        if match and "json" not in match["suffix"]:
            prefixes.add(match["prefix"])
        else:
            others.append(name)
    groups = {name for known in prefixes for name in (f"{known}.json", classes_name(known))}
    if strangers := [name for name in others if name not in groups]:
        raise WorkloadError(
            f"{folder}: holds files that are not traces of an earlier conversion ({', '.join(strangers[:3])}); choose "
            "another -o"
        )
    refuse_foreign(folder, prefix)


def _part_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.{os.getpid()}{PART}")


def graph_nodes(graph: RankGraph, groups: list[Group], columns: NDArray[np.int32] | None = None) -> Iterator[Node]:
    """The graph's rows as protobuf nodes, in ascending id; every dependency becomes a data dependency.

    `columns`: (n,) column of each peer in the table of a workload of classes; None: it has no classes.
    """
    starts = graph.dep_start.tolist()
    for row in range(len(graph)):
        kind = Kind(int(graph.kind[row]))
        node = Node(
            id=int(graph.node_id[row]),
            name=graph.name[row],
            type=TYPE_OF_KIND[kind],
            data_deps=graph.node_id[graph.deps[starts[row] : starts[row + 1]]].tolist(),
        )
        duration_ns = int(graph.duration_ns[row])
        attributes = _attributes(graph, row, kind, groups)
        if columns is not None and kind in (Kind.SEND, Kind.RECV):
            attributes[PEER_COLUMN] = int(columns[row])
        if kind in (Kind.COMP, Kind.MEM) and duration_ns >= 0:
            node.duration_micros = duration_ns // 1000
            attributes["duration_ns"] = duration_ns
        if graph.origin is not None and graph.origin[row]:
            attributes[DURATION_ORIGIN] = graph.origin[row]
        node.attr.extend(make_attributes(attributes))
        yield node


def _attributes(graph: RankGraph, row: int, kind: Kind, groups: list[Group]) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {"is_cpu_op": bool(graph.on_cpu[row])}
    size_bytes = int(graph.size_bytes[row])
    if graph.stream[row] >= 0:
        attributes["stream"] = int(graph.stream[row])
    if graph.num_ops[row] >= 0:
        attributes["num_ops"] = int(graph.num_ops[row])
    if graph.tensor_bytes[row] >= 0:
        attributes["tensor_size"] = int(graph.tensor_bytes[row])
    if size_bytes >= 0:
        attributes["comm_size"] = size_bytes
    if kind in (Kind.SEND, Kind.RECV):
        attributes["comm_dst" if kind is Kind.SEND else "comm_src"] = int(graph.peer[row])
        attributes["comm_src" if kind is Kind.SEND else "comm_dst"] = graph.rank
        attributes["comm_tag"] = int(graph.tag[row])
    if kind is Kind.COLL:
        group = groups[int(graph.group[row])]
        attributes["comm_type"] = int(graph.op[row])
        attributes["pg_name"] = group.name
        if Op(int(graph.op[row])) in ROOTED:
            attributes["root"] = group.ranks[int(graph.root[row])]
        if row in graph.splits:
            to_each, from_each = graph.splits[row]
            attributes["in_split_bytes"] = [int(value) for value in to_each]
            attributes["out_split_bytes"] = [int(value) for value in from_each]
    return attributes
