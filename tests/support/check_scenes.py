"""Observations of a check, made by hand: hosts on two leaves and two spines without any fault."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from genie.check.settings import (
    ECT0,
    ECT1,
    OTHER,
    ROCE,
    Changed,
    CheckSettings,
    Facts,
    Flow,
    Incast,
    LinkTest,
    Lost,
    Observed,
    Probed,
    Rated,
    Rates,
    Trace,
)

HOSTS, PATHS = 8, 4
CROSSING = [[Flow(0, 4), Flow(1, 5)], [Flow(4, 0), Flow(5, 1)]]  # by leaf
LEAF_OF = [rank // 4 for rank in range(HOSTS)]
Path = tuple[int, int, int]


def settings(ranks: int = HOSTS, **more: object) -> CheckSettings:
    """Of a check of hosts with the addresses 10.0.RANK.1."""
    given = {
        "workload": "",
        "out": "nowhere",
        "ranks": ranks,
        "addresses": [f"10.0.{rank}.1" for rank in range(ranks)],
        "ports": [f"host{rank}" for rank in range(ranks)],
        "host_names": ["localhost"] * ranks,
        "rate_bps": 100_000_000,
        "mtu": 4096,
        "paths": PATHS,
        "traffic_class": 104,
    }
    return CheckSettings(**{**given, **more})  # type: ignore[arg-type]


def spine_of(path: Path) -> int:
    """By which spine a path between the leaves leads."""
    return (path[0] + path[1] + path[2]) % 2


def links_of(path: Path) -> list[str]:
    """The addresses at which a path's links end, before the host's."""
    source, target = LEAF_OF[path[0]], LEAF_OF[path[1]]
    hops = [f"in-of-host{path[0]}"]
    if source != target:
        spine = spine_of(path)
        hops += [f"leaf{source}-spine{spine}", f"spine{spine}-leaf{target}"]
    return hops


def all_paths() -> list[Path]:
    return [(*pair, path) for pair in itertools.permutations(range(HOSTS), 2) for path in range(PATHS)]


def facts(rank: int, **more: object) -> Facts:
    """A host with one interface."""
    given = {
        "machine": f"machine {rank}",
        "addresses": {"lo": ["127.0.0.1"], "eth0": [f"10.0.{rank}.1"]},
        "interface": "eth0",
        "mtu_bytes": 9000,
        "is_up": True,
    }
    return Facts(**{**given, **more})  # type: ignore[arg-type]


def seen(*, traced: bool = True) -> Observed:
    """Nothing is wrong."""
    traces = [Trace(*path, links_of(path)) for path in all_paths()] if traced else []
    pairs = [Rated(Flow(*pair), 97e6) for pair in itertools.permutations(range(HOSTS), 2)]
    links = [
        LinkTest([f"leaf{leaf}-spine{spine}", f"spine{spine}-leaf{1 - leaf}"], CROSSING[leaf], 195e6)
        for leaf in range(2)
        for spine in range(2)
    ]
    return Observed(
        facts=[facts(rank) for rank in range(HOSTS)],
        stations=list(range(HOSTS)),
        mtu_bytes=dict.fromkeys(range(HOSTS), 4096),
        probed=Probed(traces=traces),
        rates=Rates(slow_share=0.85, pairs=pairs, links=links),
        incasts=[incast(receiver) for receiver in range(HOSTS)],
    )


def incast(receiver: int, **more: object) -> Incast:
    """Three hosts of its leaf send to a receiver, and all is as it should be."""
    senders = [rank for rank in range(HOSTS) if LEAF_OF[rank] == LEAF_OF[receiver] and rank != receiver]
    given = {"marks": 600, "cnps_sent": 600, "cnps_received": [200] * 3, "rates_bps": [20e6] * 3}
    return Incast(**{"receiver": receiver, "senders": senders, **given, **more})  # type: ignore[arg-type]


def lose(scene: Observed, what: int | tuple[int, ...], where: Callable[[Path], bool]) -> None:
    """Probes of some kinds get lost on some paths."""
    kinds = what if isinstance(what, tuple) else (what,)
    scene.probed.lost += [Lost(*path, kind) for path in all_paths() if where(path) for kind in kinds]


def change(scene: Observed, ecn: Callable[[int], int], where: Callable[[Path], bool]) -> None:
    """Both ECN-capable probes have another TOS where they arrive."""
    for path in all_paths():
        if where(path):
            scene.probed.changed += [Changed(*path, 104 | code, ecn(104 | code)) for code in (1, 2)]


ALL_KINDS = (ROCE, OTHER, ECT0, ECT1, 4096)
