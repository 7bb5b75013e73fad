"""NCCL's environment variables as defaults, `--verbs KEY=VALUE` above them, and what both may say."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import msgspec

from genie.live.settings import Completion, RunSettings, VerbsSettings
from genie.live.verbs.hca import parse_hca

QUEUE_PAIRS_MAX = 128


@dataclass(frozen=True)
class Variable:
    """A whole number that NCCL reads from the environment."""

    name: str
    key: str  # in VerbsSettings or RunSettings
    lowest: int
    highest: int


VARIABLES = (
    Variable("NCCL_IB_GID_INDEX", "gid_index", -1, 65535),
    Variable("NCCL_IB_ROCE_VERSION_NUM", "roce_version", 1, 2),
    Variable("NCCL_IB_TC", "traffic_class", 0, 255),
    Variable("NCCL_IB_SL", "service_level", 0, 15),
    Variable("NCCL_IB_TIMEOUT", "timeout", 0, 31),
    Variable("NCCL_IB_RETRY_CNT", "retry_count", 0, 7),
)
CONNECTION_VARIABLES = (
    Variable("NCCL_IB_QPS_PER_CONNECTION", "queue_pairs", 1, QUEUE_PAIRS_MAX),
    Variable("NCCL_IB_SPLIT_DATA_ON_QPS", "split", 0, 1),
)
# Keys without a variable: of options and files only.
LIMITS = {
    **{variable.key: (variable.lowest, variable.highest) for variable in VARIABLES},
    "rnr_retry": (0, 7),
    "min_rnr_timer": (0, 31),
    "signal_every": (1, 65535),
    "send_depth": (1, 65535),
    "receive_depth": (1, 65535),
}
SWITCHES = {"on": True, "off": False}
# --verbs may say all but what is an option of its own.
KEYS = tuple(field for field in VerbsSettings.__struct_fields__ if field != "traffic_class")


def given_settings(items: Sequence[str]) -> dict[str, Any]:
    """What --verbs says, each KEY=VALUE, for `verbs_settings`. Raises ValueError that names key and what is allowed."""
    given: dict[str, Any] = {}
    for item in items:
        key, equals, text = item.partition("=")
        if key == "traffic_class":
            raise ValueError(f"--verbs {item}: give --traffic-class instead")
        if not equals or key not in KEYS:
            raise ValueError(f"--verbs {item}: must be KEY=VALUE, with one of the keys {', '.join(KEYS)}")
        if key in given:
            raise ValueError(f"--verbs {item}: {key} is given twice: leave one out")
        given[key] = _value(item, key, text.strip())
    return given


def _value(item: str, key: str, text: str) -> Any:
    if key == "hca":
        parse_hca(text, "--verbs hca")
        return text
    allowed: Mapping[str, Any] = SWITCHES if key not in LIMITS else {}
    if key == "completion":
        allowed = {name: name for name in get_args(Completion)}
    if allowed:
        if text not in allowed:
            names = list(allowed)
            raise ValueError(f"--verbs {item}: {key} must be {', '.join(names[:-1])} or {names[-1]}")
        return allowed[text]
    lowest, highest = LIMITS[key]
    number = _number(text)
    if number is None or not lowest <= number <= highest:
        raise ValueError(f"--verbs {item}: {key} must be a number in {lowest}..{highest}")
    return number


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def verbs_settings(environment: Mapping[str, str] = os.environ, **given: Any) -> VerbsSettings:
    """Settings from `given`, where not None; else from NCCL's variables; else NCCL's defaults. Raises ValueError."""
    values: dict[str, Any] = _read(VARIABLES, environment)
    if environment.get("NCCL_IB_HCA"):
        values["hca"] = environment["NCCL_IB_HCA"]
    values.update((key, value) for key, value in given.items() if value is not None)
    settings = msgspec.convert(values, VerbsSettings)
    parse_hca(settings.hca)
    for key, (lowest, highest) in LIMITS.items():
        value = getattr(settings, key)
        if not lowest <= value <= highest:
            raise ValueError(f"{key} = {value}: must be in {lowest}..{highest}")
    return settings


def connection_settings(
    environment: Mapping[str, str] = os.environ, queue_pairs: int | None = None, split: bool | None = None
) -> tuple[int, bool]:
    """Queue pairs between two ranks, and whether each message goes over all of them. Raises ValueError."""
    values = _read(CONNECTION_VARIABLES, environment)
    count = values.get("queue_pairs", 1) if queue_pairs is None else queue_pairs
    if not 1 <= count <= QUEUE_PAIRS_MAX:
        raise ValueError(f"queue pairs per connection = {count}: must be in 1..{QUEUE_PAIRS_MAX}")
    return count, bool(values.get("split", 0)) if split is None else split


def _read(variables: tuple[Variable, ...], environment: Mapping[str, str]) -> dict[str, Any]:
    values = {}
    for variable in variables:
        text = environment.get(variable.name, "").strip()
        if not text:
            continue
        number = _number(text)
        if number is None or not variable.lowest <= number <= variable.highest:
            raise ValueError(
                f'{variable.name}="{text}": must be a number in {variable.lowest}..{variable.highest}; unset it, or '
                "correct it"
            )
        values[variable.key] = number
    return values


def refuse_unsupported(settings: RunSettings) -> None:
    """Raises ValueError that names what the settings ask of a real NIC that only a soft NIC can do."""
    verbs = {rank for rank in range(settings.ranks) if settings.transport_of(rank) == "verbs"}
    if not verbs:
        return
    if settings.dilation != 1:
        raise ValueError(f"--dilation {settings.dilation}: a real NIC keeps real time; --transport softroce can dilate")
    if settings.rate_bps:
        raise ValueError(
            f"a line rate of {settings.rate_bps} b/s: --transport verbs sends as fast as its NIC does; leave --rate out"
        )
    for table in ("rate", "loss", "delay"):
        for entry in getattr(settings.faults, table):
            if entry.rank in verbs:
                raise ValueError(
                    f"a fault plan's [[{table}]] for rank {entry.rank}: --transport verbs has no faults; softroce has"
                )
