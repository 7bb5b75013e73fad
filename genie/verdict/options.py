"""Limits of the verdict, with the reason for each figure. None of them is fitted to a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from genie.verdict.coverage import Require


@dataclass(frozen=True)
class Options:
    """Thresholds of a verdict. Fractions, unless a name says otherwise."""

    # An effect within this margin is the twin's and the host's own error, whatever its significance.
    margin: float = 0.02
    # The smallest slow-down of a component that matters: what passes is below it, what fails is above it.
    practical: float = 0.10
    # False discovery rate over all components that could be accused (e-BH).
    false_discovery: float = 0.05
    # The whole fleet against the twin: the twin's own promise for large and for small messages (90th percentile
    # of 15 % from 64 KiB on, 40 % below) plus the practical size. Large decides when it moves most of the bytes.
    fleet_large: float = 0.25
    fleet_small: float = 0.50
    large_bytes: int = 64 * 1024
    # The hosts cannot be told from the network when sleeps of compute nodes usually end later than this.
    quiet_overshoot_ns: int = 250_000
    # A rival explanation is named beside a suspect unless the data prefer the suspect by this log likelihood ratio.
    rival_log_likelihood: float = 3.0
    # A component is located only if this share of its paths is slow.
    slow_share: float = 0.8
    # By chance a link's log likelihood ratio exceeds the logarithm of the number of components over this as rarely.
    location_error: float = 0.01
    # Coverage that is enough for a pass. None: all that the fabric has, links between switches included.
    require_coverage: Require | None = None
