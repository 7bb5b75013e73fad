"""Applying a fault plan to a rank's engine."""

from __future__ import annotations

import genie_core

from genie.live.settings import RunSettings

PS_PER_US, PS_PER_S = 1e6, 1e12
NEVER_PS = 1 << 62


def set_path_faults(engine: genie_core.Engine, settings: RunSettings, rank: int) -> None:
    """Apply losses and delays of this rank's paths, for the whole run; dilation stretches delays."""
    # A table for one peer takes precedence over one for all peers.
    for loss in sorted(settings.faults.loss, key=lambda loss: loss.peer is not None):
        if loss.rank == rank:
            for peer in range(settings.ranks) if loss.peer is None else [loss.peer]:
                if peer != rank:
                    engine.lose(peer, loss.every, [])
    for delay in settings.faults.delay:
        if delay.rank == rank and delay.peer != rank:
            engine.delay_path(delay.peer, int(delay.delay_us * PS_PER_US) * settings.dilation)


def set_rate_faults(
    engine: genie_core.Engine, settings: RunSettings, rank: int, iteration: int, origin_ps: int
) -> None:
    """Apply the rate faults of this rank's NIC in one iteration, which starts at origin_ps of the engine's clock."""
    engine.clear_rate_faults()
    k = settings.dilation
    for fault in settings.faults.rate:
        last = fault.until_iteration
        if fault.rank != rank or iteration < fault.from_iteration or (last is not None and iteration >= last):
            continue
        until_ps = NEVER_PS if fault.until_s is None else origin_ps + int(fault.until_s * PS_PER_S) * k
        engine.add_rate_fault(origin_ps + int(fault.from_s * PS_PER_S) * k, until_ps, fault.factor)
