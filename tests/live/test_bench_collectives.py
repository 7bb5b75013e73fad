"""Collectives of a bench: sizes and factors as in nccl-tests, and the chain of iterations."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from genie.bench.asked import Asked, Blocking
from genie.bench.collectives import ELEMENT_BYTES, OPERATIONS, Operation, chain
from genie.bench.sizes import parse_size
from genie.collectives import Action, block_sizes, choose, lower
from genie.workload.graph import Kind, Op

pytestmark = pytest.mark.live

RANKS = 4
ASKED = Asked(RANKS, 1024, 5000, None, 1024, 0, 1, 1)


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("all_reduce", Fraction(2 * 7, 8)),
        ("all_gather", Fraction(7, 8)),
        ("reduce_scatter", Fraction(7, 8)),
        ("all_to_all", Fraction(7, 8)),
        ("gather", Fraction(7, 8)),
        ("scatter", Fraction(7, 8)),
        ("broadcast", Fraction(1)),
        ("reduce", Fraction(1)),
        ("sendrecv", Fraction(1)),
    ],
)
def test_bus_bandwidth_factors_of_eight_ranks(name: str, factor: Fraction) -> None:
    assert OPERATIONS[name].bus_factor(8) == factor


# Size asked for -> size played, element count, size of the graph's node, for 4 ranks.
SIZES = {
    ("all_reduce", 1000): (1000, 250, 1000),
    ("all_reduce", 1001): (1000, 250, 1000),
    ("broadcast", 8): (8, 2, 8),
    ("sendrecv", 8): (8, 2, 8),
    ("all_gather", 1024): (1024, 64, 256),  # the node has one rank's input
    ("gather", 1000): (960, 60, 240),  # shares are multiples of 16 bytes
    ("reduce_scatter", 1000): (960, 60, 960),
    ("all_to_all", 1024): (1024, 64, 1024),
    ("all_to_all", 63): (0, 0, 0),
}


@pytest.mark.parametrize(("name", "size_bytes"), SIZES)
def test_sizes_are_those_of_nccl_tests(name: str, size_bytes: int) -> None:
    operation = OPERATIONS[name]
    total = operation.total_bytes(size_bytes, RANKS)
    count = operation.share_bytes(size_bytes, RANKS) // operation.element_bytes
    assert (total, count, operation.node_bytes(size_bytes, RANKS)) == SIZES[name, size_bytes]


def busiest_bytes(operation: Operation, size_bytes: int) -> int:
    """The most that any rank sends or receives, by the template of the algorithm for large sizes."""
    op, root = operation.name, max(operation.root, 0)
    most = 0
    for position in range(RANKS):
        algorithm = choose(op, RANKS, operation.node_bytes(size_bytes, RANKS))
        template = lower(op, algorithm, RANKS, position, root=root)
        sizes = block_sizes(op, algorithm, RANKS, position, operation.node_bytes(size_bytes, RANKS), root=root)
        block = (position + template.block) % RANKS if template.relative else template.block
        step_bytes = sizes[template.block_base + block]
        sends = template.action == Action.SEND
        most = max(most, int(step_bytes[sends].sum()), int(step_bytes[~sends].sum()))
    return most


@pytest.mark.parametrize("name", sorted(set(OPERATIONS) - {"sendrecv"}))
def test_bus_bandwidth_is_what_the_busiest_link_carries(name: str) -> None:
    operation, size_bytes = OPERATIONS[name], 1 << 20
    assert busiest_bytes(operation, size_bytes) == size_bytes * operation.bus_factor(RANKS)


def test_sendrecv_goes_around_a_ring() -> None:
    graph = chain(OPERATIONS["sendrecv"], ASKED, 1024).ranks[3]
    assert [Kind(kind) for kind in graph.kind] == [Kind.SEND, Kind.RECV]
    assert graph.peer.tolist() == [0, 2]
    assert graph.size_bytes.tolist() == [1024] * 2


# Type -> count and size of 1001 bytes: of an all-reduce, and of an all-gather, whose shares are 16 bytes' multiples.
TYPES = {
    "int8": ((1001, 1001), (240, 960)),
    "half": ((500, 1000), (120, 960)),
    "bfloat16": ((500, 1000), (120, 960)),
    "float": ((250, 1000), (60, 960)),
    "double": ((125, 1000), (30, 960)),
}


@pytest.mark.parametrize("data_type", TYPES)
def test_counts_are_of_the_data_type(data_type: str) -> None:
    for name, expected in zip(("all_reduce", "all_gather"), TYPES[data_type], strict=True):
        operation = replace(OPERATIONS[name], data_type=data_type)
        share = operation.share_bytes(1001, RANKS)
        assert (share // ELEMENT_BYTES[data_type], operation.total_bytes(1001, RANKS)) == expected


def test_a_chain_is_warm_ups_a_barrier_and_the_timed_ones() -> None:
    workload = chain(OPERATIONS["all_gather"], replace(ASKED, iterations=2, warmup=3), 1024)
    for rank in range(RANKS):
        graph = workload.ranks[rank]
        assert graph.name == ["warm-up 0", "warm-up 1", "warm-up 2", "barrier", "timed 0", "timed 1"]
        assert graph.deps.tolist() == [0, 1, 2, 3, 4]  # each after the one before
        assert [Op(op) for op in graph.op][3] is Op.BARRIER
        assert graph.size_bytes.tolist() == [256, 256, 256, 0, 256, 256]
    pairs = chain(OPERATIONS["sendrecv"], replace(ASKED, iterations=2), 64).ranks[3]
    assert pairs.name == ["timed 0", "timed 0", "timed 1", "timed 1"]
    assert pairs.deps.tolist() == [0, 1, 0, 1]  # both of the second wait for both of the first


# --blocking -> names and dependencies of two iterations of two operations.
CHAINS = {
    Blocking.NONE: (["timed 0"] * 2 + ["timed 1"] * 2, [[], [], [0, 1], [0, 1]]),
    Blocking.BARRIER: (["timed 0"] * 4 + ["timed 1"] * 4, [[], *([at] for at in range(7))]),
    Blocking.WAIT: (["timed 0"] * 2 + ["timed 1"] * 2, [[], [0], [1], [2]]),
    Blocking.UNTIMED_BARRIER: (
        ["timed 0", "timed 0", "apart 0", "timed 1", "timed 1", "apart 1"],
        [[], [], [0, 1], [2], [2], [3, 4]],
    ),
}


@pytest.mark.parametrize("blocking", CHAINS)
def test_what_stands_between_operations(blocking: Blocking) -> None:
    asked = replace(ASKED, iterations=2, aggregated=2, blocking=blocking)
    graph = chain(OPERATIONS["all_reduce"], asked, 1024).ranks[0]
    edges = [graph.deps[low:high].tolist() for low, high in zip(graph.dep_start, graph.dep_start[1:], strict=False)]
    assert (graph.name, edges) == CHAINS[blocking]
    # Operations that start together are on streams of their own: one stream has one at a time.
    streams = [int(stream) for stream, op in zip(graph.stream, graph.op, strict=True) if Op(op) is Op.ALL_REDUCE]
    assert streams == [0, 1, 0, 1]


def test_sizes_between_two() -> None:
    assert ASKED.sizes_bytes == [1024, 2048, 3072, 4096]
    by_factor = Asked(2, 8, 100, 3, None, 0, 1, 0)
    assert by_factor.sizes_bytes == [8, 24, 72]


@pytest.mark.parametrize(
    ("text", "size_bytes"), [("8", 8), ("1K", 1024), ("64k", 65536), ("4M", 4 << 20), ("1GiB", 1 << 30), ("2KB", 2048)]
)
def test_size_suffixes(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5K", "K", "8T", "1e3", "65G", "8 8"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="K, M or G"):
        parse_size(text)
