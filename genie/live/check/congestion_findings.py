"""What incasts say of congestion control. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from genie.live.check.names import Names
from genie.live.check.settings import CheckSettings, Incast


def congestion_findings(settings: CheckSettings, incasts: Sequence[Incast], names: Names) -> Iterator[str]:
    """Marks that nobody makes, and hosts that do not take part."""
    yield from ()
