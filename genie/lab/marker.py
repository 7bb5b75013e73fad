"""ECN marking as in a switch's queue: a small eBPF program in front of each port's token bucket.

It runs as a script (`python -I -S marker.py`) in a switch's network namespace, with one port per line of JSON as input.
The bytecode is assembled here, so that no compiler is needed; loading it needs root. Like the token bucket behind it,
the program computes when the packet will leave, and thus the queue that the packet joins. It marks as in random early
detection: no packet up to a minimum length, all above a maximum, and a growing share in between.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import socket
import struct
import sys
from dataclasses import dataclass

NS_PER_S = 10**9
EXIT_NOT_ALLOWED = 77
# linux/bpf.h, linux/rtnetlink.h, linux/pkt_cls.h, linux/pkt_sched.h
_SYSCALL = {"x86_64": 321, "aarch64": 280, "ppc64le": 361, "s390x": 351, "riscv64": 280}
_MAP_CREATE, _PROG_LOAD = 0, 5
_ARRAY, _SCHED_CLS = 2, 3
_NEW_QDISC, _NEW_FILTER, _ACK = 36, 44, 2
_REQUEST_ACK_CREATE = 0x405  # NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE
_CLSACT, _CLSACT_HANDLE, _EGRESS = 0xFFFFFFF1, 0xFFFF0000, 0xFFFFFFF3
_KIND, _OPTIONS, _BPF_FD, _BPF_NAME, _BPF_FLAGS, _DIRECT = 1, 2, 6, 7, 8, 1
_LOOKUP, _CLOCK, _RANDOM, _STORE_BYTES, _CSUM_REPLACE, _LOAD_BYTES = 1, 5, 7, 9, 10, 26  # helpers
_ETHERNET = 14  # bytes before the IP header
_LENGTH, _PROTOCOL = 0, 16  # in struct __sk_buff
_IPV4 = socket.htons(0x0800)
_OK = 0  # TC_ACT_OK


@dataclass(frozen=True)
class Port:
    """A port whose queue sets ECN marks."""

    device: str
    rate_bps: int  # 0: unlimited; then no queue forms and no packet is marked
    burst_bytes: int
    queue_bytes: int
    overhead_bytes: int  # per frame, beyond its Ethernet header
    minimum_bytes: int
    maximum_bytes: int
    probability: float  # at the maximum


class Assembler:
    """Assembler of eBPF instructions, with jumps to labels."""

    def __init__(self) -> None:
        self._code: list[tuple[int, int, int, int | str, int]] = []
        self._labels: dict[str, int] = {}

    def label(self, name: str) -> None:
        """Define a label at this position."""
        self._labels[name] = len(self._code)

    def emit(self, operation: int, target: int = 0, source: int = 0, offset: int | str = 0, value: int = 0) -> None:
        """Add one instruction; a named offset is a label further down."""
        self._code.append((operation, target, source, offset, value))

    def set64(self, target: int, value: int, source: int = 0) -> None:
        """Set target to a 64-bit constant, or with source = 1 to a map's file descriptor."""
        self.emit(0x18, target, source, 0, value & 0xFFFFFFFF)
        self.emit(0, 0, 0, 0, value >> 32 & 0xFFFFFFFF)

    def call(self, helper: int) -> None:
        """r0 = helper(r1, ..., r5); the registers r1 to r5 are overwritten."""
        self.emit(0x85, value=helper)

    def bytes(self) -> bytes:
        """Return the instructions as the kernel reads them."""
        whole = b""
        for at, (operation, target, source, offset, value) in enumerate(self._code):
            jump = self._labels[offset] - at - 1 if isinstance(offset, str) else offset
            registers = target | source << 4 if sys.byteorder == "little" else target << 4 | source
            whole += struct.pack("=BBhI", operation, registers, jump, value & 0xFFFFFFFF)
        return whole


def program(port: Port, map_fd: int) -> bytes:
    """Return a port's program. Its map holds one number: when the bucket's debt is paid, ns of the kernel's clock."""
    it = Assembler()
    if port.rate_bps:
        _mark_by_queue(it, port, map_fd)
    it.label("leave")
    it.emit(0xB7, 0, value=_OK)
    it.emit(0x95)
    return it.bytes()


def _mark_by_queue(it: Assembler, port: Port, map_fd: int) -> None:
    """Add the program without its end."""

    def ns(size_bytes: float) -> int:
        return round(size_bytes * 8 * NS_PER_S / port.rate_bps)

    it.emit(0xBF, 6, 1)  # r6 = the packet
    it.emit(0x61, 1, 6, _PROTOCOL)  # r1 = its protocol
    it.emit(0x55, 1, 0, "leave", _IPV4)  # not IPv4: leave
    it.emit(0x62, 10, 0, -4, 0)  # key 0, on the stack
    it.set64(1, map_fd, source=1)
    it.emit(0xBF, 2, 10)
    it.emit(0x07, 2, value=-4)
    it.call(_LOOKUP)
    it.emit(0x15, 0, 0, "leave", 0)
    it.emit(0xBF, 7, 0)  # r7 = address of the number
    it.call(_CLOCK)
    it.emit(0xBF, 8, 0)  # r8 = now
    it.emit(0x79, 9, 7, 0)  # r9 = the number
    it.emit(0xBF, 1, 8)
    it.set64(2, ns(port.burst_bytes))
    it.emit(0x1F, 1, 2)  # r1 = now - burst: corresponds to a full bucket
    it.emit(0x3D, 9, 1, "busy")  # r9 >= r1
    it.emit(0xBF, 9, 1)
    it.emit(0x7B, 7, 9, 0)
    it.label("busy")
    it.emit(0x61, 1, 6, _LENGTH)
    it.emit(0x07, 1, value=port.overhead_bytes)
    it.set64(2, 8 * NS_PER_S)
    it.emit(0x2F, 1, 2)
    it.set64(2, port.rate_bps)
    it.emit(0x3F, 1, 2)  # r1 = the frame's duration, in ns
    it.emit(0x0F, 9, 1)
    it.emit(0x1F, 9, 8)  # r9 = time until it has left, after all before it; negative with tokens to spare
    it.set64(2, ns(port.queue_bytes))
    it.emit(0x6D, 9, 2, "leave")  # signed: no room, the packet will be dropped
    it.emit(0xDB, 7, 1, 0, 0)  # atomically: the number += r1
    it.set64(2, ns(port.minimum_bytes))
    it.emit(0xDD, 9, 2, "leave")  # signed: at most the minimum
    it.set64(2, ns(port.maximum_bytes))
    it.emit(0x6D, 9, 2, "mark")
    slope = port.probability * 2**32 / max(ns(port.maximum_bytes) - ns(port.minimum_bytes), 1)
    it.call(_RANDOM)
    it.set64(2, ns(port.minimum_bytes))
    it.emit(0x1F, 9, 2)
    it.set64(2, round(slope * 2**12))
    it.emit(0x2F, 9, 2)
    it.emit(0x77, 9, value=12)  # r9 = the share to mark, in parts of 2^32
    it.emit(0x3D, 0, 9, "leave")
    it.label("mark")
    it.emit(0xBF, 1, 6)  # the first two bytes of the IP header, to the stack
    it.emit(0xB7, 2, value=_ETHERNET)
    it.emit(0xBF, 3, 10)
    it.emit(0x07, 3, value=-8)
    it.emit(0xB7, 4, value=2)
    it.call(_LOAD_BYTES)
    it.emit(0x55, 0, 0, "leave", 0)
    it.emit(0x69, 7, 10, -8)  # r7 = both, as the checksum covers them
    it.emit(0x71, 8, 10, -7)  # r8 = the second, with the ECN bits
    it.emit(0xBF, 1, 8)
    it.emit(0x57, 1, value=3)
    it.emit(0x15, 1, 0, "leave", 0)  # not ECN-capable
    it.emit(0x15, 1, 0, "leave", 3)  # already marked
    it.emit(0x47, 8, value=3)
    it.emit(0x73, 10, 8, -7)
    it.emit(0xBF, 1, 6)
    it.emit(0xB7, 2, value=_ETHERNET + 10)
    it.emit(0xBF, 3, 7)
    it.emit(0x69, 4, 10, -8)
    it.emit(0xB7, 5, value=2)
    it.call(_CSUM_REPLACE)
    it.emit(0xBF, 1, 6)
    it.emit(0xB7, 2, value=_ETHERNET + 1)
    it.emit(0xBF, 3, 10)
    it.emit(0x07, 3, value=-7)
    it.emit(0xB7, 4, value=1)
    it.emit(0xB7, 5, value=0)
    it.call(_STORE_BYTES)


def _bpf(command: int, attributes: bytes) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise PermissionError(errno.EPERM, f"eBPF on {platform.machine()}")
    given = ctypes.create_string_buffer(attributes, len(attributes))
    result = int(libc.syscall(number, command, given, len(attributes)))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _load(port: Port) -> int:
    """Return a file descriptor of a port's program. Raise OSError."""
    map_fd = _bpf(_MAP_CREATE, struct.pack("=5I", _ARRAY, 4, 8, 1, 0))
    code = program(port, map_fd)
    held, name = ctypes.create_string_buffer(code, len(code)), ctypes.create_string_buffer(b"Apache-2.0")
    log = ctypes.create_string_buffer(65536)
    try:
        return _bpf(
            _PROG_LOAD,
            struct.pack(
                "=IIQQIIQ", _SCHED_CLS, len(code) // 8, ctypes.addressof(held), ctypes.addressof(name), 1, len(log),
                ctypes.addressof(log),
            ),
        )  # fmt: skip
    except OSError as error:
        if error.errno in (errno.EPERM, errno.ENOSYS):
            raise
        said = log.value.decode(errors="replace").strip().splitlines()[-3:]
        raise OSError(error.errno, f"{error.strerror}: {' '.join(said)}") from error
    finally:
        os.close(map_fd)


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", len(value) + 4, kind) + value + bytes(-len(value) % 4)


def _ask(netlink: socket.socket, kind: int, body: bytes, flags: int = 0) -> int:
    """Send a netlink request; return 0 or the kernel's error number."""
    netlink.send(struct.pack("=IHHII", 16 + len(body), kind, _REQUEST_ACK_CREATE | flags, 1, 0) + body)
    answer = netlink.recv(65536)
    number, got = struct.unpack_from("=H", answer, 4)[0], struct.unpack_from("=i", answer, 16)[0]
    return -int(got) if number == _ACK else errno.EPROTO


def attach(port: Port) -> None:
    """Put a port's program in front of its queue, replacing an earlier one. Raise OSError."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        netlink.settimeout(10)
        netlink.bind((0, 0))
        index = socket.if_nametoindex(port.device)
        clsact = struct.pack("=BxxxiIII", 0, index, _CLSACT_HANDLE, _CLSACT, 0) + _attribute(_KIND, b"clsact\0")
        if (wrong := _ask(netlink, _NEW_QDISC, clsact)) not in (0, errno.EEXIST):
            raise OSError(wrong, f"clsact: {os.strerror(wrong)}")
        loaded = _load(port)
        options = _attribute(_BPF_FD, struct.pack("=I", loaded)) + _attribute(_BPF_NAME, b"genie\0")
        options += _attribute(_BPF_FLAGS, struct.pack("=I", _DIRECT))
        priority_of_all = 1 << 16 | socket.htons(0x0003)  # ETH_P_ALL
        body = struct.pack("=BxxxiIII", 0, index, 1, _EGRESS, priority_of_all)
        body += _attribute(_KIND, b"bpf\0") + _attribute(_OPTIONS, options)
        wrong = _ask(netlink, _NEW_FILTER, body)
        os.close(loaded)
        if wrong:
            raise OSError(wrong, f"the filter of {port.device}: {os.strerror(wrong)}")


def main() -> int:
    """Attach programs to the ports given on standard input; return EXIT_NOT_ALLOWED without the privilege."""
    for line in sys.stdin:
        try:
            attach(Port(**json.loads(line)))
        except OSError as error:
            print(error.strerror or error, file=sys.stderr)
            return EXIT_NOT_ALLOWED if error.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS) else 1
        except Exception as error:
            print(f"the program of {line.strip()}: {type(error).__name__}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
