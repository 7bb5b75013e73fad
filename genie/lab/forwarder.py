"""A link that delays or reorders packets: they are taken from its end, held, and sent over it again.

It runs as a script (`python -I -S forwarder.py`) in the network namespace of the link's target. Its input is one line
of JSON. It answers with one line when it is ready. A packet socket gets a copy of each frame that arrives. The
namespace's filter drops the frame itself (see commands.py), unless it has the mark of a frame that was held: a bit of
its source address. Held frames leave by the device of the link's source, past its token bucket, so that the link's
capacity is used once. This works in every kernel and in a user namespace, where netem is missing.
"""

from __future__ import annotations

import ctypes
import heapq
import json
import os
import random
import select
import socket
import struct
import sys
import time
from contextlib import suppress
from dataclasses import dataclass

NEW_NETWORK = 0x40000000  # CLONE_NEWNET of sched.h
SOL_PACKET, VNET_HEADER, QDISC_BYPASS, IGNORE_OUTGOING = 263, 15, 20, 23  # linux/if_packet.h
RECEIVE_BUFFER_FORCE = 33  # SO_RCVBUFFORCE of asm-generic/socket.h
ETH_P_IP = 0x0800
HEADER_BYTES = 10  # struct virtio_net_hdr: it keeps checksums that are still to be computed
NEEDS_CHECKSUM = 1
SOURCE_AT = HEADER_BYTES + 6  # of an Ethernet frame's source address
HELD = 0x04  # bit of its first byte; addresses of a lab begin with 02 (see commands.py)
BUFFER_BYTES = 16 << 20
FRAME_BYTES_MAX = 65536 + 64
SPIN_NS = 60_000  # before a frame is due: a sleep would wake too late
PRIORITY = 20  # of SCHED_FIFO: above the ranks, which would delay frames further


@dataclass(frozen=True)
class Order:
    """A link's ends and what it does to packets."""

    source_namespace: str  # path of the network namespace of the link's source
    source_device: str
    target_device: str
    delay_ns: int
    reorder: float  # share of the packets that are held for `hold_ns` longer, so that later ones overtake them
    hold_ns: int
    seed: int


def main() -> int:
    """Forward frames until killed."""
    order = Order(**json.loads(sys.stdin.readline()))
    try:
        ears = _socket(order.target_device)
        ears.setsockopt(socket.SOL_SOCKET, RECEIVE_BUFFER_FORCE, BUFFER_BYTES)
        ears.setsockopt(SOL_PACKET, IGNORE_OUTGOING, 1)
        mouth = _in_namespace(order.source_namespace, order.source_device)
        mouth.setsockopt(SOL_PACKET, QDISC_BYPASS, 1)
    except OSError as error:
        print(json.dumps({"error": f"{order.target_device}: {error.strerror}"}), flush=True)
        return 1
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    print(json.dumps({"ready": os.getpid()}), flush=True)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    forward(order, ears, mouth)
    return 0


def _socket(device: str) -> socket.socket:
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_IP))
    made.setsockopt(SOL_PACKET, VNET_HEADER, 1)
    made.bind((device, ETH_P_IP))
    made.setblocking(False)
    return made


def _in_namespace(path: str, device: str) -> socket.socket:
    """Return a packet socket in another network namespace; this process stays in its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    home, there = os.open("/proc/self/ns/net", os.O_RDONLY), os.open(path, os.O_RDONLY)
    try:
        if libc.setns(there, NEW_NETWORK) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return _socket(device)
    finally:
        libc.setns(home, NEW_NETWORK)
        os.close(home)
        os.close(there)


def forward(order: Order, ears: socket.socket, mouth: socket.socket) -> None:
    """Take frames from one socket, and send each on the other one when it is due."""
    draw = random.Random(order.seed).random
    due: list[tuple[int, int, bytes]] = []  # time, number, frame
    number = 0
    while True:
        now = time.monotonic_ns()
        while due and due[0][0] <= now:
            with suppress(OSError):
                mouth.send(heapq.heappop(due)[2])
        wait_ns = due[0][0] - now if due else 1_000_000_000
        if wait_ns > SPIN_NS:
            select.select([ears], [], [], (wait_ns - SPIN_NS) / 1e9)  # poll() would round up to ms
        came = time.monotonic_ns()
        with suppress(BlockingIOError):
            while True:
                frame = ears.recv(FRAME_BYTES_MAX)
                if frame[SOURCE_AT] & HELD:
                    continue
                hold_ns = order.delay_ns + (order.hold_ns if order.reorder and draw() < order.reorder else 0)
                heapq.heappush(due, (came + hold_ns, number, marked(frame)))
                number += 1


def marked(frame: bytes) -> bytes:
    """Return a frame, behind its virtio header, as it is sent again: with the mark of a held frame."""
    changed = bytearray(frame)
    flags = struct.unpack_from("=B", frame)[0]
    changed[0] = flags & NEEDS_CHECKSUM
    changed[SOURCE_AT] |= HELD
    return bytes(changed)


if __name__ == "__main__":
    sys.exit(main())
