"""Which rates are below what their peers reach. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from genie.live.check.names import Names
from genie.live.check.settings import CheckSettings, Rates


def rate_findings(settings: CheckSettings, rates: Rates, names: Names) -> Iterator[str]:
    """Directions of hosts, then links, then what is left of pairs."""
    yield from ()
