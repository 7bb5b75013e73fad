"""Tiers of links between switches, as a run's record has them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import polars as pl
import pytest

import simtwin
from simtwin.fabric.reading import load_fabric
from simtwin.fabric.tiers import tiers_of
from simtwin.fabric.topology import build_network

FABRICS = Path(__file__).resolve().parent.parent.parent / "hosts" / "fabrics"


@pytest.mark.parametrize(
    ("name", "links"),
    [
        ("loopback8", {}),
        ("lab-8", {"links 1-2": 8}),
        ("fat-tree-lossless", {"links 1-2": 256, "links 2-3": 256}),
        ("rails-sprayed", {"links 1-2": 128}),  # not those inside servers
    ],
)
def test_links_by_tier(name: str, links: dict[str, int]) -> None:
    network = build_network(load_fabric(FABRICS / f"{name}.toml"))
    assert Counter(tier for tier in tiers_of(network) if tier) == links


def test_a_record_of_sprayed_packets_names_the_pairs_that_cross_each_tier() -> None:
    fabric = simtwin.Fabric.load(FABRICS / "lab-8.toml").replace({"load_balancing.mode": "spray"})
    run = simtwin.simulate(fabric, simtwin.collective(fabric, "all_to_all", size="1MiB"))
    crossed = run.counters["crossed"]["links 1-2"]
    assert sorted(crossed) == sorted(f"{a}->{b}" for a in range(8) for b in range(8) if a // 4 != b // 4)
    assert run.links.filter(pl.col("tier").is_not_null()).height == 8
    assert run.info["load_balancing"] == "spray"
