"""Share of packets that recurrence could skip at most: `python benchmarks/native/skip_bound.py [--cases 500]
[--first 0] [--size-factor 4] [--packets-most 1500000] [--json FILE]`.

Each case is one of skip_bits.py, played at level `packet`, one iteration. Where a simulation comes again to the same
state, its hosts send the same packets again, equally far apart in time. The share is of the packets that hosts send in
stretches like that, data and acknowledgements. It is a bound from above: states may differ where packets do not. Cases
with marks, and larger ones, are left out. `skipped` is what level `packet+skip` skips.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import genie_core
import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))
from common.arguments import add_json
from common.skip_cases import SkipCase, draw_case, play, twin_of_case

from genie.plan.build import build_plan

Words: TypeAlias = NDArray[np.uint64]

SHARE = 0.5
STARTS = 48  # places at which a stretch may begin
WINDOW = 64  # packets that two places must have in common
PERIODS_MOST = 64  # periods that are tried at each start
LEAST = 1 / 200  # of all packets, in a stretch that counts
ODD = np.uint64(0x9E3779B97F4A7C15)
EACH = 25  # cases, between two lines of progress


def packets_of(case: SkipCase) -> Words:
    """Return a word for each packet that a host sends, in the order of time.

    Words are equal where source, target, kind and size are, and the time since the packet before.
    """
    twin = twin_of_case(case)
    simulator = twin.simulator(build_plan(case.workload, lowering=case.lowering))
    assert isinstance(simulator, genie_core.Simulator)
    simulator.keep_trace(True)
    simulator.start()
    while simulator.run(1 << 20):
        pass
    trace = np.array([entry[:6] for entry in simulator.trace()], np.int64)
    time_ps, source, target, opcode, _, payload_bytes = trace.T
    words = np.zeros(len(trace), np.uint64)
    for column in (source, target, opcode, payload_bytes, np.diff(time_ps, prepend=time_ps[:1])):
        words = (words ^ column.astype(np.uint64)) * ODD
        words ^= words >> np.uint64(29)
    return words


def repeated(words: Words) -> float:
    """Return the share of packets that come again, in stretches that do not overlap."""
    count = len(words)
    if count <= 2 * WINDOW:
        return 0.0
    powers = np.multiply.accumulate(np.full(count + 1, ODD))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(words * powers[:count])])
    # Equal where the words of two windows are.
    windows = (sums[WINDOW:] - sums[:-WINDOW]) * powers[count - np.arange(len(sums) - WINDOW)]
    covered = total = 0
    for number in range(STARTS):
        start = count * number // STARTS
        if start < covered or start >= len(windows):
            continue
        length, period = longest_from(words, windows, start)
        if length > LEAST * count:
            total += length
            covered = start + min(period, length) + length
    return total / count


def longest_from(words: Words, windows: Words, start: int) -> tuple[int, int]:
    """Return how many packets from a start on come again a period later, and the period, for the best period."""
    best = (0, 0)
    for place in (start + 1 + np.flatnonzero(windows[start + 1 :] == windows[start]))[:PERIODS_MOST]:
        length = common(words[start:], words[place:])
        best = max(best, (length, int(place) - start), key=lambda it: it[0])
        if start + length + int(place) - start == len(words):
            break
    return best


def common(one: Words, other: Words) -> int:
    """Return the number of words that two rows begin with alike."""
    done, chunk = 0, 1024
    end = min(len(one), len(other))
    while done < end:
        same = one[done : min(done + chunk, end)] == other[done : min(done + chunk, end)]
        if not same.all():
            return done + int(same.argmin())
        done, chunk = done + len(same), 2 * chunk
    return end


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, help="seed of the first case")
    parser.add_argument("--size-factor", type=int, default=4, help="multiplies the sizes of all collectives")
    parser.add_argument("--packets-most", type=int, default=1_500_000, help="data packets of a case (1500000)")
    add_json(parser)
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for seed in range(given.first, given.first + given.cases):
        if seed % EACH == 0 and seed > given.first:
            print(f"{seed - given.first} of {given.cases} cases", file=sys.stderr, flush=True)
        case = replace(draw_case(seed, given.size_factor), threads=1, iterations=1)
        skipping = play(case, skips=True)
        if skipping.marked or skipping.packets > given.packets_most:
            continue
        share, skipped = repeated(packets_of(case)), skipping.skipped / max(skipping.packets, 1)
        rows.append(
            {"case": case.name, "packets": skipping.packets, "bound": round(share, 4), "skipped": round(skipped, 4)}
        )
    could = sum(row["bound"] >= SHARE or row["skipped"] >= SHARE for row in rows)
    skip = sum(row["skipped"] >= SHARE for row in rows)
    print(f"{len(rows)} of {given.cases} cases without marks, of {given.packets_most} packets at most")
    print(f"{could} of them repeat {SHARE:.0%} of their packets or more, {skip} skip as many")
    if given.json:
        Path(given.json).write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
