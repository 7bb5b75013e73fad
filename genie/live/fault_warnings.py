"""Warnings about faults without effect: before a run from its settings, after it from its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from genie.live.settings import RateFault, RunSettings


def faults_without_effect(settings: RunSettings) -> list[str]:
    """Return a line for each fault of the plan that cannot change anything in this run, whatever its traffic is."""
    faults, result = settings.faults, []
    for rate in faults.rate:
        if problem := _idle_rate(rate, settings.warmup, settings.warmup + settings.iterations):
            result.append(f"fault [[rate]] of rank {rate.rank} {problem}")
    for loss in faults.loss:
        if loss.rank == loss.peer:
            result.append(f"fault [[loss]] of rank {loss.rank} has no effect: a rank sends nothing to itself")
    for delay in faults.delay:
        if delay.rank == delay.peer:
            result.append(f"fault [[delay]] of rank {delay.rank} has no effect: a rank sends nothing to itself")
        elif delay.delay_us == 0:
            result.append(f"fault [[delay]] of rank {delay.rank} has no effect: delay_us is 0")
    if settings.congestion.get("kind", "none") == "none":
        result += [
            f"fault [[congestion]] of rank {fault.rank} has no effect: no congestion control is on (--congestion)"
            for fault in faults.congestion
        ]
    return result


def _idle_rate(fault: RateFault, warmup: int, total: int) -> str:
    """Return why a rate fault has no effect on judged iterations; "" when it has one."""
    if fault.from_iteration >= total:
        played = f"iterations 0 to {total - 1}" if total > 1 else "iteration 0 only"
        return (
            f"has no effect: from_iteration = {fault.from_iteration} lies beyond the run, which plays "
            f"{played}, warm-up included"
        )
    if fault.until_iteration is not None and fault.until_iteration <= warmup:
        return f"acts in warm-up only, which is not judged: it ends at until_iteration = {fault.until_iteration}"
    return "has no effect: factor is 1" if fault.factor == 1 else ""


def missed_faults(
    settings: RunSettings,
    transfers: pl.DataFrame,
    paths: pl.DataFrame | None,
    counters: Sequence[Mapping[str, int] | None],
) -> list[str]:
    """Return a line for each fault that the run's traffic did not meet, by its records.

    `counters`: by rank; None for a rank whose counters are lost.
    """
    pairs = set(transfers.select("src", "dst").unique().rows())
    senders, result = {src for src, dst in pairs if src != dst}, []
    named: list[tuple[str, int, int | None]] = [("rate", fault.rank, None) for fault in settings.faults.rate]
    named += [("loss", fault.rank, fault.peer) for fault in settings.faults.loss if fault.rank != fault.peer]
    named += [("delay", fault.rank, fault.peer) for fault in settings.faults.delay if fault.rank != fault.peer]
    for table, rank, peer in named:
        if peer is None and rank not in senders:
            result.append(f"fault [[{table}]] of rank {rank} has no effect: it sends no payload")
        elif peer is not None and (rank, peer) not in pairs:
            result.append(f"fault [[{table}]] of rank {rank} has no effect: it sends rank {peer} no payload")
    for loss in settings.faults.loss:
        counted = counters[loss.rank] if loss.rank < len(counters) else None
        sends = loss.rank in senders if loss.peer is None else (loss.rank, loss.peer) in pairs
        if sends and counted is not None and counted.get("injected_losses") == 0:
            result.append(
                f"fault [[loss]] of rank {loss.rank} has no effect: it sent too few packets for one in {loss.every} "
                "to be lost"
            )
    if paths is None or paths.is_empty():
        return result
    used = set(paths["link"].unique().to_list())
    for link, words in (settings.lab.get("faults") or {}).items():
        if link not in used:
            result.append(f"lab fault {link} ({words}): the payload of no rank crosses this link")
    return result
