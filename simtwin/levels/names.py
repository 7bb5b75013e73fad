"""The levels at which the twin plays a plan: the simulator of each, and its limits.

Every level's simulator has the interface of the packet kernel as far as it makes sense without packets. It has `start`,
`run`, `records`, `links`, `problems`, `done`, `now_ps` and `events`.
"""

from __future__ import annotations

from dataclasses import dataclass

from genie.config.congestion import NoControl, name_of
from genie.config.spraying import spray_problem
from simtwin.fabric.schema import Fabric, Photonic, lossy_tables

PACKET, SKIP, FLOW, ANALYTIC = "packet", "packet+skip", "flow", "analytic"
LEVELS = (PACKET, SKIP, FLOW, ANALYTIC)
PACKET_LEVELS = (PACKET, SKIP)  # with the same results
SHARINGS = ("max-min", "equal")
ASTRA_SIM = "astra-sim"
MODELS = ("genie", ASTRA_SIM)


@dataclass(frozen=True)
class Level:
    """A level and its variants.

    `sharing`: how flows share a link at level `flow`, by name: max-min, or TrioSim's equal split. `model`: origin of
    the closed forms of level `analytic`.
    """

    name: str = PACKET
    sharing: str = "max-min"
    model: str = "genie"

    @property
    def has_packets(self) -> bool:
        """Whether the level plays packets: queues, marks, pauses and losses."""
        return self.name in PACKET_LEVELS

    @property
    def plays_messages(self) -> bool:
        """Whether messages have times of their own; level analytic knows those of whole collectives alone."""
        return self.name != ANALYTIC

    @property
    def skips(self) -> bool:
        """Whether the level skips what recurs."""
        return self.name == SKIP

    def problem(self, fabric: Fabric) -> str:
        """Return why the level cannot play a fabric; "" when it can."""
        if isinstance(fabric.topology, Photonic) and self.name != FLOW:
            return f'level {self.name} has no circuits: topology kind = "photonic" is for level {FLOW}'
        if problem := spray_problem(fabric.spray, fabric.transport.queue_pairs or 1):
            return f"spray {problem}"
        if not self.has_packets and fabric.spray > 1:
            return f"level {self.name} has no packets to spray: leave spray out, or use level {PACKET}"
        if self.name == ANALYTIC and fabric.fault:
            return f"level {ANALYTIC} has no links that could fail: leave [[fault]] out, or use level {FLOW}"
        return ""

    def warnings(self, fabric: Fabric) -> list[str]:
        """Return warnings about fabric settings that have no effect at the level."""
        warnings = []
        if not self.has_packets and not isinstance(fabric.control, NoControl):
            warnings.append(f"level {self.name} has no congestion control: {name_of(fabric.control)} changes nothing")
        if not self.has_packets and (lossy := lossy_tables(fabric)):
            warnings.append(f"level {self.name} loses and replays no frames: loss of {', '.join(lossy)} has no effect")
        if self.name == ANALYTIC:
            given = {
                "[[path]]": fabric.path,
                "[transport] window_packets": fabric.transport.window_packets,
                "[nic]": fabric.nic,
            }
            warnings += [f"level {ANALYTIC} does not know {key}: it changes nothing" for key in given if given[key]]
        return warnings

    def facts(self) -> dict[str, str]:
        """Return the level's facts for run.json."""
        more = {FLOW: {"sharing": self.sharing}, ANALYTIC: {"model": self.model}}
        return {"level": self.name, **more.get(self.name, {})}
