"""Which file is which rank's."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from genie.workload.graph import WorkloadError
from genie.workload.pytorch.files import find_device_traces, find_host_traces, find_traces


def write(folder: Path, *names: str, content: str = "{}") -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


@pytest.mark.parametrize(
    "names",
    [
        ("dlrm_eg_0.json", "dlrm_eg_1.json", "dlrm_eg_10.json"),
        ("worker0_step_12.99.pt.trace.json", "worker1_step_12.98.pt.trace.json", "worker10_step_12.97.pt.trace.json"),
        ("rank-0.host.json", "rank-1.host.json", "rank-10.host.json"),
        ("step3/rank_0_et.json", "step3/rank_1_et.json", "step3/rank_10_et.json"),
    ],
)
def test_ranks_from_names(tmp_path: Path, names: tuple[str, ...]) -> None:
    write(tmp_path, *names)
    (tmp_path / f"._{Path(names[0]).name}").write_bytes(b"\x00\x05")  # as macOS archives hold them
    assert find_traces(tmp_path).by_rank == dict(zip((0, 1, 10), (tmp_path / name for name in names), strict=True))


def test_ranks_from_contents(tmp_path: Path) -> None:
    for rank, name in ((1, "host_77.5.pt.trace.json"), (0, "host_78.5.pt.trace.json.gz")):
        data = b'{"traceEvents": [], "distributedInfo": {"backend": "nccl", "rank": %d, "world_size": 2}}' % rank
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    found = find_traces(tmp_path)
    assert [path.name for path in found.by_rank.values()] == ["host_78.5.pt.trace.json.gz", "host_77.5.pt.trace.json"]


def test_both_kinds_of_traces_in_one_folder(tmp_path: Path) -> None:
    write(tmp_path, "rank0.host.json", "rank1.host.json", content='{"nodes": []}')
    write(tmp_path, "rank0.kineto.json", "rank1.kineto.json", content='{"traceEvents": []}')
    assert {path.name for path in find_host_traces(tmp_path).by_rank.values()} == {"rank0.host.json", "rank1.host.json"}
    assert {path.name for path in find_device_traces(tmp_path).by_rank.values()} == {
        "rank0.kineto.json",
        "rank1.kineto.json",
    }
    assert find_traces(f"{tmp_path}/*.host.json").by_rank == find_host_traces(tmp_path).by_rank


def test_the_other_kind_of_traces_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, "rank0.json", "rank1.json", content='{"nodes": []}')
    with pytest.raises(WorkloadError, match=r'none of 2 files holds "traceEvents"; is it the other folder\?'):
        find_device_traces(tmp_path)


def test_files_that_are_no_traces_are_told_with_the_reason(tmp_path: Path) -> None:
    contents = {
        "rank0.json": b'{"nodes": []}',
        "rank1.json": b'{"traceEvents": []}',
        "rank2.json": b"",
        "rank3.json": b"[]",
        "rank4.json": b"\xff\x00garbage",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    found = find_host_traces(tmp_path)
    assert found.by_rank == {0: tmp_path / "rank0.json"}
    assert [(path.name, why) for path, why in found.passed_over.items()] == [
        ("rank2.json", "it is empty"),
        ("rank3.json", "it is neither a host execution trace nor a profiler trace"),
        ("rank4.json", "it is not JSON"),
        ("rank1.json", "it is a profiler trace"),
    ]


def test_one_file_is_rank_0_unless_it_says_otherwise(tmp_path: Path) -> None:
    write(tmp_path, "graph_vgg13-iter41.json", "rank3.json")
    assert list(find_traces(tmp_path / "graph_vgg13-iter41.json").by_rank) == [0]
    assert list(find_traces(tmp_path / "rank3.json").by_rank) == [3]


def test_nothing_or_nothing_clear_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"no \.json or \.json\.gz traces here"):
        find_traces(tmp_path / "absent")
    write(tmp_path, "a.json", "b.json")
    with pytest.raises(WorkloadError, match=r"cannot tell which rank each of 2 files is of \(a\.json, b\.json"):
        find_traces(tmp_path)
