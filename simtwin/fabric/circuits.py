"""Circuit-switched photonic fabrics, for level `flow`."""

from __future__ import annotations

from typing import Any

from simtwin.fabric.schema import Fabric, Photonic


def circuits_of(fabric: Fabric) -> dict[str, Any]:
    """Return the circuit arguments of the flow level's simulator; empty for a fabric without circuits."""
    topology = fabric.topology
    if not isinstance(topology, Photonic):
        return {}
    assert fabric.link is not None
    return {
        "circuit_ports": topology.ports,
        "circuit_setup_ps": int(topology.setup),
        "circuit_rate_bps": int(fabric.link.rate),
    }
