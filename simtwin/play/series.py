"""Queues, utilisation, pauses, marks and rates at an interval: the table `series` of a run folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from numpy.typing import NDArray

from genie.config.units import Duration, format_duration, parse_duration
from genie.record import warn
from simtwin.levels.names import PACKET_LEVELS

if TYPE_CHECKING:
    import polars as pl

SAMPLED_LEVELS = PACKET_LEVELS
ROWS_MAX = 20_000_000  # in memory they take about 100 bytes each
CHUNK_ROWS = 1_000_000
NEVER_PS = 2**63 - 1

Samples = Mapping[str, Mapping[str, NDArray[Any]]]  # "links" and "pairs": columns


def simulated_time(text: str, example: str) -> int:
    """Return a time above 0 in ps, a whole number of nanoseconds. Raises ValueError."""
    try:
        time_ps = int(parse_duration(text))
    except ValueError as error:
        raise ValueError(f"{error}; give for example {example}") from error
    if time_ps == 0 or time_ps % 1000:
        raise ValueError(f"must be a whole number of nanoseconds above 0, such as {example}")
    return time_ps


class Sampled(Protocol):
    """Interface of a simulator that can be sampled."""

    next_ps: int  # no event comes before it

    def sample(self, time_ps: int) -> int:
        """Keep rows for an instant that all threads have reached; return the number of rows not taken yet."""

    def take_samples(self) -> Samples:
        """Return the kept rows, and forget them."""


class Series:
    """Rows of all iterations, up to ROWS_MAX; later rows are left out with a warning.

    Sampling instants are the multiples of `interval_ps` (whole nanoseconds) from each iteration's origin, and the end
    of the iteration.
    """

    def __init__(self, interval_ps: int, link_names: Sequence[str]) -> None:
        self.interval_ps = interval_ps
        self.cut: tuple[int, int] | None = None  # iteration and ns after which rows are missing
        self._names = link_names
        self._frames: list[pl.DataFrame] = []
        self._taken = self._waiting = 0

    @property
    def is_full(self) -> bool:
        return self.cut is not None

    def sample(self, simulator: Sampled, iteration: int, time_ps: int, share: Callable[[], float | None]) -> int:
        """Keep rows for the interval that ends at `time_ps`, and return the end of the next interval with events.

        `share` returns the share of all work that is done, for an early warning, or None where it is not known.
        """
        before, self._waiting = self._waiting, simulator.sample(time_ps)
        nothing = self._waiting == before
        rows = self._taken + self._waiting
        if rows >= ROWS_MAX:
            self.cut = iteration, time_ps // 1000
            self._warn(f"ends at {time_ps / 1e9:.3f} ms of iteration {iteration}, with")
        elif self._waiting >= CHUNK_ROWS and (done := share()) and rows / done > ROWS_MAX:
            self._warn(f"would have about {rows / done / 1e6:.0f} million rows, and will end after")
        if self._waiting >= CHUNK_ROWS or self.is_full:
            self.take(simulator, iteration)
        next_ps = time_ps + self.interval_ps
        if nothing and simulator.next_ps != NEVER_PS:
            next_ps = max(next_ps, simulator.next_ps // self.interval_ps * self.interval_ps)
        return next_ps

    def _warn(self, words: str) -> None:
        interval = format_duration(Duration(self.interval_ps))
        warn(f"the series of {interval} {words} {ROWS_MAX / 1e6:g} million: give a longer interval")

    def take(self, simulator: Sampled, iteration: int) -> None:
        """Take the rows that the simulator has kept, before the simulator is deleted."""
        frame = _frame(simulator.take_samples(), iteration, self._names)
        self._frames.append(frame)
        self._taken += frame.height
        self._waiting = 0

    def table(self) -> pl.DataFrame:
        """Return all rows (SERIES_SCHEMA), by iteration and time, then by link, then by pair of ranks."""
        import polars as pl

        from genie.record.schemas import SERIES_SCHEMA

        return pl.concat(self._frames) if self._frames else pl.DataFrame(schema=SERIES_SCHEMA)


def _frame(samples: Samples, iteration: int, link_names: Sequence[str]) -> pl.DataFrame:
    import polars as pl

    from genie.record.schemas import SERIES_SCHEMA

    def table(columns: Mapping[str, NDArray[Any]], kind: str, *more: pl.Expr | pl.Series) -> pl.DataFrame:
        frame = pl.DataFrame(dict(columns)).with_columns(
            pl.lit(iteration).alias("iteration"),
            (pl.col("time_ps") // 1000).alias("time_ns"),
            pl.lit(kind).alias("kind"),
            *more,
        )
        missing = [pl.lit(None).alias(name) for name in SERIES_SCHEMA if name not in frame.columns]
        return frame.with_columns(missing).select(list(SERIES_SCHEMA)).cast(SERIES_SCHEMA)

    names = pl.Series(link_names, dtype=pl.String)
    links = table(samples["links"], "link", names.gather(pl.Series(samples["links"]["link"])).alias("name"))
    pairs = table(
        samples["pairs"],
        "pair",
        pl.format("rank{}->rank{}", "source", "target").alias("name"),
        pl.when(pl.col("rate_bps") >= 0).then(pl.col("rate_bps")).alias("rate_bps"),
    )
    return pl.concat([links, pairs]).sort("time_ns", maintain_order=True)
