"""Times of the parts of a collective, each by itself: GPU steps, links inside servers, and messages.

They are the closed forms of level analytic, with the other parts left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import NamedTuple

from genie.collectives.nccl.gpu_costs import gpu_costs
from genie.collectives.nccl.tuning import NO_COSTS
from genie.plan.lowering import Lowering, members_per_node
from simtwin.levels.analytic import CostKey
from simtwin.levels.closed_forms import ClosedForms
from simtwin.levels.form import Load, Transfers
from simtwin.levels.nccl_form import NcclForm

BARRIER = "barrier"  # NCCL has none


class OnGpus(NamedTuple):
    """Times without a network, in ns: of GPU steps, and those that the links inside a server add."""

    steps_ns: float
    links_ns: float


class PartTimes:
    """Times of the parts of a job's collectives.

    `groups`: name -> ranks. `forms`: returns the closed forms of the network; it is called only where they are needed.
    `is_analytic`: whether the job is played by these forms.
    """

    def __init__(
        self,
        lowering: Lowering,
        groups: Mapping[str, tuple[int, ...]],
        forms: Callable[[], ClosedForms],
        *,
        is_analytic: bool,
    ) -> None:
        self.lowering = lowering
        self.groups = groups
        self._make = forms
        self._is_analytic = is_analytic

    def servers(self, ranks: tuple[int, ...]) -> int:
        """Return the number of servers that NCCL takes a group to have; each rank is one without NCCL's messages."""
        if self.lowering.nccl is None:
            return len(ranks)
        return len(ranks) // members_per_node(ranks, self.lowering.nccl.ranks_per_node)

    def is_exact(self, ranks: tuple[int, ...]) -> bool:
        """Return whether the times on GPUs are those that the level plays: inside a server, and at level analytic."""
        return self._is_analytic or self.servers(ranks) == 1

    def on_gpus(self, key: CostKey) -> OnGpus | None:
        """Return the times on GPUs; None where the sizes of members are not known."""
        shape, members = self.lowering.nccl, len(key.ranks)
        if shape is None or key.op == BARRIER or members < 2:
            return OnGpus(0.0, 0.0)
        if key.size_bytes <= 0:
            return None if shape.server is not None else OnGpus(0.0, 0.0)
        costs = gpu_costs(key.op, members, key.size_bytes, shape, members_per_node(key.ranks, shape.ranks_per_node))
        form = NcclForm(_NoNetwork(self.lowering), key)
        steps_ps, whole_ps = (form.with_costs(each, shape.slice_delay_ns).time_ps() for each in costs)
        return OnGpus(steps_ps / 1000, max(whole_ps - steps_ps, 0.0) / 1000)

    def messages_ns(self, key: CostKey) -> float:
        """Return the time of the messages on the network, without GPUs."""
        if self.lowering.nccl is None or key.op == BARRIER:
            return self._forms.cost_ps(key) / 1000
        return NcclForm(self._forms, key).with_costs(NO_COSTS, 0).time_ps() / 1000

    @cached_property
    def _forms(self) -> ClosedForms:
        return self._make()


class _NoNetwork:
    """A network on which messages take no time."""

    def __init__(self, lowering: Lowering) -> None:
        self.lowering = lowering

    def wire(self, size_bytes: float, message_bytes: float | None = None) -> float:
        return 0.0

    def alpha_ps(self, load: Load, size_bytes: float, *, mean: bool = False) -> float:
        return 0.0

    def load(self, name: tuple[object, ...], transfers: Callable[[], Transfers]) -> Load:
        return Load(0.0, 0.0, 0.0, 0.0, 0.0)
