"""NCCL's variables: read as NCCL reads them, and what they mean for messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from genie.config.nccl import NcclVariableError, NcclVariables, settings_list, shape_of


def variables(tmp_path: Path, text: str = "", own: str = "", **environment: str) -> NcclVariables:
    system, home = tmp_path / "nccl.conf", tmp_path / ".nccl.conf"
    system.write_text(text)
    home.write_text(own)
    return NcclVariables(environment, (home, system))


def shape(tmp_path: Path, **environment: str) -> dict[str, Any]:
    return shape_of(variables(tmp_path, **environment), ranks_per_node=1)


def test_the_environment_stands_above_files(tmp_path: Path) -> None:
    found = variables(
        tmp_path,
        "# a comment\nNCCL_ALGO=Tree\nNCCL_PROTO = LL # why\n\nNCCL_BUFFSIZE=1048576\n",
        "NCCL_PROTO=LL128\n",
        NCCL_ALGO="Ring",
        HOME="/root",
    )
    assert dict(found) == {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL128", "NCCL_BUFFSIZE": "1048576"}
    assert found.sources["NCCL_ALGO"] == "environment"
    assert found.sources["NCCL_PROTO"].endswith(".nccl.conf")
    assert found.sources["NCCL_BUFFSIZE"].endswith("/nccl.conf")


def test_a_file_may_be_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.conf"
    path.write_text("NCCL_MIN_NCHANNELS=4\n")
    found = NcclVariables({"NCCL_CONF_FILE": str(path)})
    assert found["NCCL_MIN_NCHANNELS"] == "4"


def test_defaults(tmp_path: Path) -> None:
    assert shape(tmp_path) == {
        "channels": 2,
        "algorithm": None,
        "protocol": "simple",
        "buffer_bytes": 4 << 20,
        "p2p_chunk_bytes": 128 << 10,
        "pxn": True,
    }
    assert shape_of(variables(tmp_path), ranks_per_node=8)["channels"] == 16
    assert shape_of(variables(tmp_path), ranks_per_node=64)["channels"] == 64


@pytest.mark.parametrize(
    ("name", "value", "key", "wanted"),
    [
        ("NCCL_ALGO", "Ring", "algorithm", "ring"),
        ("NCCL_ALGO", "^Tree", "algorithm", "ring"),
        ("NCCL_ALGO", "Ring,Tree", "algorithm", None),
        ("NCCL_ALGO", "NVLS", "algorithm", None),
        ("NCCL_ALGO", "broadcast:ring;allreduce:tree,nvls", "algorithm", "tree"),
        ("NCCL_ALGO", "broadcast:ring", "algorithm", None),
        ("NCCL_PROTO", "LL", "protocol", "ll"),
        ("NCCL_PROTO", "^Simple", "protocol", "ll128"),
        ("NCCL_BUFFSIZE", "8M", "buffer_bytes", 8 << 20),
        ("NCCL_BUFFSIZE", "524288", "p2p_chunk_bytes", 65536),
        ("NCCL_MIN_NCHANNELS", "8", "channels", 8),
        ("NCCL_MAX_NCHANNELS", "1", "channels", 1),
        ("NCCL_P2P_NET_CHUNKSIZE", "64K", "p2p_chunk_bytes", 65536),
        ("NCCL_PXN_DISABLE", "1", "pxn", False),
    ],
)
def test_values(tmp_path: Path, name: str, value: str, key: str, wanted: object) -> None:
    assert shape(tmp_path, **{name: value})[key] == wanted


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("NCCL_ALGO", "Rings", r"of ring, tree, .* \(not rings\)"),
        ("NCCL_PROTO", "Simple,Fast", r"of simple, ll128, ll \(not fast\)"),
        ("NCCL_BUFFSIZE", "12", "a number of bytes in 8192"),
        ("NCCL_BUFFSIZE", "large", "a number of bytes"),
        ("NCCL_MIN_NCHANNELS", "0", "a number in 1..64"),
        ("NCCL_MAX_NCHANNELS", "many", "a number in 1..64"),
        ("NCCL_CROSS_NIC", "3", "a number in 0..2"),
    ],
)
def test_wrong_values_are_named(tmp_path: Path, name: str, value: str, allowed: str) -> None:
    with pytest.raises(NcclVariableError, match=rf'{name}="{value}" \(environment\): must be {allowed}'):
        shape(tmp_path, **{name: value})


def test_a_line_without_a_value_is_named(tmp_path: Path) -> None:
    with pytest.raises(NcclVariableError, match=r"nccl.conf, line 2: 'NCCL_ALGO' is no NAME=VALUE"):
        variables(tmp_path, "\nNCCL_ALGO\n")


def test_the_list_says_what_mattered(tmp_path: Path) -> None:
    found = variables(
        tmp_path,
        NCCL_ALGO="Tree", NCCL_CROSS_NIC="1", NCCL_DEBUG="INFO", NCCL_IB_TC="104", NCCL_IB_QPS_PER_CONNECTION="4",
    )  # fmt: skip
    played = {**shape_of(found, 1), "ranks_per_node": 1}
    effects = {entry.name: entry.effect for entry in settings_list(found, played, verbs=False)}
    assert effects["NCCL_ALGO"] == "tree for all-reduce"
    assert effects["NCCL_CROSS_NIC"].startswith("none: ")
    assert effects["NCCL_DEBUG"] == "none: Genie does not read it"
    assert effects["NCCL_IB_TC"] == "none: no rank is on --transport verbs"
    assert effects["NCCL_IB_QPS_PER_CONNECTION"].startswith("queue pairs")
    plain = {entry.name: entry.effect for entry in settings_list(found, None, verbs=True)}
    assert plain["NCCL_ALGO"] == "none: --wire plain"
    assert plain["NCCL_IB_TC"] == "of --transport verbs"
