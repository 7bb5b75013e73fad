"""Requirements of the machine below, and processes that end with their starter."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from typing import IO

from rxe.failure import RigError

# Command -> the Debian package that has it.
TO_RUN = {
    "qemu-system-x86_64": "qemu-system-x86",
    "ip": "iproute2",
    "nft": "nftables",
    "tcpdump": "tcpdump",
    "ethtool": "ethtool",
    "setpriv": "util-linux",
}
TO_BUILD = {
    "debootstrap": "debootstrap",
    "apt-get": "apt",
    "dpkg": "dpkg",
    "mke2fs": "e2fsprogs",
    "chroot": "coreutils",
}


def missing(build: bool) -> str:
    """Say in one line what is missing to run the rig, or to build its image too; nothing is the empty string."""
    wanted = {**TO_RUN, **(TO_BUILD if build else {})}
    packages = sorted({package for command, package in wanted.items() if shutil.which(command) is None})
    lacks = []
    if os.geteuid() != 0:
        lacks.append("root (the rig makes a network namespace and mounts nothing else): run it as root")
    if packages:
        lacks.append(f"Debian packages: apt-get install {' '.join(packages)}")
    if not os.path.exists("/dev/net/tun"):
        lacks.append("/dev/net/tun: load the kernel module tun")
    return "; ".join(lacks)


def call(argv: Sequence[str], *, what: str, stdin: str | None = None, timeout_s: float = 60) -> str:
    """Run a command of the host and return its output.

    Raises:
        RigError: it failed, with `what` and the last line that it said.
    """
    try:
        done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise RigError(f"{what}: {argv[0]} takes longer than {timeout_s:g} s") from None
    except OSError as error:
        raise RigError(f"{what}: {error}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise RigError(f"{what}: {' '.join(argv[:4])} ended with {done.returncode}: {' '.join(said)}")
    return done.stdout


def spawn(argv: Iterable[str], *, stdout: IO[bytes] | int, stderr: IO[bytes] | int) -> subprocess.Popen[bytes]:
    """Start a process that the kernel kills when the thread that called this ends, however that happens."""
    return subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *argv],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,  # Ctrl-C is for the rig, which then ends what it started
    )


def end(process: subprocess.Popen[bytes], limit_s: float = 5) -> None:
    """SIGTERM, and SIGKILL when that is not heeded."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()
