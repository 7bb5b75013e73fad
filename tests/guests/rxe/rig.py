#!/usr/bin/env python3
"""Virtual machines with Debian's kernel and its soft-RoCE device: as a class, and as a command (see --help)."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

if __package__ in (None, ""):  # started as a script: the package is the folder that it lies in
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from rxe.archive import write_archive
from rxe.capture import Capture
from rxe.failure import GivenError, RigError
from rxe.guest import PACKAGES, SHARE, Guest
from rxe.image import Image, ensure_image, find_image
from rxe.machine import missing
from rxe.network import HOST_END, Network

GUESTS_MAX = 8
MTU_BYTES = 1500
MTU_MIN_BYTES, MTU_MAX_BYTES = 1280, 9000  # IPv6 takes no less
BOOT_S = 90.0
HERE = Path(__file__).resolve().parent


class Rig:
    """Guests on a network of their own, up from `with` to its end.

    Args:
        guests: how many, from 1.
        share: a folder of the host that every guest sees as /share, or None.
        packages: a folder that they see as /packages, to read: nothing that they have read may change.
        mtu_bytes: of the Ethernet; RoCE's path MTU is the largest of 256, 512, … 4096 that fits in with its headers.
        say: is told what the rig is doing when that takes long.

    Make it in a thread that lives longer than it: the kernel ends the guests when that thread ends.

    Raises:
        GivenError: an argument cannot be.
        RigError: the machine lacks something, or a guest does not boot.
    """

    def __init__(
        self,
        guests: int = 1,
        share: Path | str | None = None,
        packages: Path | str | None = None,
        mtu_bytes: int = MTU_BYTES,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        if not 1 <= guests <= GUESTS_MAX:
            raise GivenError(f"{guests} guests: give 1 to {GUESTS_MAX}")
        given = {SHARE: share, PACKAGES: packages}
        folders = {place: Path(path).resolve() for place, path in given.items() if path is not None}
        for place, path in folders.items():
            if not path.is_dir():
                raise GivenError(f"no folder {path} to be {place} in the guests")
        _check_mtu(mtu_bytes)
        if lacking := missing(build=find_image() is None):
            raise RigError(f"missing to run guests: {lacking}")
        self.guests: list[Guest] = []
        self.share, self.packages = folders.get(SHARE), folders.get(PACKAGES)
        image = ensure_image(say)
        folder = Path(tempfile.mkdtemp(prefix="genie-rxe-"))
        self._captures: list[Capture] = []
        self.network = Network(guests, mtu_bytes, folder)
        try:
            self._boot(guests, image, folder, folders)
        except BaseException:
            self.close()
            raise

    def capture(self, path: Path | str, guest: int = 1) -> Capture:
        """Capture what a guest (from 1) sends and receives, from now on; 0 is the host's end."""
        port = self.network.tap(guest) if guest else HOST_END
        capture = Capture(self.network, port, Path(path))
        self._captures.append(capture)
        return capture

    def set_mtu(self, mtu_bytes: int) -> None:
        """Change the Ethernet's MTU everywhere; the devices' active path MTU follows, queue pairs keep theirs."""
        _check_mtu(mtu_bytes)
        self.network.set_mtu(mtu_bytes)
        for guest in self.guests:
            guest.run(["ip", "link", "set", "eth0", "mtu", str(mtu_bytes)], timeout_s=120, check=True)

    def close(self) -> None:
        """End the guests, the captures and the network."""
        for capture in self._captures:
            with contextlib.suppress(OSError):
                capture.kill()
        for guest in self.guests:
            guest.close()
        self.network.close()

    def __enter__(self) -> Rig:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _boot(self, guests: int, image: Image, folder: Path, folders: Mapping[str, Path]) -> None:
        start = folder / "start.cpio"
        write_archive(start, _start_files(image))
        for number in range(1, guests + 1):
            self.guests.append(Guest(number, image, self.network, start, folder, folders))
        until = time.monotonic() + BOOT_S
        for guest in self.guests:
            guest.wait_ready(until)


def _check_mtu(mtu_bytes: int) -> None:
    if not MTU_MIN_BYTES <= mtu_bytes <= MTU_MAX_BYTES:
        raise GivenError(f"an MTU of {mtu_bytes} B: give {MTU_MIN_BYTES} to {MTU_MAX_BYTES}")


def _start_files(image: Image) -> dict[str, bytes]:
    """Return a guest's files in memory before its disk: first program, modules for the disk, the rig's own programs."""
    files = {"init": (HERE / "guest_init.sh").read_bytes(), "bin/busybox": image.busybox.read_bytes()}
    files |= {f"modules/{path.name}": path.read_bytes() for path in image.modules}
    files |= {f"genie/{path.name}": path.read_bytes() for path in sorted(HERE.glob("guest_*.py"))}
    files["genie/guest_start.sh"] = (HERE / "guest_start.sh").read_bytes()
    return files


if __name__ == "__main__":
    from rxe.rig_command import main

    raise SystemExit(main())
