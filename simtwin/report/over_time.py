"""Links of the drawing over time: utilisation and longest queue of each, in frames, packed for the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from genie.page.lanes import size_of

if TYPE_CHECKING:
    import polars as pl

FRAMES_MAX = 300  # of an iteration; neighbouring intervals are merged above it
FRAMES_MIN = 20  # of the first iteration, also where these need more than BYTES_MAX
BYTES_MAX = 800_000  # of all iterations
LEVELS = 4096  # of a value: two characters of DIGITS
DIGITS = np.array(list("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"))


def over_time(
    series: pl.DataFrame, ends_ns: dict[int, int], interval_ns: int, members: Sequence[Sequence[str]], first: int
) -> dict[str, Any]:
    """Return iteration → its frames: that of `first`, and others as long as there is room.

    `members`: names of the links that stand at each place of the drawing. An iteration has:

    - `step_ns`: length of a frame; `frames`: their number; `end_ns`.
    - `busy`: place → mean utilisation of each frame, as two digits in base 64 of the value times 4095.
    - `queue`: place → longest queue, in the same way, over `queue_max` bytes. Links without a queue are left out.
    """
    import polars as pl

    named = [(name, place) for place, names in enumerate(members) for name in names]
    places = pl.DataFrame(named, schema={"name": pl.String, "place": pl.Int64}, orient="row")
    links = series.filter(pl.col("kind") == "link").join(places, on="name")
    result: dict[str, Any] = {}
    left = BYTES_MAX
    for iteration in [first, *(it for it in ends_ns if it != first)]:
        own = links.filter(pl.col("iteration") == iteration)
        if own.is_empty():
            continue
        frames = _frames(own, ends_ns[iteration], max(interval_ns, 1))
        left -= size_of(frames)
        if result and left < 0:
            break
        result[str(iteration)] = frames
    return result


def _frames(own: pl.DataFrame, end_ns: int, interval_ns: int) -> dict[str, Any]:
    import polars as pl

    end_ns = max(end_ns, int(own["time_ns"].to_numpy().max()))
    room = max(BYTES_MAX // (4 * own["place"].n_unique()), FRAMES_MIN)
    together = max(-(-end_ns // (interval_ns * min(FRAMES_MAX, room))), 1)
    step_ns = interval_ns * together
    count = max(-(-end_ns // step_ns), 1)
    frame = ((pl.col("time_ns") - 1) // step_ns).clip(0, count - 1).alias("frame")  # an interval is named by its end
    table = (
        own.group_by("name", "place", frame)
        .agg(pl.col("utilisation").sum() / together, pl.col("longest_queue_bytes").max())
        .group_by("place", "frame")
        .agg(pl.col("utilisation", "longest_queue_bytes").max())
        .fill_null(0)
    )
    queue_max = int(table["longest_queue_bytes"].to_numpy().max(initial=0))
    busy, queue = {}, {}
    for (place,), part in table.sort("place").group_by("place", maintain_order=True):
        at = part["frame"].to_numpy()
        busy[str(place)] = _digits(part["utilisation"].to_numpy(), at, count)
        lengths = part["longest_queue_bytes"].to_numpy()
        if lengths.any():
            queue[str(place)] = _digits(lengths / queue_max, at, count)
    return {
        "step_ns": step_ns, "frames": count, "end_ns": end_ns, "queue_max": queue_max, "busy": busy, "queue": queue,
    }  # fmt: skip


def _digits(values: NDArray[np.float64], at: NDArray[np.int64], count: int) -> str:
    """Return values from 0 to 1 as text; a value above 0 is at least the least one that the digits can say."""
    level = np.zeros(count, np.int64)
    level[at] = np.where(values > 0, np.clip(np.rint(values * (LEVELS - 1)), 1, LEVELS - 1), 0).astype(np.int64)
    return "".join(np.column_stack((DIGITS[level >> 6], DIGITS[level & 63])).ravel())
