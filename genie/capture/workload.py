"""Recordings as a workload of classes: one template for each place, groups and peers by rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from genie.capture.places import Places, class_of_ranks, places_of
from genie.capture.script import Recording
from genie.compute.operators import Kind as OperatorKind
from genie.compute.operators import Operator, Price
from genie.errors import UsageError
from genie.workload.build import NodeColumns, RankBuilder
from genie.workload.classes import Classes
from genie.workload.graph import Group, Kind, Op, RankGraph, Workload

MESSAGES = ("send", "recv")
COMM_STREAM = 1000  # of the first family; that of the script's streams is their number
DTYPES = {"bfloat16": "bf16", "float16": "bf16", "float8_e4m3fn": "fp8", "float8_e5m2": "fp8"}


def capture(
    recordings: Sequence[Recording], checks: Sequence[Recording], world: int, name: str, price: Price
) -> Workload:
    """Return the workload.

    checks: recordings of ranks for which others stand. Raises UsageError where one differs.
    """
    places = places_of(recordings[0], world)
    _check_groups((*recordings, *checks), places)
    class_of = _classes(recordings, places)
    for each in (*recordings, *checks):
        _compare(recordings[int(class_of[each.rank])], each, places)
    columns: dict[tuple[int, int], int] = {}  # (family, position of the peer) -> column
    templates = [_template(each, places, columns, price) for each in recordings]
    used = sorted(set(class_of.tolist()))
    lowest_first = sorted(used, key=lambda number: int(np.flatnonzero(class_of == number)[0]))
    number_of = {number: at for at, number in enumerate(lowest_first)}
    groups: list[Group] = []
    first = []
    for family in places.families:
        first.append(len(groups))
        single = len(family.groups) == 1
        groups += [Group(family.name if single else f"{family.name}{at}", own) for at, own in enumerate(family.groups)]
    group_of = np.where(places.group_of < 0, -1, places.group_of + np.array(first, np.int32)).astype(np.int32)
    classes = Classes(
        tuple(templates[number] for number in lowest_first),
        np.array([number_of[int(number)] for number in class_of], np.int32),
        group_of,
        _peers(places, columns),
    )
    return Workload(name, world, groups, classes.view())


def _classes(recordings: Sequence[Recording], places: Places) -> NDArray[np.int32]:
    """Return for each rank the index of the recording that stands for it."""
    by_place = {
        places.of_names(each)[node["group"]] for each in recordings for node in each.nodes if node.get("op") in MESSAGES
    }
    return class_of_ranks(places, sorted(by_place), [each.rank for each in recordings])


def standing_for(recordings: Sequence[Recording], rank: int, world: int) -> Recording:
    """Return the recording that stands for a rank."""
    return recordings[int(_classes(recordings, places_of(recordings[0], world))[rank])]


def _peers(places: Places, columns: dict[tuple[int, int], int]) -> NDArray[np.int32]:
    """Return (ranks, columns): the member of each rank's group at a position."""
    out = np.full((len(places.group_of), len(columns)), -1, np.int32)
    for (family, position), column in columns.items():
        members = places.families[family].groups
        for rank, number in enumerate(places.group_of[:, family].tolist()):
            if number >= 0:
                out[rank, column] = members[number][position]
    return out


def _check_groups(recordings: Sequence[Recording], places: Places) -> None:
    """Raises UsageError for ranks that made other groups, or use one that no call made."""
    made = [group["ranks"] for group in recordings[0].groups]
    for each in recordings:
        if [group["ranks"] for group in each.groups] != made:
            raise UsageError(
                f"ranks {recordings[0].rank} and {each.rank} make different groups: their jobs are not one"
            )
        names = places.of_names(each)
        for node in each.nodes:
            if "op" in node and node["group"] not in names:
                raise UsageError(f"rank {each.rank}: group {node['group']!r} was made by no call that was recorded")


def _facts(node: dict[str, Any], names: dict[str, int], places: Places) -> tuple[object, ...]:
    """Return what equal ranks have in common: sizes of operators may differ, as those of uneven shards do."""
    if "op" not in node:
        return (node["name"], node["stream"], tuple(node["after"]))
    family = names[node["group"]]
    place = places.families[family].position(node["peer"])[1] if "peer" in node else -1
    splits = tuple(map(tuple, node.get("splits", ())))
    return (node["op"], family, place, node["size"], node.get("root", 0), splits, tuple(node["after"]))


def _compare(first: Recording, other: Recording, places: Places) -> None:
    """Raises UsageError where two ranks that should do the same do not."""
    if first is other:
        return
    names = places.of_names(first), places.of_names(other)
    where, advice = f"ranks {first.rank} and {other.rank} differ", "list one of each kind in --ranks"
    for at, (one, two) in enumerate(zip(first.nodes, other.nodes, strict=False)):
        if _facts(one, names[0], places) != _facts(two, names[1], places):
            raise UsageError(f"{where}: node {at} is {_words(one)} and {_words(two)}: {advice}")
    if len(first.nodes) != len(other.nodes):
        raise UsageError(f"{where}: they have {len(first.nodes)} and {len(other.nodes)} nodes: {advice}")


def other_sizes(first: Recording, other: Recording) -> tuple[int, float]:
    """Return the number of operators whose sizes differ, and the share by which the other rank moves less memory."""
    pairs = [(a, b) for a, b in zip(first.nodes, other.nodes, strict=False) if "op" not in a]
    count = sum((a["flops"], a["bytes"]) != (b["flops"], b["bytes"]) for a, b in pairs)
    whole = sum(a["bytes"] for a, _ in pairs)
    return count, 1 - sum(b["bytes"] for _, b in pairs) / max(whole, 1)


def _words(node: dict[str, Any]) -> str:
    return f"{node['op']} of {node['size']} B" if "op" in node else f"{node['name']} of {node['bytes']} B"


def _template(recording: Recording, places: Places, columns: dict[tuple[int, int], int], price: Price) -> RankGraph:
    builder = RankBuilder(recording.rank)
    names = places.of_names(recording)
    after = _reduced([node["after"] for node in recording.nodes])
    for number, node in enumerate(recording.nodes):
        if "op" not in node:
            timed = price(operator_of(node))
            builder.add_compute(
                number, node["name"], Kind.COMP, after[number], duration_ns=timed.duration_ns, origin=timed.origin,
                num_ops=node["flops"], tensor_bytes=node["bytes"], stream=node["stream"],
            )  # fmt: skip
            continue
        family = names[node["group"]]
        facts: NodeColumns = {"size_bytes": node["size"], "stream": COMM_STREAM + family}
        if node["op"] in MESSAGES:
            _, position = places.families[family].position(node["peer"])
            facts["peer"] = columns.setdefault((family, position), len(columns))
            facts["tag"] = node.get("tag", 0)
            kind = Kind.SEND if node["op"] == "send" else Kind.RECV
        else:
            kind = Kind.COLL
            facts |= {"op": Op[node["op"].upper()], "group": family, "root": node.get("root", 0)}
            if "splits" in node:
                facts["splits"] = (node["splits"][0], node["splits"][1])
        builder.add(number, f"{node['op']} {places.families[family].name}", kind, after[number], **facts)
    graph, dangling = builder.finish()
    if dangling:
        raise UsageError(f"rank {recording.rank}: {dangling} dependencies on nodes that were not recorded")
    return graph


def operator_of(node: dict[str, Any]) -> Operator:
    """Return a compute node as an operator; without a shape its memory traffic gives its time."""
    if "kind" not in node:
        return Operator(node["name"], "memory", (), node["flops"], node["bytes"])
    dtype = DTYPES.get(node["dtype"], "bf16")
    kind = cast(OperatorKind, node["kind"])
    return Operator(node["name"], kind, tuple(node["shape"]), node["flops"], node["bytes"], dtype)


def float32_products(recordings: Sequence[Recording]) -> int:
    """Return the number of matrix products in FP32, which are timed as in BF16."""
    kinds = Counter(node.get("dtype") for each in recordings for node in each.nodes if "kind" in node)
    return kinds["float32"] + kinds["float64"]


def _reduced(after: list[list[int]]) -> list[list[int]]:
    """Return the dependencies without those that follow from others."""
    ancestors: list[int] = []  # of each node, as bits
    out = []
    for own in after:
        covered = 0
        for dependency in own:
            covered |= ancestors[dependency]
        out.append([dependency for dependency in own if not covered >> dependency & 1])
        bits = covered
        for dependency in own:
            bits |= 1 << dependency
        ancestors.append(bits)
    return out
