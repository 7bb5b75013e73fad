"""Thresholds of the verdict, with the reason for each figure. None is fitted to a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from genie.verdict.coverage import Require
    from genie.verdict.known import KnownFault


@dataclass(frozen=True)
class Options:
    """Thresholds of a verdict. Fractions, unless a name says otherwise."""

    # An effect within this margin is an error of the twin or of the hosts, whatever its significance.
    margin: float = 0.02
    # The smallest slow-down of a component that matters: a pass is below it, a fail above it.
    practical: float = 0.10
    # False discovery rate over all components that may be accused (e-BH). Where nothing is found, two further searches
    # have a half and a quarter of it.
    false_discovery: float = 0.05
    # Limits of the whole fleet against the twin, for large and for small messages. Each is the twin's own promise (90th
    # percentile of 15 % from 64 KiB on, 40 % below) plus the practical size. The limit for large messages applies when
    # they move most of the bytes.
    fleet_large: float = 0.25
    fleet_small: float = 0.50
    large_bytes: int = 64 * 1024
    # When sleeps of compute nodes usually end later than this, hosts and network cannot be told apart.
    quiet_overshoot_ns: int = 250_000
    # A rival is named beside a suspect unless the data prefer the suspect by this log likelihood ratio.
    rival_log_likelihood: float = 3.0
    # A component is located only if this share of its paths is slow.
    slow_share: float = 0.8
    # Probability, over all components, that a link's log likelihood ratio exceeds its threshold by chance.
    location_error: float = 0.01
    # The reference of the run, in words: the twin, or an earlier run.
    reference: str = "the twin"
    time_of: str = "the twin's time"
    # Coverage that a pass needs. None: all that the fabric has, links between switches included.
    require_coverage: Require | None = None
    # Faults that are reported and fail no run.
    known: tuple[KnownFault, ...] = ()
