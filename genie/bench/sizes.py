"""Sizes as nccl-tests and perftest take them: bytes, or with K, M or G for powers of 1024."""

from __future__ import annotations

import re

UNITS_BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
SIZE_MAX = "64G"

_SIZE = re.compile(r"([0-9]{1,15})([KMG]?)(?:i?B)?", re.IGNORECASE)


def parse_size(text: str, maximum: str = SIZE_MAX) -> int:
    """Bytes from "8", "64K", "4M" or "1GiB". Raises ValueError that names the allowed values."""
    size_bytes = _bytes_of(text)
    if not 1 <= size_bytes <= _bytes_of(maximum):
        raise ValueError(f"give bytes, or a number with K, M or G, from 1 to {maximum}")
    return size_bytes


def _bytes_of(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    return int(match[1]) * UNITS_BYTES[match[2].upper()] if match else 0
