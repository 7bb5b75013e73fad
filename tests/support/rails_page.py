"""A simulation of all-reduces on 128 hosts, with a series and a page, as tests of the page look at it."""

from __future__ import annotations

from pathlib import Path

from genie.workload.graph import Op
from genie.workload.synthetic import collective
from simtwin.fabric.reading import parse_fabric
from simtwin.fabric.topology import build_network
from simtwin.play.run import simulate_to_folder
from simtwin.play.series import Series
from simtwin.play.twin import Twin
from simtwin.play.watching import Watch
from simtwin.report import write_simulation_report


def rails_page(folder: Path, fabric_toml: str, interval_ns: int, iterations: int = 1) -> Path:
    """Simulate into a new run folder, write its page, and return the folder."""
    fabric = parse_fabric(fabric_toml)
    workload = collective(Op.ALL_REDUCE, 128, 1 << 20, count=2, compute_ns=30_000)
    twin = Twin(fabric, build_network(fabric), range(128))
    watch = Watch(series=Series(interval_ns * 1000, twin.network.link_names))
    path = "traces/GPT-13B"
    simulate_to_folder(twin, workload, folder, workload_path=path, iterations=iterations, watch=watch)
    write_simulation_report(folder)
    return folder
