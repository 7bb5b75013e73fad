"""Checks of a congestion control's parameters: values that would divide by zero, never end or mean nothing."""

from __future__ import annotations

from typing import Any

import genie_core
import numpy as np

from genie.config.congestion import Control, Dctcp, Hpcc, Swift, Timely, Window, set_control
from genie.config.units import SIZE_MAX_BYTES, Duration, Rate, Size, format_duration, format_rate
from simtwin.fabric.network import Network
from simtwin.fabric.schema import Fabric
from simtwin.fabric.transport import line_rate_bps
from simtwin.fabric.values import LEAST_RATE, SHORTEST_PS, SLOWEST_BPS

Problem = tuple[tuple[str, str], str]  # key of the fabric file, and the problem with its remedy

BASE_MAX_PS = 10**12
MAY_BE_ZERO = ("cnp_interval", "low")  # all other durations are divisors or intervals


def control_problem(fabric: Fabric, network: Network) -> Problem | None:
    """Return the first problem of a fabric's congestion control, or None."""
    control = fabric.control
    if isinstance(control, Hpcc) and (without := _ports_without_rate(network)):
        key = ("congestion", "kind") if fabric.congestion else ("transport", "congestion")
        return key, f" = hpcc asks how much of their rate ports use, and {without[0]} has none: give it a rate"
    found = _value_problem(control) or _order_problem(control) or _rate_problem(control, line_rate_bps(network))
    return found and (("congestion", found[0]), found[1])


def _ports_without_rate(network: Network) -> list[str]:
    of_switch = network.src_node >= network.hosts
    return [network.link_names[link] for link in np.flatnonzero(of_switch & (network.rate_bps == 0)).tolist()]


def _value_problem(control: Control) -> tuple[str, str] | None:
    for field in control.__struct_fields__:
        value = getattr(control, field)
        if isinstance(value, Duration) and value < SHORTEST_PS and field not in MAY_BE_ZERO:
            return field, f" = {format_duration(value)}: give 1ns or more"
        if isinstance(value, Rate) and value == 0 and not isinstance(control, Window):
            return field, ' = "unlimited": give a rate'
        if field in ("rate", "minimum_rate") and 0 < (value or 0) < SLOWEST_BPS:
            return field, f" = {format_rate(value)}: give {LEAST_RATE} or more"
        if isinstance(value, Size) and value < 0 and not isinstance(control, Window):
            return field, ' = "unlimited": give a size'
    if control.base_round_trip is not None and control.base_round_trip > BASE_MAX_PS:
        return "base_round_trip", f" = {format_duration(control.base_round_trip)}: give 1s or less"
    return None


def _order_problem(control: Control) -> tuple[str, str] | None:
    """Check the order of two parameters; either may be the core's default."""
    config = genie_core.QueuePairConfig()
    set_control(config, control, 0, 0)
    used: Any = config.congestion
    if isinstance(control, Timely) and used.timely.low_ps > used.timely.high_ps:
        low, high = format_duration(used.timely.low_ps), format_duration(used.timely.high_ps)
        return "high" if control.low is None else "low", f": low = {low} is above high = {high}: give less than high"
    if isinstance(control, Swift) and used.swift.flow_minimum >= used.swift.flow_maximum:
        least, most = used.swift.flow_minimum, used.swift.flow_maximum
        key = "flow_maximum" if control.flow_minimum is None else "flow_minimum"
        return key, f": flow_minimum = {least} is not below flow_maximum = {most}: give less"
    if isinstance(control, Dctcp) and (control.initial or 0) > (control.maximum or SIZE_MAX_BYTES):
        return "initial", f" = {control.initial} B is above maximum = {control.maximum} B: give less"
    return None


def _rate_problem(control: Control, line_bps: int) -> tuple[str, str] | None:
    least = getattr(control, "minimum_rate", None)
    if least is None or not 0 < line_bps < least:
        return None
    return "minimum_rate", f" = {format_rate(least)} is above the hosts' ports' {format_rate(line_bps)}: give less"
