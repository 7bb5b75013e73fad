"""Results of a simulation: tables in memory, and figures derived from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genie.record import TWIN, prepare_folder, unlock_folders, write_run
from simtwin.fabric.text import to_toml
from simtwin.levels.idle_network import IdleNetwork
from simtwin.play.flow_completion import flow_completion

if TYPE_CHECKING:
    import polars as pl

    from simtwin.play.twin import Twin


@dataclass
class Simulated:
    """One simulation. Tables are polars frames with the columns of a run folder's (`genie/record/schemas.py`)."""

    info: dict[str, Any]  # run.json
    timeline: pl.DataFrame
    transfers: pl.DataFrame
    counters: dict[str, Any]  # counters.json
    paths: pl.DataFrame | None  # of each queue pair with a single path
    twin: Twin
    series: pl.DataFrame | None = None  # over time, if requested
    failure: str = ""  # why it stopped before its end

    def __repr__(self) -> str:
        info = self.info
        end = f"failed: {self.failure}" if self.failure else f"completion {self.completion_s * 1e3:.6g} ms"
        return f"<Simulated {info['workload']!r} at level {info['level']}: {end}>"

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
        """One row per link: packets, bytes, drops, marks, pauses, the longest queue (`longest_queue_bytes`)."""
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
        - `slowdown`: `fct_ns` / `idle_ns`.
        """
        same_paths = not self.info["paths"].get("changed")
        idle = IdleNetwork(
            self.twin.fabric, self.twin.network, self.twin.host_of_rank.tolist(), self.paths if same_paths else None
        )
        return flow_completion(self.timeline, self.transfers, idle).drop("in_turn")

    def write(self, folder: Path) -> None:
        """Write the run folder that `genie simulate` would write, in place of an earlier run. Raises RecordError."""
        prepare_folder(folder, TWIN)
        self.fill(folder)
        unlock_folders()

    def fill(self, folder: Path) -> None:
        """Write into a prepared folder. Raises RecordWriteError."""
        fabric = to_toml(self.twin.fabric)
        write_run(folder, self.info, self.timeline, self.transfers, self.counters, self.paths, self.series, fabric)
