"""The levels at which the twin plays a plan: what simulates it, and what it can answer.

Every level's simulator has the face of the packet kernel as far as it makes sense without packets: `start`, `run`,
`records`, `links`, `problems`, `done`, `now_ps`, `events`.
"""

from __future__ import annotations

from dataclasses import dataclass

from simtwin.fabric_schema import Fabric, Photonic

PACKET, FLOW, ANALYTIC = "packet", "flow", "analytic"
LEVELS = (PACKET, "packet+skip", FLOW, ANALYTIC)
BUILT_LEVELS = (PACKET, FLOW, ANALYTIC)
SHARINGS = ("max-min", "equal")
ASTRA_SIM = "astra-sim"
MODELS = ("genie", ASTRA_SIM)


@dataclass(frozen=True)
class Level:
    """`sharing`: how flows share a link at level `flow`: max-min, or TrioSim's equal split, by name.

    `model`: whose closed forms level `analytic` has.
    """

    name: str = PACKET
    sharing: str = "max-min"
    model: str = "genie"

    def problem(self, fabric: Fabric) -> str:
        """Why the level cannot play a fabric; "" when it can."""
        if isinstance(fabric.topology, Photonic) and self.name != FLOW:
            return f'level {self.name} has no circuits: topology kind = "photonic" is for level {FLOW}'
        return ""

    def facts(self) -> dict[str, str]:
        """For run.json."""
        more = {FLOW: {"sharing": self.sharing}, ANALYTIC: {"model": self.model}}
        return {"level": self.name, **more.get(self.name, {})}
