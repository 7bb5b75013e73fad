"""Reasons why two fabrics give one workload the same time: which links differ, and what they carried."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from genie.page import amount, count_of, percent
from genie.record import open_run
from simtwin.fabric.reading import load_fabric
from simtwin.fabric.topology import build_network
from simtwin.levels.names import ANALYTIC
from simtwin.report.collectives import collective_rows
from simtwin.report.loads import link_loads

if TYPE_CHECKING:
    from simtwin.fabric.network import Network
    from simtwin.fabric.schema import Fabric

LIMITING_MAX = 3  # links that are named


def why_equal(before: Path, after: Path) -> str:
    """Return a sentence on what differs between the fabrics of two simulations; "" if nothing does.

    Raises RecordError, FabricError.
    """
    fabrics = [load_fabric(path / "fabric.toml") for path in (before, after)]
    networks = [build_network(fabric) for fabric in fabrics]
    was, now = map(_links, networks)
    differing = sorted(name for name in was.keys() | now.keys() if was.get(name) != now.get(name))
    if not differing:
        return _other_tables(fabrics)
    runs = [open_run(path) for path in (before, after)]
    loads = [
        {row["link"]: row for row in link_loads(run, network).iter_rows(named=True)}
        for run, network in zip(runs, networks, strict=True)
    ]
    carried = {name: max(int(each[name]["size_bytes"]) for each in loads if name in each) for name in differing}
    differ = f"{count_of(len(differing), 'link')} of the two fabrics differ"
    if any(run.info.get("level") == ANALYTIC for run in runs):
        return f"{differ}; level analytic does not know what each of them carried"
    if not any(carried.values()):
        return f"{differ}, and carried nothing in either run"
    limiting = {row.link for run, network in zip(runs, networks, strict=True) for row in collective_rows(run, network)}
    busiest = max(differing, key=lambda name: max(each[name]["mean"] or 0.0 for each in loads if name in each))
    share = max(each[busiest]["mean"] or 0.0 for each in loads if busiest in each)
    text = f"{differ}; the busiest of them, {busiest}, was used {percent(share)} of the time"
    others = sorted(limiting - set(differing) - {""})
    if others and not limiting & set(differing):
        named = ", ".join(others[:LIMITING_MAX]) + (" and others" if len(others) > LIMITING_MAX else "")
        return f"{text}, and no collective is limited by one of them: {named} limit the collectives"
    return f"{text} ({amount(carried[busiest])})"


def _other_tables(fabrics: list[Fabric]) -> str:
    """Return a sentence on the tables of two fabric files with the same links that differ; "" if none does."""
    one, other = (structs.asdict(fabric) for fabric in fabrics)
    tables = sorted(f"[{name}]" for name in one if name != "name" and one[name] != other[name])
    if not tables:
        return ""
    return f"the links of the two fabrics are the same, and what differs in {', '.join(tables)} did not matter here"


def _links(network: Network) -> dict[str, tuple[int, int]]:
    """Return name -> (rate, delay) of each link."""
    rates, delays = network.rate_bps.tolist(), network.delay_ps.tolist()
    return dict(zip(network.link_names, zip(rates, delays, strict=True), strict=True))
