"""ASTRA-sim's model as the costs of level `analytic`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from simtwin.imports.astra.files import AstraError, read_logical_topology, read_network, read_system
from simtwin.levels.analytic import MESSAGE, CostKey
from simtwin.levels.astra.model import AstraModel


class AstraCosts:
    """ASTRA-sim's model as a `simtwin.levels.analytic.CostModel`."""

    def __init__(self, model: AstraModel) -> None:
        self._model = model

    def prepare(self, keys: Sequence[CostKey]) -> None:
        """Do nothing: the model evaluates its network on demand."""

    def cost_ps(self, key: CostKey) -> int:
        """Return the cost in ps. Raises AstraError for an operation that ASTRA-sim does not have."""
        if key.op == MESSAGE:
            return self._model.message_ps(key.ranks[0], key.ranks[1], key.size_bytes)
        return self._model.cost_ps(key.op, key.ranks, key.size_bytes)

    def acknowledgement_ps(self, key: CostKey) -> int:
        """Return 0: ASTRA-sim has no acknowledgements."""
        return 0


def read_costs(network: Path, system: Path, logical: Path | None, ranks: int) -> tuple[AstraCosts, tuple[str, ...]]:
    """Return the costs that ASTRA-sim's files describe, and notes on them. Raises AstraError."""
    read, notes = read_network(network)
    settings, more = read_system(system)
    model = AstraModel(read, settings, None if logical is None else read_logical_topology(logical))
    if model.npus < ranks:
        raise AstraError(f"{network}: npus_count: has {model.npus} NPUs, and the workload {ranks} ranks: give as many")
    if model.npus > ranks:
        more = (
            *more,
            f"{network}: npus_count: has {model.npus} NPUs, of which the workload's {ranks} ranks are the first",
        )
    return AstraCosts(model), (*notes, *more)
