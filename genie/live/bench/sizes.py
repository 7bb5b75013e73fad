"""Sizes as nccl-tests and perftest take them: bytes, or with K, M or G for powers of 1024."""

from __future__ import annotations

import re

UNITS_BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
SIZE_MAX_BYTES = 1 << 36

_SIZE = re.compile(r"([0-9]{1,15})([KMG]?)(?:i?B)?", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Bytes from "8", "64K", "4M", "1GiB". Raises ValueError that says what is allowed."""
    match = _SIZE.fullmatch(text.strip())
    size_bytes = int(match[1]) * UNITS_BYTES[match[2].upper()] if match else 0
    if not 1 <= size_bytes <= SIZE_MAX_BYTES:
        raise ValueError("give bytes, or a number with K, M or G, from 1 to 64G")
    return size_bytes
