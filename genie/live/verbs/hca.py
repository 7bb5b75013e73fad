"""The choice of devices, in the grammar of NCCL_IB_HCA: `[^][=]hca[:port[:rail[:plane]]],...`

`^` excludes the listed devices instead of choosing them. Without `=` a name matches all devices that begin with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

PORT_MAX = 255
RAIL_MAX = PLANE_MAX = 65535
_NAME = re.compile(r"[A-Za-z0-9_.\-]+")


class Port(NamedTuple):
    """A port of a device; ports count from 1."""

    device: str
    number: int


@dataclass(frozen=True)
class Hca:
    """One entry. None: not given."""

    device: str
    port: int | None = None
    rail: int | None = None
    plane: int | None = None

    def matches(self, port: Port, *, exact: bool) -> bool:
        same = port.device == self.device if exact else port.device.startswith(self.device)
        return same and self.port in (None, port.number)


@dataclass(frozen=True)
class HcaFilter:
    """A list of entries; an empty one takes every port."""

    entries: tuple[Hca, ...] = ()
    exclude: bool = False
    exact: bool = False

    def entry_of(self, port: Port) -> Hca | None:
        """Return the first entry that matches a port; None when none does."""
        return next((entry for entry in self.entries if entry.matches(port, exact=self.exact)), None)

    def takes(self, port: Port) -> bool:
        return not self.entries or (self.entry_of(port) is None) == self.exclude

    def select(self, ports: Sequence[Port]) -> list[Port]:
        """Return the ports taken, in the order of their rails; within a rail, and without rails, in the given order."""
        taken = [port for port in ports if self.takes(port)]
        if self.exclude:
            return taken
        return sorted(taken, key=self._rail)

    def _rail(self, port: Port) -> int:
        entry = self.entry_of(port)
        return RAIL_MAX + 1 if entry is None or entry.rail is None else entry.rail


def parse_hca(text: str, name: str = "NCCL_IB_HCA") -> HcaFilter:
    """Parse a filter; errors call it `name`. Raise ValueError that names what is wrong."""
    rest = text.strip()
    exclude, rest = rest.startswith("^"), rest.removeprefix("^")
    exact, rest = rest.startswith("="), rest.removeprefix("=")
    if not rest:
        if exclude or exact:
            raise ValueError(f'{name}="{text}": no device after {text.strip()}: give for example ^mlx5_2')
        return HcaFilter()
    return HcaFilter(tuple(_entry(part, text, name) for part in rest.split(",")), exclude, exact)


def _entry(part: str, text: str, name: str) -> Hca:
    fields = [field.strip() for field in part.split(":")]
    where = f'{name}="{text}": "{part}"'
    if not fields[0]:
        raise ValueError(f"{where} names no device: give hca[:port[:rail[:plane]]], parted by commas")
    if _NAME.fullmatch(fields[0]) is None:
        raise ValueError(f"{where} is not a device: ^ and = come once, before the first, then names such as mlx5_0")
    if len(fields) > 4:
        raise ValueError(f"{where} has {len(fields)} fields: give hca[:port[:rail[:plane]]]")
    numbers: list[int | None] = []
    limits = (("port", 1, PORT_MAX), ("rail", 0, RAIL_MAX), ("plane", 0, PLANE_MAX))
    for field, (what, lowest, highest) in zip(fields[1:], limits, strict=False):
        if not field.isascii() or not field.isdecimal() or not lowest <= int(field) <= highest:
            raise ValueError(f'{where}: {what} = "{field}": must be a number in {lowest}..{highest}')
        numbers.append(int(field))
    return Hca(fields[0], *numbers)
