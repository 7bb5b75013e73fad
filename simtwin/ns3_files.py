"""The text files of ns-3's RDMA model, word by word: each value knows where it stands and says what may stand there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from genie.config.units import DURATION_MAX_PS, DURATION_UNITS_PS, RATE_MAX_BPS, Duration, Rate, parse_rate
from genie.plan.build import MESSAGE_MAX_BYTES
from simtwin.fabric_schema import HOSTS_MAX

PS_PER_US, NS_PER_S = 10**6, 10**9
DURATION_MAX_US = DURATION_MAX_PS // PS_PER_US
START_MAX_S = DURATION_MAX_PS // 10**12
PRIORITY_MAX, PORT_MAX = 7, 65535
NODES_MAX, ROWS_MAX = 2 * HOSTS_MAX, 2**31 - 1
SHOWN_CHARACTERS = 40

_WHOLE = re.compile(r"-?[0-9]{1,40}")
_NUMBER = re.compile(r"[-+]?[0-9]{1,40}(\.[0-9]{0,40})?([eE][-+]?[0-9]{1,4})?")
_DELAY = re.compile(rf"({_NUMBER.pattern})(ms|us|ns|ps|s)")


class Ns3Error(Exception):
    """An experiment that the twin cannot play; one line that names file, line, key and what is allowed."""


@dataclass(frozen=True)
class Value:
    """What stands at a key."""

    path: Path
    line: int  # 0: nowhere, the key's default
    key: str
    text: str

    def error(self, what: str) -> Ns3Error:
        """An error that says where this stands."""
        shown = "".join(letter if letter.isprintable() else "?" for letter in self.text)
        if len(shown) > SHOWN_CHARACTERS:
            shown = f"{shown[:SHOWN_CHARACTERS]}..."
        if self.line == 0:
            return Ns3Error(f"{self.path}: {self.key} {shown}, its default: {what}")
        return Ns3Error(f"{self.path}:{self.line}: {self.key} {shown or '(nothing)'}: {what}")

    def whole(self, least: int, most: int) -> int:
        if not _WHOLE.fullmatch(self.text) or not least <= int(self.text) <= most:
            raise self.error(f"give a whole number from {least} to {most}")
        return int(self.text)

    def number(self, least: float, most: float) -> float:
        if not _NUMBER.fullmatch(self.text) or not least <= float(self.text) <= most:
            raise self.error(f"give a number from {least:.10g} to {most:.10g}")
        return float(self.text)

    def share(self) -> float:
        """Above 0, at most 1."""
        if not _NUMBER.fullmatch(self.text) or not 0 < float(self.text) <= 1:
            raise self.error("give a number above 0 and at most 1")
        return float(self.text)

    def flag(self) -> bool:
        return bool(self.whole(0, 1))

    def rate(self) -> Rate:
        try:
            rate = parse_rate(self.text)
        except ValueError:
            rate = Rate(0)
        if rate == 0:
            raise self.error(f'give a rate of 1 to {RATE_MAX_BPS} b/s with its unit, such as "100Gb/s"')
        return rate

    def delay(self) -> Duration:
        """With its unit; "0.001ms" has more digits than a duration in ps may, and is rounded."""
        match = _DELAY.fullmatch(self.text)
        delay_ps = float(match[1]) * DURATION_UNITS_PS[match[4]] if match else -1.0
        if not 0 <= delay_ps <= DURATION_MAX_PS:
            raise self.error(f'give 0 to {START_MAX_S} s with its unit, such as "0.001ms" (ps, ns, us, ms or s)')
        return Duration(round(delay_ps))

    def micros(self) -> Duration:
        """A time in us: that model counts in ns."""
        return Duration(round(self.number(0.001, DURATION_MAX_US) * PS_PER_US))

    def by_rate(self, least: float, most: float) -> dict[int, float]:
        """A map's numbers by rate in b/s: how many there are, then a rate and a number of each."""
        words = [Value(self.path, self.line, self.key, word) for word in self.text.split()]
        if not words or len(words) % 2 == 0 or words[0].text != str(len(words) // 2):
            raise self.error("give how many rates there are, then a rate in b/s and a number for each")
        rates = [word.whole(1, RATE_MAX_BPS) for word in words[1::2]]
        return dict(zip(rates, (word.number(least, most) for word in words[2::2]), strict=True))


class Configuration:
    """A file of keys, one a line, each with what follows it. Raises Ns3Error."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._values: dict[str, Value] = {}
        for number, line in enumerate(_text(path).split("\n"), 1):
            if words := line.split(maxsplit=1):
                self._values[words[0]] = Value(path, number, words[0], words[1].strip() if len(words) > 1 else "")

    def value(self, key: str, default: str) -> Value:
        """What stands at a key, or that model's default."""
        return self._values.get(key) or Value(self.path, 0, key, default)

    def file(self, key: str) -> Path:
        """The file that a key names, beside the configuration or in the folder above."""
        value = self._values.get(key)
        if value is None:
            raise Ns3Error(f"{self.path}: {key} is missing: is this a configuration of ns-3's RDMA model?")
        name = Path(value.text).name
        for folder in (self.path.parent, self.path.parent.parent):
            if name and (folder / name).is_file():
                return folder / name
        raise value.error(f"is neither in {self.path.parent} nor in {self.path.parent.parent}: put the file there")


@dataclass(frozen=True)
class TopologyLink:
    a: int
    b: int
    rate_bps: int
    delay_ps: int


@dataclass(frozen=True)
class TopologyFile:
    """Nodes are numbered; those that are no switches are hosts, counted from 0 in the order of their numbers."""

    path: Path
    hosts: dict[int, int]  # node number -> host
    switches: tuple[int, ...]
    links: tuple[TopologyLink, ...]

    def name(self, node: int) -> str:
        return f"host{self.hosts[node]}" if node in self.hosts else f"switch{node}"


@dataclass(frozen=True)
class Flow:
    source: int  # host, counted from 0 in the order of node numbers
    target: int
    size_bytes: int
    start_ns: int  # from the first flow's


def read_topology(path: Path) -> TopologyFile:
    """Numbers of nodes, switches and links; the switches; source, target, rate, delay and error rate of each link."""
    words = _Words(path)
    nodes, switch_count, link_count = words.row(("number of nodes", "number of switches", "number of links"))
    highest = nodes.whole(1, NODES_MAX) - 1
    switch_total = switch_count.whole(0, highest)
    if (host_total := highest + 1 - switch_total) > HOSTS_MAX:
        raise nodes.error(f"makes {host_total} hosts: give at most {HOSTS_MAX}")
    switches: dict[int, None] = {}  # in the order of the file
    for _ in range(words.count(switch_count, switch_total, 1)):
        (switch,) = words.row(("switch",))
        if switch.whole(0, highest) in switches:
            raise switch.error("is there twice: give each switch once")
        switches[int(switch.text)] = None
    links = []
    for number in range(words.count(link_count, link_count.whole(1, ROWS_MAX), 5)):
        a, b, rate, delay, error_rate = words.row(
            tuple(f"{what} of link {number}" for what in ("source", "target", "rate", "delay", "error rate"))
        )
        if a.whole(0, highest) == b.whole(0, highest):
            raise b.error("is its source too: give another node")
        if error_rate.number(0, 1) != 0:
            raise error_rate.error("links that lose packets are not read: give 0")
        links.append(TopologyLink(int(a.text), int(b.text), int(rate.rate()), int(delay.delay())))
    hosts = [node for node in range(highest + 1) if node not in switches]
    return TopologyFile(path, {node: host for host, node in enumerate(hosts)}, tuple(switches), tuple(links))


def read_flows(path: Path, topology: TopologyFile) -> tuple[Flow, ...]:
    """Their number; source, target, priority, port, bytes and start in s of each."""
    words = _Words(path)
    (count,) = words.row(("number of flows",))
    highest = len(topology.hosts) + len(topology.switches) - 1
    rows = []
    for number in range(words.count(count, count.whole(1, ROWS_MAX), 6)):
        source, target, priority, port, size, start = words.row(
            tuple(f"{what} of flow {number}" for what in ("source", "target", "priority", "port", "bytes", "start"))
        )
        for end in (source, target):
            if end.whole(0, highest) not in topology.hosts:
                raise end.error("is a switch: give a host")
        if int(source.text) == int(target.text):
            raise target.error("is its source too: give another host")
        priority.whole(0, PRIORITY_MAX)
        port.whole(0, PORT_MAX)
        ends = topology.hosts[int(source.text)], topology.hosts[int(target.text)]
        rows.append((*ends, size.whole(1, MESSAGE_MAX_BYTES), round(start.number(0, START_MAX_S) * NS_PER_S)))
    first = min(row[3] for row in rows)
    return tuple(Flow(source, target, size, start - first) for source, target, size, start in rows)


class _Words:
    """A file's words in order, wherever its lines end; what comes after those that are asked for is a remark."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = enumerate(_text(path).split("\n"), 1)
        self._words = [(number, word) for number, line in lines for word in line.split()]
        self._at = 0

    def row(self, keys: tuple[str, ...]) -> list[Value]:
        """The next words, by these names."""
        values = []
        for key in keys:
            if self._at == len(self._words):
                line = self._words[-1][0] if self._words else 1
                raise Ns3Error(f"{self.path}:{line}: the file ends before the {key}: give it")
            line, text = self._words[self._at]
            values.append(Value(self.path, line, f"{key} =", text))
            self._at += 1
        return values

    def count(self, value: Value, rows: int, words_per_row: int) -> int:
        """So many rows, which the file must have."""
        there = (len(self._words) - self._at) // words_per_row
        if rows > there:
            raise value.error(f"the file has {there}: give {there}, or the others too")
        return rows


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as wrong:
        reason = getattr(wrong, "strerror", None) or "it is not text"
        raise Ns3Error(f"{path}: cannot be read: {reason}; give a text file") from wrong
