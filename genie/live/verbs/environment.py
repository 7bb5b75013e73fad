"""Settings of the verbs transport: NCCL's environment variables as defaults, overridden by `--verbs KEY=VALUE`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, get_args

import msgspec
from msgspec import inspect

from genie.config.nccl import DEVICE_SETTINGS, HCA
from genie.live.settings import Completion, RunSettings, VerbsSettings
from genie.live.verbs.hca import parse_hca

VARIABLES = {name: key for name, key in DEVICE_SETTINGS.items() if name != HCA}
SWITCHES = {"on": True, "off": False}
# --verbs accepts all settings except those with an option of their own.
KEYS = tuple(field for field in VerbsSettings.__struct_fields__ if field != "traffic_class")


def _limits() -> dict[str, tuple[Any, Any]]:
    """Return minimum and maximum of each integer setting."""
    schema = inspect.type_info(VerbsSettings)
    assert isinstance(schema, inspect.StructType)
    whole = ((field.name, field.type) for field in schema.fields if isinstance(field.type, inspect.IntType))
    return {name: (kind.ge, kind.le) for name, kind in whole}


LIMITS = _limits()


def given_settings(items: Sequence[str]) -> dict[str, Any]:
    """Parse --verbs arguments, each KEY=VALUE, for `verbs_settings`.

    Raise ValueError that names the key and the allowed values.
    """
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
    return _number(key, text, f"--verbs {item}: {key}")


def _number(key: str, text: str, what: str, remedy: str = "") -> int:
    lowest, highest = LIMITS[key]
    with suppress(ValueError):
        if lowest <= (number := int(text)) <= highest:
            return number
    raise ValueError(f"{what} must be a number in {lowest}..{highest}{remedy}")


def verbs_settings(environment: Mapping[str, str] = os.environ, **given: Any) -> VerbsSettings:
    """Return settings from `given` if not None, else from NCCL's variables, else NCCL's defaults. Raise ValueError."""
    values: dict[str, Any] = _read(VARIABLES, environment)
    if environment.get(HCA):
        values["hca"] = environment[HCA]
    values.update((key, value) for key, value in given.items() if value is not None)
    settings = msgspec.convert(values, VerbsSettings)
    parse_hca(settings.hca)
    return settings


def _read(variables: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, Any]:
    given = {name: environment.get(name, "").strip() for name in variables}
    return {
        variables[name]: _number(variables[name], text, f'{name}="{text}":', "; unset it, or correct it")
        for name, text in given.items()
        if text
    }


def refuse_unsupported(settings: RunSettings) -> None:
    """Raise ValueError that names a setting for a real NIC that only a soft NIC supports."""
    if "verbs" not in settings.kinds:
        return
    if settings.dilation != 1:
        raise ValueError(f"--dilation {settings.dilation}: a real NIC keeps real time; --transport softroce can dilate")
    if settings.rate_bps:
        raise ValueError(
            f"a line rate of {settings.rate_bps} b/s: --transport verbs sends as fast as its NIC does; leave --rate out"
        )
    for table in ("rate", "loss", "delay"):
        for entry in getattr(settings.faults, table):
            if settings.transport_of(entry.rank) == "verbs":
                raise ValueError(
                    f"a fault plan's [[{table}]] for rank {entry.rank}: --transport verbs has no faults; softroce has"
                )
