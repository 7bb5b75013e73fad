"""Makes the transport that the settings give a rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass
from genie.live.transport import VERBS, Transport, TransportContext


def make_transport(context: TransportContext) -> Transport:
    """The transport that the settings give this rank. Raises TransportError."""
    if context.settings.transport_of(context.rank) == VERBS:
        from genie.live.verbs.transport import VerbsTransport  # here, because few ranks have what it imports

        return VerbsTransport(context)
    from genie.live.softroce.transport import SoftRoceTransport

    return SoftRoceTransport(context)
