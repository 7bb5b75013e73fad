"""The three outcomes: the headline, which claims nothing about parts that are not judged, and the next step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from genie.page.words import duration, percent
from genie.record.waits import SLOWNESS
from genie.verdict.bounds import named, reasons_named
from genie.verdict.by_tier.tiers import NOT_SAID
from genie.verdict.coverage import FEW_PAIRS, NO_PAYLOAD, NOT_CROSSED, UNTESTED, unjudged
from genie.verdict.words import OWN_PARTS, cost_in_words

if TYPE_CHECKING:
    from genie.verdict.bounds import NotJudged
    from genie.verdict.coverage import Require
    from genie.verdict.model import Suspect, Verdict

NO_SUSPECT, UNEXPLAINED = "; no component stands out", ", and no component explains it"  # of the fleet's words
RUN_AGAIN = "Run again with more --iterations, on hosts that do nothing else"
KINDS = {"nic": "NIC"}  # kind of a component, as it is written
NO_COST = "cost not judged"
OTHERS_MAX = 2  # suspects that the headline names beside the first
PINNED_PORTS, TRACED_PATHS = "--source-ports pinned", "--trace-paths on"


def conclude(verdict: Verdict) -> Verdict:
    """The verdict with result, headline and action. Fail takes precedence over inconclusive, and that over pass."""
    verdict = replace(verdict, fleet=replace(verdict.fleet, words=_fleet_words(verdict)))
    if verdict.suspects and not (verdict.fleet.result == "fail" and verdict.suspects[0].doubt):
        return _accused(verdict)
    if verdict.fleet.result == "fail":
        return replace(
            verdict,
            result="fail",
            summary="; ".join(
                [
                    verdict.fleet.words,
                    *(f"open: {each.evidence.split(';')[0]}: {each.doubt}" for each in verdict.suspects[:1]),
                    *map(_known, verdict.known),
                    verdict.judged.words(),
                ]
            ),
            action="Compare the fabric file with the fabric: a rate, an MTU or a shared link is not what the twin "
            "assumes. Hosts that cannot send at the fabric's rate need --dilation.",
        )
    if not verdict.has_traffic:
        return _without_traffic(verdict)
    blocking, aside = _open_questions(verdict)
    aside = [*(_known(suspect) for suspect in verdict.known), *aside]
    if blocking:
        summary = "; ".join([verdict.judged.words(), *blocking, *aside, _detectable(verdict)])
        return replace(verdict, result="inconclusive", summary=summary, action=_next_step(verdict))
    return _passed(verdict, aside)


def _fleet_words(verdict: Verdict) -> str:
    """The words on the whole fleet, which deny no suspect and no known fault."""
    words = verdict.fleet.words
    if verdict.suspects or verdict.slow:
        return words.replace(NO_SUSPECT, "").replace(UNEXPLAINED, "")
    return words.replace("no component", "no other component") if verdict.known else words


def required(verdict: Verdict) -> Require:
    """The coverage that a pass needs."""
    return verdict.options.require_coverage or verdict.judged.default()


def _accused(verdict: Verdict) -> Verdict:
    first, *further = verdict.suspects
    more = [
        f"{KINDS.get(each.kind, each.kind)} {each.name} ({each.fault}{', open' if each.doubt else ''})"
        for each in further
    ]
    others = f" (and {', '.join(more[:OTHERS_MAX])}" if more else ""
    others += f" and {len(more) - OTHERS_MAX} more)" if len(more) > OTHERS_MAX else ")" if more else ""
    cost = cost_in_words(verdict.cost) if verdict.cost else NO_COST
    rivals = f" ({'; '.join(first.also)} would look the same)" if first.also else ""
    # Steady traffic of others, below the link's capacity, leaves no trace but a lower rate.
    alone = "and that no other job sends over it, " if first.fault in SLOWNESS and first.kind != "nic" else ""
    verb = {"loss": "loses packets", "delay": "delays packets"}.get(first.fault, "is slow")
    found = [first.evidence.split(";")[0] + _rivals(first) + others, *([f"open: {first.doubt}"] if first.doubt else [])]
    return replace(
        verdict,
        result="inconclusive" if first.doubt else "fail",
        summary="; ".join([*found, *map(_known, verdict.known), cost, verdict.judged.words()]),
        action=f"Run again while no other job sends over {first.name}: if it {verb} then, check it{rivals}."
        if first.doubt
        else f"Check {first.name}{rivals}, {alone}then run again to confirm.",
    )


def _rivals(suspect: Suspect) -> str:
    """` (spine1->leaf1 would look the same)`: without the cable and the port of a NIC, which count with it."""
    rivals = [name for name in suspect.also if suspect.kind != "nic" or not name.startswith(OWN_PARTS)]
    return f" ({named(rivals)} would look the same)" if rivals else ""


def _known(suspect: Suspect) -> str:
    """`known (OPS-12): link leaf0->spine1 loses 0.5 % of its packets in probes after the run`."""
    note = f" ({suspect.note})" if suspect.note else ""
    return f"known{note}: {suspect.evidence.split(';')[0]}"


def _without_traffic(verdict: Verdict) -> Verdict:
    spans = verdict.coverage["iteration_ns"]
    took = f"an iteration takes {duration(spans['live'])}"
    if "twin" in spans:
        took += f", {duration(spans['twin'])} in the twin"
    ended = [f"the live run did not end properly ({verdict.cut_short})"] if verdict.cut_short else []
    return replace(
        verdict,
        result="inconclusive",
        summary="; ".join(["no payload went between ranks: no NIC or link judged", *ended, took]),
        action="Play a workload whose ranks send payload to each other.",
    )


def _passed(verdict: Verdict, aside: list[str]) -> Verdict:
    practical, judged = percent(verdict.options.practical), verdict.judged
    if judged.is_whole:
        claim = f"{judged.words()}: none is slower than its peers by {practical} or more"
    else:
        claim = (
            f"{judged.words()}: no judged one is slower than its peers by {practical} or more, the others may be "
            f"(--require-coverage {required(verdict)})"
        )
    again = [f"but {verdict.sent_again}"] if verdict.sent_again else []
    action = "Look for drops on that rank's paths, in the counters of NICs and switches."
    return replace(
        verdict,
        result="pass",
        summary="; ".join([claim, *aside, *again]),
        action=action if again else "Nothing to do.",
    )


def _detectable(verdict: Verdict) -> str:
    """Phrase on the smallest slow-down that would be seen.

    It speaks of sending NICs, because faults were injected into their series only.
    """
    seen = verdict.smallest_detectable["whole"]
    if not seen:
        return "no slow-down of a sending NIC could have been seen"
    if not verdict.judged.nics.judged:
        return "no slow-down of a sending NIC can be ruled out"
    tested = verdict.coverage["ranks_judged"]["egress"]
    which = "a NIC" if tested == verdict.judged.nics.total else f"one of {tested} NICs"
    return f"{which} that sends {percent(seen)} slower, or more, in all iterations would have been seen"


def _open_questions(verdict: Verdict) -> tuple[list[str], list[str]]:
    """(reasons against a pass of a run without suspects, other remarks that the required coverage does not need)."""
    need = required(verdict)
    of_nics, of_links = _of_nics(verdict), _of_links(verdict)
    blocking: list[str] = []
    aside: list[str] = []
    if verdict.cut_short:
        blocking.append(f"the live run did not end properly ({verdict.cut_short})")
    if verdict.fleet.result == "inconclusive":
        blocking.append(verdict.fleet.words)
    if verdict.judged.is_empty:
        blocking += [*of_nics, *of_links]
        return blocking or ["nothing is judged"], []
    (aside if need == "none" else blocking).extend(of_nics)
    (blocking if verdict.judged.links in verdict.judged.lacking(need) else aside).extend(of_links)
    return blocking, aside


def _of_nics(verdict: Verdict) -> list[str]:
    if verdict.judged.nics.is_whole:
        return []
    if not verdict.upper_bound:
        return ["no NIC had peers to be compared with"]
    result = []
    if verdict.not_judged:
        result.append(f"not judged: {reasons_named(list(verdict.not_judged))}")
    nics = {name: bound for name, bound in verdict.upper_bound.items() if name.startswith("rank ")}
    few = [name for name, bound in nics.items() if bound is None]
    if any(name not in verdict.little for name in few):
        return [*result, f"{verdict.noise.units} repetitions are too few to judge"]
    if few:
        result.append(f"not judged: {named(few)} (too little traffic beside the others)")
    practical = verdict.options.practical
    if verdict.slow:
        verb = "looks slower than its" if len(verdict.slow) == 1 else "look slower than their"
        result.append(f"{named(list(verdict.slow))} {verb} peers by {percent(practical)} or more, but not surely")
    wide = [
        (bound, name)
        for name, bound in nics.items()
        if bound is not None and bound >= practical and name not in verdict.slow
    ]
    if wide:
        bound, name = max(wide)
        why = "too little traffic to be sure" if name in verdict.little else "too noisy"
        verb = "is" if len(wide) == 2 else "are"
        others = f", and {len(wide) - 1} more {verb} not surely below {percent(practical)}" if len(wide) > 1 else ""
        result.append(f"{why}: {name} may be up to {percent(bound)} slower than its peers{others}")
    return result or [unjudged([verdict.judged.nics])]


def _of_links(verdict: Verdict) -> list[str]:
    links = verdict.judged.links
    if links is None:
        return []
    result = []
    if slow := verdict.coverage["links"]["slow"]:
        practical = percent(verdict.options.practical)
        result.append(f"link {named(slow)} looks slower than its peers by {practical} or more, but not beyond noise")
    if verdict.judged.by_tier:
        result.append(f"single links are not judged: {verdict.judged.by_tier}")
    if not links.is_whole:
        result.append(unjudged([links]))
    return result


def _next_step(verdict: Verdict) -> str:
    """The one thing to do about an inconclusive result."""
    if verdict.cut_short:
        return "Fix the cause of the early end, then run again."
    lacking = verdict.judged.lacking(required(verdict))
    if verdict.judged.nics in lacking:
        if _unknown_nics(verdict):
            return "Play a workload in which every rank has peers that move as much as it does."
        if verdict.slow:
            return (
                f"Check the NICs and links of {named(_ranks_of(verdict.slow))}, then run again with more --iterations."
            )
        if NO_PAYLOAD in verdict.judged.nics.not_judged:
            return (
                "Play a workload in which every rank sends and receives, or say that what was judged is enough: "
                "--require-coverage none."
            )
        return f"{RUN_AGAIN}."
    if verdict.judged.links in lacking and verdict.judged.links is not None:
        enough = "or say that NICs are enough: --require-coverage nics."
        if NOT_SAID in verdict.judged.links.not_judged:
            return f"Simulate again with this version, {enough}"
        if verdict.judged.by_tier:
            if TRACED_PATHS in verdict.given:
                return f"Let the switches answer probes whose TTL ends (ICMP Time Exceeded), {enough}"
            return f"Run again with {TRACED_PATHS} where the network answers it, {enough}"
        missing = verdict.judged.links.not_judged
        if FEW_PAIRS in missing or UNTESTED in missing:
            pinned = "" if PINNED_PORTS in verdict.given else f"{PINNED_PORTS}, or "
            return (
                f"Run again with {pinned}a workload in which more pairs of ranks use each link, such as an "
                f"all-to-all, {enough}"
            )
        if NOT_CROSSED in missing:
            return f"Place ranks so that their traffic crosses all links, {enough}"
        return f"{RUN_AGAIN}, {enough}"
    return f"{RUN_AGAIN}."


def _unknown_nics(verdict: Verdict) -> list[NotJudged]:
    """NICs that moved payload and are judged in neither direction."""
    return [entry for entry in verdict.not_judged if not entry.otherwise]


def _ranks_of(names: tuple[str, ...]) -> list[str]:
    """`rank 3` for `rank 3 egress`, each once."""
    return list(dict.fromkeys(name.rsplit(" ", 1)[0] for name in names))
