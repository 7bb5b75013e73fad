"""softroce meets rdma-core's own ibv_rc_pingpong in a guest, as its client and as its server."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from roce_pcaps import judge
from rxe.command import Command
from rxe.guest import Guest, gid_of
from rxe.guest_pattern import pattern
from rxe.rig import Rig
from softroce_end import MTU, PATIENT_PS, MakeSoft, SoftEnd, assert_undisturbed
from softroce_pingpong import PORT, SIZE_BYTES, listen, meet_client, meet_server

pytestmark = [pytest.mark.guests, pytest.mark.extended]

pytest_plugins = ["softroce_fixtures"]

ROUNDS = 1000
ROUNDS_LIMIT_S = 120
MARGIN_S = 10  # the test waits for longer than the rounds, which say how far they came
HEARD = 1 << 20  # where softroce receives, in its memory
SEND_LAST = 0x02
FILL = b"\x7b"  # contents of the client's buffer before it has received


def await_server(server: Command, guest: Guest) -> None:
    until = time.monotonic() + 20
    while f":{PORT} " not in guest.run(["ss", "-ltn"], timeout_s=120).stdout:
        assert server.code is None, server.wait(1).stderr
        assert time.monotonic() < until, "no port is open"
        time.sleep(0.05)


def gid_index(guest: Guest, address_gid: str) -> str:
    """Where the device has this GID, as ibv_rc_pingpong wants to be told."""
    table = guest.run(["sh", "-c", "cd /sys/class/infiniband/rxe0/ports/1/gids && grep . *"], timeout_s=120).stdout
    rows = [line.split(":", 1) for line in table.splitlines()]
    return next(index for index, gid in rows if gid == address_gid)


def prepare(soft: SoftEnd) -> None:
    """Post the first receives, before the other end may send. By softroce's thread."""
    for number in range(2):
        soft.nic.post_receive(0, handle=number, address=HEARD, size_bytes=SIZE_BYTES)


def bounce(soft: SoftEnd, rounds: int, first: bytes | None) -> None:
    """SENDs to and fro, each round's payload its own: what comes is what went before. By softroce's thread.

    `first`: what the other end begins with; None when softroce begins.
    """
    expected, sent, heard, ended = first, 0, 0, 0
    until = time.monotonic() + ROUNDS_LIMIT_S

    def send() -> None:
        nonlocal expected, sent
        payload = pattern(sent, SIZE_BYTES)
        soft.nic.memory[(sent % 2) * SIZE_BYTES :][:SIZE_BYTES] = payload
        soft.nic.post_send(0, "send", SIZE_BYTES, handle=sent, local_address=(sent % 2) * SIZE_BYTES)
        expected, sent = payload.tobytes(), sent + 1

    if first is None:
        send()
    while (sent, heard, ended) != (rounds, rounds, rounds):
        assert time.monotonic() < until, f"{sent} sent, {heard} heard, {ended} acknowledged: {soft.nic.error}"
        for kind, _, _, status, size, *_ in soft.nic.poll(0.1):
            assert status == "ok", soft.nic.error
            if kind == "sent":
                ended += 1
                continue
            assert size == SIZE_BYTES
            assert soft.nic.memory[HEARD : HEARD + SIZE_BYTES].tobytes() == expected, f"message {heard} is wrong"
            heard += 1
            soft.nic.post_receive(0, handle=heard, address=HEARD, size_bytes=SIZE_BYTES)
            if sent < rounds:
                send()


def assert_right(soft: SoftEnd, pcap: Path, tshark: str) -> None:
    """The program's timeout of 67 ms runs from one message into the next, and then the kernel repeats that one."""
    assert_undisturbed(soft.counters(), but=("duplicates",))
    assert judge(pcap, tshark).distinct[SEND_LAST] == 2 * ROUNDS


@pytest.mark.parametrize("v6", [False, True])
def test_a_thousand_rounds_with_its_server(
    rig: Rig, make_soft: MakeSoft, tmp_path: Path, tshark: str, v6: bool
) -> None:
    """Its server's buffer is both what it receives into and what it sends: an echo."""
    guest = rig.guests[0]
    soft = make_soft(v6=v6, ack_timeout_ps=PATIENT_PS)
    address = guest.ipv6 if v6 else guest.ipv4
    argv = ["ibv_rc_pingpong", "-d", "rxe0", "-g", gid_index(guest, gid_of(address)), "-e", "-m", str(MTU)]
    server = guest.start([*argv, "-n", str(ROUNDS)])
    await_server(server, guest)
    with rig.capture(tmp_path / "pingpong.pcap", guest=0) as capture:
        soft.do(lambda: prepare(soft))
        soft.do(lambda: meet_server(soft, address, guest.ipv4))
        soft.do(lambda: bounce(soft, ROUNDS, None), ROUNDS_LIMIT_S + MARGIN_S)
        done = server.wait(120)
    assert done.returncode == 0, done.stderr
    assert f"{ROUNDS} iters" in done.stdout
    assert_right(soft, capture.path, tshark)


def test_a_thousand_rounds_with_its_client(rig: Rig, make_soft: MakeSoft, tmp_path: Path, tshark: str) -> None:
    guest = rig.guests[1]
    soft = make_soft(strict=True, ack_timeout_ps=PATIENT_PS)
    listener = soft.do(lambda: listen(soft))
    argv = ["ibv_rc_pingpong", "-d", "rxe0", "-g", gid_index(guest, gid_of(guest.ipv4)), "-e", "-m", str(MTU)]
    with listener, rig.capture(tmp_path / "pingpong.pcap", guest=0) as capture:
        soft.do(lambda: prepare(soft))
        client = guest.start([*argv, "-n", str(ROUNDS), soft.address])
        soft.do(lambda: meet_client(soft, listener, guest.ipv4))
        soft.do(lambda: bounce(soft, ROUNDS, FILL * SIZE_BYTES), ROUNDS_LIMIT_S + MARGIN_S)
        done = client.wait(120)
    assert done.returncode == 0, done.stderr
    assert f"{ROUNDS} iters" in done.stdout
    assert_right(soft, capture.path, tshark)
