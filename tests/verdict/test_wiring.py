"""Tiers and hashed paths by the names of a record's links, beside those that the fabric's own network has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from genie.record import Run
from genie.verdict.by_tier.wiring import Wiring
from simtwin.fabric.played_paths import hashed_path
from simtwin.fabric.reading import load_fabric
from simtwin.fabric.routing import shortest_path_routes
from simtwin.fabric.tiers import tiers_of
from simtwin.fabric.topology import build_network
from simtwin.play.run import attachment

FABRICS = Path(__file__).resolve().parent.parent.parent / "hosts" / "fabrics"


def record(name: str, ranks: int | None = None) -> tuple[Run, Any]:
    network = build_network(load_fabric(FABRICS / f"{name}.toml"))
    info = {
        "hosts": [attachment(network, rank, rank) for rank in range(ranks or network.hosts)],
        "packet_latency_ns": [0] * network.hosts,
    }
    counters = {"links": [{"link": link} for link in network.link_names]}
    empty: Any = None
    return Run(Path("twin"), info, empty, empty, counters), network


@pytest.mark.parametrize(("name", "ranks"), [("loopback8", None), ("lab-8", None), ("lab-8", 5),
                                             ("fat-tree-lossless", None), ("rails-sprayed", None)])  # fmt: skip
def test_tiers_by_names_are_the_network_s(name: str, ranks: int | None) -> None:
    twin, network = record(name, ranks)
    assert Wiring(twin).tiers() == tiers_of(network)


def test_hosts_without_a_rank_that_look_like_switches_leave_tiers_unknown() -> None:
    twin, _ = record("rails-sprayed", 3)
    assert Wiring(twin).tiers() is None


def test_links_that_hashing_leaves_out_are_as_probable_as_drawn() -> None:
    """By the hash of 400 sets of ports, on three tiers: how many links a set leaves without a flow."""
    twin, network = record("fat-tree-lossless")
    routes, tiers = shortest_path_routes(network), tiers_of(network)
    tier = [name for name, each in zip(network.link_names, tiers, strict=True) if each == "links 2-3"]
    tiered = [name for name, each in zip(network.link_names, tiers, strict=True) if each]
    draw = np.random.default_rng(1)
    pairs = [(int(a), int(b)) for a, b in draw.permutation(network.hosts)[:16].reshape(8, 2)]
    mean, worst, able = Wiring(twin).rarest(tier, pairs, tiered)
    left = []
    for _ in range(400):
        taken = {link for a, b in pairs for link in hashed_path(routes, network, a, b, int(draw.integers(1 << 15)))}
        left.append(len(tier) - len({network.link_names[link] for link in taken} & set(tier)))
    assert abs(mean - np.mean(left)) < 4 * np.std(left) / len(left) ** 0.5 + 1e-9
    assert worst in tier
    assert able < len(pairs)
