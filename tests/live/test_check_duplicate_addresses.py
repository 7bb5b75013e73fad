"""Whether another machine has an address: frames by hand, and a real one in a network namespace."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from genie.check.duplicate_addresses import ARP, duplicate_owner, other_owner

pytestmark = pytest.mark.live

OWN, OTHER, THIRD = (bytes.fromhex(f"02000000000{digit}") for digit in "abc")
WANTED, ELSE = b"\x0a\x00\x00\x01", b"\x0a\x00\x00\x02"


def frame(*, operation: int = 2, sender: bytes = OTHER, address: bytes = WANTED, kind: int = 0x0806) -> bytes:
    return ARP.pack(OWN, sender, kind, 1, 0x0800, 6, 4, operation, sender, address, OWN, WANTED)


@pytest.mark.parametrize(
    ("given", "owner"),
    [
        (frame(), "02:00:00:00:00:0b"),
        (frame() + bytes(18), "02:00:00:00:00:0b"),
        (frame(operation=1), ""),
        (frame(sender=OWN), ""),
        (frame(sender=THIRD), ""),
        (frame(address=ELSE), ""),
        (frame(kind=0x0800), ""),
        (frame()[:-1], ""),
        (b"", ""),
    ],
)
def test_only_replies_of_others_for_the_address_count(given: bytes, owner: str) -> None:
    assert other_owner(given, {OWN, THIRD}, WANTED) == owner


# A cable between two namespaces, whose ends have the same address; then one that has another.
TWO_MACHINES = r"""
import ctypes, os, subprocess, sys
from genie.check.duplicate_addresses import duplicate_owner
libc = ctypes.CDLL(None, use_errno=True)
def call(text):
    subprocess.run(["ip", "-batch", "-"], input=text, text=True, check=True, timeout=120)
def new():
    assert libc.unshare(0x40000000) == 0
    return os.open("/proc/self/ns/net", os.O_RDONLY)
there, here = new(), new()
call(f"link add one address 02:00:00:00:00:0a type veth peer name two address 02:00:00:00:00:0b netns {os.getpid()}")
os.set_inheritable(there, True)
subprocess.run(["ip", "link", "set", "two", "netns", f"/proc/{os.getpid()}/fd/{there}"], check=True, timeout=120)
call("addr add 10.0.0.1/24 dev one\nlink set one up")
assert libc.setns(there, 0x40000000) == 0
call("addr add 10.0.0.1/24 dev two\nlink set two up")
assert libc.setns(here, 0x40000000) == 0
print(duplicate_owner("one", "10.0.0.1"))
assert libc.setns(there, 0x40000000) == 0
call("addr flush dev two\naddr add 10.0.0.2/24 dev two")
assert libc.setns(here, 0x40000000) == 0
print(repr(duplicate_owner("one", "10.0.0.1")))
"""


def test_a_machine_on_the_same_ethernet_answers(as_root: None) -> None:
    done = subprocess.run([sys.executable, "-c", TWO_MACHINES], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["02:00:00:00:00:0b", "''"], done.stderr


def test_loopback_ipv6_and_what_is_not_there_are_not_asked() -> None:
    assert duplicate_owner("lo", "127.0.0.1") is None
    assert duplicate_owner("lo", "::1") is None
    assert duplicate_owner("none-such", "10.0.0.1") is None


def test_without_the_capability_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> socket.socket:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(socket, "socket", refuse)
    assert duplicate_owner("eth0", "10.0.0.1") is None
