"""The rig itself, with programs of rdma-core and perftest: commands, files, loss, captures, and what is left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from roce_pcaps import judge
from rxe import rig_command
from rxe.command import Command
from rxe.failure import RigError, TimeLimitError
from rxe.guest import Guest, gid_of
from rxe.peer import TIMEOUT
from rxe.rig import Rig

pytestmark = [pytest.mark.guests, pytest.mark.extended]

READ_REQUEST, WRITE_FIRST, ACKNOWLEDGE = 0x0C, 0x06, 0x11
SEND = (0x00, 0x01, 0x02)  # first, middle, last
COMMAND = str(Path(__file__).resolve().parent.parent / "guests" / "rxe" / "rig.py")
GID_INDEX = "1"  # the IPv4 one


def wait_listening(server: Command, guest: Guest, port: int = 18515) -> None:
    """Until a server in a guest has its TCP port open."""
    until = time.monotonic() + 20
    while f":{port} " not in guest.run(["ss", "-ltn"], timeout_s=120).stdout:
        assert server.code is None, server.wait(1).stderr
        assert time.monotonic() < until, "no port is open"
        time.sleep(0.05)


def pingpong(rig: Rig, *options: str) -> str:
    """ibv_rc_pingpong between the guests, asleep while it waits; what the client says."""
    argv = ["ibv_rc_pingpong", "-d", "rxe0", "-g", GID_INDEX, "-e", *options]
    server, client = rig.guests[1], rig.guests[0]
    waiting = server.start(argv)
    wait_listening(waiting, server)
    done = client.run([*argv, server.ipv4], timeout_s=60)
    assert (done.returncode, waiting.wait(120).returncode) == (0, 0), done.stderr
    return done.stdout


def test_both_guests_have_a_device_with_both_addresses(rig: Rig) -> None:
    for guest in rig.guests:
        said = guest.run(["ibv_devinfo", "-v", "-d", "rxe0"], timeout_s=120, check=True).stdout
        assert re.search(r"active_mtu:\s+1024", said)
        assert f"::ffff:{guest.ipv4}, RoCE v2" in said
        assert f"{guest.ipv6}, RoCE v2" in said


def test_a_device_goes_and_comes_and_roces_port_with_it(rig: Rig) -> None:
    guest = rig.guests[1]
    take = f"import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).bind(('{guest.ipv4}', 4791))"
    assert "in use" in guest.run(["python3", "-c", take], timeout_s=120).stderr
    guest.remove_device()
    guest.run(["python3", "-c", take], timeout_s=120, check=True)
    assert "rxe0" not in guest.run(["rdma", "link"], timeout_s=120, check=True).stdout
    guest.add_device()
    assert f"::ffff:{guest.ipv4}" in guest.run(["ibv_devinfo", "-v"], timeout_s=120, check=True).stdout


def test_a_command_is_fed_and_answers_by_both_outputs_and_its_code(rig: Rig) -> None:
    text = "".join(f"line {number}\n" for number in range(20_000))  # more than any pipe holds
    done = rig.guests[0].run(["sh", "-c", "tee /dev/stderr; exit 7"], stdin=text, timeout_s=120)
    assert (done.returncode, done.stdout, done.stderr) == (7, text, text)
    killed = rig.guests[0].run(["sh", "-c", "kill -9 $$"], timeout_s=120)
    assert killed.returncode == -9


def test_a_command_in_the_background_is_spoken_with(rig: Rig) -> None:
    cat = rig.guests[1].start(["cat"])
    for word in ("one", "two"):
        cat.write(f"{word}\n")
        assert cat.read_line(120) == word
    assert cat.code is None
    cat.close_input()
    assert cat.wait(120).stdout == "one\ntwo\n"
    with pytest.raises(RigError, match="guest 2: cat: ended with 0"):
        cat.read_line(1)


def test_a_command_that_takes_too_long_is_killed_with_all_that_it_started(rig: Rig) -> None:
    with pytest.raises(TimeLimitError, match=r"guest 1: sh -c sleep 77 & sleep 78: does not end for 0\.5 s"):
        rig.guests[0].run(["sh", "-c", "sleep 77 & sleep 78"], timeout_s=0.5)
    left = rig.guests[0].run(["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"], timeout_s=120).stdout
    assert "guest_agent" in left
    assert "sleep 7" not in left


def test_a_command_that_is_not_there_is_named(rig: Rig) -> None:
    with pytest.raises(RigError, match=r"guest 2: nonesuch: cannot be started: .*No such file"):
        rig.guests[1].run(["nonesuch"], timeout_s=120)


def test_the_share_is_seen_from_both_sides(booted: Rig, rig: Rig) -> None:
    assert booted.share is not None
    (booted.share / "from_host").write_text("a")
    assert rig.guests[0].run(["cat", "/share/from_host"], timeout_s=120).stdout == "a"
    rig.guests[1].run(["sh", "-c", "echo b > /share/from_guest"], timeout_s=120, check=True)
    assert (booted.share / "from_guest").read_text() == "b\n"


def test_the_host_is_a_neighbour_of_the_guests(rig: Rig) -> None:
    answer = "import socket\ns = socket.create_server(('::', 7000), family=socket.AF_INET6, dualstack_ipv6=True)\n"
    answer += "print('open', flush=True)\nfor _ in range(2):\n    s.accept()[0].sendall(b'here')\n"
    server = rig.guests[0].start(["python3", "-c", answer])
    assert server.read_line(120) == "open"
    for address in (rig.guests[0].ipv4, rig.guests[0].ipv6):
        ask = f"import socket; print(socket.create_connection(('{address}', 7000), 5).recv(9))"
        argv = rig.network.inside("python3", "-c", ask)
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
        assert done.stdout == "b'here'\n", (address, done.stderr)


def test_pingpong_is_captured_in_full(rig: Rig, tshark: str, tmp_path: Path) -> None:
    with rig.capture(tmp_path / "pingpong.pcap") as capture:
        said = pingpong(rig, "-s", "3000", "-n", "50", "-c")
    assert "50 iters" in said
    seen = judge(capture.path, tshark)
    # A guest that is short of a core may send again what was not lost.
    assert {opcode: seen.distinct[opcode] for opcode in SEND} == dict.fromkeys(SEND, 2 * 50)
    assert set(seen.opcodes) == {*SEND, ACKNOWLEDGE}


@pytest.mark.parametrize(("program", "opcode"), [("ib_write_bw", WRITE_FIRST), ("ib_read_bw", READ_REQUEST)])
def test_perftest_is_captured_in_full(rig: Rig, tshark: str, tmp_path: Path, program: str, opcode: int) -> None:
    argv = [program, "-d", "rxe0", "-x", GID_INDEX, "-F", "-s", "65536", "-n", "20", "-u", str(TIMEOUT)]
    with rig.capture(tmp_path / f"{program}.pcap") as capture:
        server = rig.guests[1].start(argv)
        wait_listening(server, rig.guests[1])
        done = rig.guests[0].run([*argv, rig.guests[1].ipv4], timeout_s=60)
        assert (done.returncode, server.wait(120).returncode) == (0, 0), done.stderr
    # The rate beside the iterations is not judged: on a busy host, perftest cannot measure
    # the emulated clock, and prints 0.00. The capture shows what was sent.
    assert re.search(r"65536\s+20\s+[\d.]+\s+[\d.]+", done.stdout), done.stdout
    assert judge(capture.path, tshark).distinct[opcode] == 20


def send_datagrams(rig: Rig, count: int) -> None:
    """From guest 1 to guest 2, on RoCE's port, where nobody answers."""
    send = f"import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nfor _ in range({count}):\n"
    send += f"    s.sendto(b'', ('{rig.guests[1].ipv4}', 4791))\n"
    rig.guests[0].run(["python3", "-c", send], timeout_s=60, check=True)


@pytest.mark.unjudged
def test_loss_is_what_was_asked_for_and_ends(rig: Rig) -> None:
    rig.network.lose_every(10, place=4)
    send_datagrams(rig, 1000)
    assert rig.network.lost_packets() == 100
    rig.network.lose(100)
    send_datagrams(rig, 10)
    assert rig.network.lost_packets() == 10
    rig.network.lose(0)
    assert "10 iters" in pingpong(rig, "-n", "10", "-c")
    assert rig.network.lost_packets() == 0


@pytest.mark.unjudged
def test_random_loss_is_within_chance(rig: Rig) -> None:
    """The binomial's five sigma at 20 %."""
    count, percent = 20_000, 20
    rig.network.lose(percent)
    send_datagrams(rig, count)
    sigma = (count * percent / 100 * (1 - percent / 100)) ** 0.5
    assert abs(rig.network.lost_packets() - count * percent / 100) < 5 * sigma


def test_a_gid_has_all_its_digits() -> None:
    assert gid_of("10.91.0.1") == "0000:0000:0000:0000:0000:ffff:0a5b:0001"
    assert gid_of("fd91::1") == "fd91:0000:0000:0000:0000:0000:0000:0001"
    with pytest.raises(OSError, match="illegal"):
        gid_of("10.91.0.300")


def namespaces() -> str:
    return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout


def processes_in(namespace: str) -> list[int]:
    done = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False)
    return [int(word) for word in done.stdout.split()]


def wait_until(true: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + 20
    while not true():
        assert time.monotonic() < until, what
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("ending", "said"),
    [(signal.SIGTERM, "rig: told to end by SIGTERM"), (signal.SIGINT, "rig: interrupted"), (signal.SIGKILL, "")],
)
def test_nothing_is_left_behind_however_it_ends(booted: Rig, tmp_path: Path, ending: signal.Signals, said: str) -> None:
    # These tests may have been started where nobody can interrupt them, in the background.
    argv = ["env", "--default-signal=INT", sys.executable, COMMAND, "run", "--", "sleep", "99"]
    rig = subprocess.Popen(argv, env={**os.environ, "TMPDIR": str(tmp_path)}, stderr=subprocess.PIPE, text=True)
    try:
        name = f"genie-rxe-{rig.pid}-0"
        wait_until(lambda: bool(processes_in(name)), "no guest was started")
        guests = processes_in(name)
        rig.send_signal(ending)
        _, errors = rig.communicate(timeout=120)
        assert rig.returncode == (-ending if ending == signal.SIGKILL else 128 + ending)
        assert errors.strip() == said
        wait_until(lambda: name not in namespaces(), "the namespace stays")
        wait_until(lambda: not any(Path(f"/proc/{guest}").exists() for guest in guests), "a guest stays")
        wait_until(lambda: not list(tmp_path.iterdir()), "files stay")
    finally:
        rig.kill()
        rig.wait()


def test_the_command_says_what_is_missing_and_what_is_wrong(tmp_path: Path) -> None:
    def said(*words: str, **env: str) -> tuple[int, str]:
        argv = [sys.executable, COMMAND, *words]
        done = subprocess.run(argv, capture_output=True, text=True, env={**os.environ, **env}, timeout=60, check=False)
        return done.returncode, done.stderr.strip()

    nothing, cache = str(tmp_path), str(tmp_path / "cache")
    code, line = said("run", "--", "true", PATH=nothing)
    assert code == 3
    user = "root (the rig makes a network namespace and mounts nothing else): run it as root; "
    lacks = ("" if os.geteuid() == 0 else user) + "Debian packages: apt-get install "
    assert line.startswith(f"rig: missing to run guests: {lacks}")
    assert {"ethtool", "iproute2", "nftables", "qemu-system-x86", "tcpdump"} <= set(line.split())
    code, line = said("build", PATH=nothing, GENIE_RXE_CACHE=cache)
    assert code == 3
    assert line.startswith(f"rig: missing to build the rig's image: {lacks}apt ")
    assert "debootstrap" in line


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("run", "--guests", "2", "--on", "3"), "--on 3: there are guests 1 to 2 and `all`"),
        (("run", "--guests", "0", "--on", "3"), "--guests 0: give 1 to 8"),
        (("run", "--guests", "9"), "--guests 9: give 1 to 8"),
        (("run", "--timeout", "0"), "--timeout 0: give seconds above 0, at most 1000000"),
        (("run", "--timeout", "nan"), "--timeout nan: give seconds above 0, at most 1000000"),
        (("run", "--loss", "101"), "loss of 101 %: give 0 to 100"),
        (("run", "--mtu", "100"), "an MTU of 100 B: give 1280 to 9000"),
        (("run", "--share", "none"), "no folder {folder}/none to be /share in the guests"),
        (("run", "--capture", "none/x.pcap"), "no folder none for the capture x.pcap: make it"),
        (("run", "--capture", "."), "capture . is a folder: give a file's name"),
    ],
)
def test_what_cannot_be_is_said_before_anything_boots(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str], line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rxe.rig_command.signal.signal", lambda *_: None)  # pytest's handlers stay
    assert rig_command.main([*words, "--", "true"]) == 2
    assert capsys.readouterr().err == f"rig: {line.format(folder=tmp_path)}\n"


def test_a_folder_of_the_user_is_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clone of Genie has a folder `genie` too."""
    monkeypatch.setattr("rxe.rig_command.signal.signal", lambda *_: None)
    (tmp_path / "genie").mkdir()
    (tmp_path / "genie" / "notes").write_text("mine")
    assert rig_command.main(["packages", str(tmp_path)]) == 2
    assert "has files in it that the rig did not put there" in capsys.readouterr().err
    assert (tmp_path / "genie" / "notes").read_text() == "mine"
