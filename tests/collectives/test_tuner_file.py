"""Tuner files of NCCL's example plugin: rows that override NCCL's choice, and cells that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from genie.collectives.nccl.shape import NcclShape, choose_nccl
from genie.collectives.nccl.tuner_file import TunerFileError, TunerRow, read_tuner
from genie.collectives.nccl.tuning import Server

MIB = 1 << 20
SERVER = Server("h100", "2.23", 370.8, 50.0)


def written(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "tuner.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def shape_with(rows: tuple[TunerRow, ...]) -> NcclShape:
    return NcclShape(channels=16, ranks_per_node=8, server=SERVER, tuner=rows)


def test_the_first_row_that_fits_holds(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "# a comment",
        "collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks",
        "",
        "allreduce, 0, 65536, tree, simple, 2, 2, 16",
        "allreduce,0,4294967295,ring,ll128,-1,-1,-1",
    )
    shape = shape_with(read_tuner(path))
    small = choose_nccl("all_reduce", 16, 4096, shape, 8)
    assert (small.algorithm, small.protocol, small.channels) == ("tree", "simple", 2)
    large = choose_nccl("all_reduce", 16, MIB, shape, 8)
    own = choose_nccl("all_reduce", 16, MIB, NcclShape(channels=16, ranks_per_node=8, server=SERVER), 8)
    assert (large.algorithm, large.protocol) == ("ring", "ll128") != (own.algorithm, own.protocol)
    assert choose_nccl("all_reduce", 32, 4096, shape, 8).protocol == "ll128", "the first row is for 16 ranks"
    assert choose_nccl("all_gather", 16, 4096, shape, 8) == choose_nccl("all_gather", 16, 4096, shape_with(()), 8)


def test_sizes_are_those_of_the_whole_buffer(tmp_path: Path) -> None:
    shape = shape_with(read_tuner(written(tmp_path, f"allgather,{MIB},{MIB},ring,ll,1,-1,-1")))
    assert choose_nccl("all_gather", 16, MIB // 16, shape, 8).protocol == "ll"
    assert choose_nccl("all_gather", 16, MIB, shape, 8) == choose_nccl("all_gather", 16, MIB, shape_with(()), 8)


@pytest.mark.parametrize(
    "row",
    [
        "allreduce,0,1048576,tree,simple,2,1,-1",  # of one server
        "allreduce,0,1048576,nvls,simple,2,-1,-1",  # inside a server only
        "allreduce,0,1048576,ring,simple,2,-1,-1,4",  # of four operations at once
        "allreduce,0,1048576,ring,simple,2,-1,-1,-1,1",  # from registered buffers
    ],
)
def test_rows_that_do_not_fit_are_passed_over(tmp_path: Path, row: str) -> None:
    own = choose_nccl("all_reduce", 16, 4096, shape_with(()), 8)
    assert choose_nccl("all_reduce", 16, 4096, shape_with(read_tuner(written(tmp_path, row))), 8) == own


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("allreduce,0,1", "line 2: 3 columns: give 8 to 10: collective, min bytes"),
        ("alltoall,0,1,ring,ll,1,-1,-1", "line 2, column 1 (collective): 'alltoall' must be one of allreduce, "),
        ("allreduce,x,1,ring,ll,1,-1,-1", "line 2, column 2 (min bytes): 'x' must be a number of bytes"),
        ("allreduce,9,1,ring,ll,1,-1,-1", "line 2, column 3 (max bytes): '1' must be a number of bytes from 9 on"),
        ("allreduce,0,1,rings,ll,1,-1,-1", "line 2, column 4 (algorithm): 'rings' must be one of ring, tree"),
        ("allreduce,0,1,ring,l,1,-1,-1", "line 2, column 5 (protocol): 'l' must be one of ll, ll128, simple"),
        ("allreduce,0,1,ring,ll,65,-1,-1", "line 2, column 6 (channels): '65' must be -1 or a number in 1..64"),
        ("allreduce,0,1,ring,ll,1,0,-1", "line 2, column 7 (nodes): '0' must be -1 or a number in 1.."),
        ("allreduce,0,1,ring,ll,1,-1,-1,-1,2", "line 2, column 10 (regBuff): '2' must be -1, 0 or 1"),
    ],
)
def test_a_bad_row_is_refused_with_line_and_column(tmp_path: Path, row: str, says: str) -> None:
    path = written(tmp_path, "allreduce,0,1,ring,ll,1,-1,-1", row)
    with pytest.raises(TunerFileError) as refused:
        read_tuner(path)
    assert str(refused.value).startswith(f"{path}, {says}")
    assert refused.value.code == 2


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TunerFileError, match=r"none\.csv: cannot be read: No such file or directory: give a tuner's"):
        read_tuner(tmp_path / "none.csv")
