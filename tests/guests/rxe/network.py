"""The guests' Ethernet: a bridge in a network namespace of the rig's own, where the host is a neighbour too."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from pathlib import Path

from rxe.failure import GivenError
from rxe.machine import call

HOST = 254  # the host's number on the network; guests count from 1
HOST_END = "host0"
ROCE_PORT = 4791
LOSS_PARTS = 100_000  # loss is drawn in parts of this
_numbers = itertools.count()


def ipv4(number: int) -> str:
    """Address of guest `number` (from 1), or of the host (HOST)."""
    return f"10.91.0.{number}"


def ipv6(number: int) -> str:
    """Unique local address of guest `number` (from 1), or of the host (HOST)."""
    return f"fd91:6765:6e69:65::{number:x}"


def check_loss(percent: float) -> None:
    """Raise GivenError unless so many percent can be lost."""
    if not 0 <= percent <= 100:
        raise GivenError(f"loss of {percent:g} %: give 0 to 100")


class Network:
    """Namespace, bridge, one tap a guest, and a cable to the host's own end (`host0`).

    The bridge forwards every frame between two ends once, and loses it there when loss is asked for. The namespace
    goes when this is closed or when its process ends, whatever ends it: a guardian waits for that.
    """

    def __init__(self, guests: int, mtu_bytes: int, folder: Path) -> None:
        self.namespace = f"genie-rxe-{os.getpid()}-{next(_numbers)}"
        self.mtu_bytes = mtu_bytes
        self._whole = False  # nothing is lost, for certain
        self._ports = ["cable0", *(self.tap(number) for number in range(1, guests + 1))]
        self._guardian = _guard(self.namespace, folder)
        try:
            self._set_up(guests)
        except BaseException:
            self.close()
            raise

    def tap(self, number: int) -> str:
        """The bridge's port of guest `number` (from 1)."""
        return f"tap{number}"

    def inside(self, *argv: str) -> list[str]:
        """The command line that runs `argv` in the namespace, as a neighbour of the guests."""
        return ["ip", "netns", "exec", self.namespace, *argv]

    def set_mtu(self, mtu_bytes: int) -> None:
        """Of all that belongs to the host: the guests' own ends are for `Rig.set_mtu`."""
        for port in (HOST_END, *self._ports):
            self._ip_inside("link", "set", port, "mtu", str(mtu_bytes))
        self.mtu_bytes = mtu_bytes

    def lose(self, percent: float) -> None:
        """From now on lose so many percent of the RoCE packets, each by its own draw; 0 ends any loss."""
        check_loss(percent)
        parts = round(percent / 100 * LOSS_PARTS)
        draw = f"numgen random mod {LOSS_PARTS} < {parts}" if parts < LOSS_PARTS else ""
        self._filter(draw if parts else None)

    def lose_every(self, count: int, place: int = 0) -> None:
        """From now on lose one RoCE packet of each `count` on the bridge: those at `place` (from 0)."""
        self._filter(f"numgen inc mod {count} == {place}")

    def lost_packets(self) -> int:
        """RoCE packets lost since loss was last set."""
        listed = call(self.inside("nft", "list", "table", "bridge", "genie"), what="the bridge's losses")
        found = re.search(r"counter packets (\d+) bytes \d+ drop", listed)
        return int(found[1]) if found else 0

    def close(self) -> None:
        """Remove the namespace and the rig's folder."""
        assert self._guardian.stdin is not None
        self._guardian.stdin.close()
        self._guardian.wait(120)

    def _set_up(self, guests: int) -> None:
        self._ip("netns", "add", self.namespace)
        self._ip_inside("link", "set", "lo", "up")
        self._ip_inside("link", "add", "bridge", "type", "bridge", "mcast_snooping", "0")
        self._ip_inside("link", "add", HOST_END, "type", "veth", "peer", "name", "cable0")
        for number in range(1, guests + 1):
            self._ip_inside("tuntap", "add", self.tap(number), "mode", "tap")
        for port in self._ports:
            self._ip_inside("link", "set", port, "master", "bridge", "addrgenmode", "none", "up")
        self._ip_inside("addr", "add", f"{ipv4(HOST)}/24", "dev", HOST_END)
        self._ip_inside("addr", "add", f"{ipv6(HOST)}/64", "dev", HOST_END, "nodad")
        self._ip_inside("link", "set", HOST_END, "up")
        self.set_mtu(self.mtu_bytes)
        # The bridge would answer for the host's address too, and frames to it are not forwarded: no loss, no capture.
        self._ip_inside("link", "set", "bridge", "arp", "off", "addrgenmode", "none", "up")
        # A segment is lost or captured as the packet that it becomes on a wire.
        off = [word for name in ("gso", "gro", "tso", "tx-udp-segmentation") for word in (name, "off")]
        call(self.inside("ethtool", "-K", HOST_END, *off), what="the host's end")
        self._filter(None)

    def _filter(self, draw: str | None) -> None:
        """Drop the RoCE packets that a draw hits: all without one, none for None."""
        if draw is None and self._whole:
            return
        self._whole = False
        drop = f"add rule bridge genie forward udp dport {ROCE_PORT} {draw} counter drop"
        rule = drop if draw is not None else ""
        # Adding before deleting makes the deletion right whether the table is there or not.
        text = f"""
            add table bridge genie
            delete table bridge genie
            table bridge genie {{
                chain forward {{ type filter hook forward priority 0; policy accept; }}
            }}
            {rule}
        """
        call(self.inside("nft", "-f", "-"), what="loss on the bridge", stdin=text)
        self._whole = draw is None

    def _ip(self, *words: str) -> None:
        call(["ip", *words], what="the rig's network")

    def _ip_inside(self, *words: str) -> None:
        self._ip("-n", self.namespace, *words)


def _guard(namespace: str, folder: Path) -> subprocess.Popen[bytes]:
    """A process that removes namespace and folder once the other end of its input is closed."""
    # A guest that is being killed may still write into the folder while it is emptied.
    empty = 'for _ in 1 2 3 4 5; do rm -rf "$2" && break; sleep 0.2; done'
    script = f'trap "" INT TERM HUP; read -r _; ip netns del "$1" 2>/dev/null; {empty}'
    return subprocess.Popen(
        ["sh", "-c", script, "sh", namespace, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
