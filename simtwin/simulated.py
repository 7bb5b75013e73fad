"""What a simulation gave: tables in memory, and what people ask of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genie.record import let_go_of_folders, prepare_folder, write_run
from simtwin.fabric_toml import to_toml
from simtwin.idle_network import IdleNetwork

if TYPE_CHECKING:
    import polars as pl

    from simtwin.twin import Twin


@dataclass
class Simulated:
    """One simulation. Tables are polars frames with the columns of a run folder's (`genie/record/schemas.py`)."""

    info: dict[str, Any]  # run.json
    timeline: pl.DataFrame
    transfers: pl.DataFrame
    counters: dict[str, Any]  # counters.json
    paths: pl.DataFrame | None  # of each queue pair, where packets keep to one
    twin: Twin
    series: pl.DataFrame | None = None  # over time, where they were asked for
    failure: str = ""  # why it could not go on

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

        return pl.DataFrame(self.counters["links"])

    @cached_property
    def flow_completion(self) -> pl.DataFrame:
        """One row per message that went between two hosts by itself: each send of a trace or of generated traffic, and
        collectives' transfers of one message.

        `fct_ns`: from its posting until its sender knows that all has arrived; `idle_ns`: the same on the idle network
        at line rate (`simtwin/idle_network.py`); `slowdown`: the former over the latter.
        """
        import polars as pl

        same_paths = not self.info["paths"].get("changed")
        idle = IdleNetwork(
            self.twin.fabric, self.twin.network, self.twin.host_of_rank.tolist(), self.paths if same_paths else None
        )
        host = self.twin.host_of_rank
        rows = self.transfers.filter((pl.col("messages") == 1) & (pl.col("acked_ns") >= 0) & (pl.col("post_ns") >= 0))
        rows = rows.filter(pl.Series(host[rows["src"].to_numpy()] != host[rows["dst"].to_numpy()], dtype=pl.Boolean))
        frames = [
            pair.with_columns(idle_ns=pl.Series(idle.message_ns(source, target, pair["size_bytes"].to_numpy())))
            for (source, target), pair in rows.with_row_index().partition_by("src", "dst", as_dict=True).items()
        ]
        rows = pl.concat(frames) if frames else rows.with_columns(index=0, idle_ns=0.0)
        rows = rows.sort("index").with_columns(fct_ns=pl.col("acked_ns") - pl.col("post_ns"), start_ns="post_ns")
        rows = rows.with_columns(slowdown=pl.col("fct_ns") / pl.col("idle_ns").clip(1.0))
        return rows.select(
            "iteration", "src", "dst", "node_id", "size_bytes", "start_ns", "fct_ns", "idle_ns", "slowdown"
        )

    def write(self, folder: Path) -> None:
        """The run folder that `genie simulate` would have written, in place of an earlier run. Raises RecordError."""
        prepare_folder(folder)
        self.fill(folder)
        let_go_of_folders()

    def fill(self, folder: Path) -> None:
        """Write into a folder that has been prepared. Raises RecordWriteError."""
        fabric = to_toml(self.twin.fabric)
        write_run(folder, self.info, self.timeline, self.transfers, self.counters, self.paths, self.series, fabric)
