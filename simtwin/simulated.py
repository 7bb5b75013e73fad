"""What a simulation gave: tables in memory, and what people ask of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genie.record import write_run
from simtwin.fabric_toml import to_toml
from simtwin.idle import idle_ns

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
    twin: Twin = field(repr=False)
    series: pl.DataFrame | None = None  # over time, where they were asked for
    failure: str = ""  # why it could not go on

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

        `fct_ns`: from its posting until its last packet had arrived; `idle_ns`: the same on the idle network at line
        rate (`simtwin/idle.py`); `slowdown`: the former over the latter.
        """
        import polars as pl

        host = self.twin.host_of_rank
        alone = self.transfers.filter((pl.col("messages") == 1) & (pl.col("last_ns") >= 0) & (pl.col("post_ns") >= 0))
        between = host[alone["src"].to_numpy()] != host[alone["dst"].to_numpy()]
        alone = alone.filter(pl.Series(between))
        idle = idle_ns(
            self.twin.fabric,
            self.twin.network,
            self.twin.routes,
            host[alone["src"].to_numpy()].tolist(),
            host[alone["dst"].to_numpy()].tolist(),
            alone["size_bytes"].to_list(),
        )
        return alone.select(
            "iteration", "src", "dst", "node_id", "size_bytes", start_ns="post_ns",
            fct_ns=pl.col("last_ns") - pl.col("post_ns"), idle_ns=pl.Series(idle, dtype=pl.Int64),
        ).with_columns(
            slowdown=pl.when(pl.col("idle_ns") > 0).then(pl.col("fct_ns") / pl.col("idle_ns"))
        )  # fmt: skip

    def write(self, folder: Path) -> None:
        """The run folder that `genie simulate` would have written. Raises RecordWriteError."""
        write_run(folder, self.info, self.timeline, self.transfers, self.counters, self.paths, self.series)
        (folder / "fabric.toml").write_text(to_toml(self.twin.fabric))
