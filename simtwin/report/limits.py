"""The limit of a collective: the largest part of its time, from its first member's start to its last end.

The start of the last member ends the waiting, which is measured. The rest is divided by closed forms of each part by
itself, and by the busy time of links. While several parts work at once, the time counts for the part that needs most.
Time of no part is the latency and the queues of messages, and counts for the links that the messages take.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from genie.page import percent
from simtwin.levels.analytic import CostKey
from simtwin.levels.names import ASTRA_SIM
from simtwin.levels.part_times import BARRIER, OnGpus
from simtwin.play.recorded_ranks import RECORDED_NODES_MAX, RECORDED_TRANSFERS_MAX
from simtwin.report.servers import servers_of_hosts

if TYPE_CHECKING:
    from genie.record import Run
    from simtwin.fabric.network import Network
    from simtwin.levels.part_times import PartTimes

WAITING, WIRE, NVLINK, LINKS, STEPS = "waiting", "wire", "NVLink", "server links", "GPU steps"
MILLION = 1_000_000
FEWER = "genie generate MODEL --layers 16 --micro-batches 16"  # level flow keeps all ranks, and may take hours for them
ERROR = 0.3  # more than that of the closed forms of GPU steps beside level flow; tests/simtwin/test_limits.py has them


@dataclass(frozen=True)
class Limit:
    """PartTimes of the mean time of a row's collectives, from the first member's start to the last end.

    `name`: of the largest part; "" if the errors of the closed forms leave it open. `links_ns`: of the links inside
    servers.
    """

    name: str
    waiting_ns: float
    wire_ns: float
    links_ns: float
    steps_ns: float

    @property
    def share(self) -> float:
        """Share of the largest part."""
        parts = (self.waiting_ns, self.wire_ns, self.links_ns, self.steps_ns)
        return max(parts) / max(sum(parts), 1e-9)

    def __str__(self) -> str:
        return f"{self.name} {percent(self.share)}" if self.name else "–"


class Busy(NamedTuple):
    """Busy times of links for the bytes of one collective, in ns. `leaves`: whether a message leaves a server."""

    wire_ns: float
    links_ns: float
    leaves: bool


class Row(NamedTuple):
    """Collectives of one operation, group and size, with the means of their times in ns."""

    op: str
    group: str
    size_bytes: int
    took_ns: float
    waiting_ns: float


def no_limits(run: Run) -> str:
    """Return why no collective of a run has a limit, and how to get limits; "" where some can have one."""
    info = run.info
    if not info.get("complete", True):
        return "limits are not known: the simulation stopped early"
    if recorded := info.get("recorded"):
        nodes, transfers = RECORDED_NODES_MAX // MILLION, RECORDED_TRANSFERS_MAX // MILLION
        return (
            f"limits are not known: the tables hold {len(recorded['ranks'])} of {info['ranks']} ranks, because the job "
            f"has more than {nodes} million nodes or {transfers} million transfers; for limits, simulate fewer layers "
            f"and micro-batches, such as of {FEWER}"
        )
    if info.get("model") == ASTRA_SIM:
        return "limits are not known: ASTRA-sim's formulas do not tell the parts of a time"
    return ""


class Limits:
    """Limits of the collectives of one simulation."""

    def __init__(self, run: Run, network: Network, parts: PartTimes) -> None:
        """Take a run that has the starts and ends of all members, see `told`."""
        self._parts = parts
        host = {name: number for number, name in enumerate(network.node_names[: network.hosts])}
        servers = servers_of_hosts(network)
        self._server = {int(it["rank"]): int(servers[host[it["host"]]]) for it in run.info["hosts"]}

    @staticmethod
    def told(run: Run) -> bool:
        """Return whether the record has the starts and ends of all members."""
        return not no_limits(run)

    def of(self, row: Row, busy: Busy | None) -> Limit | None:
        """Return the limit of a row; None where it is not known. `busy`: of links, where paths are known."""
        ranks = self._parts.groups.get(row.group)
        if ranks is None or row.took_ns + row.waiting_ns <= 0:
            return None
        key = CostKey(row.op, ranks, row.size_bytes)
        gpus, busy = self._parts.on_gpus(key), busy or self._by_forms(key)
        if gpus is None or busy is None:
            return None
        limit = _divided(row, gpus, busy)
        bounds = () if self._parts.is_exact(ranks) else (1 - ERROR, 1 + ERROR)
        others = (_divided(row, OnGpus(gpus.steps_ns * by, gpus.links_ns), busy) for by in bounds)
        return limit if all(other.name == limit.name for other in others) else replace(limit, name="")

    def _by_forms(self, key: CostKey) -> Busy | None:
        """Return the time of messages by the closed forms; None where only some of them leave servers."""
        members, nodes = len(key.ranks), self._parts.servers(key.ranks)
        servers = len({self._server[rank] for rank in key.ranks})
        if nodes == 1 and members > 1 and key.op != BARRIER:  # NCCL sends no data inside a server
            return Busy(0.0, 0.0, leaves=servers > 1)
        if servers == 1:
            return Busy(0.0, self._parts.messages_ns(key), leaves=False)
        if servers == members or nodes < members:  # in a server of several members NCCL sends no data
            return Busy(self._parts.messages_ns(key), 0.0, leaves=True)
        return None


def _divided(row: Row, gpus: OnGpus, busy: Busy) -> Limit:
    """Return the parts of a row's time. The part that needs most time by itself has all of it, then the next one."""
    links_ns = max(gpus.links_ns, busy.links_ns)
    alone = {STEPS: gpus.steps_ns, LINKS: links_ns, WIRE: busy.wire_ns}
    found, rest_ns = dict.fromkeys(alone, 0.0), row.took_ns
    for name in sorted(alone, key=lambda name: -alone[name]):
        found[name] = min(alone[name], rest_ns)
        rest_ns -= found[name]
    found[WIRE if busy.leaves else LINKS] += rest_ns
    found[WAITING] = row.waiting_ns
    name = max((WAITING, WIRE, LINKS, STEPS), key=lambda name: found[name])
    if name == LINKS and gpus.links_ns > busy.links_ns:
        name = NVLINK
    return Limit(name, row.waiting_ns, found[WIRE], found[LINKS], found[STEPS])
