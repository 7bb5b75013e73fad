"""Links that carry twice their share because flows collide are said as what they are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from genie.verdict.by_tier.imbalance import imbalances


def runs(loads: dict[str, int], *, traced: bool = True) -> tuple[Any, Any]:
    links = {f"host{rank}->leaf{rank // 2}": 100 for rank in range(4)} | {
        f"leaf{rank // 2}->host{rank}": 100 for rank in range(4)
    }
    counters = {"links": [{"link": link, "size_bytes": size} for link, size in (links | loads).items()]}
    hosts = [{"rank": rank, "host": f"host{rank}"} for rank in range(4)]
    return SimpleNamespace(paths=[1] if traced else None), SimpleNamespace(counters=counters, info={"hosts": hosts})


EVEN = {f"leaf{leaf}->spine{spine}": 100 for leaf in (0, 1) for spine in (0, 1, 2)}
BACK = {f"spine{spine}->leaf{leaf}": 100 * spine for leaf in (0, 1) for spine in (0, 1, 2)}


def test_a_link_with_twice_its_share() -> None:
    (text,) = imbalances(*runs({**EVEN, **BACK, "leaf0->spine1": 600}))
    assert text.startswith("link leaf0->spine1 carries 2.2 times its share of the traffic that leaves leaf0 (600 B of ")
    assert "over 3 links" in text
    assert text.endswith("flows collide there (ECMP imbalance), which is no fault of the link")


def test_links_to_hosts_of_another_job_are_no_ways_up() -> None:
    others = {"leaf0->other": 0, "other->leaf0": 0}
    (text,) = imbalances(*runs({**EVEN, **BACK, **others, "leaf0->spine1": 600}))
    assert "over 3 links" in text


def test_even_loads_links_towards_hosts_and_unknown_paths_say_nothing() -> None:
    assert imbalances(*runs({**EVEN, **BACK})) == []
    assert imbalances(*runs({**EVEN, **BACK, "spine0->leaf1": 10**6})) == [], "destinations decide there, not hashing"
    assert imbalances(*runs({**EVEN, "leaf0->spine1": 600}, traced=False)) == []
    assert imbalances(*runs({"leaf0->spine0": 600, "spine0->leaf0": 600})) == [], "there is no other link"
