"""Memory for RDMA devices: page-aligned, in huge pages where there are any, and a word when there are none."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

import pytest

from genie.live.verbs.device import HUGE_PAGE_BYTES, DeviceError, Memory

pytestmark = pytest.mark.live


def free_huge_pages() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("HugePages_Free:"):
            return int(line.split()[1])
    return 0


@pytest.mark.parametrize("size_bytes", [1, mmap.PAGESIZE, mmap.PAGESIZE + 1, 1 << 20])
def test_memory_is_whole_pages_at_its_address(size_bytes: int) -> None:
    memory = Memory(size_bytes, huge_pages=False)
    assert memory.address % mmap.PAGESIZE == 0
    assert memory.size_bytes % mmap.PAGESIZE == 0
    assert size_bytes <= memory.size_bytes < size_bytes + mmap.PAGESIZE
    memory.pages[size_bytes - 1] = 42
    assert ctypes.string_at(memory.address + size_bytes - 1, 1) == b"\x2a"


def test_huge_pages_that_are_not_there_are_said() -> None:
    pages = free_huge_pages() + 1
    with pytest.raises(DeviceError, match=rf"no {pages} huge pages of 2 MiB: .*sysctl vm.nr_hugepages"):
        Memory(pages * HUGE_PAGE_BYTES, huge_pages=True)
