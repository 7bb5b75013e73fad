"""Writing a fabric as readable TOML text."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from msgspec import Struct, structs

from genie.config.units import Duration, Rate, Size, format_duration, format_rate, format_size
from simtwin.fabric.schema import Fabric

_COMMENTS = {
    "topology": "hosts, switches and how they are joined",
    "link": "host to switch, and the default of every link",
    "downlink": "switch to host",
    "transport": "RoCE reliable connections; absent keys have the transport's defaults",
    "frame": "bytes that the link layer adds to each IP packet",
    "host": "latencies, as genie calibrate measures them",
    "nic": "costs of hosts' NICs beside their ports' rates",
    "server": "scale-up domains",
    "switch": "output-queued",
    "ecn": "marking thresholds of switches",
    "pfc": "lossless priorities",
    "priority": "priorities of packets",
    "congestion": "congestion control of the senders",
    "load_balancing": "among equally short paths",
    "routing": "shortest paths",
    "path": "pinned, whatever load balancing and faults do",
    "fault": "faults in the twin",
    "addresses": "of switches and hosts, as traceroute shows them",
}


def to_toml(fabric: Fabric) -> str:
    """Return the file's text. `simtwin.fabric.reading.parse_fabric` reads the same fabric back."""
    lines = [f"name = {_value(fabric.name)}"]
    for section, comment in _COMMENTS.items():
        table = getattr(fabric, section)
        if isinstance(table, dict):
            if table:
                lines += ["", f"[{section}]  # {comment}"]
                lines += [f"{_string(name)} = {_value(tuple(values))}" for name, values in table.items()]
        elif isinstance(table, list):
            for number, item in enumerate(table):
                lines += ["", *_table(section, item, "" if number else f"  # {comment}", "[[]]")]
        elif table is not None:
            lines += ["", *_table(section, table, f"  # {comment}")]
    return "\n".join(lines) + "\n"


def _table(header: str, table: Struct, comment: str = "", brackets: str = "[]") -> Iterator[str]:
    half = len(brackets) // 2
    yield f"{brackets[:half]}{header}{brackets[half:]}{comment}"
    if table.__struct_config__.tag_field:
        yield f"{table.__struct_config__.tag_field} = {_value(table.__struct_config__.tag)}"
    below: list[str] = []
    # Entries of a list show only keys that differ from the defaults: hosts, switches and cables are many.
    defaults = _defaults(type(table)) if brackets == "[[]]" else {}
    for key in table.__struct_fields__:
        value = getattr(table, key)
        if key in defaults and value == defaults[key]:
            continue
        if isinstance(value, list):
            for item in value:
                below += ["", *_table(f"{header}.{key}", item, brackets="[[]]")]
        elif isinstance(value, Struct):
            below += ["", *_table(f"{header}.{key}", value)]
        elif value is not None:
            yield f"{key} = {_value(value)}"
    yield from below


@cache
def _defaults(table: type[Struct]) -> dict[str, object]:
    return {field.name: field.default for field in structs.fields(table)}


def _value(value: object) -> str:
    if isinstance(value, Rate):
        return f'"{format_rate(value)}"'
    if isinstance(value, Duration):
        return f'"{format_duration(value)}"'
    if isinstance(value, Size):
        return f'"{format_size(value)}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, int | float):
        return str(value)
    return _string(str(value))


def _string(text: str) -> str:
    """Return a TOML basic string with the characters escaped that it may not hold (TOML 1.0, "String")."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08X}" for c in escaped) + '"'
