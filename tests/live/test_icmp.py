"""Entries of error queues, byte by byte, and of real datagrams."""

from __future__ import annotations

import errno
import select
import socket

import pytest

from genie.live.paths.icmp import EXTENDED_ERROR, ORIGIN_ICMP, ORIGIN_ICMP6, Message, address_in, message_of, udp_socket

pytestmark = pytest.mark.live

ROUTER = b"\x02\x00\x00\x00\x0a\x00\x08\x01" + bytes(8)
ROUTER_6 = b"\x0a\x00\x00\x00\x00\x00\x00\x00\x20\x01\x0d\xb8" + bytes(11) + b"\x01" + bytes(4)


def said(origin: int, kind: int, code: int, info: int = 0, by: bytes = ROUTER) -> bytes:
    return EXTENDED_ERROR.pack(errno.EHOSTUNREACH, origin, kind, code, 0, info, 0) + by


@pytest.mark.parametrize(
    ("level", "option", "data", "wanted"),
    [
        (socket.IPPROTO_IP, 11, said(ORIGIN_ICMP, 11, 0), Message(errno.EHOSTUNREACH, 2, 11, 0, 0, "10.0.8.1")),
        (socket.IPPROTO_IP, 11, said(ORIGIN_ICMP, 3, 4, 1400), Message(errno.EHOSTUNREACH, 2, 3, 4, 1400, "10.0.8.1")),
        (socket.IPPROTO_IPV6, 25, said(ORIGIN_ICMP6, 3, 0, 0, ROUTER_6),
         Message(errno.EHOSTUNREACH, 3, 3, 0, 0, "2001:db8::1")),
        (socket.IPPROTO_IP, 8, said(ORIGIN_ICMP, 11, 0), None),
        (socket.SOL_SOCKET, 11, said(ORIGIN_ICMP, 11, 0), None),
        (socket.IPPROTO_IP, 11, bytes(15), None),
    ],
)  # fmt: skip
def test_messages(level: int, option: int, data: bytes, wanted: Message | None) -> None:
    assert message_of(level, option, data) == wanted


def test_which_messages_are_of_a_time_to_live() -> None:
    of = {(origin, kind): Message(0, origin, kind, 0, 0, "") for origin in (1, 2, 3) for kind in (3, 11)}
    assert {key for key, message in of.items() if message.is_time_exceeded} == {(2, 11), (3, 3)}
    assert {origin for (origin, _), message in of.items() if message.is_icmp} == {2, 3}


@pytest.mark.parametrize("data", [b"", b"\x02", b"\x02\x00\x00\x00\x0a", bytes(28)])
def test_what_is_no_address(data: bytes) -> None:
    assert address_in(data) == ""


@pytest.mark.extended
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_port_that_nobody_has_answers(address: str) -> None:
    with udp_socket(address, 0) as gone:
        port = gone.getsockname()[1]
    with udp_socket(address, 0, hears_errors=True) as sender:
        sender.sendto(b"anyone?", (address, port))
        assert select.select([], [], [sender], 5)[2] or select.select([sender], [], [], 1)[0]
        _, more, _, destination = sender.recvmsg(64, 512, socket.MSG_ERRQUEUE)
    (message,) = [found for each in more if (found := message_of(*each))]
    assert (message.number, message.by, destination[1]) == (errno.ECONNREFUSED, address, port)
    assert message.is_icmp
    assert not message.is_time_exceeded
