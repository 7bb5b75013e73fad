"""`genie convert fabric`: files of other tools that describe a network, recognised by their content."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from simtwin.imports.astra.fabric import read_fabric
from simtwin.imports.nccl import read_nccl
from simtwin.imports.ns3_fabric import read_ns3, read_simai
from simtwin.imports.options import Imported, ImportOptions
from simtwin.imports.words import ForeignFileError, text_of


@dataclass(frozen=True)
class Reader:
    """A reader of one kind of file."""

    what: str
    recognises: Callable[[str], object]  # by the file's text
    read: Callable[[Path, ImportOptions], Imported]  # checks its result; raises ForeignFileError
    options: frozenset[str] = frozenset()  # of ImportOptions: those that this reader uses


_CONF = frozenset({"conf"})
_NCCL = frozenset({"servers", "spines", "nic_rate", "nvlink_rate", "nic", "delay"})
_SIMAI_HEADER = re.compile(r"\s*([0-9]+[ \t]+){5}[A-Za-z]")
_NS3_HEADER = re.compile(r"\s*([0-9]+[ \t]+){2}[0-9]+\s*\n")
_XML = re.compile(r"\s*<")
_YAML_TOPOLOGY = re.compile(r"^topology\s*:", re.MULTILINE)


def _read_astra(path: Path, options: ImportOptions) -> Imported:
    return Imported(*read_fabric(path))


# A further kind is one more line.
READERS: dict[str, Reader] = {
    "simai": Reader("SimAI's topology", _SIMAI_HEADER.match, read_simai, _CONF),
    "ns3": Reader("ns-3's topology", _NS3_HEADER.match, read_ns3, _CONF),
    "astra-sim": Reader("ASTRA-sim's network", _YAML_TOPOLOGY.search, _read_astra),
    "nccl": Reader("NCCL's topology XML", _XML.match, read_nccl, _NCCL),
}


def import_fabric(path: Path, kind: str | None = None, options: ImportOptions | None = None) -> Imported:
    """Return a fabric for `genie simulate`.

    `kind`: a key of READERS, or None to recognise the content. Raises ForeignFileError.
    """
    options = options or ImportOptions()
    kind = _kind_of(path) if kind is None else kind
    if kind not in READERS:
        raise ForeignFileError(f"--from {kind}: must be one of {', '.join(READERS)}")
    reader = READERS[kind]
    for name in options.given:
        if name not in reader.options:
            others = [other for other, one in READERS.items() if name in one.options]
            option = name.replace("_", "-")
            raise ForeignFileError(
                f"--{option}: is for {' and '.join(others)}, and {path} is {reader.what}: leave it out"
            )
    return reader.read(path, options)


def _kind_of(path: Path) -> str:
    text = text_of(path)
    for kind, reader in READERS.items():
        if reader.recognises(text):
            return kind
    if re.search(r"^TOPOLOGY_FILE\s", text, re.MULTILINE):
        raise ForeignFileError(f"{path}: is a configuration: give the topology file, and this one by --conf")
    kinds = ", ".join(f"{reader.what} ({kind})" for kind, reader in READERS.items())
    raise ForeignFileError(f"{path}: is none of {kinds} by its content: give one, or name its kind by --from")
