"""Faults injected into a lab's links: their notation and their effect."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import Struct, structs

from genie.config.units import RATE_MAX_BPS, format_rate, parse_duration, parse_rate
from genie.lab.failure import LabError
from genie.lab.plan import DEVICE_MTU_BYTES, LabLink
from genie.lab.timetable import NEVER_S, Timetable

MTU_MIN_BYTES = 68  # RFC 791
RATE_MIN_BPS = 8000
DELAY_MAX_NS, DSCP_MAX = 10**9, 63
PERIOD_MIN_S = 0.2  # a change takes a tenth of a second
TIMES = ("from", "until", "period", "on")  # keys of a timetable
KEYS = ("rate", "loss", "ecn", "mtu", "delay", "reorder", "dscp")
GRAMMAR = "rate=40% (or 80Mb/s), loss=1%, ecn=10%, mtu=1500, delay=300us, reorder=1%, dscp=0, down, up or clear"
_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*%")


class Fault(Struct, frozen=True, omit_defaults=True):
    """The faults of one direction of a cable, in addition to its fabric file's values."""

    rate_bps: int | None = None
    loss: float = 0.0  # share of the packets
    ecn: float = 0.0  # share of the ECN-capable packets that are marked
    mtu_bytes: int | None = None  # larger IP packets are dropped silently
    delay_ns: int = 0
    reorder: float = 0.0  # share of the packets that later ones overtake
    dscp: int | None = None  # in all packets
    is_down: bool = False

    @property
    def is_held(self) -> bool:
        """Whether packets are held: see forwarder.py."""
        return bool(self.delay_ns or self.reorder)

    def words(self) -> str:
        """Return the fault in one line; "" where there is none."""
        said = []
        if self.rate_bps is not None:
            said.append(f"rate {format_rate(self.rate_bps)}")
        if self.loss:
            said.append(f"loss {self.loss * 100:.4g} %")
        if self.ecn:
            said.append(f"ECN marks {self.ecn * 100:.4g} %")
        if self.mtu_bytes is not None:
            said.append(f"packets above {self.mtu_bytes} B dropped")
        if self.delay_ns:
            said.append(f"delay {self.delay_ns / 1000:g} us")
        if self.reorder:
            said.append(f"{self.reorder * 100:.4g} % of the packets overtaken")
        if self.dscp is not None:
            said.append(f"DSCP {self.dscp}")
        if self.is_down:
            said.append("down")
        return ", ".join(said)


Faults = Mapping[str, Fault]  # by link name


@dataclass(frozen=True)
class Change:
    """A change of links' faults; a fault that is None stays unchanged."""

    links: tuple[str, ...]  # link names
    rate: str | None = None  # a rate, or a share of the file's such as "40%"
    loss: float | None = None
    ecn: float | None = None
    mtu_bytes: int | None = None
    delay_ns: int | None = None
    reorder: float | None = None
    dscp: int | None = None
    is_down: bool | None = None
    clears: bool = False  # clear all faults first
    times: Timetable | None = None  # None: always


def parse_change(text: str, links: Sequence[LabLink]) -> Change:
    """Return a change from "leaf0-spine1 rate=40% loss=1%", or "leaf0->spine1 down" for one direction.

    "leaf0-spine1 rate=40% from=2s until=8s" or "... period=2s on=20%" has a timetable. Raise LabError.
    """
    if not text.split():
        raise LabError(f"give a link and what is wrong with it: leaf0-spine1 and {GRAMMAR}")
    name, *words = text.split()
    given: dict[str, str] = {}
    times: dict[str, str] = {}
    for word in words:
        key, sign, value = word.partition("=")
        if sign and key in TIMES and key not in times:
            times[key] = value
            continue
        if key in given or (sign and key not in KEYS):
            raise LabError(f'"{text}": {word}: give {GRAMMAR}, each once')
        if not sign and key not in ("down", "up", "clear"):
            raise LabError(f'"{text}": {word}: give {GRAMMAR}')
        given[key] = value
    change = change_of(name, links, given, where=f'"{text}": ')
    return replace(change, times=_timetable(f'"{text}": ', times)) if times else change


def change_of(name: str, links: Sequence[LabLink], values: Mapping[str, str | None], *, where: str = "") -> Change:
    """Return a change from the values given for KEYS, down, up and clear. Raise LabError."""
    words = {key: value for key, value in values.items() if value is not None}
    if not words:
        raise LabError(f"{where}{name}: nothing to set: give {GRAMMAR}")
    if "down" in words and "up" in words:
        raise LabError(f"{where}{name}: down and up at once: give one")
    chosen = directions_of(name, links, where)
    if (rate := words.get("rate")) is not None:
        for link in links:
            if link.name in chosen:
                rate_of(rate, link, where)
    return Change(
        chosen,
        rate,
        _share(where, "loss", words.get("loss")),
        _share(where, "ecn", words.get("ecn")),
        _mtu_bytes(where, words.get("mtu")),
        _delay_ns(where, words.get("delay")),
        _share(where, "reorder", words.get("reorder")),
        _dscp(where, words.get("dscp")),
        True if "down" in words else False if "up" in words else None,
        "clear" in words,
    )


def directions_of(name: str, links: Sequence[LabLink], where: str = "") -> tuple[str, ...]:
    """Return link names: one for "leaf0->spine1", both for "leaf0-spine1". Raise LabError for an unknown name."""
    known: dict[str, tuple[str, ...]] = {}
    for there, back in zip(links[::2], links[1::2], strict=True):
        known[there.name], known[back.name] = (there.name,), (back.name,)
        both = (there.name, back.name)
        known[there.name.replace("->", "-", 1)] = known[back.name.replace("->", "-", 1)] = both
    if name not in known:
        cables = [there.name.replace("->", "-", 1) for there in links[::2]]
        near = difflib.get_close_matches(name.replace("->", "-"), cables, n=3, cutoff=0.0)
        raise LabError(f"{where}{name}: no link of this lab: give one such as {', '.join(near)}, or A->B for one way")
    return known[name]


def rate_of(text: str, link: LabLink, where: str = "") -> int:
    """Return a link's rate in b/s, from "80Mb/s" or a share of the file's. Raise LabError."""
    if share := _PERCENT.fullmatch(text.strip()):
        if link.rate_bps == 0:
            raise LabError(f"{where}rate {text}: {link.name} has no rate to take a share of: give one such as 80Mb/s")
        rate_bps = round(link.rate_bps * float(share[1]) / 100)
        if float(share[1]) == 0 or rate_bps > RATE_MAX_BPS:
            raise LabError(f"{where}rate {text}: give above 0 % and at most {format_rate(RATE_MAX_BPS)}")
        return max(rate_bps, RATE_MIN_BPS)
    try:
        rate_bps = int(parse_rate(text))
    except ValueError as error:
        raise LabError(f"{where}rate {text}: {error}: give a rate such as 80Mb/s, or a share such as 40%") from error
    if rate_bps < RATE_MIN_BPS:
        raise LabError(f"{where}rate {text}: give {format_rate(RATE_MIN_BPS)} or more; --down stops a link")
    return rate_bps


def changed(faults: Faults, changes: Iterable[Change], links: Sequence[LabLink]) -> dict[str, Fault]:
    """Return the faults after changes; links without any are left out."""
    after = dict(faults)
    by_name = {link.name: link for link in links}
    for change in changes:
        for name in change.links:
            fault = Fault() if change.clears else after.get(name, Fault())
            if change.rate is not None:
                rate_bps = rate_of(change.rate, by_name[name])
                fault = structs.replace(fault, rate_bps=None if rate_bps == by_name[name].rate_bps else rate_bps)
            if change.mtu_bytes is not None:
                whole = change.mtu_bytes == DEVICE_MTU_BYTES
                fault = structs.replace(fault, mtu_bytes=None if whole else change.mtu_bytes)
            given = {
                "loss": change.loss,
                "ecn": change.ecn,
                "delay_ns": change.delay_ns,
                "reorder": change.reorder,
                "dscp": change.dscp,
                "is_down": change.is_down,
            }
            fault = structs.replace(fault, **{key: value for key, value in given.items() if value is not None})
            after[name] = fault
    return {name: fault for name, fault in after.items() if fault != Fault()}


def _timetable(where: str, given: Mapping[str, str]) -> Timetable:
    seconds = {}
    for key in ("from", "until", "period"):
        if key in given:
            try:
                seconds[key] = int(parse_duration(given[key])) / 1e12
            except ValueError as error:
                raise LabError(f"{where}{key} {given[key]}: {error}: give a time such as 2s") from error
    share = _share(where, "on", given.get("on"))
    if ("period" in seconds) != (share is not None):
        raise LabError(f"{where}give period and on together, such as period=2s on=20%")
    if seconds.get("period", 1.0) < PERIOD_MIN_S:
        raise LabError(f"{where}period {given['period']}: give {PERIOD_MIN_S * 1000:g}ms or more")
    if seconds.get("until", NEVER_S) <= seconds.get("from", 0.0):
        raise LabError(f"{where}until {given['until']}: give a time after {given.get('from', '0s')}")
    return Timetable(
        seconds.get("from", 0.0),
        seconds.get("until", NEVER_S),
        seconds.get("period", 0.0),
        1.0 if share is None else share,
    )


def _share(where: str, key: str, text: str | None) -> float | None:
    if text is None:
        return None
    match = _PERCENT.fullmatch(text.strip())
    if not match or float(match[1]) > 100:
        raise LabError(f"{where}{key} {text}: give a share of the packets such as 1%, from 0% to 100%")
    return float(match[1]) / 100


def _mtu_bytes(where: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or not MTU_MIN_BYTES <= int(text) <= DEVICE_MTU_BYTES:
        raise LabError(f"{where}mtu {text}: give bytes of an IP packet, {MTU_MIN_BYTES} to {DEVICE_MTU_BYTES}")
    return int(text)


def _delay_ns(where: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        delay_ns = int(parse_duration(text)) // 1000
    except ValueError as error:
        raise LabError(f"{where}delay {text}: {error}: give a time such as 300us") from error
    if delay_ns > DELAY_MAX_NS:
        raise LabError(f"{where}delay {text}: give at most {DELAY_MAX_NS // 10**9}s")
    return delay_ns


def _dscp(where: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or int(text) > DSCP_MAX:
        raise LabError(f"{where}dscp {text}: give a number from 0 to {DSCP_MAX}")
    return int(text)
