"""The fabric file's transport section as the configuration of a queue pair."""

from __future__ import annotations

import genie_core
import numpy as np

from genie.config.congestion import Dctcp, Hpcc, Nscc, Swift, Window, set_control
from genie.config.spraying import set_spray
from genie.config.units import Size
from simtwin.fabric.frames import frames_of
from simtwin.fabric.network import Network
from simtwin.fabric.schema import Fabric

REORDERING_PACKETS_MAX = 64  # default: few sprayed packets overtake more, and losses of short messages are noticed


def queue_pair_config(
    fabric: Fabric, line_rate_bps: int = 0, base_round_trip_ps: int = 0
) -> genie_core.QueuePairConfig:
    """Return the queue pair's configuration, with the core's defaults for absent values.

    `line_rate_bps`: rate of the hosts' ports, from which congestion control starts; `base_round_trip_ps`: of a full
    packet on the idle network.
    """
    config = genie_core.QueuePairConfig()
    transport = fabric.transport
    config.mtu_bytes = frames_of(fabric).payload_bytes
    if transport.window_packets is not None:
        config.window_packets = transport.window_packets
    if transport.ack_every_packets is not None:
        config.ack_every_packets = transport.ack_every_packets
    if transport.ack_timeout is not None:
        config.ack_timeout_ps = int(transport.ack_timeout)
    if transport.retry_limit is not None:
        config.retry_limit = transport.retry_limit
    if transport.rnr_retry_limit is not None:
        config.rnr_retry_limit = transport.rnr_retry_limit
    selective = transport.recovery == "selective-repeat"
    if transport.reordering_packets is not None:
        config.reordering_packets = transport.reordering_packets
    elif selective or fabric.load_balancing.reorders:
        in_flight = min(config.window_packets, _control_window_packets(fabric, line_rate_bps, base_round_trip_ps))
        config.reordering_packets = _reordering_packets(in_flight)
    config.selective_repeat = selective
    reorders = fabric.load_balancing.reorders
    set_spray(config, fabric.spray, config.reordering_packets if reorders else transport.reordering_packets)
    if fabric.load_balancing.mode == "reps":
        config.recycle_ports = True
        if transport.reordering_packets is None:  # timeouts and trimmed packets alone tell of losses, as in the paper
            config.reordering_packets = config.window_packets
    set_control(config, fabric.control, line_rate_bps, base_round_trip_ps)
    return config


def _reordering_packets(window_packets: int) -> int:
    """Return a number well below the window: fewer packets than a window can overtake one of its own."""
    return min(REORDERING_PACKETS_MAX, max(window_packets // 4, 1), window_packets - 1)


def _control_window_packets(fabric: Fabric, line_rate_bps: int, base_round_trip_ps: int) -> int:
    """Return the packets that a control's first window lets out; as many as possible where it has none."""
    control = fabric.control
    given = getattr(control, "window", None)
    if isinstance(given, Size) and given > 0:
        window_bytes = int(given)
    elif isinstance(control, Window | Hpcc | Swift | Dctcp | Nscc) and line_rate_bps > 0 and base_round_trip_ps > 0:
        window_bytes = line_rate_bps * base_round_trip_ps // (8 * 10**12)
    else:
        return 2**31
    return max(window_bytes // frames_of(fabric).payload_bytes, 1)


def line_rate_bps(network: Network) -> int:
    """Return the rate in b/s of the fastest port between a host and the network's switches; 0: unlimited.

    Links inside a server do not count. A network without switches has only the hosts' cables.
    """
    beside = network.is_bridge | (np.arange(network.nodes) < network.hosts)
    ports = beside[network.src_node] & ~beside[network.dst_node]
    if not ports.any():
        ports = network.src_node < network.hosts
    return int(network.rate_bps[ports].max(initial=0))
