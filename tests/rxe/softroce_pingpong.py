"""The way in which ibv_rc_pingpong's two ends meet, played by softroce: one line each over TCP."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from rxe.guest import gid_of
from softroce_end import SoftEnd

PORT = 18515  # ibv_rc_pingpong's own
LINE_BYTES = len("0000:000000:000000:00000000000000000000000000000000") + 1  # and a zero
DONE = b"done\0"
SIZE_BYTES = 4096  # of its messages, unless it is told otherwise


@dataclass(frozen=True)
class PingpongEnd:
    """An end's description of itself: LID (0 on RoCE), queue pair number, first PSN, GID."""

    qpn: int
    psn: int
    gid: str

    def line(self) -> bytes:
        return f"0000:{self.qpn:06x}:{self.psn:06x}:{self.gid.replace(':', '')}\0".encode()


def read_end(line: bytes) -> PingpongEnd:
    lid, qpn, psn, gid = line.rstrip(b"\0").decode().split(":")
    assert lid == "0000"
    return PingpongEnd(int(qpn, 16), int(psn, 16), ":".join(gid[at : at + 4] for at in range(0, 32, 4)))


def _receive(connection: socket.socket, size_bytes: int) -> bytes:
    data = b""
    while len(data) < size_bytes and (piece := connection.recv(size_bytes - len(data))):
        data += piece
    return data


def _accept_peer(soft: SoftEnd, peer: PingpongEnd, address: str) -> None:
    assert peer.gid == gid_of(address)
    soft.nic.connect(0, address=address, qpn=peer.qpn, first_psn=soft.psn, peer_first_psn=peer.psn, foreign=True)


def meet_server(soft: SoftEnd, address: str, listens_at: str) -> None:
    """As its client: speaks first, and says when it is ready. To be done by softroce's thread."""
    with socket.create_connection((listens_at, PORT), 20) as connection:
        connection.sendall(PingpongEnd(soft.qpns[0], soft.psn, soft.gid).line())
        _accept_peer(soft, read_end(_receive(connection, LINE_BYTES)), address)
        connection.sendall(DONE)


def meet_client(soft: SoftEnd, listener: socket.socket, address: str) -> None:
    """As its server: answers, and waits until the client is ready. To be done by softroce's thread."""
    listener.settimeout(20)
    with listener.accept()[0] as connection:
        connection.settimeout(20)
        _accept_peer(soft, read_end(_receive(connection, LINE_BYTES)), address)
        connection.sendall(PingpongEnd(soft.qpns[0], soft.psn, soft.gid).line())
        assert _receive(connection, len(DONE)).startswith(b"done")


def listen(soft: SoftEnd) -> socket.socket:
    """By softroce's thread, so that it is in the namespace."""
    family = socket.AF_INET6 if ":" in soft.address else socket.AF_INET
    return socket.create_server((soft.address, PORT), family=family)
