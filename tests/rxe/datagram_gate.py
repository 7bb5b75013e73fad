"""Puts datagrams on the network and shows those that come: a line of hexadecimal digits each, both ways.

    python datagram_gate.py OWN_ADDRESS PEER_ADDRESS

Sends from and receives at port 4791, with "don't fragment" set, so that the IP identification is 0.
"""

from __future__ import annotations

import socket
import sys
import threading

PORT = 4791
IP_MTU_DISCOVER, IP_PMTUDISC_DO = 10, 2


def main(own: str, peer: str) -> None:
    gate = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    gate.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
    gate.bind((own, PORT))

    def show() -> None:
        while True:
            print(gate.recv(65536).hex(), flush=True)

    threading.Thread(target=show, daemon=True).start()
    print("open", flush=True)
    for line in sys.stdin:
        gate.sendto(bytes.fromhex(line), (peer, PORT))


if __name__ == "__main__":
    main(*sys.argv[1:])
