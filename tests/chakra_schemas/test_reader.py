"""Reading traces: every variant, and everything that is not a trace."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest
from chakra_protobuf.et_def_pb2 import AttributeProto, GlobalMetadata, IOInfo, Node, NodeType
from google.protobuf.json_format import MessageToJson
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra_schemas.attributes import MEMBERS, attributes_of, make_attribute, make_attributes
from chakra_schemas.errors import TraceError
from chakra_schemas.reader import is_json, read_trace
from chakra_schemas.writer import write_trace

EMPTY = GlobalMetadata()
METADATA = GlobalMetadata(version="0.0.4", attr=[make_attribute("schema", "1.0.2-chakra.0.0.4")])
NODES = [
    Node(id=1, name="kernel", type=NodeType.COMP_NODE, duration_micros=7, start_time_micros=3),
    Node(
        id=2,
        name="all_reduce",
        type=NodeType.COMM_COLL_NODE,
        data_deps=[1],
        ctrl_deps=[1, 99],
        inputs=IOInfo(values="[1]", shapes="[[]]", types="['Int']"),
        attr=make_attributes({"comm_type": 0, "comm_size": 2**63 + 1, "mine": [b"kept"], "pg_name": "größe"}),
    ),
    Node(id=3, name="x" * 300, type=NodeType.MEM_LOAD_NODE),
]


def read(path: Path) -> tuple[GlobalMetadata, list[Node]]:
    trace = read_trace(path)
    return trace.metadata, list(trace.nodes)


def written(path: Path, metadata: GlobalMetadata = METADATA, compress: bool = False) -> bytes:
    write_trace(path, metadata, NODES, compress)
    return path.read_bytes()


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("metadata", [METADATA, EMPTY], ids=["metadata", "empty"])
@pytest.mark.parametrize("name", ["t.0.et", "t.0.et.gz", "t.0.json"])
def test_binary_is_told_by_content(name: str, metadata: GlobalMetadata, compress: bool, tmp_path: Path) -> None:
    data = written(tmp_path / name, metadata, compress)
    assert data.startswith(b"\x1f\x8b") is compress
    assert compress or metadata != EMPTY or data[0] == 0
    assert read(tmp_path / name) == (metadata, NODES)


def test_metadata_alone_is_a_trace(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"\x00")
    assert read(tmp_path / "t") == (EMPTY, [])


def test_length_that_looks_like_a_brace(tmp_path: Path) -> None:
    metadata = GlobalMetadata(version="v" * 121)
    assert metadata.ByteSize() == ord("{")
    data = written(tmp_path / "t", metadata)
    assert data[:2] == b"{\n"
    assert not is_json(data)
    assert read(tmp_path / "t") == (metadata, NODES)


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("indent", [2, None])
def test_concatenated_json(indent: int | None, compress: bool, tmp_path: Path) -> None:
    text = "\n".join(MessageToJson(message, indent=indent) for message in (METADATA, *NODES)).encode()
    assert b'"9223372036854775809"' in text  # 64-bit integers are strings
    (tmp_path / "t").write_bytes(gzip.compress(text) if compress else b"\xef\xbb\xbf" + text)
    assert read(tmp_path / "t") == (METADATA, NODES)


def test_concatenated_json_without_metadata(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("".join(MessageToJson(node) for node in NODES))
    assert read(tmp_path / "t") == (EMPTY, NODES)


def test_json_node_type_that_the_schema_lacks(tmp_path: Path) -> None:
    (tmp_path / "t").write_text('{"version": "x"} {"id": "1", "type": "STORAGE_NODE"} {"id": "2", "type": 9}')
    _, nodes = read(tmp_path / "t")
    assert attributes_of(nodes[0]) == {"node_type": "STORAGE_NODE"}
    assert nodes[1].type == 9


def test_workload_graph_json(tmp_path: Path) -> None:
    graph = [
        {
            "Id": 4,
            "Name": "mul",
            "NodeType": 4,
            "ctrlDeps": [],
            "data_deps": [1, 2],
            "runtime": 12,
            "is_cpu_op": False,
            "num_ops": 10,
            "inputs": {"values": [1]},
        },
        {
            "Id": 5,
            "Name": "ar",
            "NodeType": "COMM_COLL_NODE",
            "ctrlDeps": [4],
            "comm_size": 64,
            "pg_name": "1",
            "none": None,
        },
        {"Id": 6, "Name": "s", "NodeType": "STORAGE_NODE"},
    ]
    (tmp_path / "t").write_text(json.dumps({"workload_graph": graph}))
    metadata, nodes = read(tmp_path / "t")
    assert metadata == EMPTY
    assert [node.id for node in nodes] == [4, 5, 6]
    assert nodes[0].name == "mul"
    assert nodes[0].type == NodeType.COMP_NODE
    assert list(nodes[0].data_deps) == [1, 2]
    assert nodes[0].duration_micros == 12
    assert attributes_of(nodes[0]) == {"is_cpu_op": False, "num_ops": 10, "inputs": '{"values": [1]}'}
    assert nodes[1].type == NodeType.COMM_COLL_NODE
    assert list(nodes[1].ctrl_deps) == [4]
    assert attributes_of(nodes[1]) == {"comm_size": 64, "pg_name": "1"}
    assert attributes_of(nodes[2]) == {"node_type": "STORAGE_NODE"}


@settings(derandomize=True, deadline=None, max_examples=200)
@given(data=st.data())
def test_round_trip_keeps_everything(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    attributes = []
    for member in data.draw(st.lists(st.sampled_from(MEMBERS), max_size=6)):
        attribute = AttributeProto(name=data.draw(st.text("abc", max_size=5)), doc_string="why")
        kind, _, shape = member.partition("_")
        value: object = {"string": "s", "bytes": b"\x00\xff", "bool": True}.get(kind, data.draw(st.integers(0, 99)))
        if shape == "list":
            getattr(attribute, member).values.extend([value] * data.draw(st.integers(1, 3)))
        else:
            setattr(attribute, member, value)
        attributes.append(attribute)
    uint64 = st.integers(0, 2**64 - 1)
    node = Node(
        id=data.draw(uint64),
        name=data.draw(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200)),
        type=data.draw(st.integers(0, 12)),  # type: ignore[arg-type]
        data_deps=data.draw(st.lists(uint64, max_size=4)),
        ctrl_deps=data.draw(st.lists(uint64, max_size=4)),
        duration_micros=data.draw(uint64),
        attr=attributes,
    )
    metadata = GlobalMetadata(version=data.draw(st.text("0123.", max_size=200)), attr=attributes)
    compress = data.draw(st.booleans())
    path = tmp_path_factory.getbasetemp() / "round_trip.et"
    write_trace(path, metadata, [node] * 3, compress)
    assert read(path) == (metadata, [node] * 3)
    path.write_text("".join(MessageToJson(message) for message in (metadata, node, node)))
    assert read(path) == (metadata, [node] * 2)


def test_fields_of_a_later_schema_survive(tmp_path: Path) -> None:
    later = b"\xa2\x06\x03new"  # field 100, a string
    node = Node.FromString(NODES[0].SerializeToString() + later)
    write_trace(tmp_path / "t", METADATA, [node])
    (_, [again]) = read(tmp_path / "t")
    assert again.SerializeToString().endswith(later)


def boundaries(path: Path) -> set[int]:
    """Offsets at which a cut trace is a shorter trace."""
    ends = {len(written(path))}
    for count in range(len(NODES)):
        write_trace(path, METADATA, NODES[:count])
        ends.add(path.stat().st_size)
    return ends


def test_cut_at_every_offset(tmp_path: Path) -> None:
    path = tmp_path / "cut.et"
    whole_at = boundaries(path)
    data = written(path)
    for size in range(len(data)):
        path.write_bytes(data[:size])
        if size in whole_at:
            assert read(path)[0] == METADATA
            continue
        with pytest.raises(TraceError) as caught:
            read(path)
        assert str(caught.value).startswith(f"{path}: at byte {caught.value.offset}: ")
        assert 0 <= caught.value.offset <= size
        assert "\n" not in str(caught.value)


def test_compressed_cut_at_every_offset(tmp_path: Path) -> None:
    path = tmp_path / "cut.et.gz"
    data = written(path, compress=True)
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(TraceError):
            read(path)


@pytest.mark.parametrize("whole", [False, True], ids=["messages", "workload_graph"])
def test_json_cut_at_every_offset(whole: bool, tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    graph = {"workload_graph": [{"Id": 1, "Name": "a", "NodeType": 4}, {"Id": 2, "Name": "b", "data_deps": [1]}]}
    messages = [MessageToJson(message, indent=None) for message in (METADATA, *NODES)]
    text = json.dumps(graph) if whole else "\n".join(messages)
    data = text.encode()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        try:
            _, nodes = read(path)
        except TraceError as error:
            assert "\n" not in str(error)  # noqa: PT017
        else:
            assert not whole
            assert nodes == NODES[: len(nodes)]
            assert data[:size].decode().strip().endswith("}")


def test_any_changed_byte_is_a_trace_or_a_trace_error(tmp_path: Path) -> None:
    path = tmp_path / "changed.et"
    rng = random.Random(7)
    for compress in (False, True):
        data = written(path, compress=compress)
        for offset in range(len(data)):
            changed = bytearray(data)
            changed[offset] ^= 1 << rng.randrange(8)
            path.write_bytes(changed)
            try:
                read(path)
            except TraceError as error:
                assert str(path) in str(error)  # noqa: PT017


VALID_START = b"\x07\x0a\x050.0.4"  # a metadata message
KEYS = ["workload_graph", "id", "name", "type", "attr", "version", "Id", "NodeType", "data_deps", "ctrlDeps"]
KEYS += ["runtime", "dataDeps", "values", "int64List", "int64Val", "inputs", "x"]


@settings(derandomize=True, deadline=None, max_examples=500)
@given(
    data=st.one_of(
        st.binary(max_size=300),
        st.binary(max_size=300).map(lambda data: b"\x1f\x8b\x08" + data),
        st.binary(max_size=300).map(gzip.compress),
        st.binary(max_size=100).map(lambda data: VALID_START + data),
        st.text(max_size=100).map(lambda text: ("{" + text).encode("utf-8", "replace")),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
            max_leaves=12,
        ).map(lambda value: json.dumps(value).encode()),
    )
)
def test_garbage_is_a_trace_error_or_a_trace(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "garbage"
    path.write_bytes(data)
    try:
        metadata, nodes = read(path)
    except TraceError as error:
        assert str(error).startswith(f"{path}: at byte ")  # noqa: PT017
    else:
        assert isinstance(metadata, GlobalMetadata)
        assert all(isinstance(node, Node) for node in nodes)


NOT_TRACES = {
    "empty": (b"", "empty"),
    "text": (b"This is a text file, and no trace at all. " * 9, "not a Chakra trace"),
    "zeros": (bytes(4096), "empty node"),
    "png": (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "not a Chakra trace"),
    "elf": (b"\x7fELF\x02\x01\x01" + bytes(64), "not a Chakra trace"),
    "huge length": (b"\xff\xff\xff\xff\x0f", "not a Chakra trace"),
    "endless length": (b"\xff" * 20, "no message length"),
    "html": (b"<html><body>Not found</body></html>", "not a Chakra trace"),
    "json list": (b"[1, 2]", "JSON other than objects"),
    "json object": (b'{"hello": 1}', "not a Node"),
    "host trace": (b'{"schema": "1.1.0-chakra.0.0.4", "nodes": []}', "genie convert pytorch"),
    "kineto": (b'{"traceEvents": []}', "genie convert pytorch"),
    "deep json": (b'{"a":' + b"[" * 100_000, "JSON"),
    "huge number": (b'{"id": ' + b"9" * 5000 + b"}", "JSON"),
    "graph is no list": (b'{"workload_graph": 5}', "not a list"),
    "graph of numbers": (b'{"workload_graph": [5]}', "workload_graph[0] is not an object"),
    "graph with bad id": (b'{"workload_graph": [{"Id": -1}]}', "workload_graph[0]"),
    "graph with bad type": (b'{"workload_graph": [{"Id": 1, "NodeType": 1e99}]}', "workload_graph[0]"),
    "latin-1": ('{"name": "größe"}'.encode("latin-1"), "UTF-8"),
}


@pytest.mark.parametrize("name", NOT_TRACES)
def test_what_is_not_a_trace_is_named(name: str, tmp_path: Path) -> None:
    data, expected = NOT_TRACES[name]
    (tmp_path / "t").write_bytes(data)
    with pytest.raises(TraceError, match=expected.replace("[", r"\[").replace("]", r"\]")):
        read(tmp_path / "t")


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        read_trace(tmp_path / "absent")
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace(tmp_path)


def test_offset_points_at_the_damage(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_trace(path, METADATA, NODES[:1])
    before = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"\x03\xff\xff\xff")
    with pytest.raises(TraceError) as caught:
        read(path)
    assert caught.value.offset == before + 1


def test_a_node_without_content_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="without id, name and type"):
        write_trace(tmp_path / "t", EMPTY, [Node()])
