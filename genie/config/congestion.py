"""Names and parameters of congestion controls as strict structs, the same for both worlds.

Names are those of the papers that `native/congestion/` cites; the algorithms are described there.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from genie.config.units import Duration, Rate, Size

Share = Annotated[float, Meta(gt=0, le=1)]
Positive = Annotated[float, Meta(gt=0, le=1000)]
Count = Annotated[int, Meta(ge=0, le=1_000_000)]
UNLIMITED_BPS = 100 * 10**9  # assumed line rate where ports have none
UNITS = {Rate: "_bps", Duration: "_ps", Size: "_bytes"}


class _Control(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """Common parameters of congestion controls. A field that is None keeps the core's default, given in its comment."""

    cnp_interval: Duration | None = None  # 50us: least time between two notifications (CNPs) of a queue pair
    base_round_trip: Duration | None = None  # longest in the idle fabric, of full packets


class NoControl(_Control, frozen=True, tag="none"):
    """Senders keep to their line rate."""


class Window(_Control, frozen=True, tag="window"):
    """A limit on the bytes in flight, with a rate limiter for each queue pair."""

    window: Size | None = None  # the bandwidth-delay product
    rate: Rate | None = None  # the port's


class Dcqcn(_Control, frozen=True, tag="dcqcn"):
    """DCQCN as in its paper: notifications cut the rate; a timer and a byte counter raise it."""

    minimum_rate: Rate | None = None  # 10Mb/s
    additive: Rate | None = None  # 40Mb/s
    hyper: Rate | None = None  # 400Mb/s
    alpha_timer: Duration | None = None  # 55us
    increase_timer: Duration | None = None  # 55us
    byte_counter: Size | None = None  # 10MB
    fast_recovery: Count | None = None  # 5
    gain_inverse: Annotated[int, Meta(ge=1, le=2**20)] | None = None  # 256


class DcqcnTimer(_Control, frozen=True, tag="dcqcn-timer"):
    """DCQCN as in network cards: the rate is cut at most once in an interval and raised by time alone."""

    minimum_rate: Rate | None = None  # 100Mb/s
    additive: Rate | None = None  # 50Mb/s
    hyper: Rate | None = None  # 100Mb/s
    alpha_interval: Duration | None = None  # 1us
    decrease_interval: Duration | None = None  # 4us
    increase_timer: Duration | None = None  # 900us
    fast_recovery: Count | None = None  # 1
    gain: Share | None = None  # 1/256
    clamp_target: bool | None = None  # false
    window: Size | None = None  # none
    rate_window: bool | None = None  # false: the window shrinks with the rate
    notify_in_acks: bool | None = None  # false: congestion marks are reported in ACKs instead of packets of their own


class Hpcc(_Control, frozen=True, tag="hpcc"):
    """Control by the telemetry of each port on the path, which only the twin's switches send."""

    utilisation: Share | None = None  # 0.95
    stages: Count | None = None  # 0
    additive: Rate | None = None  # 50Mb/s
    minimum_rate: Rate | None = None  # 100Mb/s
    window: bool | None = None  # true


class Timely(_Control, frozen=True, tag="timely"):
    """Control by the gradient of round-trip times."""

    low: Duration | None = None  # 50us
    high: Duration | None = None  # 500us
    minimum_round_trip: Duration | None = None  # 20us
    additive: Rate | None = None  # 10Mb/s
    minimum_rate: Rate | None = None  # 10Mb/s
    segment: Size | None = None  # 16KiB
    weight: Share | None = None  # 0.46
    decrease: Share | None = None  # 0.26
    hyper_after: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None  # 5


class Swift(_Control, frozen=True, tag="swift"):
    """Control by the difference between the delay and a target."""

    base_target: Duration | None = None  # 1.5 base round trips
    flow_range: Duration | None = None  # a base round trip
    flow_minimum: Positive | None = None  # 0.1
    flow_maximum: Positive | None = None  # 100
    additive: Positive | None = None  # 1 packet a round trip
    decrease: Share | None = None  # 0.8
    decrease_maximum: Share | None = None  # 0.5
    minimum_packets: Share | None = None  # 0.01


class Dctcp(_Control, frozen=True, tag="dctcp"):
    """Control by the share of marked packets."""

    gain: Share | None = None  # 1/16
    additive: Positive | None = None  # 1 packet a round trip
    initial: Size | None = None  # the bandwidth-delay product
    maximum: Size | None = None  # eight of them


class Nscc(_Control, frozen=True, tag="nscc"):
    """Control by marks and delay together, after Ultra Ethernet's network signaled congestion control."""

    target: Duration | None = None  # 3/4 of the base round trip
    proportional: Positive | None = None  # 4 packets a round trip
    fair: Positive | None = None  # 0.25 packets a round trip
    decrease: Share | None = None  # 0.8
    decrease_maximum: Share | None = None  # 0.5
    average: Share | None = None  # 1/8
    maximum: Positive | None = None  # 1.5 bandwidth-delay products


Control = NoControl | Window | Dcqcn | DcqcnTimer | Hpcc | Timely | Swift | Dctcp | Nscc
CONTROLS: dict[str, type[Control]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (NoControl, Window, Dcqcn, DcqcnTimer, Hpcc, Timely, Swift, Dctcp, Nscc)
}
OF_CONNECTION = ("cnp_interval", "base_round_trip", "notify_in_acks")


def name_of(control: Control) -> str:
    """The control's name in a fabric file."""
    return str(control.__struct_config__.tag)


def plain(control: Control) -> dict[str, int | float | str | bool]:
    """A control as JSON: its kind and the parameters that are given, in b/s, ps and bytes."""
    given: dict[str, Any] = {field: getattr(control, field) for field in control.__struct_fields__}
    numbers = {
        field: int(value) if isinstance(value, Rate | Duration | Size) else value
        for field, value in given.items()
        if value is not None
    }
    return {"kind": name_of(control), **numbers}


def from_plain(values: dict[str, Any]) -> Control:
    """The inverse of `plain`; an empty object is no control."""
    control: Control = msgspec.convert(values or {"kind": "none"}, Control, dec_hook=lambda unit, value: unit(value))
    return control


def set_control(config: Any, control: Control, line_rate_bps: int, base_round_trip_ps: int, dilation: int = 1) -> None:
    """Copy a control into the native `config` of a queue pair. Dilation stretches times and divides rates.

    A line rate of 0 is unlimited; rates are then relative to UNLIMITED_BPS.
    """
    name = name_of(control)
    congestion = config.congestion
    congestion.control = name
    congestion.line_rate_bps = max((line_rate_bps or UNLIMITED_BPS) // dilation, 1)
    congestion.base_round_trip_ps = base_round_trip_ps * dilation
    parameters: Any = getattr(congestion, name.replace("-", "_"), None)
    for field in control.__struct_fields__:
        value = getattr(control, field)
        if value is not None:
            unit = next((unit for kind, unit in UNITS.items() if isinstance(value, kind)), "")
            owner = congestion if field in OF_CONNECTION else parameters
            setattr(owner, field + unit, int(value) if unit else value)
    if dilation > 1:
        for owner in (congestion, parameters):
            _dilate(owner, dilation)
    if hasattr(parameters, "minimum_rate_bps"):  # the default may be above the ports' rate
        parameters.minimum_rate_bps = min(parameters.minimum_rate_bps, congestion.line_rate_bps)
    config.congestion = congestion


def _dilate(owner: Any, dilation: int) -> None:
    """Dilate all times and rates of a native table, except those that the caller has dilated already."""
    for name in dir(owner):
        value = getattr(owner, name)
        if name in ("line_rate_bps", "base_round_trip_ps"):
            continue
        if name.endswith("_ps"):
            setattr(owner, name, value * dilation)
        elif name.endswith("_bps"):
            setattr(owner, name, max(value // dilation, 1))
