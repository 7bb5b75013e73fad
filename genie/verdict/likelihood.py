"""Log likelihood ratios (Laplace) of components: "slower" against "as its peers"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from genie.verdict.components import Component

NOISE_MIN = 0.01  # of a logarithm: the two worlds never agree better than this
CLASS_MIN = 0.01  # of all transfers' time in the twin: a class of sizes with less decides nothing


class Explains(Protocol):
    """Measure of how well a component explains the excess."""

    def of(self, component: Component) -> float:
        """Return the log likelihood ratio of the component."""


class Likelihood:
    """Likelihood of components without links: one observation per rank or path, iteration and size class.

    The transfers of one iteration share their luck, so that their median is one observation. Its noise comes from all
    ranks or paths together.
    """

    def __init__(self, standardised: pl.DataFrame) -> None:
        time = pl.col("twin_busy").sum()
        standardised = standardised.filter(time.over("bin") >= CLASS_MIN * time)
        self._tables = {
            ends: _with_noise(
                standardised.group_by(*ends, "iteration", "bin").agg(
                    pl.col("excess").median(), pl.col("twin_busy").sum().alias("weight")
                )
            )
            for ends in (("src",), ("dst",), ("src", "dst"))
        }

    def of(self, component: Component) -> float:
        """Log likelihood ratio (Laplace) of "slower" against "as its peers"."""
        ends = ("src", "dst") if component.kind == "path" else ("src",) if component.direction == "egress" else ("dst",)
        return _gain(self._tables[ends].filter(component.touches()))[0]


class PathLikelihood:
    """Likelihood of components that share paths, as links and NICs do.

    One observation per path, iteration and size class: a component pays for each of its paths that is not slow. A slow
    sender's paths are a minority on every link, a slow link's a minority of every sender's.

    Transfers whose acknowledgements and NCCL's clears pass the component (`Component.delays`) may be as slow as those
    that pass it themselves, and no slower.
    """

    def __init__(self, standardised: pl.DataFrame) -> None:
        self._table = _with_noise(
            standardised.group_by("src", "dst", "iteration", "bin").agg(
                pl.col("excess").median(), pl.col("twin_busy").sum().alias("weight"), pl.col("messages").max()
            )
        )

    def of(self, component: Component) -> float:
        """Log likelihood ratio (Laplace) of "slower" against "as its peers"."""
        passing = component.touches()
        total, sizes = _gain(self._table.filter(passing))
        return total + _gain(self._table.filter(component.delays() & ~passing), sizes)[0]


def _with_noise(table: pl.DataFrame) -> pl.DataFrame:
    deviation = (pl.col("excess") - pl.col("excess").median().over("bin")).abs().median().over("bin")
    return table.with_columns(pl.max_horizontal(deviation * 1.4427, NOISE_MIN).alias("noise"))


def _gain(observed: pl.DataFrame, most: dict[int, float] | None = None) -> tuple[float, dict[int, float]]:
    """The gain in log likelihood, and the effect by size class.

    An effect is not negative and not above `most` of its class (0 for a class that `most` lacks). It is also not above
    the effect on sizes that take more time, because latency only dilutes a rate.
    """
    classes = sorted(observed.partition_by("bin"), key=lambda part: -float(part["weight"].sum()))
    total, least, sizes = 0.0, np.inf, {}
    for part in classes:
        excess, noise, number = part["excess"].to_numpy(), part["noise"].to_numpy(), int(part["bin"][0])
        limit = least if most is None else min(least, most.get(number, 0.0))
        sizes[number] = min(limit, max(0.0, float(np.median(excess))))
        least = min(least, sizes[number])
        total += float(((np.abs(excess) - np.abs(excess - sizes[number])) / noise).sum())
    return total, sizes
