"""The iterations in which a link that probes have found slow slowed the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from genie.record.waits import SLOWNESS
from genie.verdict.align import Aligned
from genie.verdict.evidence import Window, change_window, members_against_peers
from genie.verdict.links import KnownPaths, one_way, tier_series
from genie.verdict.model import Suspect
from genie.verdict.series import Series, phase_column, standardise


def with_windows(
    suspects: Sequence[Suspect], aligned: Aligned, known_paths: KnownPaths, clock_bound_ns: int, practical: float
) -> list[Suspect]:
    """Return the suspects, with the window of a slow link whose slow-down starts or ends in mid-run.

    Without enough traffic over the link its window stays the whole run.
    """
    if not known_paths.columns or not any(each.fault in SLOWNESS for each in suspects):
        return list(suspects)
    tiers = tier_series(standardise(phase_column(one_way(aligned.transfers, clock_bound_ns))), known_paths)
    found = []
    for suspect in suspects:
        window = _window(suspect, tiers, known_paths, practical) if suspect.fault in SLOWNESS else None
        last = len(aligned.iterations) - 1
        if window is None or window == Window(0, last):
            found.append(suspect)
            continue
        since, until = aligned.iterations[window.first], aligned.iterations[window.last]
        first, *rest = suspect.evidence.split(";")
        when = f"since iteration {since}" if window.last == last else f"in iterations {since} to {until}"
        words = ";".join([f"{first}, and slowed the run {when}", *rest])
        until_iteration = None if window.last == last else until
        found.append(replace(suspect, evidence=words, since_iteration=since, until_iteration=until_iteration))
    return found


def window_of(suspect: Suspect, iterations: Sequence[int]) -> Window:
    """Return the window of a suspect, as indices into the judged iterations."""
    first = iterations.index(suspect.since_iteration) if suspect.since_iteration in iterations else 0
    last = len(iterations) - 1
    return Window(first, last if suspect.until_iteration is None else iterations.index(suspect.until_iteration))


def _window(suspect: Suspect, tiers: dict[str, Series], known_paths: KnownPaths, practical: float) -> Window | None:
    numbers = [each.number for each in known_paths.columns if set(each.links) & set(suspect.links)]
    for part in tiers.values():
        members = [number for number in numbers if number in part.members]
        if members and len(members) < len(part.members):
            values = members_against_peers(part, members)
            window = change_window(values, part.iteration)
            which = np.unique(part.iteration)
            inside = (part.iteration >= which[window.first]) & (part.iteration <= which[window.last])
            if float(np.median(values[inside])) >= np.log1p(practical):
                return window
    return None
