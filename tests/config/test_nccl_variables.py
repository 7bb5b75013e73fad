"""NCCL's variables: read as NCCL reads them, and what they mean for messages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from genie.collectives.nccl.shape import NCCL_ALGORITHMS
from genie.config import nccl
from genie.config.nccl import (
    IN_CHANNELS,
    IN_MESSAGES,
    NcclVariableError,
    NcclVariables,
    Played,
    settings_list,
    shape_of,
)


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
        "allowed": (),
        "collnet": False,
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
        ("NCCL_ALGO", "ring,collnetdirect;allreduce:tree,collnetdirect;broadcast:ring", "algorithm", "tree"),
        ("NCCL_ALGO", "ring;broadcast:tree", "algorithm", "ring"),
        ("NCCL_ALGO", "Ring; allreduce: ^Ring", "algorithm", "tree"),
        ("NCCL_ALGO", "allgather:ring,collnetdirect", "allowed", (("all_gather", ("ring",)),)),
        ("NCCL_ALGO", "PAT", "allowed", (("all_gather", ("pat",)), ("reduce_scatter", ("pat",)))),
        ("NCCL_ALGO", "allgather:pat;reduce:tree", "allowed", (("all_gather", ("pat",)),)),
        ("NCCL_ALGO", "allreduce:NVLS", "allowed", (("all_reduce", ("nvls",)),)),
        ("NCCL_ALGO", "Tree,NVLSTree", "allowed", (("all_reduce", ("tree", "nvlstree")),)),
        ("NCCL_PAT_ENABLE", "0", "allowed", (("all_gather", ("ring",)), ("reduce_scatter", ("ring",)))),
        ("NCCL_PAT_ENABLE", "1", "allowed", ()),
        ("NCCL_COLLNET_ENABLE", "1", "collnet", True),
        ("NCCL_ALGO", "CollnetDirect", "allowed", (("all_reduce", ("collnetdirect",)),)),
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
        ("NCCL_ALGO", "Ring;broadcast:Rings", r"of ring, tree, .* \(not rings\)"),
        ("NCCL_ALGO", "allgather:collnetdirect", r"of ring, pat for allgather \(Genie has no collnetdirect for it\)"),
        (
            "NCCL_ALGO",
            "Ring;reducescatter:NVLS,CollnetDirect",
            r"of ring, pat for reducescatter \(.* collnetdirect or nvls",
        ),
        ("NCCL_ALGO", "allreduce:PAT", r"of ring, tree, .* for allreduce \(Genie has no pat for it\)"),
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
    with pytest.raises(NcclVariableError, match=r"nccl.conf, line 2: 'NCCL_ALGO' is not NAME=VALUE"):
        variables(tmp_path, "\nNCCL_ALGO\n")


def test_files_have_variables_of_others_too(tmp_path: Path) -> None:
    assert dict(variables(tmp_path, "UCX_TLS=rc\nNCCL_ALGO=Ring\n", "FOO=bar\n")) == {"NCCL_ALGO": "Ring"}


def test_a_file_that_may_not_be_read_is_passed_over_and_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    system = tmp_path / "nccl.conf"
    monkeypatch.setattr(nccl, "read_bytes", refuse)  # root may read everything
    found = NcclVariables({"NCCL_ALGO": "Ring"}, (system,))
    assert dict(found) == {"NCCL_ALGO": "Ring"}
    assert found.warnings == [f"{system}: may not be read, and is passed over, as NCCL does: see its permissions"]


def effects(tmp_path: Path, played: Played, ranks_per_node: int = 1, **environment: str) -> dict[str, str]:
    """By variable: what the list says, with the shape that follows from all of them."""
    found = variables(tmp_path, **environment)
    shape = {**shape_of(found, ranks_per_node), "ranks_per_node": ranks_per_node}
    return {entry.name: entry.effect for entry in settings_list(found, replace(played, shape=shape))}


def test_the_list_says_what_mattered(tmp_path: Path) -> None:
    said = effects(
        tmp_path, Played(),
        NCCL_ALGO="Tree", NCCL_CROSS_NIC="1", NCCL_DEBUG="INFO", NCCL_IB_TC="104", NCCL_IB_QPS_PER_CONNECTION="4",
    )  # fmt: skip
    assert said["NCCL_ALGO"] == "tree for all-reduce"
    assert said["NCCL_CROSS_NIC"].startswith("none: ")
    assert said["NCCL_DEBUG"] == "none: Genie does not read it"
    assert said["NCCL_IB_TC"] == "none: no rank is on --transport verbs"
    assert said["NCCL_IB_QPS_PER_CONNECTION"].startswith("queue pairs")


def test_plain_messages_have_none_of_it(tmp_path: Path) -> None:
    found = variables(tmp_path, NCCL_ALGO="Tree", NCCL_IB_TC="104")
    said = {entry.name: entry.effect for entry in settings_list(found, Played(verbs=True))}
    assert said == {"NCCL_ALGO": "none: --wire plain", "NCCL_IB_TC": "of --transport verbs"}


def test_what_is_overruled_does_nothing(tmp_path: Path) -> None:
    overruled = {"NCCL_ALGO": "--algorithm all_reduce=tree", "NCCL_IB_SPLIT_DATA_ON_QPS": "--split"}
    said = effects(tmp_path, Played(overruled=overruled), NCCL_ALGO="Ring", NCCL_IB_SPLIT_DATA_ON_QPS="1")
    assert said == {name: f"none: {option} sets it" for name, option in overruled.items()}


def test_devices_have_only_what_is_read(tmp_path: Path) -> None:
    unread = ("NCCL_IB_DISABLE", "NCCL_IB_ADAPTIVE_ROUTING", "NCCL_IB_AR_THRESHOLD", "NCCL_IB_PCI_RELAXED_ORDERING")
    said = effects(tmp_path, Played(verbs=True), NCCL_IB_HCA="mlx5", **dict.fromkeys(unread, "1"))
    assert said.pop("NCCL_IB_HCA") == "of --transport verbs"
    assert said == dict.fromkeys(unread, "none: Genie does not read it")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_ALGO", "Ring,Tree"),
        ("NCCL_PROTO", "^LL"),
        ("NCCL_MIN_NCHANNELS", "2"),
        ("NCCL_MAX_NCHANNELS", "32"),
        ("NCCL_BUFFSIZE", "4M"),
        ("NCCL_P2P_NET_CHUNKSIZE", "128K"),
        ("NCCL_PXN_DISABLE", "0"),
    ],
)
def test_the_value_that_holds_anyway_does_nothing(tmp_path: Path, name: str, value: str) -> None:
    assert effects(tmp_path, Played(), **{name: value})[name].startswith("none: ")


IN_ALL_TO_ALL = {
    "NCCL_P2P_NET_CHUNKSIZE": "chunks of at most 4096 bytes",
    "NCCL_PXN_DISABLE": "no relays in all-to-all",
}
IN_ALL_REDUCE = {
    "NCCL_ALGO": "tree for all-reduce",
    "NCCL_MIN_NCHANNELS": "7 channels",
    "NCCL_BUFFSIZE": "steps of 8192 bytes",
}


@pytest.mark.parametrize(("op", "wanted"), [("all_to_all", IN_ALL_TO_ALL), ("all_reduce", IN_ALL_REDUCE)])
def test_variables_act_on_the_collectives_that_there_are(tmp_path: Path, op: str, wanted: dict[str, str]) -> None:
    given = {
        "NCCL_ALGO": "Tree", "NCCL_MIN_NCHANNELS": "7", "NCCL_BUFFSIZE": "64K", "NCCL_P2P_NET_CHUNKSIZE": "4K",
        "NCCL_PXN_DISABLE": "1",
    }  # fmt: skip
    said = effects(tmp_path, Played(operations={op}), 2, **given)
    assert {name: effect for name, effect in said.items() if not effect.startswith("none: ")} == wanted


def test_a_small_buffer_makes_small_chunks(tmp_path: Path) -> None:
    said = effects(tmp_path, Played(operations={"all_to_all"}), NCCL_BUFFSIZE="64K")
    assert said == {"NCCL_BUFFSIZE": "chunks of at most 8192 bytes"}


def test_a_buffer_is_of_the_protocol_simple(tmp_path: Path) -> None:
    said = effects(tmp_path, Played(operations={"all_reduce"}), NCCL_BUFFSIZE="64K", NCCL_PROTO="LL")
    assert said["NCCL_BUFFSIZE"].startswith("none: ")


def test_all_collectives_are_of_one_kind() -> None:
    assert set(NCCL_ALGORITHMS) == IN_CHANNELS | IN_MESSAGES
    assert not IN_CHANNELS & IN_MESSAGES
