"""NCCL's division of a buffer: over channels, loops, chunks and slices. A slice is one message on the wire.

Figures are those of NCCL 2.30. A buffer of `NCCL_BUFFSIZE` is 8 steps. A ring's chunk is 4 steps in 2 slices (Simple);
every other chunk is one step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from genie.collectives.lower import LoweringError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

STEPS = 8  # in a connection's buffer: the limit of data in flight on one channel
SLICE_ALIGNMENT_BYTES = 64  # 16 elements of 4 bytes
CHUNK_ALIGNMENT_BYTES = 16
GRAIN_BYTES = 512  # unit of a chunk's size
PARTS_MAX = 1 << 21  # chunks of one member in a collective
PAT_CHUNK_MIN_BYTES = 64 << 10
SLICES_MAX = 32  # no slice of a chunk is below this part of a full one
CHANNEL_TRAFFIC_MIN_BYTES = 32 << 10  # less traffic does not justify another channel

# Ring collectives with chunks of four steps under the protocol Simple.
LONG_CHUNKS = frozenset({"all_reduce", "all_gather", "reduce_scatter"})


@dataclass(frozen=True)
class Protocol:
    """Sizes of a protocol: bytes in a step, and `wire_bytes` on the wire for every `data_bytes`."""

    name: str
    step_bytes: int  # data in a step, at NCCL's default of NCCL_BUFFSIZE for Simple
    data_bytes: int = 1
    wire_bytes: int = 1

    def on_wire(self, data_bytes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Bytes of the messages that carry this much data."""
        lines: NDArray[np.int64] = -(-data_bytes // self.data_bytes) * self.wire_bytes
        return lines


# LL: lines of 16 B with 8 B of data, 64 KiB a step. LL128: lines of 128 B with 120 B of data, 600 KiB a step.
PROTOCOLS = {
    "simple": Protocol("simple", 512 << 10),
    "ll": Protocol("ll", 32 << 10, 8, 16),
    "ll128": Protocol("ll128", 576000 // 3840 * 3840, 120, 128),
}


@dataclass(frozen=True)
class Cut:
    """Chunk size and number of slices of one algorithm with one protocol."""

    chunk_bytes: int
    slices: int
    steps: int  # steps of the buffer in a slice

    @property
    def window(self) -> int:
        """Slices of one channel that may be in flight."""
        return STEPS // self.steps


def cut_of(op: str, algorithm: str, protocol: Protocol, buffer_bytes: int) -> Cut:
    """Chunk and slices. `buffer_bytes`: NCCL_BUFFSIZE, which applies to Simple."""
    step_bytes = buffer_bytes // STEPS if protocol.name == "simple" else protocol.step_bytes
    long = protocol.name == "simple" and algorithm == "ring" and op in LONG_CHUNKS
    slices, steps = (2, 2) if long else (1, 1)
    chunk_bytes = step_bytes * slices * steps
    grain_bytes = GRAIN_BYTES if protocol.name == "simple" else 16
    return Cut(max(chunk_bytes // grain_bytes * grain_bytes, grain_bytes), slices, steps)


def pat_cut(op: str, size_bytes: int, channels: int, buffer_bytes: int) -> Cut:
    """Chunk of PAT: a step, or less where a channel would have too few chunks. `size_bytes`: of all blocks together."""
    cut = cut_of(op, "pat", PROTOCOLS["simple"], buffer_bytes)
    chunk, chunks = cut.chunk_bytes, 32 if op == "all_gather" else 16
    while chunk * channels * chunks > size_bytes and chunk > PAT_CHUNK_MIN_BYTES:
        chunk //= 2
    return replace(cut, chunk_bytes=max(chunk // GRAIN_BYTES * GRAIN_BYTES, GRAIN_BYTES))


def tree_chunk_bytes(cut: Cut, size_bytes: int, channels: int, nodes: int, local: int) -> int:
    """Chunk of a tree with LL128: smaller where a channel's share would have too few chunks for the tree's depth."""
    chunk, depth = cut.chunk_bytes, 1 + (nodes.bit_length() - 1) + 0.1 * local
    for chunks, least_bytes in ((64, 128 << 10), (16, 32 << 10)):
        while size_bytes // (channels * chunk) < depth * chunks / local and chunk > least_bytes:
            chunk //= 2
    return chunk // 16 * 16


def over_channels(size_bytes: int, channels: int, traffic_per_byte: int) -> NDArray[np.int64]:
    """(used,) bytes of each channel: whole cells, an even share for each channel, the rest on the last.

    `traffic_per_byte`: the number of times that a byte of the buffer crosses a link. It is 2 for an all-reduce, the
    number of members for an all-gather or a reduce-scatter, otherwise 1.
    """
    if size_bytes == 0:
        return np.zeros(0, np.int64)
    cell_bytes = -(-CHANNEL_TRAFFIC_MIN_BYTES // traffic_per_byte // 16) * 16
    cell_bytes = max(cell_bytes, 16)
    cells = -(-size_bytes // cell_bytes)
    traffic_bytes = max(CHANNEL_TRAFFIC_MIN_BYTES, size_bytes * traffic_per_byte)
    share_bytes = -(-(traffic_bytes // channels) // 16) * 16
    each = min(cells, -(-share_bytes // (cell_bytes * traffic_per_byte)))
    used = min(channels, -(-cells // each))
    starts = np.minimum(np.arange(used + 1) * each * cell_bytes, size_bytes)
    starts[-1] = size_bytes
    return np.diff(starts)


def even_shares(size_bytes: int, channels: int, traffic_per_byte: int) -> NDArray[np.int64]:
    """(used,) bytes of each channel before NCCL 2.22: an even share for each. `traffic_per_byte` has no effect."""
    share_bytes = -(-size_bytes // (channels * CHUNK_ALIGNMENT_BYTES)) * CHUNK_ALIGNMENT_BYTES
    if size_bytes == 0:
        return np.zeros(0, np.int64)
    return np.diff(np.minimum(np.arange(-(-size_bytes // share_bytes) + 1) * share_bytes, size_bytes))


def shared_chunks(channel_bytes: NDArray[np.int64], rows: int, cut: Cut) -> NDArray[np.int64]:
    """(channels, loops, rows) bytes of each chunk, where a channel's bytes are split over the chunks of its loops.

    The chunks of the last loop shrink to an even share.
    """
    loop_bytes = cut.chunk_bytes * rows
    left = _by_loop(channel_bytes, loop_bytes)
    even = _up(_up(left, rows) // rows, CHUNK_ALIGNMENT_BYTES)
    chunk = np.where(left == loop_bytes, cut.chunk_bytes, even)[..., None]
    rest: NDArray[np.int64] = left[..., None] - np.arange(rows) * chunk
    return np.clip(np.minimum(chunk, rest), 0, chunk)


def own_chunks(channel_bytes: NDArray[np.int64], shares: NDArray[np.int64], cut: Cut) -> NDArray[np.int64]:
    """(channels, loops, rows) bytes of each chunk, where each row has its own `shares` (rows,) bytes.

    `channel_bytes`: of the largest share.
    """
    ends = np.cumsum(channel_bytes)
    own = np.diff(np.minimum(ends[:, None], shares), axis=0, prepend=0)
    return np.moveaxis(_by_loop(own, cut.chunk_bytes), -1, 1)


def _by_loop(size_bytes: NDArray[np.int64], loop_bytes: int) -> NDArray[np.int64]:
    """(..., loops) bytes of each loop of buffers (...)."""
    loops = max(1, int(-(-size_bytes.max(initial=0) // loop_bytes)))
    check_parts(loops * size_bytes.size, int(size_bytes.sum()))
    left: NDArray[np.int64] = size_bytes[..., None] - np.arange(loops) * loop_bytes
    return np.clip(left, 0, loop_bytes)


def _up(values: NDArray[np.int64], unit: int) -> NDArray[np.int64]:
    """The values, rounded up to multiples of the unit."""
    return -(-values // unit) * unit


def slices_of(chunk_bytes: NDArray[np.int64], cut: Cut) -> NDArray[np.int64]:
    """(..., slices) bytes of each slice of chunks (...): even parts, none below a 32nd of a full slice."""
    if cut.slices == 1:
        return chunk_bytes[..., None]
    unit = SLICE_ALIGNMENT_BYTES * cut.slices
    full = cut.chunk_bytes // cut.slices
    size = np.maximum(-(-chunk_bytes // unit) * SLICE_ALIGNMENT_BYTES, full // SLICES_MAX)
    starts = np.minimum(size[..., None] * np.arange(cut.slices + 1), chunk_bytes[..., None])
    starts[..., -1] = chunk_bytes
    return np.diff(starts, axis=-1)


def check_parts(parts: int, size_bytes: int) -> None:
    """Raise LoweringError for a collective with too many parts for memory; each part takes some hundred bytes."""
    if parts > PARTS_MAX:
        raise LoweringError(
            f"{size_bytes} bytes of a member are {parts} chunks on NCCL's wire, more than {PARTS_MAX}: give smaller "
            "collectives, larger buffers (NCCL_BUFFSIZE, NCCL_P2P_NET_CHUNKSIZE) or --wire plain"
        )


def message_chunk_bytes(size_bytes: ArrayLike, chunk_bytes: int) -> NDArray[np.int64]:
    """Chunk size of point-to-point messages (NCCL_P2P_NET_CHUNKSIZE): a quarter below one chunk, a half below eight."""
    size = np.asarray(size_bytes, np.int64)
    parts = np.where(size < chunk_bytes, 4, np.where(size < 8 * chunk_bytes, 2, 1))
    return np.asarray(chunk_bytes // parts, np.int64)


def message_chunks(size_bytes: ArrayLike, chunk_bytes: int) -> NDArray[np.int64]:
    """(chunks, ...) bytes of each chunk of messages (...)."""
    size = np.asarray(size_bytes, np.int64)
    each = message_chunk_bytes(size, chunk_bytes)
    count = max(1, int((-(-size // each)).max(initial=0)))
    check_parts(count * size.size, int(size.sum()))
    at = np.arange(count).reshape(-1, *([1] * size.ndim))
    return np.clip(size - at * each, 0, each)
