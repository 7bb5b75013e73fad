"""Makes the transport that the settings give a rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass
from genie.live.transport import VERBS, Seat, Transport


def make_transport(seat: Seat) -> Transport:
    """The transport that the settings give this rank. Raises TransportError."""
    if seat.settings.transport_of(seat.rank) == VERBS:
        from genie.live.verbs.transport import VerbsTransport  # here, because few ranks have what it imports

        return VerbsTransport(seat)
    from genie.live.softroce.transport import SoftRoceTransport

    return SoftRoceTransport(seat)
