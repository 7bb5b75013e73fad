"""Links that the traffic fills: only these would have slowed it."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from genie.record import Run
from genie.verdict.align import Aligned
from genie.verdict.components import Attachment
from genie.verdict.load import filled_links, filled_nics

RATE_BPS = 200_000_000
WAY = ("a->leaf0", "leaf0->spine0", "spine0->leaf1", "leaf1->b")
SHARED = "leaf0->spine0"


def run(name: str, paths: pl.DataFrame | None, rate_bps: int | None = RATE_BPS) -> Run:
    links = [{"link": link} if rate_bps is None else {"link": link, "rate_bps": rate_bps} for link in (*WAY, "x->y")]
    empty = pl.DataFrame()
    return Run(Path(name), {"settings": {"mtu": 4096}}, empty, empty, {"links": links}, paths)


def paths_of(*pairs: tuple[int, int], ports: tuple[int, ...] = (1,), last_port_over: str = SHARED) -> pl.DataFrame:
    """The way of each pair, over SHARED but for its last source port."""
    rows = [
        (src, dst, port, hop, last_port_over if link == SHARED and port == ports[-1] else link)
        for src, dst in pairs
        for port in ports
        for hop, link in enumerate(WAY)
    ]
    return pl.DataFrame(rows, ["src", "dst", "source_port", "hop", "link"], orient="row")


def aligned(*flows: tuple[int, int, int, int, float], follow: bool = True) -> Aligned:
    """(src, dst, twin_post in ns, twin_busy in ns, payload rate in b/s) of each transfer."""
    rows = [(0, src, dst, post, busy, int(rate * busy / 8e9)) for src, dst, post, busy, rate in flows]
    table = pl.DataFrame(rows, ["iteration", "src", "dst", "twin_post", "twin_busy", "size_bytes"], orient="row")
    return Aligned([0, 1, 2, 3], [0], follow, pl.DataFrame(), table)


def filled(paths: pl.DataFrame, *flows: tuple[int, int, int, int, float]) -> frozenset[str] | None:
    return filled_links(run("live", paths), run("twin", None), aligned(*flows), 0.1)


@pytest.mark.parametrize(("rate_bps", "is_filled"), [(100e6, False), (175e6, False), (180e6, True), (195e6, True)])
def test_a_flow_fills_a_link_whose_rate_it_uses_but_for_the_practical_size(rate_bps: float, is_filled: bool) -> None:
    found = filled(paths_of((0, 1)), (0, 1, 0, 10**9, rate_bps))
    assert found == (frozenset(WAY) if is_filled else frozenset())


def test_flows_at_the_same_time_fill_a_link_together_and_in_turn_they_do_not() -> None:
    paths = paths_of((0, 1), (2, 3))
    together = filled(paths, (0, 1, 0, 10**9, 98e6), (2, 3, 0, 10**9, 98e6))
    in_turn = filled(paths, (0, 1, 0, 10**9, 98e6), (2, 3, 10**9, 10**9, 98e6))
    assert together is not None
    assert SHARED in together
    assert in_turn == frozenset()


@pytest.mark.parametrize(("full_s", "is_filled"), [(1.4, False), (2.0, True)])
def test_most_bytes_decide(full_s: float, is_filled: bool) -> None:
    """Full for `full_s`, then one flow of half the rate for 1 s: three quarters of the bytes are needed."""
    full_ns = int(full_s * 1e9)
    flows = [(0, 1, 0, full_ns, 98e6), (2, 3, 0, full_ns, 98e6), (0, 1, full_ns, 10**9, 98e6)]
    found = filled(paths_of((0, 1), (2, 3)), *flows)
    assert found is not None
    assert (SHARED in found) is is_filled


def test_a_pair_with_two_paths_gives_each_half_of_its_bytes() -> None:
    paths = paths_of((0, 1), ports=(1, 2), last_port_over="x->y")
    found = filled(paths, (0, 1, 0, 10**9, 195e6))
    assert found == frozenset(WAY) - {SHARED}


def test_nothing_is_known_without_rates_paths_or_transfers() -> None:
    paths, one = paths_of((0, 1)), (0, 1, 0, 10**9, 195e6)
    assert filled_links(run("live", paths), run("twin", None, None), aligned(one), 0.1) is None
    assert filled_links(run("live", None), run("twin", None), aligned(one), 0.1) is None
    assert filled_links(run("live", paths), run("twin", None), aligned(), 0.1) is None


def test_a_nic_is_filled_by_what_its_rank_exchanges_with_other_hosts() -> None:
    """Rank 2 sends at the full rate, rank 0 at half of it, and ranks 0 and 1 share a host."""
    nics = {0: "a", 1: "a", 2: "x"}
    attached = {rank: Attachment(rank, host, "", f"{host}->leaf0", "leaf0", host) for rank, host in nics.items()}
    twin = run("twin", None)
    names = [f"{host}->leaf0" for host in "ax"] + [f"leaf0->{host}" for host in "ax"]
    twin.counters["links"] = [{"link": name, "rate_bps": RATE_BPS} for name in names]
    flows = [(0, 2, 0, 10**9, 98e6), (2, 0, 0, 10**9, 195e6), (0, 1, 0, 10**9, 195e6)]
    found = filled_nics(run("live", None), twin, aligned(*flows), attached, 0.1)
    assert found == {("egress", 2), ("ingress", 0), ("ingress", 1)}


def test_any_traffic_fills_a_link_without_a_limit() -> None:
    twin = run("twin", None, 0)
    twin.counters["links"][0]["rate_bps"] = RATE_BPS
    found = filled_links(run("live", paths_of((0, 1))), twin, aligned((0, 1, 0, 10**9, 50e6)), 0.1)
    assert found == frozenset(WAY[1:])
