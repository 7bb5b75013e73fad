"""One virtual machine: an emulated processor, the console in a file, commands over a serial port of their own."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from rxe.command import Command, shortened
from rxe.failure import RigError
from rxe.guest_agent import PORT_NAME
from rxe.image import Image
from rxe.machine import end, spawn
from rxe.network import Network, ipv4, ipv6

SHARE = "/share"  # where a guest sees the rig's shared folder
PACKAGES = "/packages"  # where it sees a folder that nobody changes, which it therefore may keep in memory
TOOLS = "/run/genie"  # where a guest has the rig's own programs
DEVICE = "rxe0"
MEMORY_MIB = 768
PROCESSORS = 2
KERNEL_LINE = "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off random.trust_cpu=on net.ifnames=0"

CONFIGURE = """
set -e
ip link set eth0 mtu {mtu} up
ip addr add {ipv4}/24 dev eth0
ip addr add {ipv6}/64 dev eth0 nodad
"""
# GIDs follow addresses a moment later: wait until the table has both.
ADD_DEVICE = """
set -e
modprobe -a rdma_rxe rdma_ucm ib_uverbs
rdma link add {device} type rxe netdev eth0
for _ in $(seq 100); do
  gids=$(cat /sys/class/infiniband/{device}/ports/1/gids/[0-7] 2>/dev/null || true)
  case "$gids" in *{gid4}*) case "$gids" in *{gid6}*) exit 0 ;; esac ;; esac
  sleep 0.05
done
echo "{device} has no GID of {ipv4} and {ipv6}" >&2
exit 1
"""
MOUNT = (
    "modprobe -a 9p 9pnet_virtio && mkdir -p {place} && mount -t 9p -o {how},trans=virtio,msize=131072 {tag} {place}"
)
REMOVE_DEVICE = f"rdma link del {DEVICE} && modprobe -r rdma_rxe"
HOW = {SHARE: "rw", PACKAGES: "ro,cache=loose"}


def gid_of(address: str) -> str:
    """An IPv4 or IPv6 address as a GID, all digits written, as sysfs and pyverbs have it."""
    if "." in address:
        packed = b"\0" * 10 + b"\xff\xff" + socket.inet_aton(address)
    else:
        packed = socket.inet_pton(socket.AF_INET6, address)
    return packed.hex(":", 2)


class Guest:
    """Boots at once; `wait_ready` before use. `number` counts from 1; `ipv4`, `ipv6` are its addresses."""

    def __init__(
        self, number: int, image: Image, network: Network, start: Path, folder: Path, folders: Mapping[str, Path]
    ) -> None:
        self.number = number
        self.name = f"guest {number}"
        self.ipv4 = ipv4(number)
        self.ipv6 = ipv6(number)
        self._network = network
        self._folders = folders
        self._console = folder / f"console{number}"
        self._numbers = itertools.count(1)
        self._commands: dict[int, Command] = {}
        self._lock = threading.Lock()
        self._ready = threading.Event()
        self._gone = ""
        door = folder / f"agent{number}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(door))
        self._listener.listen(1)
        self._channel: socket.socket | None = None
        self._said = folder / f"qemu{number}"
        with self._said.open("wb") as said:
            # QEMU writes to the disk in a file of this folder, which it unlinks at once.
            argv = network.inside("env", f"TMPDIR={folder}", *self._machine(image, start, door))
            self._process = spawn(argv, stdout=said, stderr=subprocess.STDOUT)
        self._listening = threading.Thread(target=self._listen, name=self.name, daemon=True)
        self._listening.start()

    def wait_ready(self, until: float) -> None:
        """Until it has its addresses and its RDMA device; `until` is of time.monotonic().

        Raises:
            RigError: with the last lines of its console.
        """
        while not self._ready.wait(0.05):
            if self._gone or self._process.poll() is not None or time.monotonic() > until:
                raise RigError(f"{self.name} does not boot: {self._gone or 'too slow'}: {self._last_lines()}")
        limit_s = max(until - time.monotonic(), 1)
        script = CONFIGURE.format(mtu=self._network.mtu_bytes, ipv4=self.ipv4, ipv6=self.ipv6)
        self.run(["sh", "-c", script], timeout_s=limit_s, check=True)
        self.add_device(limit_s)
        for place in self._folders:
            mount = MOUNT.format(place=place, tag=place.strip("/"), how=HOW[place])
            self.run(["sh", "-c", mount], timeout_s=limit_s, check=True)

    def add_device(self, timeout_s: float = 20) -> None:
        """Make its RDMA device, with a GID for each address; a guest boots with it."""
        gids = {"gid4": gid_of(self.ipv4), "gid6": gid_of(self.ipv6)}
        script = ADD_DEVICE.format(ipv4=self.ipv4, ipv6=self.ipv6, device=DEVICE, **gids)
        self.run(["sh", "-c", script], timeout_s=timeout_s, check=True)

    def remove_device(self) -> None:
        """Take its RDMA device away, which holds UDP port 4791: then softroce can run in the guest."""
        self.run(["sh", "-c", REMOVE_DEVICE], timeout_s=120, check=True)

    def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        folder: str = "/",
        terminal: bool = False,
        warm: str = "",
    ) -> Command:
        """Start a command in the background; it is killed with the guest. `warm`: the door of a WarmPython there."""
        if self._gone:
            raise RigError(f"{self.name}: {self._gone}")
        number = next(self._numbers)
        command = self._commands[number] = Command(number, argv, self.name, self._say)
        how = {"env": dict(env or {}), "folder": folder, "terminal": terminal, "warm": warm}
        self._say({"do": "run", "id": number, "argv": list(argv), **how})
        return command

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        stdin: str | bytes = b"",
        env: Mapping[str, str] | None = None,
        folder: str = "/",
        check: bool = False,
    ) -> CompletedProcess[str]:
        """Run a command to its end.

        Raises:
            TimeLimitError: it takes longer; then it is killed.
            RigError: it cannot be started; with `check`, it ended with another code than 0.
        """
        command = self.start(argv, env=env, folder=folder)
        if stdin:
            command.write(stdin)
        command.close_input()
        done = command.wait(timeout_s)
        if check and done.returncode:
            last = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise RigError(f"{self.name}: {shortened(argv)} ended with {done.returncode}: {' '.join(last)}")
        return done

    def close(self) -> None:
        """Switch it off: what is on its disk is forgotten."""
        end(self._process)
        self._listener.close()
        if self._channel:
            with contextlib.suppress(OSError):
                self._channel.shutdown(socket.SHUT_RDWR)
        self._listening.join(5)

    def _machine(self, image: Image, start: Path, door: Path) -> list[str]:
        argv = [
            "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
            "-M", "pc", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(PROCESSORS), "-m", str(MEMORY_MIB),
            "-kernel", str(image.kernel), "-initrd", str(start), "-append", KERNEL_LINE,
            "-chardev", f"file,id=console,path={self._console}", "-serial", "chardev:console",
            "-drive", f"file={image.disk},format=raw,if=virtio,snapshot=on",
            "-device", "virtio-serial-pci",
            "-chardev", f"socket,id=agent,path={door}", "-device", f"virtserialport,chardev=agent,name={PORT_NAME}",
            "-netdev", f"tap,id=net,ifname={self._network.tap(self.number)},script=no,downscript=no",
            "-device", f"virtio-net-pci,netdev=net,mac=52:54:00:91:00:{self.number:02x},romfile=",
        ]  # fmt: skip
        for place, path in self._folders.items():
            options = f"mount_tag={place.strip('/')},security_model=none,multidevs=remap"
            argv += ["-virtfs", f"local,path={path},{options}" + ",readonly=on" * (place == PACKAGES)]
        return argv

    def _listen(self) -> None:
        """Hand what the guest says to the commands that it speaks of, until it is gone."""
        with contextlib.suppress(OSError):
            self._channel, _ = self._listener.accept()
            with self._channel.makefile("rb") as lines:
                for line in lines:
                    message = json.loads(line)
                    if message["is"] == "ready":
                        self._ready.set()
                    else:
                        self._commands[message["id"]].hear(message)
        self._gone = "it has ended"
        for command in list(self._commands.values()):
            command.hear({"is": "lost", "text": "its guest has ended"})

    def _say(self, message: Mapping[str, Any]) -> None:
        with self._lock:
            if self._channel is None:
                raise RigError(f"{self.name}: it is not ready")
            try:
                self._channel.sendall(json.dumps(message).encode() + b"\n")
            except OSError:
                self._gone = "it has ended"  # its commands are told by the thread that listens

    def _last_lines(self) -> str:
        lines = []
        for path in (self._said, self._console):
            with contextlib.suppress(OSError):
                lines += path.read_text(errors="replace").strip().splitlines()[-4:]
        return " | ".join(line.strip() for line in lines)
