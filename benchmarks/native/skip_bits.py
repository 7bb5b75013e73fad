"""Same bits with and without skips: `python benchmarks/native/skip_bits.py [--cases 500] [--first 0]
[--size-factor 4] [--jobs | --buckets | --stages | --pipelines] [--options] [--checkpoint-packets N]
[--threads-most 4] [--json FILE]`.

Each case is drawn: topology, collective, messages, congestion control, PFC, skews, faults, stops and threads. It plays
at level `packet` and with skips. All results must be the same, to the bit: times of nodes, transfers, counters of links
and ranks, and samples. One of five cases without stops has two iterations, played as `genie simulate -n 2` plays
them. Of the cases without a mark, 60 % or more must skip half of their packets or more. Those
with GPUs that take time, HPCC, or a link change in a fat tree or on rails count, and are also shown apart. Exit code 1
when a case differs or too few skip. More threads than the machine has cores make a simulation slow: --threads-most
limits them.

With --jobs, --buckets, --stages or --pipelines, cases are jobs of many collectives, of which parts are played apart.
There is no least share. Drawn jobs are small: with --checkpoint-packets 512 their plays stop and go on, also from
checkpoints, and all have one iteration.

With --options, options of each fabric are drawn too: topologies, MTUs, windows, recovery, timeouts and buffers. Half
of the cases also have load balancing, retry, loss, token buckets, cut-through, trimming or weights. The memory of
episodes is drawn as well. There is no least share.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from common.arguments import add_json
from common.drawn_options import with_options
from common.episode_cases import draw_job
from common.skip_cases import FREE_PACKETS, draw_case, drawn_iterations, first_difference, play

SHARE, OF_CASES = 0.5, 0.6
EACH = 25  # cases, between two lines of progress


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, help="seed of the first case")
    parser.add_argument("--size-factor", type=int, default=4, help="multiplies the sizes of all collectives")
    parser.add_argument("--jobs", action="store_true", help="jobs of many collectives and messages")
    parser.add_argument("--buckets", action="store_true", help="jobs whose collectives wait for each other")
    parser.add_argument("--stages", action="store_true", help="jobs whose pipeline stages end one after the other")
    parser.add_argument("--pipelines", action="store_true", help="jobs whose stages send messages to each other, too")
    parser.add_argument("--options", action="store_true", help="options of fabrics that other cases do not have, too")
    parser.add_argument(
        "--checkpoint-packets",
        type=int,
        help="data packets that a play goes on for at a time, and between two checkpoints (1048576)",
    )
    parser.add_argument("--threads-most", type=int, default=4, help="threads of a case, at most (4)")
    add_json(parser)
    given = parser.parse_args()
    kinds = {"job": given.jobs, "buckets": given.buckets, "stages": given.stages, "pipeline": given.pipelines}
    kind = next((own for own, is_given in kinds.items() if is_given), "")
    draw = partial(draw_job, kind=kind) if kind else draw_case
    rows, different, apart, continued, resumed = [], 0, 0, 0, 0
    shares: dict[bool, list[float]] = {False: [], True: []}  # by whether something is drawn beside
    for seed in range(given.first, given.first + given.cases):
        case = draw(seed, given.size_factor)
        if given.options:
            case = with_options(case, seed)
        case = replace(case, threads=min(case.threads, given.threads_most))
        if kind and not given.checkpoint_packets:
            case = replace(case, iterations=drawn_iterations(seed))
        played = play(case, skips=False)
        bounds = {"checkpoint_packets": given.checkpoint_packets} if given.checkpoint_packets else {}
        bounds |= {"free_packets": FREE_PACKETS} if kind else {}
        skipped = play(case, skips=True, **bounds)
        difference = first_difference(played, skipped)
        share = skipped.skipped / max(skipped.packets, 1)
        if not played.marked:
            shares[case.beside != ""].append(share)
        apart += skipped.episodes > 0
        continued += skipped.continued
        resumed += skipped.resumed
        rows.append(
            {
                "case": case.name,
                "packets": played.packets,
                "marked": played.marked,
                "beside": case.beside,
                "threads": case.threads,
                "skipped": round(share, 4),
                "episodes": skipped.episodes,
                "no_episodes": skipped.unusable,
                "continued": skipped.continued,
                "resumed": skipped.resumed,
            }
        )
        if difference:
            different += 1
            print(f"{case.name}: {difference[:300]}", flush=True)
        if len(rows) % EACH == 0:
            print(f"{len(rows)} of {given.cases} cases, {different} with a difference", file=sys.stderr, flush=True)
    print(f"{len(rows)} cases, {different} with a difference")
    many = {beside: sum(share >= SHARE for share in own) for beside, own in shares.items()}
    what = f"skip {SHARE:.0%} of their packets or more"
    unmarked, all_many = len(shares[False]) + len(shares[True]), sum(many.values())
    print(f"{unmarked} cases without marks: {all_many} of them {what}")
    print(f"{len(shares[True])} of these have GPUs, HPCC or a link change off leaf-spines: {many[True]} of them {what}")
    print(f"{apart} cases with parts that were played apart")
    print(f"{continued} plays went on where they had stopped, {resumed} from checkpoints")
    if given.json:
        Path(given.json).write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    has_least_share = draw is draw_case and not given.options
    return 1 if different or (has_least_share and all_many < OF_CASES * unmarked) else 0


if __name__ == "__main__":
    sys.exit(main())
