"""Message tags: the 32 bits that a WRITE_WITH_IMM carries, by which a receiver finds its receive.

The bits are:
    bit 31: a receiver's clear-to-send (set by the walker)   bit 30: a collective's message
    collective: 29..20 colour of the group, 19..6 number of the collective in its group modulo 2^14, 5..0 channel
    send/recv:  29..0 the trace's own tag
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

COLLECTIVE = 1 << 30
COLOUR_SHIFT = 20
COLOURS_MAX = 1 << 10
SEQUENCE_MODULUS = 1 << 14
CHANNELS_MAX = 1 << 6
POINT_TO_POINT_TAG_MAX = (1 << 30) - 1


Sequence = TypeVar("Sequence", int, NDArray[np.int32])


def collective_tag(colour: int, seq: Sequence) -> Sequence:
    """Tag of channel 0 of the `seq`-th collective of a group; a channel's number is added to it."""
    return COLLECTIVE | colour << COLOUR_SHIFT | seq % SEQUENCE_MODULUS << 6
