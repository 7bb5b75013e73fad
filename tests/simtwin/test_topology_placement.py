"""Ranks on the fabric's hosts."""

from __future__ import annotations

import pytest

from simtwin.fabric.placement import host_of_rank
from simtwin.fabric.reading import FabricError, loopback_fabric
from simtwin.fabric.topology import build_network

NETWORK = build_network(loopback_fabric(4, 10**9))


def test_rank_r_is_host_r_unless_a_port_says_otherwise() -> None:
    assert host_of_rank(NETWORK, 3).tolist() == [0, 1, 2]
    assert host_of_rank(NETWORK, 4, ["host3", None, "host0", "host0"]).tolist() == [3, 1, 0, 0]


def test_ranks_that_share_hosts_may_outnumber_them() -> None:
    assert host_of_rank(NETWORK, 6, [f"host{rank // 2}" for rank in range(6)]).tolist() == [0, 0, 1, 1, 2, 2]


def test_fewer_hosts_than_ranks() -> None:
    with pytest.raises(FabricError, match=r"small\.toml: has 4 hosts for 8 ranks: give a fabric with"):
        host_of_rank(NETWORK, 8, fabric="small.toml")


def test_a_port_that_is_no_host() -> None:
    with pytest.raises(FabricError, match='has no host "switch", the port of rank 1: give one of host0 to host3'):
        host_of_rank(NETWORK, 2, [None, "switch"])
