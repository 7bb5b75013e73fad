"""The kernel's initial file system: a cpio archive in the "newc" format (kernel: early-userspace/buffer-format)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

DIRECTORY = 0o040755
EXECUTABLE = 0o100755


def _entry(name: str, mode: int, data: bytes, inode: int) -> bytes:
    encoded = name.encode() + b"\0"
    fields = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(encoded), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields) + encoded
    return header + b"\0" * (-len(header) % 4) + data + b"\0" * (-len(data) % 4)


def write_archive(path: Path, files: Mapping[str, bytes]) -> None:
    """Write files (name without leading slash → content, all executable) and the folders they need."""
    folders = sorted({str(parent) for name in files for parent in Path(name).parents} - {"."})
    entries = [(name, DIRECTORY, b"") for name in folders]
    entries += [(name, EXECUTABLE, data) for name, data in files.items()]
    parts = [_entry(name, mode, data, inode) for inode, (name, mode, data) in enumerate(entries, start=1)]
    path.write_bytes(b"".join(parts) + _entry("TRAILER!!!", 0, b"", 0))
