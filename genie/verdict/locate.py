"""Suspects: the fewest components that explain the slow transfers, and their rivals."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from genie.verdict.components import Component, cable, of_few, other_way, pointed_at, singles_of
from genie.verdict.evidence import Window, change_window, e_bh, e_value, members_against_peers
from genie.verdict.likelihood import Explains, Likelihood, PathLikelihood
from genie.verdict.links import tier_series, without_answers
from genie.verdict.series import DIRECTIONS, Series, phase_column, rank_series, standardise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from genie.verdict.align import Aligned
    from genie.verdict.links import KnownPaths
    from genie.verdict.options import Options

SUSPECTS_MAX = 8
ALIKE_SHARE = 0.25  # least effect of each link of a slow cable, as a share of its largest effect (both logarithms)
# Share of the first suspect's effect (logarithm; of a link, on the transfers that it slows most). A component above it
# is not a victim.
VICTIMS_SHARE = 0.7
NEARLY_ALL = 0.9  # of a NIC's time
SMALL_FLEET = 7  # ranks: among more of them, the victims of one NIC are few
# Order of preference when the data cannot decide: a sender's time depends first on the sender.
PREFERENCE = {("nic", "egress"): 0, ("nic", "ingress"): 1, ("path", "egress"): 2}


@dataclass(frozen=True)
class Finding:
    """A component that is slower than noise and margin explain."""

    component: Component
    e_value: float
    window: Window  # indices into the judged iterations
    slow_down: float  # measured / twin in the window, relative to its peers, minus 1
    hits: tuple[int, int]  # (iterations of the window in which it is slower than every peer, iterations of the window)
    share: float  # of its paths that are slow
    rivals: tuple[Component, ...] = ()  # components that explain the data as well


def test_all(
    series: dict[str, Series], candidates: list[Component], options: Options, stride: int
) -> list[tuple[Component, float, bool]]:
    """(component, e-value, whether e-BH rejects it) for each candidate."""
    values = np.array(
        [
            e_value(series[c.direction], [series[c.direction].column(one) for one in c.members], options.margin, stride)
            for c in candidates
        ]
    )
    rejected = e_bh(values, options.false_discovery) if len(values) else np.zeros(0, bool)
    return list(zip(candidates, values.tolist(), rejected.tolist(), strict=True))


def effect(part: Series, component: Component) -> tuple[Window, float, NDArray[np.float64]]:
    """Window, median ln slow-down in it, and values of all units of a component against its peers."""
    values = members_against_peers(part, component.members)
    window = change_window(values, part.iteration)
    return window, float(np.median(values[_inside(part, window)])), values


def _inside(part: Series, window: Window) -> NDArray[np.bool_]:
    which = np.unique(part.iteration)
    result: NDArray[np.bool_] = (part.iteration >= which[window.first]) & (part.iteration <= which[window.last])
    return result


def locate(
    aligned: Aligned,
    series: dict[str, Series],
    candidates: list[Component],
    options: Options,
    stride: int = 1,
    known_paths: KnownPaths | None = None,
) -> list[Finding]:
    """Suspects, the best explanation first; empty when no component is beyond noise, margin and practical size.

    `known_paths`: the paths whose links are among the candidates.
    """
    found: list[Finding] = []
    links = known_paths if known_paths and known_paths.columns else None
    transfers = standardise(phase_column(aligned.transfers))
    remaining, left, least = series, candidates, float(np.log1p(options.practical))
    while left and len(found) < SUSPECTS_MAX:
        tested = test_all(remaining, left, options, stride)
        sized = [(c, e, *effect(remaining[c.direction], c)[:2], rejected) for c, e, rejected in tested]
        sized = [entry for entry in sized if entry[3] >= least]
        if not any(entry[4] for entry in sized):
            break
        # Where links are known, a component that explains a rejected one better than itself need not be rejected.
        slow = [entry[:4] for entry in sized if entry[4] or links]
        finding = _best(transfers, remaining, slow, options, links, len(candidates))
        if finding is None:
            break
        found.append(finding)
        # Flows that share links contend, so that a slow flow delays others that do not pass the slow link.
        size = float(np.log1p(finding.slow_down))
        if links:
            hit = transfers.filter(finding.component.touches())["excess"].quantile(0.9) or 0.0
            least = max(least, VICTIMS_SHARE * (max(hit, size) if finding.component.columns else size))
        elif finding.component.kind != "path":
            least = max(least, VICTIMS_SHARE * size)
        # Remove the transfers that this finding explains; a component that is still slow is a suspect too.
        explained = finding.component.delays() if links else finding.component.touches()
        transfers = transfers.filter(~explained)
        if transfers.is_empty():
            break
        transfers = standardise(phase_column(transfers.drop("item", "phase")) if links else transfers)
        remaining = {d: rank_series(transfers, d) for d in DIRECTIONS}
        remaining |= tier_series(transfers, links) if links else {}
        left = [
            c
            for c in left
            if not _same(c, finding.component) and c.direction in remaining and _testable(c, remaining[c.direction])
        ]
    return found


def without_victims(findings: list[Finding], aligned: Aligned, clock_bound_ns: int, options: Options) -> list[Finding]:
    """The findings but for those that look slow only because their answers pass another finding."""
    forward = without_answers(aligned.transfers, clock_bound_ns, options.practical)
    transfers = standardise(phase_column(forward))

    def is_slow(component: Component) -> bool:
        if transfers.filter(component.touches()).is_empty():
            return False
        part = rank_series(transfers, component.direction)
        return not _testable(component, part) or effect(part, component)[1] >= np.log1p(options.practical)

    def answers_pass(own: Component, other: Component) -> bool:
        """Whether most of its transfers, by time, are answered through the other."""
        mine = aligned.transfers.filter(own.touches())
        returning = mine.select(src="dst", dst="src", messages="messages", weight="twin_busy")
        passing = returning.filter(other.touches())["weight"].sum()
        return bool(2 * passing > returning["weight"].sum())

    slow = [it.component for it in findings if is_slow(it.component)]
    return [
        it for it in findings if it.component in slow or not any(answers_pass(it.component, other) for other in slow)
    ]


def slow_both_ways(aligned: Aligned, series: dict[str, Series], options: Options) -> list[Finding]:
    """A NIC of a small fleet that is slow in both directions, as two findings; empty where none stands out.

    Its peers' other ends look as slow as itself. Each NIC is compared by the faster of its two directions: a victim is
    slow in one only. Most paths of both directions must be slow. As a third search, it gets a quarter of the false
    discovery rate.
    """
    egress, ingress = (series[direction] for direction in DIRECTIONS)
    ranks = [rank for rank in egress.members if rank in ingress.members]
    if not 3 <= len(ranks) <= SMALL_FLEET or not np.array_equal(egress.iteration, ingress.iteration):
        return []
    least = np.minimum(*(part.values[:, [part.column(rank) for rank in ranks]] for part in (egress, ingress)))
    part = Series("both", ranks, egress.iteration, least)
    candidates = [Component("nic", "both", (rank,)) for rank in ranks]
    tested = test_all({"both": part}, candidates, replace(options, false_discovery=options.false_discovery / 4), 2)
    sized = [(e, component, *effect(part, component)[:2]) for component, e, rejected in tested if rejected]
    sized = [entry for entry in sized if entry[3] >= np.log1p(options.practical)]
    if not sized:
        return []
    e, component, window, size = max(sized, key=lambda entry: entry[0])
    transfers = standardise(phase_column(aligned.transfers))
    ways = [replace(component, direction=direction) for direction in DIRECTIONS]
    shares = [slow_share(transfers, way, size, options.practical) for way in ways]
    if min(shares) < options.slow_share:
        return []
    slower, hits = float(np.expm1(size)), _hits(part, component, window)
    # One path in each direction: two other faults would look the same.
    rivals = [path for way in ways for path in _paths(transfers, way) if _is_nearly_all(transfers, path, way)]
    rivals = rivals if len(rivals) == len(ways) else []
    return [
        Finding(way, e, window, slower, hits, share, tuple(rivals)) for way, share in zip(ways, shares, strict=True)
    ]


def _is_nearly_all(transfers: pl.DataFrame, path: Component, nic: Component) -> bool:
    own, of_nic = (int(transfers.filter(each.touches())["twin_busy"].sum()) for each in (path, nic))
    return own >= NEARLY_ALL * of_nic


def _same(one: Component, other: Component) -> bool:
    return (one.direction, one.ranks, one.columns, one.peer) == (
        other.direction,
        other.ranks,
        other.columns,
        other.peer,
    )


def _testable(component: Component, part: Series) -> bool:
    return set(component.members) <= set(part.members) and len(part.members) - len(component.members) >= 2


def _best(
    standardised: pl.DataFrame,
    series: dict[str, Series],
    slow: list[tuple[Component, float, Window, float]],
    options: Options,
    known_paths: KnownPaths | None,
    tested: int,
) -> Finding | None:
    """The likeliest slow component, with those that the data cannot tell from it. `tested`: number of candidates."""
    strongest = max(slow, key=lambda entry: entry[3])
    iterations = np.unique(series[strongest[0].direction].iteration)
    window = strongest[2]
    standardised = standardised.filter(
        pl.col("iteration").is_between(int(iterations[window.first]), int(iterations[window.last]))
    )
    likelihood: Explains = PathLikelihood(standardised) if known_paths else Likelihood(standardised)
    scored = []
    for component, e, when, size in slow:
        share = slow_share(standardised, component, size, options.practical)
        log_likelihood = likelihood.of(component)
        if len(component.members) > 1 and not _is_common(component, likelihood, series, options, known_paths):
            continue
        needed = float(np.log(tested / options.location_error))
        if component.columns and (share < options.slow_share or log_likelihood <= needed):
            continue
        scored.append((log_likelihood, component, e, when, size, share))
    if not scored:
        return None
    top = max(entry[0] for entry in scored)
    close = [entry for entry in scored if entry[0] > top - options.rival_log_likelihood]
    close.sort(key=lambda entry: (_rank_of(entry[1]), -entry[0]))
    _, component, e, when, size, share = close[0]
    rivals = tuple(entry[1] for entry in close[1:]) + _path_rivals(standardised, likelihood, component, options)
    rivals += tuple(few for few in of_few(known_paths) if likelihood.of(few) > top - options.rival_log_likelihood)
    hits = _hits(series[component.direction], component, when)
    path = _single_path(standardised, likelihood, component) if share < options.slow_share else None
    if path is not None:
        size = float(standardised.filter(path.touches())["excess"].median() or 0.0)  # type: ignore[arg-type]
        # Another path explains other transfers: it is not a rival, but a suspect of its own if it is slow.
        likely = likelihood.of(path) - options.rival_log_likelihood
        rivals = tuple(rival for rival in rivals if rival.kind != "path" and likelihood.of(rival) > likely)
        component, share = path, 1.0
    if known_paths is not None:
        if component.columns:
            inside = standardised.filter(component.touches())["excess"].median()
            size = max(size, float(inside or 0.0))  # type: ignore[arg-type]
        component, rivals = (
            pointed_at(component, known_paths),
            tuple(pointed_at(rival, known_paths) for rival in rivals),
        )
        component = _both_ways(component, standardised, known_paths, options)
    return Finding(component, e, when, float(np.expm1(size)), hits, share, rivals)


def _both_ways(
    component: Component, standardised: pl.DataFrame, known_paths: KnownPaths, options: Options
) -> Component:
    """The link's whole cable, where probes and transfers show that the other direction is slow too; else the link."""
    back = other_way(component, known_paths)
    if back is None:
        return component
    excess = standardised.filter(back.touches())["excess"].median()
    slow = excess is not None and float(excess) >= np.log1p(options.practical)  # type: ignore[arg-type]
    return cable(component, back) if slow else component


def _is_common(
    component: Component,
    likelihood: Explains,
    series: dict[str, Series],
    options: Options,
    known_paths: KnownPaths | None,
) -> bool:
    """Whether a component with several members is accused as a whole.

    A host or switch is, if most of its ranks are slow and it explains more than any one of them. A cable or switch
    between switches is, if its links are slow alike, as far as load allows. A slow link delays the acknowledgements of
    traffic in the other direction.
    """
    part = series[component.direction]
    beside = np.median(part.values[:, ~np.isin(part.members, component.members)], axis=1)
    sizes = [float(np.median(part.values[:, part.column(one)] - beside)) for one in component.members]
    least = max(float(np.log1p(options.practical)), ALIKE_SHARE * max(sizes) if component.columns else 0.0)
    slow = sum(size >= least for size in sizes)
    best = max(likelihood.of(single) for single in singles_of(component, known_paths))
    return slow >= max(2, options.slow_share * len(sizes)) and likelihood.of(component) > best


def _rank_of(component: Component) -> int:
    """Rank by PREFERENCE; sets of ranks come first, because they already explain more than each member."""
    return PREFERENCE.get((component.kind, component.direction), -1)


def _hits(part: Series, component: Component, window: Window) -> tuple[int, int]:
    """(iterations of the window in which the component is slower than every peer, iterations of the window)."""
    member = np.isin(part.members, component.members)
    above = part.values[:, member].min(axis=1) > part.values[:, ~member].max(axis=1)
    inside = _inside(part, window)
    which = np.unique(part.iteration[inside])
    return sum(bool(np.mean(above[part.iteration == i]) > 0.5) for i in which), len(which)


def slow_share(standardised: pl.DataFrame, component: Component, size: float, practical: float) -> float:
    """Share of a component's paths, weighted by their time in the twin, that are slow.

    A path is slow when its median shows a third of the effect. For links the practical size is enough, because a path's
    loss depends on the other traffic on the link.
    """
    paths = (
        standardised.filter(component.touches())
        .group_by("src", "dst")
        .agg(pl.col("excess").median(), pl.col("twin_busy").sum())
    )
    weight = paths["twin_busy"].to_numpy()
    least = min(size / 3, float(np.log1p(practical))) if component.columns else size / 3
    return float(weight[paths["excess"].to_numpy() > least].sum() / max(1, weight.sum()))


def _single_path(standardised: pl.DataFrame, likelihood: Explains, component: Component) -> Component | None:
    """The path of a NIC that explains more than the whole NIC, when not all of the NIC's paths are slow; else None."""
    if component.kind != "nic":
        return None
    best = max(_paths(standardised, component), key=likelihood.of)
    return best if likelihood.of(best) > likelihood.of(component) else None


def _path_rivals(
    standardised: pl.DataFrame, likelihood: Explains, component: Component, options: Options
) -> tuple[Component, ...]:
    """Single paths that explain a NIC's transfers as well as the NIC does."""
    if component.kind != "nic":
        return ()
    likely = likelihood.of(component) - options.rival_log_likelihood
    return tuple(path for path in _paths(standardised, component) if likelihood.of(path) > likely)


def _paths(standardised: pl.DataFrame, component: Component) -> list[Component]:
    pairs = standardised.filter(component.touches()).select("src", "dst").unique().sort("src", "dst").iter_rows()
    return [Component("path", "egress", (src,), dst) for src, dst in pairs]
