"""An earlier run as the reference of a later one: its typical iteration takes the place of the twin's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from genie.record import Run
from genie.verdict.compatibility import VerdictError

if TYPE_CHECKING:
    from collections.abc import Sequence

NODE = ["rank", "node_id", "name", "kind", "op", "group", "seq", "size_bytes"]
TRANSFER = ["src", "dst", "node_id", "group", "seq", "size_bytes"]
FABRIC_FACTS = ("hosts", "load_balancing", "fabric")


def reference_of(run: Run, twin: Run | None) -> Run:
    """Return the median iteration of a run, of those that ended after warm-up, in the form of a twin.

    `twin`: of the run, which knows the fabric; None: the run's own record says it all. Raises VerdictError where no
    iteration ended.
    """
    kept = ended_iterations(run)
    known = run if twin is None else twin
    facts = {key: known.info[key] for key in FABRIC_FACTS if key in known.info}
    info: dict[str, Any] = {**run.info, **facts, "world": "twin", "follow": False, "complete": True, "warnings": []}
    return Run(
        run.path,
        info,
        _median(run.timeline, NODE, kept),
        _median(run.transfers, TRANSFER, kept),
        known.counters,
        run.paths if run.paths is not None else known.paths,
    )


def as_measured(run: Run) -> Run:
    """Return a run as the later one of a comparison, whichever world it is of.

    It has no lowering: two runs of one job may have been lowered for other fabrics.
    """
    info = {key: value for key, value in run.info.items() if key != "lowering"}
    return Run(run.path, {**info, "world": "live"}, run.timeline, run.transfers, run.counters, run.paths)


def check_complete(run: Run) -> None:
    """Raises VerdictError for a run that was cut short: its last iterations may show the cause of that."""
    if run.info.get("complete") is False:
        why = " ".join(str(run.info.get("problem") or "its records are incomplete").split())
        raise VerdictError(f"{run.path}: the run did not end ({why}): give one that did")


def ended_iterations(run: Run) -> Sequence[int]:
    """The iterations after warm-up in which every node ended. Raises VerdictError when there is none."""
    warmup = int(run.info.get("warmup", 0))
    ended = run.timeline.group_by("iteration").agg((pl.col("end_ns") >= 0).all().alias("ended"))
    kept = sorted(number for number, whole in ended.iter_rows() if whole and number >= warmup)
    if not kept:
        raise VerdictError(f"{run.path}: no iteration ended after the {warmup} warm-up iterations; run it again")
    return kept


def _median(table: pl.DataFrame, key: Sequence[str], iterations: Sequence[int]) -> pl.DataFrame:
    """The table with one iteration, 0: the median of each number, and the first of each text."""
    numbers = [name for name, kind in table.schema.items() if name not in (*key, "iteration") and kind.is_integer()]
    texts = [name for name in table.columns if name not in (*key, *numbers, "iteration")]
    folded = (
        table.filter(pl.col("iteration").is_in(iterations))
        .group_by(key, maintain_order=True)
        .agg(
            *(pl.col(name).median().round().cast(table.schema[name]) for name in numbers),
            *(pl.col(name).first() for name in texts),
            pl.lit(0, table.schema["iteration"]).alias("iteration"),
        )
    )
    return folded.select(table.columns)
