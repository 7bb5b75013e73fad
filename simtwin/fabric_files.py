"""Fabric files, whatever simulator they are for."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from simtwin.astra.fabric import read_fabric
from simtwin.fabric import load_fabric
from simtwin.fabric_schema import Fabric

ASTRA_SUFFIXES = (".yml", ".yaml")


def read_fabric_file(path: Path) -> Fabric:
    """A fabric file, or what one of ASTRA-sim's network files makes; a large one is read once, while it is the same."""
    try:
        found = path.stat()
    except OSError:
        return _read(path, ())  # its error says what is wrong
    return _read(path, (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size))


@lru_cache(maxsize=2)
def _read(path: Path, _: tuple[int, ...]) -> Fabric:
    return read_fabric(path)[0] if path.suffix in ASTRA_SUFFIXES else load_fabric(path)
