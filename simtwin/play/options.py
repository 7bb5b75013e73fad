"""Options of a simulation besides its fabric and its workload, under the names of scripts and sweeps."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from genie.config.limits import QUEUE_PAIRS_MAX, SPRAY_MAX
from simtwin.fabric.schema import ControlName
from simtwin.levels.names import SKIP

Seed = Annotated[int, Meta(ge=0, le=2**62)]


class SimulateOptions(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The options of `genie simulate`, with its defaults."""

    level: str = SKIP
    sharing: Literal["max-min", "equal"] = "max-min"  # at level flow
    seed: Seed = 1  # of the first iteration; each iteration has its own
    iterations: Annotated[int, Meta(ge=1, le=10**6)] = 1
    threads: Annotated[int, Meta(ge=1, le=1024)] = 1
    congestion: ControlName | None = None  # with its default parameters; absent: the fabric's
    wire: Literal["nccl", "plain"] = "nccl"
    algorithms: dict[str, str] = {}  # operation -> algorithm
    channels: Annotated[int, Meta(ge=1, le=64)] | None = None
    credit: bool = False
    queue_pairs: Annotated[int, Meta(ge=1, le=QUEUE_PAIRS_MAX)] | None = None
    split: bool | None = None
    spray: Annotated[int, Meta(ge=1, le=SPRAY_MAX)] | None = None
    ranks_per_node: Annotated[int, Meta(ge=1)] | None = None
    slice_delay: str | None = None
    gpu: str | None = None  # its costs are played; absent: that of the fabric
    nccl: str | None = None  # version
    slots: Literal["streams", "astra"] | None = None
    compute: str | None = None

    # As in `simtwin.play.wire.Options`.
    @property
    def algorithm(self) -> tuple[str, ...]:
        return tuple(f"{operation}={name}" for operation, name in self.algorithms.items())
