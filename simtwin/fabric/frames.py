"""Sizes of frames on a fabric's links: RoCEv2's (InfiniBand Architecture, chapter 9 and annex A17), or those that
`[frame]` gives.
"""

from __future__ import annotations

from dataclasses import dataclass

from simtwin.fabric.schema import Fabric

IP_UDP_BTH_BYTES = 20 + 8 + 12 + 4  # with the ICRC
RETH_BYTES, IMMEDIATE_BYTES, AETH_BYTES = 16, 4, 4


@dataclass(frozen=True)
class Frames:
    """Payloads are padded to four bytes."""

    payload_bytes: int  # of a full one
    header_bytes: int  # of every data frame, beside its payload
    opening_bytes: int  # more in a message's first
    closing_bytes: int  # more in its last
    acknowledgement_bytes: int

    @property
    def full_bytes(self) -> int:
        """The largest, which is a message's only one."""
        return -(-self.payload_bytes // 4) * 4 + self.header_bytes + self.opening_bytes + self.closing_bytes


def frames_of(fabric: Fabric) -> Frames:
    """What a link carries, Ethernet's preamble and gap included."""
    frame = fabric.frame
    has_own_header = frame.data_header is not None
    return Frames(
        int(frame.payload or fabric.transport.mtu),
        int(frame.data_header or IP_UDP_BTH_BYTES + frame.overhead_bytes),
        0 if has_own_header else RETH_BYTES,
        0 if has_own_header else IMMEDIATE_BYTES,
        int(frame.control or IP_UDP_BTH_BYTES + AETH_BYTES + frame.overhead_bytes),
    )
