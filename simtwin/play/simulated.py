"""Results of a simulation: tables in memory, and figures derived from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genie.record import TWIN, prepare_folder, unlock_folders, write_run
from genie.record.played import workload_name
from simtwin.fabric.text import to_toml
from simtwin.levels.idle_network import IdleNetwork
from simtwin.play.flow_completion import flow_completion

if TYPE_CHECKING:
    import polars as pl

    from genie.figures import Figure
    from simtwin.play.twin import Twin


@dataclass
class Simulated:
    """One simulation. Tables are polars frames with the columns of a run folder's (`genie/record/schemas.py`).

    info: the object in run.json.
    timeline: one row per node that was played; times in ns from the iteration's start.
    transfers: one row per iteration, sender's node and receiver; sizes in bytes, times in ns.
    counters: the object in counters.json, with the counts of links.
    paths: one row per link of the path of each queue pair; None where paths are not known.
    twin: the fabric as it was played.
    series: samples over time; None unless `series_interval` was given.
    failure: the reason of an early end; "" for a whole simulation.
    """

    info: dict[str, Any]
    timeline: pl.DataFrame
    transfers: pl.DataFrame
    counters: dict[str, Any]
    paths: pl.DataFrame | None
    twin: Twin
    series: pl.DataFrame | None = None
    failure: str = ""

    def __repr__(self) -> str:
        info = self.info
        end = f"failed: {self.failure}" if self.failure else f"completion {self.completion_s * 1e3:.6g} ms"
        return f"<Simulated {workload_name(self)!r} at level {info['level']}: {end}>"

    def _repr_html_(self) -> str:
        from simtwin.notebook import headline_of_simulation

        return headline_of_simulation(self)

    @property
    def completion_s(self) -> float:
        """Simulated seconds from an iteration's start until its last node has ended, the mean of all iterations."""
        import polars as pl

        ends_ns: list[int] = self.timeline.group_by("iteration").agg(pl.col("end_ns").max())["end_ns"].to_list()
        return sum(ends_ns) / max(len(ends_ns), 1) / 1e9

    @property
    def dropped(self) -> int:
        """Packets that switches or links dropped."""
        return int(self.counters["dropped"])

    @cached_property
    def links(self) -> pl.DataFrame:
        """One row per directed link, over all iterations.

        The columns are those of counters.json: packets, `size_bytes`, drops, marks, pauses and `longest_queue_bytes`.
        """
        import polars as pl

        return pl.DataFrame(self.counters["links"], infer_schema_length=None)

    @cached_property
    def flow_completion(self) -> pl.DataFrame:
        """One row per transfer between two hosts, in the order of `transfers`.

        A transfer is a send of a trace or of generated traffic, or all messages of a collective from one rank to
        another (`op`, `messages`).

        - `fct_ns`: from a message's posting until its sender has the last acknowledgement; of several messages, the
          time with one of them in flight.
        - `idle_ns`: of the same bytes on the idle network at line rate, posted at once
          (`simtwin/levels/idle_network.py`).
        - `slowdown`: `fct_ns` / `idle_ns`; null at level analytic, which plays no messages.
        """
        import polars as pl

        same_paths = not self.info["paths"].get("changed")
        idle = IdleNetwork(
            self.twin.fabric, self.twin.network, self.twin.host_of_rank.tolist(), self.paths if same_paths else None
        )
        table = flow_completion(self.timeline, self.transfers, idle).drop("in_turn")
        if not self.twin.level.plays_messages:
            return table.with_columns(slowdown=pl.lit(None, pl.Float64))
        return table

    def timeline_figure(self, iteration: int | None = None) -> Figure:
        """Draw the time of each rank in one iteration: computing, waiting, collectives and messages.

        iteration: number of the iteration, from 0; None: the first.
        Raises RecordError for an iteration that was not played.
        """
        from genie.record.display import timeline_figure

        return timeline_figure(self, iteration)

    def links_figure(self, count: int = 8) -> Figure:
        """Draw the utilisation of the busiest links, as shares of what their rates can send (0 to 100 %).

        count: number of links, 1 to 200.
        Raises RecordError for another count, and where no link has carried a byte, as at level analytic.
        """
        from genie.record.display import links_figure

        return links_figure(self, count)

    def fct_figure(self) -> Figure:
        """Draw the share of transfers (0 to 100 %) at or below each flow completion time."""
        from simtwin.notebook import fct_figure

        return fct_figure({workload_name(self): self})

    def write(self, folder: str | Path) -> None:
        """Write the run folder that `genie simulate` would write, in place of an earlier run.

        folder: of the run, such as "runs/twin".
        Raises RecordError.
        """
        folder = Path(folder)
        prepare_folder(folder, TWIN)
        self.fill(folder)
        unlock_folders()

    def fill(self, folder: Path) -> None:
        """Write into a prepared folder, for `write`.

        folder: locked by this process.
        Raises RecordError.
        """
        fabric = to_toml(self.twin.fabric)
        write_run(folder, self.info, self.timeline, self.transfers, self.counters, self.paths, self.series, fabric)
