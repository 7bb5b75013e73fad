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


def busy_links(waits: Sequence[LinkWaits], least: float = WAITING_SHARE) -> dict[str, tuple[float, int]]:
    """Return link -> (share of the datagrams that waited there, median wait in ns), for links with others' traffic.

    `least`: share of the datagrams that wait behind such traffic, at least. Beyond the waits of the flow beside the
    link, WAITING_MIN datagrams must wait.
    """
    found = {}
    for each in waits:
        if not each.waits_ns or not each.beside_ns:
            continue
        noise_ns = float(np.quantile(each.beside_ns, BESIDE_QUANTILE))
        limit_ns = max(WAIT_MIN_NS, WAIT_NOISES * noise_ns)
        long = [ns for ns in each.waits_ns if ns > limit_ns]
        share = len(long) / len(each.waits_ns)
        usual = sum(ns > limit_ns for ns in each.beside_ns) / len(each.beside_ns)
        if len(long) - usual * len(each.waits_ns) >= WAITING_MIN and share >= least:
            found[each.link] = (share, int(np.median(long)))
    return found


def _least_waiting(suspect: Suspect) -> float:
    """Return the share of the datagrams that wait, at least, where others' traffic explains a suspect."""
    if suspect.fault == "delay":
        return WAITING_SHARE_OF_DELAY
    if suspect.fault == "intermittent" and suspect.hits[1] > 0:
        # Traffic that slows some of the rounds crosses the link in as small a part of the time.
        return WAITING_SHARE * suspect.hits[0] / suspect.hits[1]
    return WAITING_SHARE


def with_doubt_of_acknowledgements(
    suspect: Suspect, paths: Sequence[tuple[float, Sequence[Sequence[str]]]], waits: Sequence[LinkWaits]
) -> Suspect:
    """Return a suspect of slow flows, with a doubt where others' traffic may delay their acknowledgements.

    `paths`: of each slow path its share of the best rate, and of each flow the links that its acknowledgements cross.
    A flow sends no more than its window before they come, so that a queue on their way slows it as a slow link does.
    Flows that wait may stop, and no others: a path that has lost more than their share is slow by itself.
    """
    busy = busy_links(waits, _least_waiting(suspect))
    links = []
    for share, backs in paths:
        crossed = [[link for link in back if link in busy] for back in backs]
        delayed = sum(1 for each in crossed if each)
        if delayed == 0 or 1 - share > delayed / len(backs):
            return suspect
        links += [link for each in crossed for link in each]
    if not links:
        return suspect
    link = max(links, key=lambda each: busy[each][0])
    share, wait_ns = busy[link]
    doubt = (
        f"its acknowledgements cross {link}, where {percent(share)} of small probes wait {duration(wait_ns)} while "
        "this job is silent, behind traffic of others or because the link pauses"
    )
    return replace(suspect, doubt=doubt)


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
    found = []
    for suspect in suspects:
        busy = busy_links(waits, _least_waiting(suspect))
        crossed = [link for link in suspect.links if link in busy]
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
