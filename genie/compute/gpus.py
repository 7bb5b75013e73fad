"""Accelerators by name, from gpus.toml."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources

import msgspec
from msgspec import Struct

from genie.errors import UsageError


class Gpu(Struct, frozen=True, forbid_unknown_fields=True):
    """An accelerator. Rates are dense peaks; `link_gb_per_s` is one direction of the scale-up link."""

    label: str
    bf16_tflops: float
    fp8_tflops: float  # 0: it has none
    memory_gb: float
    memory_gb_per_s: float
    link_gb_per_s: float
    gemm_efficiency: float  # share of the peak that long matrix products reach
    source: str


@cache
def gpus() -> dict[str, Gpu]:
    """Return all accelerators by name."""
    text = (resources.files("genie.compute") / "gpus.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, Gpu])


def find_gpu(name: str) -> Gpu:
    """Return an accelerator. Raises UsageError."""
    found = gpus().get(name.lower())
    if found is None:
        raise UsageError(f"--gpu {name}: is not known: give one of {', '.join(gpus())}")
    return found
