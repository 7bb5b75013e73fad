"""Queues of a fabric: ECN thresholds, shared buffers, PFC headroom, classes and load balancing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import genie_core
import numpy as np
from numpy.typing import NDArray

from genie.config.units import SIZE_MAX_BYTES
from simtwin.fabric.frames import frames_of
from simtwin.fabric.schema import FRAMING_BYTES, Fabric
from simtwin.fabric.topology import Network

PAUSE_BYTES = 64  # IEEE 802.1Qbb, without preamble and gap
NO_MARKS = -1
PS_PER_S = 10**12
ALPHA_UNIT = 1024


class QueueError(Exception):
    """Headroom and reserves that use up a buffer, or unlimited headroom; `key` is a key of the fabric file."""

    def __init__(self, key: tuple[str, str], words: str) -> None:
        super().__init__(words)
        self.key = key


@dataclass(frozen=True)
class Queues:
    """Queue settings as the packet kernel takes them; see network.hpp."""

    ecn_minimum_bytes: NDArray[np.int64]  # (links,), NO_MARKS: the link's queues never mark
    ecn_maximum_bytes: NDArray[np.int64]  # (links,)
    ecn_probability: NDArray[np.float64]  # (links,)
    shared_bytes: NDArray[np.int64]  # (nodes,), 0: no shared buffer
    headroom_bytes: NDArray[np.int64]  # (links,), at the link's target, for each lossless priority
    reserve_bytes: int
    resume_bytes: int
    alpha: Fraction
    lossless: int  # a bit for each lossless class
    data_class: int  # class of data packets: the higher class is served first
    control_class: int
    weights_bytes: tuple[int, int]  # bytes of data and of control in one turn; 0: strict priority
    balance: tuple[str, int]  # mode, gap between flowlets in ps
    foreign_frames: tuple[int, int, int, int]  # data header, control frame, pause frame, unit of time; 0: RoCEv2's

    def native(self) -> genie_core.QueueSettings:
        """Return the queues as the kernel takes them."""
        data_header_bytes, control_bytes, pause_bytes, unit_ps = self.foreign_frames
        return genie_core.QueueSettings(
            ecn_minimum_bytes=self.ecn_minimum_bytes,
            ecn_maximum_bytes=self.ecn_maximum_bytes,
            ecn_probability=self.ecn_probability,
            shared_bytes=self.shared_bytes,
            headroom_bytes=self.headroom_bytes,
            reserve_bytes=self.reserve_bytes,
            resume_bytes=self.resume_bytes,
            alpha_numerator=self.alpha.numerator,
            alpha_shift=self.alpha.denominator.bit_length() - 1,
            lossless=self.lossless,
            data_class=self.data_class,
            control_class=self.control_class,
            weights_bytes=self.weights_bytes,
            balance=self.balance[0],
            flowlet_gap_ps=self.balance[1],
            data_header_bytes=data_header_bytes,
            control_bytes=control_bytes,
            pause_bytes=pause_bytes,
            serialisation_unit_ps=unit_ps,
        )


def queues_of(fabric: Fabric, network: Network) -> Queues:
    """Return a fabric's queues. Raises QueueError."""
    of_switch = (network.src_node >= network.hosts) & ~network.is_bridge[network.src_node]
    minimum = np.full(network.links, NO_MARKS, np.int64)
    maximum, probability = minimum.copy(), np.zeros(network.links)
    if (ecn := fabric.ecn) is not None:
        scale = np.ones(network.links) if ecn.at is None else network.rate_bps / int(ecn.at)
        of_switch &= scale > 0  # thresholds in proportion to an unlimited rate are never reached
        minimum[of_switch] = _threshold_bytes(ecn.minimum, scale[of_switch])
        maximum[of_switch] = _threshold_bytes(ecn.maximum, scale[of_switch])
        probability[of_switch] = ecn.probability
    pfc, switch, frame = fabric.pfc, fabric.switch, fabric.frame
    priorities = sorted({fabric.priority.data, fabric.priority.control})
    lossless = sum(1 << number for number, priority in enumerate(priorities) if priority in fabric.lossless_priorities)
    headroom = np.zeros(network.links, np.int64)
    if pfc:
        headroom[:] = _headroom_bytes(fabric, network) if pfc.headroom is None else int(pfc.headroom)
    return Queues(
        minimum,
        maximum,
        probability,
        _shared_bytes(fabric, network, headroom, bin(lossless).count("1")),
        headroom,
        int(switch.reserve),
        int(pfc.resume) if pfc else 0,
        Fraction(round(switch.alpha * ALPHA_UNIT), ALPHA_UNIT),
        lossless,
        priorities.index(fabric.priority.data),
        priorities.index(fabric.priority.control),
        _weights_bytes(fabric),
        (fabric.load_balancing.mode, int(fabric.load_balancing.flowlet_gap)),
        (int(frame.data_header or 0), int(frame.control or 0), int(frame.pause or 0), int(frame.time_unit)),
    )


def _threshold_bytes(size_bytes: int, scale: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.rint(np.minimum(int(size_bytes) * scale, float(SIZE_MAX_BYTES))).astype(np.int64)


def _weights_bytes(fabric: Fabric) -> tuple[int, int]:
    """Return the bytes of data and control in one turn.

    The smaller weight sends one full frame, so that turns are short and never empty.
    """
    data, control = fabric.priority.data_weight, fabric.priority.control_weight
    if data is None or control is None:
        return 0, 0
    unit = -(-frames_of(fabric).full_bytes // min(data, control))
    return data * unit, control * unit


def _headroom_bytes(fabric: Fabric, network: Network) -> NDArray[np.int64]:
    """Return for each link the bytes that may still arrive after its target has decided to pause it.

    The pause frame waits for a frame in progress, is serialised, and travels. The sender finishes the frame that it has
    just begun, and the bytes on the cable arrive, with all tokens of a token bucket. This is IEEE 802.1Qbb's delay
    value without processing times, which only hosts have here.
    """
    into_switch = _into_switch(network)
    for link in np.flatnonzero(into_switch & (network.rate_bps == 0)).tolist()[:1]:
        raise QueueError(
            ("pfc", "headroom"),
            f" is missing, and {network.link_names[link]} sends without limit until it is paused, as it has no "
            "rate: give the headroom or a rate",
        )
    return _until_paused_bytes(fabric, network)


def least_headroom(fabric: Fabric, network: Network) -> tuple[int, int] | None:
    """Return the link whose headroom is shortest and its need in bytes; None where all links have enough.

    Links of unlimited rate are left out: no headroom is enough for them.
    """
    if fabric.pfc is None or fabric.pfc.headroom is None:
        return None
    into_switch = _into_switch(network)
    need = np.where(into_switch & (network.rate_bps > 0), _until_paused_bytes(fabric, network), 0)
    link = int(np.argmax(need))
    return (link, int(need[link])) if need[link] > int(fabric.pfc.headroom) else None


def _into_switch(network: Network) -> NDArray[np.bool_]:
    """Return a mask of links, (links,), that a switch at their target may pause."""
    return (network.dst_node >= network.hosts) & ~network.is_bridge[network.dst_node]


def _until_paused_bytes(fabric: Fabric, network: Network) -> NDArray[np.int64]:
    """As `_headroom_bytes`, but without an error for links of unlimited rate."""
    largest = frames_of(fabric).full_bytes
    pause = int(fabric.frame.pause or PAUSE_BYTES + max(fabric.frame.overhead_bytes - FRAMING_BYTES, 0))
    back = np.arange(network.links) ^ 1
    latency = np.zeros(network.nodes, np.int64)
    latency[: network.hosts] = network.packet_latency_ps
    rate_back = np.where(network.rate_bps[back] > 0, network.rate_bps[back], np.iinfo(np.int64).max)
    sending_ps = (largest + pause) * 8 * PS_PER_S // rate_back
    wait_ps = network.delay_ps + network.delay_ps[back] + sending_ps + latency[network.src_node]
    moving = [
        math.ceil(int(rate) * int(wait) / (8 * PS_PER_S)) for rate, wait in zip(network.rate_bps, wait_ps, strict=True)
    ]
    return np.array(moving, np.int64) + 2 * largest + network.burst_bytes


def _shared_bytes(fabric: Fabric, network: Network, headroom: NDArray[np.int64], lossless: int) -> NDArray[np.int64]:
    shared = np.zeros(network.nodes, np.int64)
    if fabric.switch.shared_buffer is None:
        return shared
    switches = (np.arange(network.nodes) >= network.hosts) & ~network.is_bridge
    priorities = len({fabric.priority.data, fabric.priority.control})
    kept = np.bincount(network.dst_node, headroom * lossless + priorities * int(fabric.switch.reserve), network.nodes)
    shared[switches] = int(fabric.switch.shared_buffer) - kept.astype(np.int64)[switches]
    largest = frames_of(fabric).full_bytes
    for node in np.flatnonzero(switches & (shared < largest)).tolist():
        name, need = network.node_names[node], int(kept[node]) + largest
        raise QueueError(
            ("switch", "shared_buffer"),
            f": the ports of {name} keep {int(kept[node])} B as headroom and reserve: give {need} B or more",
        )
    return shared
