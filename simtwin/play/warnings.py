"""Warnings about legal but suspicious fabric settings, each printed once on standard error."""

from __future__ import annotations

from genie.config.congestion import Dcqcn, DcqcnTimer, Dctcp, Nscc, name_of
from simtwin.fabric.network import NO_RETRY, Network
from simtwin.fabric.queues import NO_MARKS, Queues, least_headroom
from simtwin.fabric.schema import Fabric

BY_MARKS = (Dcqcn, DcqcnTimer, Dctcp, Nscc)


def warnings_on(fabric: Fabric, network: Network, queues: Queues) -> list[str]:
    """Return the warnings; each names table and key, and the remedy."""
    warnings = []
    if isinstance(fabric.control, BY_MARKS) and (queues.ecn_minimum_bytes == NO_MARKS).all():
        warnings.append(f"no switch marks the packets by which {name_of(fabric.control)} would slow down: give [ecn]")
    retries = network.retry_ps != NO_RETRY
    if retries.any() and not network.loss[retries].any():
        warnings.append("retry of links changes nothing, as they lose no frames: give loss beside it")
    if lacking := least_headroom(fabric, network):
        assert fabric.pfc is not None
        link, need_bytes = lacking
        warnings.append(
            f"[pfc] headroom = {fabric.pfc.headroom} B is below the {need_bytes} B that may come by "
            f"{network.link_names[link]} until a pause is heard, and may lose packets: give that or more, "
            "or leave it out"
        )
    return warnings
