"""Share of packets that repeat earlier ones: `python benchmarks/native/skip_repeats.py [--cases 500] [--first 0]
[--size-factor 4] [--packets-most 3000000] [--json FILE]`.

Each case is one of skip_bits.py, with one iteration. A simulation that comes again to the same state sends the same
packets again, equally far apart in time. `repeated` is the share of data packets in stretches that repeat what hosts
sent before them, data and acknowledgements. States may differ where packets do not: less can be skipped, as a rule.
Stretches begin and end at 96 places of a simulation, so that a few per cent that repeat are missed. Cases with marks,
larger ones, and those that skip half of their packets are not looked at.
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
PLACES = 96  # at which a stretch may begin or end
WINDOW = 64  # packets that two places must have in common
PERIODS_MOST = 64  # shortest ones that are tried at each place, and as many of the longest
ODD = np.uint64(0x9E3779B97F4A7C15)
EACH = 25  # cases, between two lines of progress


def packets_of(case: SkipCase) -> tuple[Words, NDArray[np.bool_]]:
    """Return a word for each packet that a host sends, in the order of time, and whether it has data.

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
    return words, payload_bytes > 0


def repeated(words: Words, has_data: NDArray[np.bool_]) -> float:
    """Return the share of data packets in stretches that repeat what is before them, for the best choice of these."""
    count = len(words)
    if count <= PLACES + WINDOW:
        return 0.0
    powers = np.multiply.accumulate(np.full(count + 1, ODD))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(words * powers[:count])])
    # Equal where the words of two windows are.
    windows = (sums[WINDOW:] - sums[:-WINDOW]) * powers[count - np.arange(len(sums) - WINDOW)]
    data_before = np.concatenate([[0], np.cumsum(has_data)])
    places = [count * number // PLACES for number in range(PLACES + 1)]
    best = [0] * (PLACES + 1)  # data packets in stretches, from each place on
    for number in reversed(range(PLACES)):
        best[number] = best[number + 1]
        for begin, end in stretches_from(words, windows, places[number]):
            for last in range(number + 1, PLACES + 1):
                until = min(places[last], end)
                if until > begin:
                    best[number] = max(best[number], int(data_before[until] - data_before[begin]) + best[last])
                if until == end:
                    break
    return best[0] / max(int(data_before[-1]), 1)


def stretches_from(words: Words, windows: Words, place: int) -> list[tuple[int, int]]:
    """Return the begins and ends of stretches that repeat what is from a place on."""
    if place >= len(windows):
        return []
    begins = place + 1 + np.flatnonzero(windows[place + 1 :] == windows[place])
    if len(begins) > 2 * PERIODS_MOST:
        begins = np.concatenate([begins[:PERIODS_MOST], begins[-PERIODS_MOST:]])
    found: list[tuple[int, int]] = []
    for begin in begins.tolist():
        end = begin + common(words[place:], words[begin:])
        if not any(before <= begin and end <= after for before, after in found):
            found.append((begin, end))
    return found


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
    parser.add_argument("--packets-most", type=int, default=3_000_000, help="data packets of a case (3000000)")
    add_json(parser)
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for seed in range(given.first, given.first + given.cases):
        if seed % EACH == 0 and seed > given.first:
            print(f"{seed - given.first} of {given.cases} cases", file=sys.stderr, flush=True)
        case = replace(draw_case(seed, given.size_factor), threads=1, iterations=1)
        skipping = play(case, skips=True)
        if skipping.marked:
            continue
        skipped, share = skipping.skipped / max(skipping.packets, 1), None
        if skipped < SHARE and skipping.packets <= given.packets_most:
            share = round(repeated(*packets_of(case)), 4)
        rows.append({"case": case.name, "packets": skipping.packets, "skipped": round(skipped, 4), "repeated": share})
    skip = sum(row["skipped"] >= SHARE for row in rows)
    shares = [row["repeated"] for row in rows if row["repeated"] is not None]
    large = len(rows) - skip - len(shares)
    could = sum(share >= SHARE for share in shares)
    print(f"{len(rows)} of {given.cases} cases without marks")
    print(f"{skip} of them skip {SHARE:.0%} of their packets or more")
    print(f"{could} others repeat as many, {len(shares) - could} do not")
    print(f"{large} are larger than {given.packets_most} packets, and were not looked at")
    if given.json:
        Path(given.json).write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
