"""The guests' kernel and disk, from Debian packages, kept in a cache that is keyed by the recipe."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rxe.failure import RigError
from rxe.machine import call, missing

SUITE = "bookworm"
MIRROR = "http://deb.debian.org/debian"
KERNEL = "linux-image-amd64"
PACKAGES = (
    "busybox-static", "ethtool", "ibverbs-utils", "iproute2", "iputils-ping", "kmod", "nftables", "perftest", "python3",
    "python3-numpy", "python3-pyverbs", "rdma-core", "rdmacm-utils", "tcpdump",
)  # fmt: skip
# Of the kernel's modules (391 MB), those that a guest of this rig can have a use for.
MODULES = (
    "crypto", "drivers/block/virtio_blk.ko", "drivers/char/virtio_console.ko", "drivers/infiniband",
    "drivers/net/net_failover.ko", "drivers/net/virtio_net.ko", "drivers/net/veth.ko", "drivers/virtio", "fs/9p",
    "fs/configfs", "fs/ext4", "fs/fscache", "fs/jbd2", "fs/mbcache.ko", "fs/netfs", "lib", "net",
)  # fmt: skip
TO_MOUNT_ROOT = ("virtio_pci", "virtio_blk", "crc32c_generic", "ext4")  # ext4 asks for crc32c by name
OF_NO_USE = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/info",
    "var/cache/apt",
    "var/lib/apt/lists",
)
FREE_MIB = 200  # in the guest's disk; what is written there is forgotten with the guest


@dataclass(frozen=True)
class Image:
    """The files that a guest boots from; `modules`: needed to mount the disk, in the order in which they load."""

    folder: Path

    @property
    def kernel(self) -> Path:
        return self.folder / "vmlinuz"

    @property
    def disk(self) -> Path:
        return self.folder / "disk.ext4"

    @property
    def busybox(self) -> Path:
        return self.folder / "busybox"

    @property
    def modules(self) -> list[Path]:
        return sorted((self.folder / "modules").iterdir())

    @property
    def manifest(self) -> Path:
        return self.folder / "manifest.json"


def cache_folder() -> Path:
    """GENIE_RXE_CACHE, or a folder in the user's cache."""
    given = os.environ.get("GENIE_RXE_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "genie-rxe"


def _mirror() -> str:
    return os.environ.get("GENIE_RXE_MIRROR", MIRROR)


def recipe_key() -> str:
    """Names everything that decides what an image holds, this file included; Debian's own updates are not in it."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    digest.update(repr((SUITE, _mirror())).encode())
    return digest.hexdigest()[:16]


def find_image() -> Image | None:
    """The image of this recipe, when it has been built."""
    image = Image(cache_folder() / recipe_key())
    return image if image.manifest.is_file() else None


def ensure_image(say: Callable[[str], None], fresh: bool = False) -> Image:
    """The image of this recipe; builds it first when the cache has none, or when `fresh`.

    Raises:
        RigError: something that a build needs is missing, or a step of it failed.
    """
    found = find_image()
    if found and not fresh:
        return found
    if lacking := missing(build=True):
        raise RigError(f"missing to build the rig's image: {lacking}")
    with _locked(cache_folder()):
        found = find_image()
        if found and not fresh:  # another process has built it meanwhile
            return found
        target = cache_folder() / recipe_key()
        with tempfile.TemporaryDirectory(prefix="building-", dir=cache_folder()) as scratch:
            built = Path(scratch) / "image"
            _build(Path(scratch), built, say)
            shutil.rmtree(target, ignore_errors=True)
            built.rename(target)
    return Image(target)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(scratch: Path, built: Path, say: Callable[[str], None]) -> None:
    began = time.monotonic()
    root = scratch / "root"
    built.mkdir()
    with tempfile.TemporaryFile() as said:
        system = _start_debootstrap(root, said)
        try:
            say(f"kernel: {KERNEL}")
            release = _unpack_kernel(scratch)
            say(f"system: debootstrap {SUITE} from {_mirror()} (about a minute)")
            if system.wait():
                said.seek(0)
                last = said.read().decode(errors="replace").strip().splitlines()[-1:]
                raise RigError(f"debootstrap ended with {system.returncode}: {' '.join(last)}")
        finally:
            if system.poll() is None:
                system.kill()
                system.wait()
    say("disk")
    _take_modules(scratch / "kernel" / "lib" / "modules" / release, root / "lib" / "modules" / release)
    call(["chroot", str(root), "depmod", release], what="the image's modules")
    _take_boot_files(scratch, root, release, built)
    listed = call(
        ["chroot", str(root), "dpkg-query", "-W", "-f", "${Package}\t${Version}\n"], what="the image's packages"
    )
    for name in OF_NO_USE:
        shutil.rmtree(root / name, ignore_errors=True)
    _make_disk(root, built / "disk.ext4")
    facts = {
        "suite": SUITE,
        "mirror": _mirror(),
        "kernel": release,
        "packages": dict(line.split("\t") for line in listed.splitlines()),
        "built_in_s": round(time.monotonic() - began, 1),
    }
    (built / "manifest.json").write_text(json.dumps(facts, indent=1) + "\n")


def _start_debootstrap(root: Path, said: IO[bytes]) -> subprocess.Popen[bytes]:
    argv = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(root), _mirror()]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    return subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *argv],
        stdin=subprocess.DEVNULL,
        stdout=said,
        stderr=subprocess.STDOUT,
        env=environment,
    )


def _unpack_kernel(scratch: Path) -> str:
    """Download and unpack Debian's kernel; returns its release, as `uname -r` has it."""
    hint = f"the kernel package {KERNEL} (if apt does not know it: apt-get update)"
    depends = call(["apt-cache", "depends", "--important", KERNEL], what=hint)
    names = [line.split()[-1] for line in depends.splitlines() if "Depends: linux-image-" in line]
    if not names:
        raise RigError(f"apt knows no {KERNEL}: apt-get update, on Debian 12")
    folder = scratch / "download"
    folder.mkdir()
    done = subprocess.run(
        ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=3", "download", names[0]],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    packages = list(folder.glob("*.deb"))
    if done.returncode or not packages:
        raise RigError(f"{hint}: apt-get download ended with {done.returncode}: {done.stderr.strip()[-200:]}")
    call(["dpkg", "-x", str(packages[0]), str(scratch / "kernel")], what=hint)
    return names[0].removeprefix("linux-image-")


def _take_modules(source: Path, target: Path) -> None:
    for name in MODULES:
        wanted = source / "kernel" / name
        if wanted.is_dir():
            shutil.copytree(wanted, target / "kernel" / name)
        elif wanted.is_file():
            (target / "kernel" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(wanted, target / "kernel" / name)
        else:
            raise RigError(f"the kernel package has no {name}")
    for index in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
        shutil.copy2(source / index, target / index)


def _take_boot_files(scratch: Path, root: Path, release: str, built: Path) -> None:
    shutil.copy2(scratch / "kernel" / "boot" / f"vmlinuz-{release}", built / "vmlinuz")
    shutil.copy2(root / "bin" / "busybox", built / "busybox")
    folder = root / "lib" / "modules" / release
    (built / "modules").mkdir()
    for place, name in enumerate(_load_order(folder / "modules.dep", TO_MOUNT_ROOT)):
        shutil.copy2(folder / name, built / "modules" / f"{place:02d}-{Path(name).name}")


def _load_order(index: Path, wanted: tuple[str, ...]) -> list[str]:
    """Files of modules, each after those that it depends on, which modules.dep lists last first."""
    needs = {}
    for line in index.read_text().splitlines():
        name, _, others = line.partition(":")
        needs[name] = others.split()
    order: list[str] = []
    for module in wanted:
        name = next(name for name in needs if Path(name).name == f"{module}.ko")
        order += [each for each in [*reversed(needs[name]), name] if each not in order]
    return order


def _make_disk(root: Path, disk: Path) -> None:
    used = call(["du", "-s", "--block-size=1M", "--apparent-size", str(root)], what="the image's size", timeout_s=60)
    size_mib = int(int(used.split()[0]) * 1.25) + FREE_MIB  # blocks and inodes take more than the bytes
    argv = ["mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-d", str(root), str(disk), f"{size_mib}M"]
    call(argv, what="the image's disk", timeout_s=120)
