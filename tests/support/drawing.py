"""Tests of many drawn cases: `make test` draws a part of them, `make test-extended` all."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

Test = TypeVar("Test", bound=Callable[..., object])
ALL = os.environ.get("GENIE_DRAWS") == "all"


def drawn(every: int, part: int) -> Callable[[Test], Test]:
    """Decorator of a test with `every` cases, of which `make test` draws `part`. The same cases each time."""
    chosen = settings(
        max_examples=every if ALL else part,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )

    def decorate(test: Test) -> Test:
        return pytest.mark.drawn(chosen(test))

    return decorate
