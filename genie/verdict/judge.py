"""The verdict on a live run and its twin."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from genie.page.words import duration, percent, times
from genie.verdict.align import Aligned, align
from genie.verdict.bounds import bounds_of, judged_links, named, reasons_named
from genie.verdict.by_tier.imbalance import imbalances
from genie.verdict.by_tier.tiers import between_switches, judged_tiers
from genie.verdict.compatibility import estimates_of
from genie.verdict.components import attachments, components
from genie.verdict.cost import cost_of
from genie.verdict.coverage import coverage_of, nics_of
from genie.verdict.decompose import Collective, IterationTotals, clock_bounds, decompose, totals
from genie.verdict.evidence import e_value, lag_correlation, sign_e_value
from genie.verdict.known import explanation_of
from genie.verdict.links import known_paths_of, one_way, tier_series, without_answers
from genie.verdict.load import filled_links, filled_nics
from genie.verdict.locate import locate, slow_both_ways, without_victims
from genie.verdict.model import Cost, FleetGate, Noise, Suspect, Verdict
from genie.verdict.options import Options
from genie.verdict.outcome import NO_SUSPECT, PINNED_PORTS, TRACED_PATHS, UNEXPLAINED, conclude
from genie.verdict.probed.doubt import with_doubts
from genie.verdict.probed.faults import whole_rails, whole_switches
from genie.verdict.probed.probes import (
    Probes,
    suspects_from,
    with_probed_nics,
    with_probed_suspects,
    with_probes,
)
from genie.verdict.probed.since import window_of, with_windows
from genie.verdict.series import Series, against_peers, both_directions, fleet_series, phase_column, standardise
from genie.verdict.words import suspects_of

if TYPE_CHECKING:
    from genie.record import Run
    from genie.verdict.bounds import Bounds
    from genie.verdict.components import Attachment, Component
    from genie.verdict.links import KnownPaths
    from genie.verdict.locate import Finding

EFFECTS = (0.03, 0.05, 0.07, 0.1, 0.13, 0.17, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0)
INJECTED_RANKS_MAX = 16
SENT_AGAIN_MIN = 0.001  # of a rank's packets: a smaller share is not reported
COUNTERS_MAX = 5  # warnings on counters


def judge(
    live: Run, twin: Run, options: Options | None = None, probes: Probes | None = None, expected: Run | None = None
) -> Verdict:
    """Align the runs, split times, test and locate components, and gate the fleet.

    `probes`: rates over single paths, measured after the run. `expected`: a run from its own starts, which tells the
    time of an iteration without a fault. By default this is the twin, unless it followed the run's starts.

    Raises VerdictError when the runs cannot be compared.
    """
    options = options or Options()
    expected = expected or (twin if starts_itself(twin, live) else None)
    aligned = align(live, twin)
    collectives = decompose(aligned, live)
    iterations = totals(aligned, collectives, live)
    attached = attachments(live, twin, aligned.ranks)
    known_paths = known_paths_of(live, twin, aligned)
    bound_ns = max(clock_bounds(live, aligned.ranks).values(), default=0)
    probed = [] if probes is None else suspects_from(probes, options.practical)
    probed = with_windows(probed, aligned, known_paths, bound_ns, options.practical)
    beside = without_links(aligned, live, [link for suspect in probed for link in suspect.links], bound_ns)
    series = both_directions(beside)
    noise, stride = noise_model(series)
    if known_paths.columns:
        located = replace(beside, transfers=one_way(beside.transfers, bound_ns))
        tiers = tier_series(standardise(phase_column(located.transfers)), known_paths)
    else:
        located, tiers = beside, {}
    candidates = components({**series, **tiers}, attached, known_paths)
    findings = locate(located, {**series, **tiers}, candidates, options, stride, known_paths)
    if not known_paths.columns:
        findings = without_victims(findings, beside, bound_ns, options)
    fleet = fleet_gate(aligned, fleet_series(aligned), live, options)
    set_aside: list[tuple[int, int]] = []
    if not (findings or known_paths.columns or fleet.result == "fail"):  # its victims are most of a slow fleet
        if other := beside_victims(beside, attached, known_paths, bound_ns, options):
            beside, series, candidates, findings, set_aside = other
        findings = findings or slow_both_ways(beside, series, options)
    suspects = suspects_of(findings, aligned, attached, known_paths, options.reference)
    suspects = with_probed_suspects(suspects, probed)
    if probes is not None:
        sound, uneven = probes.passed(options.practical), probes.uneven(options.practical)
        suspects = with_doubts(suspects, probed, probes.waits, sound, uneven)
        suspects = whole_switches(suspects, probes.between)
    suspects, known = known_apart(suspects, options)
    suspects = whole_rails(suspects, {rank: own.switch for rank, own in attached.items()})
    suspects.sort(key=lambda each: bool(each.doubt))  # the certain ones first
    accused = {(c.direction, rank) for f in findings for c in (f.component, *f.rivals) for rank in c.ranks}
    fleet = with_iterations(fleet, iterations, options)
    bounds = bounds_of(beside, series, accused, options.practical)
    full = filled_nics(live, twin, aligned, attached, options.practical)
    if probes is not None:
        bounds = with_probed_nics(bounds, probes, options.practical)
        if full is not None:
            full |= {own for link, own in probes.host_links.items() if link in probes.passed(options.practical)}
    filled = filled_links(live, twin, aligned, options.practical)
    links = judged_links(known_paths, tiers, suspects, options.practical, filled)
    if probes is not None:
        links = with_probes(links, probes, options.practical)
    between = between_switches(twin)
    by_tier = between.spreads or live.paths is None or bool(known_paths.problem)
    of_tiers = judged_tiers(aligned, twin, between, options.practical) if by_tier else {}
    own = {(f.component.direction, rank) for f in findings for rank in f.component.ranks}
    if probes is not None:
        own |= {probes.host_links[link] for each in probed for link in each.links if link in probes.host_links}
    nics = nics_of(aligned, bounds, own, options.practical)
    judged = coverage_of(live, aligned, bounds, nics, links, known_paths, between, of_tiers, full)
    again, ended_early = sent_again(live, aligned), cut_short(live)
    coverage: dict[str, Any] = {
        **aligned.coverage,
        "components_tested": len(candidates),
        "ranks": len(aligned.ranks),
        "ranks_judged": {direction: len(part.members) for direction, part in series.items()},
        "follow": aligned.follow,
        "nics": {**judged.nics.to_dict(), "partly_used": list(judged.partly_used)},
        "links": {**links.to_dict(), **(judged.links.to_dict() if judged.links else {"judged": 0, "total": 0})},
        "by_tier": judged.by_tier,
        "iteration_ns": iteration_ns(live, twin, aligned),
        "clock_bound_ns": bound_ns,
    }
    verdict = Verdict(
        result="pass",
        summary="",
        action="",
        suspects=suspects,
        cost=_cost(suspects[0], aligned, live, expected, fleet) if suspects else None,
        fleet=fleet,
        noise=noise,
        smallest_detectable=smallest_detectable(series, accused, len(candidates), options, stride),
        upper_bound={**bounds.upper, **links.upper},
        coverage=coverage,
        judged=judged,
        has_traffic=any(aligned.moved.values()),
        collectives=collectives,
        iterations=iterations,
        late=late_ranks(collectives, len(aligned.iterations)),
        options=options,
        notes=[
            *notes(live, aligned, bounds, again, ended_early),
            *(
                f"rank {src} to rank {dst} is slow too, and acknowledgements took as long as its whole delay"
                for src, dst in set_aside
            ),
            *links.notes(),
            *imbalances(live, twin),
            *filter(None, [probes.unnoticed(), probes.not_watched()] if probes is not None else []),
        ],
        warnings=warnings_of(live, twin),
        little=bounds.little,
        slow=bounds.slow,
        not_judged=bounds.not_judged,
        cut_short=ended_early,
        sent_again=again,
        known=known,
        given=given_options(live),
    )
    return conclude(verdict)


def known_apart(suspects: list[Suspect], options: Options) -> tuple[list[Suspect], list[Suspect]]:
    """Return the suspects that no known fault explains, and the others with the notes of their faults."""
    faults = [explanation_of(suspect, options.known) for suspect in suspects]
    pairs = list(zip(suspects, faults, strict=True))
    return (
        [suspect for suspect, fault in pairs if fault is None],
        [replace(suspect, note=fault.note) for suspect, fault in pairs if fault is not None],
    )


def without_links(aligned: Aligned, live: Run, links: list[str], clock_bound_ns: int) -> Aligned:
    """The run without the transfers that cross these links, or whose answers do: what slows them is known.

    A transfer whose answers' time can be left out stays, without it.
    """
    if not links or live.paths is None:
        return aligned
    crossing = live.paths.filter(pl.col("link").is_in(links)).select("src", "dst").unique()
    left = aligned.transfers.join(crossing, on=["src", "dst"], how="anti")
    back = left.join(crossing.rename({"src": "dst", "dst": "src"}), on=["src", "dst"], how="semi")
    forward = one_way(back, clock_bound_ns).filter(pl.col("live_busy") < back["live_busy"])
    left = pl.concat([left.join(back, on=["src", "dst"], how="anti"), forward])
    return aligned if left.is_empty() else replace(aligned, transfers=left)


def beside_victims(
    aligned: Aligned, attached: dict[int, Attachment], known_paths: KnownPaths, clock_bound_ns: int, options: Options
) -> tuple[Aligned, dict[str, Series], list[Component], list[Finding], list[tuple[int, int]]] | None:
    """(run, series, candidates, findings, pairs) without the pairs of ranks that slow acknowledgements delay.

    None where this finds nothing.

    In a small fleet the victims of one slow NIC are as many as its other peers, so that nothing stands out beside them.
    As a second search, it gets half of the false discovery rate.
    """
    transfers = without_answers(aligned.transfers, clock_bound_ns, options.practical)
    if transfers.is_empty() or transfers.height == aligned.transfers.height:
        return None
    left = replace(aligned, transfers=transfers)
    series = both_directions(left)
    candidates = components(series, attached, known_paths)
    _, stride = noise_model(series)
    half = replace(options, false_discovery=options.false_discovery / 2)
    findings = locate(left, series, candidates, half, stride, known_paths)
    pairs = (
        aligned.transfers.join(transfers, on=["src", "dst"], how="anti")
        .select("src", "dst")
        .unique()
        .sort("src", "dst")
    )
    return (left, series, candidates, findings, pairs.rows()) if findings else None


def noise_model(series: dict[str, Series]) -> tuple[Noise, int]:
    """(noise of the run itself, stride of the tests): the stride is 2 where neighbouring units depend on each other."""
    part = series["egress"]
    residual = part.relative() if part.values.size else np.zeros((1, 1))
    residual = residual - np.median(residual, axis=0)
    spread = 1.4826 * float(np.median(np.abs(residual)))
    tail = float(np.quantile(np.abs(residual), 0.99)) / spread if spread else 0.0
    units = len(part.iteration)
    correlation, error = lag_correlation(part) if part.values.size else (0.0, 1.0)
    blocked = correlation > max(0.1, 2 * error)
    phases = units // max(1, len(np.unique(part.iteration)))
    return Noise(units, phases, spread, tail, correlation, blocked), 2 if blocked else 1


def fleet_gate(aligned: Aligned, part: Series, live: Run, options: Options) -> FleetGate:
    """Check whether the whole fleet is slower than the twin; inconclusive when the hosts themselves are late."""
    if not part.values.size:
        return FleetGate("inconclusive", 0.0, options.fleet_large, "no rank sent in every iteration")
    typical = np.quantile(part.values, 0.5, axis=1, method="lower")  # most ranks are as slow as this, or slower
    slow_down = float(np.expm1(np.median(typical)))
    volume = aligned.transfers.select(
        pl.col("size_bytes").filter(pl.col("size_bytes") >= options.large_bytes).sum() / pl.col("size_bytes").sum()
    ).item()
    tolerance = options.fleet_large if float(volume) >= 0.5 else options.fleet_small
    above = sign_e_value(typical, float(np.log1p(tolerance)), part.iteration) >= 1 / options.false_discovery
    if not above or slow_down < tolerance:
        words = (
            f"half of the ranks or more take {times(slow_down)} {options.time_of}, or less: within {percent(tolerance)}"
        )
        return FleetGate("pass", slow_down, tolerance, words)
    words = f"more than half of the ranks take {times(slow_down)} {options.time_of}, or more{NO_SUSPECT}"
    late = live.timeline.filter(pl.col("kind").is_in(["comp", "mem"]) & (pl.col("iteration").is_in(aligned.iterations)))
    usual = float(late["overshoot_ns"].median() or 0) if late.height else 0.0  # type: ignore[arg-type]
    if usual > options.quiet_overshoot_ns:
        words = f"{words}, and the hosts are busy (sleeps end {usual / 1e6:.1f} ms late)"
        return FleetGate("inconclusive", slow_down, tolerance, words)
    return FleetGate("fail", slow_down, tolerance, words)


def with_iterations(gate: FleetGate, iterations: list[IterationTotals], options: Options) -> FleetGate:
    """The gate with the slow-down of whole iterations, which a few late transfers decide.

    A pass becomes inconclusive where iterations take longer than the tolerance: something slows the job.
    """
    played = [item for item in iterations if item.measured_ns > 0 and item.simulated_ns > 0]
    if not played:
        return gate
    values = np.log([item.measured_ns / item.simulated_ns for item in played])
    number = np.array([item.iteration for item in played], np.int64)
    gate = replace(gate, iterations=float(np.expm1(np.median(values))))
    above = sign_e_value(values, float(np.log1p(gate.tolerance)), number) >= 1 / options.false_discovery
    if gate.result != "pass" or not above or gate.iterations < gate.tolerance:
        return gate
    words = f"the traffic of an iteration takes {times(gate.iterations)} {options.time_of}{UNEXPLAINED}"
    return replace(gate, result="inconclusive", words=words)


def smallest_detectable(
    series: dict[str, Series], accused: set[tuple[str, int]], tested: int, options: Options, stride: int
) -> dict[str, float | None]:
    """The least slow-down that would be found in 90 % of the ranks when added to this run's own noise.

    Keys say how long it lasts: the `whole` run or its `second_half`. None: not even a factor of five.
    """
    part = series["egress"]
    clean = [column for column, rank in enumerate(part.members) if ("egress", rank) not in accused]
    part = Series(part.direction, [part.members[column] for column in clean], part.iteration, part.values[:, clean])
    columns = list(range(len(clean)))[:INJECTED_RANKS_MAX]
    limit = tested / options.false_discovery
    result: dict[str, float | None] = {}
    for name in ("whole", "second_half"):
        which = np.unique(part.iteration)
        since = which[len(which) // 2] if name == "second_half" and len(which) else -1
        after = part.iteration >= since
        result[name] = None
        for size in EFFECTS if len(part.members) >= 3 and columns else ():
            seen = 0
            for column in columns:
                values = part.values.copy()
                values[after, column] += np.log1p(size)
                raised = Series(part.direction, part.members, part.iteration, values)
                strong = e_value(raised, [column], options.margin, stride) >= limit
                seen += strong and float(np.median(against_peers(raised, [column])[after])) >= np.log1p(
                    options.practical
                )
            if seen >= 0.9 * len(columns):
                result[name] = size
                break
    return result


def _cost(first: Suspect, aligned: Aligned, live: Run, expected: Run | None, fleet: FleetGate) -> Cost | None:
    """Return the cost in the first suspect's window; None where no run says how long iterations take without it."""
    window = window_of(first, aligned.iterations)
    inside = aligned.iterations[window.first : window.last + 1]
    return None if expected is None else cost_of(live, expected, inside, fleet.slow_down)


def iteration_ns(live: Run, twin: Run, aligned: Aligned) -> dict[str, int]:
    """World -> median time of the judged iterations; without the twin if it left compute out."""
    kept = pl.col("iteration").is_in(aligned.iterations)
    result: dict[str, int] = {}
    for world, run in (("live", live), ("twin", twin)):
        if world == "twin" and not has_compute_of(twin, live):
            continue
        played = run.timeline.filter(kept) if world == "live" or aligned.follow else run.timeline
        spans = played.group_by("iteration").agg(span=pl.col("end_ns").max() - pl.col("start_ns").min())["span"]
        result[world] = int(np.median(spans.to_numpy())) if len(spans) else 0
    return result


def starts_itself(run: Run, live: Run) -> bool:
    """Whether a run starts its operations itself, compute included, and not at the moments of the live run."""
    return not run.info.get("follow", False) and has_compute_of(run, live)


def has_compute_of(run: Run, live: Run) -> bool:
    """Whether a run has compute, if the live run has."""
    computes = pl.col("kind").is_in(["comp", "mem"])
    return bool(run.timeline.filter(computes).height) or not live.timeline.filter(computes).height


def warnings_of(live: Run, twin: Run) -> list[str]:
    """The warnings of both runs, each with its world in front; then that the simulated times are estimates."""
    worlds: dict[str, str] = {}
    for world, run in (("live", live), ("twin", twin)):
        for text in map(str, run.info.get("warnings") or []):
            worlds[text] = f"{worlds[text]} and {world}" if text in worlds else world
    return [f"{world}: {text}" for text, world in worlds.items()] + estimates_of(twin)


def late_ranks(collectives: list[Collective], iterations: int) -> list[dict[str, Any]]:
    """Ranks that came last, how often, and how much longer per iteration than the median rank they computed before."""
    table: dict[int, list[int]] = {}
    for item in collectives:
        table.setdefault(item.last_rank, []).append(item.late_ns)
    late = [
        {"rank": rank, "collectives": len(each), "late_ns_per_iteration": sum(each) // max(1, iterations)}
        for rank, each in table.items()
    ]
    return sorted(late, key=lambda entry: -entry["late_ns_per_iteration"])


def given_options(live: Run) -> frozenset[str]:
    """The options of a live run that a next step may advise: PINNED_PORTS, TRACED_PATHS."""
    settings = live.info.get("settings")
    if not isinstance(settings, dict):
        return frozenset()
    given = {PINNED_PORTS: settings.get("source_ports") == "pinned", TRACED_PATHS: bool(settings.get("trace"))}
    return frozenset(option for option, is_given in given.items() if is_given)


def cut_short(live: Run) -> str:
    """Reason why a live run is incomplete, "" when it is complete."""
    if live.info.get("complete") is not False:
        return ""
    return " ".join(str(live.info.get("problem") or "its records are incomplete").split())


def notes(live: Run, aligned: Aligned, bounds: Bounds, again: str, ended_early: str) -> list[str]:
    """Warnings about the data: ranks judged alone or not at all, clocks that contradict each other, unmatched rows."""
    result = []
    if bounds.not_judged:
        result.append(f"not judged: {reasons_named(list(bounds.not_judged))}")
    if bounds.little:
        little = named(list(bounds.little))
        result.append(f"too little traffic to be tested among the others, each bounded by itself: {little}")
    for direction, verb in (("egress", "send"), ("ingress", "receive")):
        if idle := [str(rank) for rank in aligned.ranks if rank not in aligned.moved[direction]]:
            result.append(f"nothing to judge, because they {verb} no payload: ranks {named(idle)}")
    if again:
        result.append(again)
    result += counted_amiss(live)
    limit = 2 * max(clock_bounds(live, aligned.ranks).values(), default=0)
    early = (
        live.transfers.select(pl.col("post_ns") - pl.col("first_ns"))
        .to_series()
        .filter(live.transfers["first_ns"] != -1)  # not yet
    )
    early = early.filter(early > limit)
    if len(early):
        latest = duration(int(early.to_numpy().max()))
        result.append(f"clock alarm: {len(early)} transfers arrived before they were sent, by up to {latest}")
    if count := aligned.coverage["iterations_not_ended"]:
        result.append(f"{count} iterations did not end and are not judged")
    for what in ("collectives", "transfers"):
        if count := aligned.coverage[f"{what}_unmatched"]:
            result.append(f"{count} {what} of the live run have no partner in the twin")
    if ended_early:
        result.append(f"the live run did not end properly ({ended_early}); what was recorded is judged")
    return result


def counted_amiss(live: Run) -> list[str]:
    """The live run's warnings about counters that grew and should not have: the worst ones, and how many more."""
    texts = [str(warning.get("text", "")) for warning in live.counters.get("warnings") or []]
    more = len(texts) - COUNTERS_MAX
    return texts[:COUNTERS_MAX] + ([f"{more} more counters grew that should not: see counters.json"] * (more > 0))


def sent_again(live: Run, aligned: Aligned) -> str:
    """A warning on the rank that retransmitted most packets beyond the twin's, "" if none did.

    The network lost the packets, or a rank was late.
    """
    mtu = int((live.info.get("settings") or {}).get("mtu", 4096))
    table = (
        aligned.transfers.group_by("src")
        .agg(pl.col("retransmits").sum(), pl.col("twin_retransmits").sum(), pl.col("size_bytes").sum())
        .with_columns(more=pl.col("retransmits") - pl.col("twin_retransmits"))
        .with_columns(share=pl.col("more") * mtu / pl.col("size_bytes"))
        .filter(pl.col("share") >= SENT_AGAIN_MIN)
        .sort("share", descending=True)
    )
    if table.is_empty():
        return ""
    first = table.row(0, named=True)
    others = ""
    if table.height > 1:
        ranks = "another rank" if table.height == 2 else f"{table.height - 1} other ranks"
        others = f", {ranks} {table['more'].sum() - first['more']}"
    return (
        f"rank {first['src']} sent {first['more']} packets again that the twin did not, "
        f"{100 * first['share']:.1f} % of its data{others}: the network loses or overtakes packets, or a "
        "rank's process stood still"
    )


__all__ = ["Suspect", "judge"]
