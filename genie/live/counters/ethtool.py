"""A network device's own statistics, as `ethtool -S` shows them, and its driver."""

from __future__ import annotations

import fcntl
import re
import socket
import struct
from array import array

SIOCETHTOOL = 0x8946
# linux/ethtool.h
GDRVINFO, GSTRINGS, GSTATS, GSSET_INFO = 0x3, 0x1B, 0x1D, 0x37
SET_STATS = 1
NAME_BYTES, DRVINFO_BYTES = 32, 196
SPARE = 1024  # room for statistics that appear between two requests

# Statistics of the network's condition, without the shares of single queues.
TELLING = re.compile(
    r"[rt]x_prio\d+_(bytes|packets|marked)|[rt]x_(bytes|packets)_pri\d|.*(discard|drop|pause|pfc|xoff|out_of_buffer|crc"
    r"|symbol|link_down|_err|missed|timeout).*"
)
OF_A_QUEUE = re.compile(r"((rx|tx|ch|txq|rxq)[-_]?(queue[-_]?)?\d|queue[-_]?\d|\[\d|(rx|tx|veb|port)?\d).*")


def driver_of(interface: str) -> str:
    """Return the interface's driver; "" where it has none, as loopback."""
    answer = _asked(interface, struct.pack("=I", GDRVINFO) + bytes(DRVINFO_BYTES - 4))
    return answer[4 : 4 + NAME_BYTES].split(b"\0")[0].decode(errors="replace") if answer else ""


def statistics(interface: str) -> dict[str, int]:
    """Return all statistics of the interface's driver by name; empty where it has none."""
    about = _asked(interface, struct.pack("=IIQI", GSSET_INFO, 0, 1 << SET_STATS, 0))
    mask, count = struct.unpack_from("=QI", about, 8) if about else (0, 0)
    if not mask or not count:
        return {}
    # New kernels answer only a request for the exact number; older ones write the current number, which may be larger.
    strings = _asked(interface, struct.pack("=III", GSTRINGS, SET_STATS, count) + bytes(NAME_BYTES * (count + SPARE)))
    values = _asked(interface, struct.pack("=II", GSTATS, count) + bytes(8 * (count + SPARE)))
    if not strings or not values:
        return {}
    count = min(struct.unpack_from("=I", strings, 8)[0], struct.unpack_from("=I", values, 4)[0], count)
    names = (strings[12 + NAME_BYTES * at :][:NAME_BYTES].split(b"\0")[0].decode(errors="replace")
             for at in range(count))  # fmt: skip
    return dict(zip(names, struct.unpack_from(f"={count}Q", values, 8), strict=True))


def telling(counted: dict[str, int]) -> dict[str, int]:
    """Return the statistics that are kept: priorities, pauses, drops and errors of the whole device."""
    return {name: value for name, value in counted.items() if TELLING.fullmatch(name) and not OF_A_QUEUE.match(name)}


def _asked(interface: str, question: bytes) -> bytes:
    """Return the kernel's answer, which overwrites the request; empty when the kernel refuses."""
    buffer = array("B", question)
    request = struct.pack("16sP", interface.encode()[:15], buffer.buffer_info()[0]).ljust(40, b"\0")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, SIOCETHTOOL, request)
    except OSError:
        return b""
    return buffer.tobytes()
