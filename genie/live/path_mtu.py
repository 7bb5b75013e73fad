"""What the routes to the other ranks carry: a packet that is too long for its path is never sent, only refused."""

from __future__ import annotations

import socket

IP_MTU = 14  # linux/in.h; the socket module does not name it
# IPv4, UDP, BTH, RETH, immediate data, ICRC: the headers of the largest packet (InfiniBand 1.4, chapter 9).
HEADER_BYTES = 20 + 8 + 12 + 16 + 4 + 4
MTUS = (4096, 2048, 1024, 512, 256)


def route_mtu_bytes(own: str, peer: str, port: int) -> int:
    """Largest IPv4 packet that the route from one address to the other takes. Raises OSError without a route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((own, 0))
        probe.connect((peer, port))  # sends nothing
        return probe.getsockopt(socket.IPPROTO_IP, IP_MTU)


def path_problem(addresses: list[str], rank: int, port: int, mtu_bytes: int) -> str:
    """Why packets of this path MTU do not get from a rank to all others; "" when they do."""
    own = addresses[rank]
    for peer, address in enumerate(addresses):
        if peer == rank:
            continue
        where = f"rank {rank} at {own} to rank {peer} at {address}"
        try:
            route = route_mtu_bytes(own, address, port)
        except OSError as error:
            return f"no way from {where}: {error.strerror}; see ip addr and ip route there"
        if route < mtu_bytes + HEADER_BYTES:
            fits = next((mtu for mtu in MTUS if mtu + HEADER_BYTES <= route), None)
            what = (
                f"a --fabric file with mtu = {fits} under [transport]" if fits else "a network for 320 bytes and more"
            )
            return (
                f"the route from {where} takes packets of {route} bytes, and mtu = {mtu_bytes} makes "
                f"{mtu_bytes + HEADER_BYTES}: give {what}, or raise the interface's MTU"
            )
    return ""
