"""What can be said of a simulation beside its fabric and its workload, by the names that scripts and sweeps use."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from msgspec import Meta, Struct

from genie.config.limits import QUEUE_PAIRS_MAX
from simtwin.fabric.schema import ControlName

Seed = Annotated[int, Meta(ge=0, le=2**62)]


class SimulateOptions(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """As the options of `genie simulate`, with its defaults."""

    level: str = "packet"
    sharing: Literal["max-min", "equal"] = "max-min"  # at level flow
    seed: Seed = 1  # of the first iteration; each has its own
    iterations: Annotated[int, Meta(ge=1, le=10**6)] = 1
    threads: Annotated[int, Meta(ge=1, le=1024)] = 1
    congestion: ControlName | None = None  # with its defaults; absent: the fabric's
    wire: Literal["nccl", "plain"] = "nccl"
    algorithms: dict[str, str] = {}  # operation -> algorithm
    channels: Annotated[int, Meta(ge=1, le=64)] | None = None
    credit: bool = False
    queue_pairs: Annotated[int, Meta(ge=1, le=QUEUE_PAIRS_MAX)] | None = None
    split: bool | None = None
    ranks_per_node: Annotated[int, Meta(ge=1)] | None = None
    slice_delay: str | None = None
    slots: Literal["streams", "astra"] | None = None
    compute: str | None = None

    # As `simtwin.play.wire.Options` calls them.
    @property
    def algorithm(self) -> tuple[str, ...]:
        return tuple(f"{operation}={name}" for operation, name in self.algorithms.items())


# Options of the command line that scripts and sweeps call otherwise.
RENAMED = {"algorithm": "algorithms"}


def in_keywords(text: str) -> str:
    """An error's words for the command line as those for a script: `--slice-delay` is slice_delay."""

    def keyword(option: re.Match[str]) -> str:
        name = option[1].replace("-", "_")
        return RENAMED.get(name, name)

    return re.sub(r"--([a-z][a-z-]*)", keyword, text)
