"""Frame sizes on a fabric's links.

They are RoCEv2's (InfiniBand Architecture, chapter 9 and annex A17), or those of `[frame]`.
"""

from __future__ import annotations

from dataclasses import dataclass

from simtwin.fabric.schema import Fabric

IP_UDP_BTH_BYTES = 20 + 8 + 12 + 4  # IPv4, UDP, BTH and ICRC
RETH_BYTES, IMMEDIATE_BYTES, AETH_BYTES = 16, 4, 4


@dataclass(frozen=True)
class Frames:
    """Sizes of payloads and headers; payloads are padded to four bytes."""

    payload_bytes: int  # of a full packet
    header_bytes: int  # of every data frame, without its payload
    opening_bytes: int  # additional, in a message's first frame
    closing_bytes: int  # additional, in its last frame
    acknowledgement_bytes: int

    @property
    def full_bytes(self) -> int:
        """Size of the largest frame, which is that of a message of one full packet."""
        return -(-self.payload_bytes // 4) * 4 + self.header_bytes + self.opening_bytes + self.closing_bytes


def frames_of(fabric: Fabric) -> Frames:
    """Return the frame sizes of a fabric, with Ethernet's preamble and gap."""
    frame = fabric.frame
    has_own_header = frame.data_header is not None
    return Frames(
        int(frame.payload or fabric.transport.mtu),
        int(frame.data_header or IP_UDP_BTH_BYTES + frame.overhead_bytes),
        0 if has_own_header else RETH_BYTES,
        0 if has_own_header else IMMEDIATE_BYTES,
        int(frame.control or IP_UDP_BTH_BYTES + AETH_BYTES + frame.overhead_bytes),
    )
