"""Suspects that may not be at fault: others' traffic crosses them, or probes after the run found them sound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from genie.page.words import duration, percent, rate
from genie.record.waits import OF_OTHERS, LinkWaits
from genie.verdict.model import Suspect

WAIT_MIN_NS, WAIT_NOISES = 100_000, 3.0  # shorter waits are the noise of hosts
BESIDE_QUANTILE = 0.95  # of the waits of a flow that does not cross the link: their noise
WAITING_SHARE = 0.05  # of the datagrams over a link
# Probes have found a delay in all of two seconds: a queue that is never empty in that time lets most datagrams wait.
WAITING_SHARE_OF_DELAY = 0.5
WAITING_MIN = 20


def busy_links(waits: Sequence[LinkWaits]) -> dict[str, tuple[float, int]]:
    """Return link -> (share of the datagrams that waited there, median wait in ns), for links with others' traffic."""
    found = {}
    for each in waits:
        if not each.waits_ns or not each.beside_ns:
            continue
        noise_ns = float(np.quantile(each.beside_ns, BESIDE_QUANTILE))
        long = [ns for ns in each.waits_ns if ns > max(WAIT_MIN_NS, WAIT_NOISES * noise_ns)]
        share = len(long) / len(each.waits_ns)
        if len(long) >= WAITING_MIN and share >= WAITING_SHARE:
            found[each.link] = (share, int(np.median(long)))
    return found


def with_doubts(
    suspects: Sequence[Suspect],
    probed: Sequence[Suspect],
    waits: Sequence[LinkWaits],
    sound: Mapping[str, float],
    uneven: Mapping[str, tuple[float, float]],
) -> list[Suspect]:
    """Return the suspects, with what keeps each from being certain; the certain ones first.

    `probed`: those of `suspects` that probes have found. `sound`: links that reached their rate in probes. `uneven`:
    least and greatest rate of links whose rates in probes differ, in b/s.
    """
    busy = busy_links(waits)
    found = []
    for suspect in suspects:
        least = WAITING_SHARE_OF_DELAY if suspect.fault == "delay" else WAITING_SHARE
        crossed = [link for link in suspect.links if link in busy and busy[link][0] >= least]
        if suspect.fault in OF_OTHERS and crossed:
            link = max(crossed, key=lambda each: busy[each][0])
            share, wait_ns = busy[link]
            doubt = (
                f"{percent(share)} of small probes wait {duration(wait_ns)} on the way over {link} while this job is "
                "silent, behind traffic of others or because the link pauses"
            )
            suspect = replace(suspect, doubt=doubt)
        elif suspect.fault == "rate" and suspect in probed and set(suspect.links) & set(uneven):
            low_bps, high_bps = uneven[next(link for link in suspect.links if link in uneven)]
            doubt = (
                f"its rate in probes varies from {rate(low_bps)} to {rate(high_bps)}: a fault comes and goes, or "
                "traffic of others does"
            )
            suspect = replace(suspect, doubt=doubt)
        elif suspect.fault == "rate" and suspect not in probed and suspect.links and set(suspect.links) <= set(sound):
            doubt = "its rate was right in probes after the run: it is slow at times, or others' traffic crossed it"
            suspect = replace(suspect, fault="intermittent", doubt=doubt)
        found.append(suspect)
    return sorted(found, key=lambda each: bool(each.doubt))
