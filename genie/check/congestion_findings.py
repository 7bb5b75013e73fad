"""Findings about congestion control, from incasts. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from statistics import median

from genie.check.names import Names
from genie.check.settings import Incast, Observed, Pair

MARKS_MIN, CNPS_MIN = 3, 30  # fewer may be chance
UNSLOWED = 2.5  # times the median rate of the other senders of an incast


def bleached_pairs(seen: Observed) -> set[tuple[int, int]]:
    """Return senders and receivers between which ECN bits are cleared on some path: marks do not arrive there."""
    return {(each.source, each.target) for each in seen.probed.changed if each.arrived & 3 == 0}


def congestion_findings(incasts: Sequence[Incast], names: Names, bleached: Collection[Pair] = ()) -> Iterator[str]:
    """Yield findings: missing marks, and hosts without congestion control. `bleached`: see bleached_pairs()."""
    for rank, said in congestion_faults(incasts, bleached):
        if rank is None:
            yield f"{said}: turn ECN on in the job's queue, with thresholds below its buffer"
        else:
            yield (
                f"congestion control is off at {names.rank(rank)}: {said}: turn it on (mlx5: write 1 to "
                "/sys/class/net/INTERFACE/ecn/roce_np/enable/* and roce_rp/enable/*)"
            )


def congestion_faults(incasts: Sequence[Incast], bleached: Collection[Pair] = ()) -> Iterator[tuple[int | None, str]]:
    """Yield hosts without congestion control, by rank, and the evidence; None where no switch sets marks."""
    if not any((sender, each.receiver) not in bleached for each in incasts for sender in each.senders):
        return
    if not any(each.marks for each in incasts):
        most = max(len(each.senders) for each in incasts)
        yield None, f"incasts of {most} to 1 bring no ECN mark and no CNP anywhere: switches mark nothing"
        return
    silent = _silent(incasts)
    unheard = set(_unheard(incasts, bleached))
    unslowed = set(_unslowed(incasts))
    for rank in sorted({*silent, *unheard, *unslowed}):
        said = [f"it sends no CNP for {silent[rank]} marked packets"] if rank in silent else []
        said += (
            ["its packets bring no CNP where those of others do: they are not ECN-capable"] if rank in unheard else []
        )
        said += ["CNPs do not slow it down"] if rank in unslowed else []
        yield rank, "; ".join(said)


def _silent(incasts: Sequence[Incast]) -> dict[int, int]:
    """Return receiver -> marks, for receivers that saw marks and sent no CNP."""
    marks: Counter[int] = Counter()
    sent: Counter[int] = Counter()
    for each in incasts:
        marks[each.receiver] += each.marks
        sent[each.receiver] += each.cnps_sent
    return {rank: count for rank, count in marks.items() if count >= MARKS_MIN and not sent[rank]}


def _unheard(incasts: Sequence[Incast], bleached: Collection[Pair]) -> Iterator[int]:
    """Yield senders without a CNP in all incasts, where receivers sent some and others got them."""
    got: Counter[int] = Counter()
    others: Counter[int] = Counter()
    for each in incasts:
        for sender, count in zip(each.senders, each.cnps_received, strict=True):
            if (sender, each.receiver) in bleached:
                continue
            got[sender] += count
            others[sender] += sum(each.cnps_received) - count
    yield from (sender for sender, count in others.items() if count >= CNPS_MIN and not got[sender])


def _unslowed(incasts: Sequence[Incast]) -> Iterator[int]:
    """Yield senders that get CNPs and are much faster than the others, in every incast."""
    ratios: dict[int, list[float]] = {}
    for each in incasts:
        for at, sender in enumerate(each.senders):
            others = [rate for other, rate in enumerate(each.rates_bps) if other != at]
            if each.cnps_received[at] >= MARKS_MIN and others and median(others) > 0:
                ratios.setdefault(sender, []).append(each.rates_bps[at] / median(others))
    yield from (sender for sender, each in ratios.items() if len(each) > 1 and min(each) > UNSLOWED)
