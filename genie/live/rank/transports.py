"""The choice of a rank's transport."""

from __future__ import annotations

from genie.live.transport import VERBS, Transport, TransportContext


def make_transport(context: TransportContext) -> Transport:
    """Make the transport that the settings give this rank. Raise TransportError."""
    if context.settings.transport_of(context.rank) == VERBS:
        from genie.live.verbs.transport import VerbsTransport  # imported here because few ranks have its dependencies

        return VerbsTransport(context)
    from genie.live.softroce.transport import SoftRoceTransport

    return SoftRoceTransport(context)
