"""`genie bench pairs`: bandwidth and latency of each pair of ranks, as a matrix."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from genie.bench import pairs_table
from genie.bench.pairs import PairsAsked, matrix_of, report, rounds
from genie.bench.pairs_page import PAGE_KIND, page
from genie.cli.bench.runs import (
    LEFT_OUT,
    Kept,
    Mtu,
    Ranks,
    Simulate,
    check_json,
    check_started_by_hand,
    mtu_from,
    show_progress,
    size_from,
    staged,
    warn_of_retransmits,
    workplace,
    write_json,
)
from genie.cli.bench.worlds import LiveWorld, TwinWorld, World
from genie.cli.groups import flattened
from genie.errors import EXIT_FAILED, UsageError
from genie.job.option import OUTPUT, Option
from genie.job.options import LabOptions, LiveOptions, TrafficOptions, TwinOptions
from genie.record import refuse_foreign, replace_own

PAGE = "pairs.html"
MESSAGES_MAX, NODES_MAX = 256, 4 * 10**6
PANEL = "Messages of the matrix"


@dataclass(frozen=True)
class MatrixOptions:
    """The messages between each pair."""

    size: Annotated[str, Option("Size of one message for the bandwidth.", PANEL, ("-s", "--size"))] = "1M"
    iters: Annotated[
        int,
        Option(
            "Number of messages for the bandwidth. The sender posts them together.",
            PANEL,
            ("-n", "--iters"),
            1,
            MESSAGES_MAX,
        ),
    ] = 4
    small_size: Annotated[str, Option("Size of one message for the latency.", PANEL)] = "64"
    small_iters: Annotated[
        int,
        Option("Number of messages for the latency, one after the other. 0 skips the latency.", PANEL, (), 0, 10**4),
    ] = 20
    both_ways: Annotated[
        bool, Option("Run both directions of a pair at the same time.", PANEL, default="one direction after the other")
    ] = False
    alone: Annotated[
        bool,
        Option(
            "Run one pair in each round, so that no two pairs share a link. The bench then takes longer.",
            PANEL,
            default="all pairs of a round at the same time",
        ),
    ] = False
    check: Annotated[
        int,
        Option(
            "Check of the received bytes. `0`: no check. `1`: the receivers compare every byte. The comparison is part "
            "of the measured time.",
            PANEL,
            ("-c", "--check"),
            0,
            1,
            default="1",
        ),
    ] = 1


PAIRS_EXAMPLES = """
Examples:

```text
genie bench pairs --ranks 8 --rate 200Mb/s -o runs/pairs
genie bench pairs --hosts hosts/cluster.toml -s 16M -n 8 --json pairs.json
genie bench pairs --hosts hosts/cluster.toml -s 16M --alone
genie bench pairs --lab FABRIC.toml --lab-fault 'leaf0-spine1 rate=40%'
genie bench pairs --simulate --fabric FABRIC.toml --both-ways
```
"""


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command("pairs", epilog=PAIRS_EXAMPLES)(flattened(pairs, LEFT_OUT))


def pairs(
    traffic: TrafficOptions,
    live: LiveOptions,
    lab: LabOptions,
    simulated: TwinOptions,
    matrix: MatrixOptions,
    ranks: Ranks = None,
    simulate: Simulate = False,
    mtu: Mtu = None,
    as_json: Annotated[
        Path | None,
        typer.Option("-J", "--json", help="File for all results, as JSON.  [default: none]", rich_help_panel=OUTPUT),
    ] = None,
    out: Kept = None,
) -> int:
    """Measure bandwidth and latency between all pairs of ranks, in rounds of disjoint pairs.

    n ranks take n - 1 rounds, or n rounds if n is odd. All pairs of a round send at the same time, so two pairs may
    share a link. The table marks cells below 0.93 of the best bandwidth. With -o DIR, the command also writes heat maps
    (pairs.html).

    Exit codes: 0 done, 1 a byte was wrong or a rank died.
    """
    if not simulate:
        check_started_by_hand(live, lab)
    check_json(as_json)
    if out is not None:
        refuse_foreign(out / PAGE, PAGE_KIND)
    size_bytes, small_bytes = size_from("-s", matrix.size, "1G"), size_from("--small-size", matrix.small_size)
    mtu_bytes = mtu_from(mtu)
    live = replace(live, verify=bool(matrix.check))
    with staged(traffic, live, lab, ranks, runs=not simulate) as bench_site:
        asked = PairsAsked(
            bench_site.hosts.ranks,
            size_bytes,
            matrix.iters,
            small_bytes,
            matrix.small_iters,
            matrix.both_ways,
            matrix.alone,
        )
        if asked.nodes > NODES_MAX:
            text = f"{asked.nodes} steps of {asked.ranks} ranks are more than {NODES_MAX}"
            raise UsageError(f"{text}: give a smaller -n or --small-iters")
        with workplace(out, None if simulate else bench_site.hosts) as folder:
            world: World
            if simulate:
                level, threads = simulated.level, simulated.threads
                world = twin = TwinWorld(bench_site, folder, level=level, threads=threads, mtu_bytes=mtu_bytes)
                twin.warn()
            else:
                world = network = LiveWorld(bench_site, folder, mtu_bytes=mtu_bytes)
                network.announce("pairs")
            devices = world.devices()
            width = max(len(device.host) for device in devices)
            for text in pairs_table.head(
                asked, [f"{each.host:>{width}} {each.what}" for each in devices], world.notes()
            ):
                print(text, flush=True)
            show_progress(f"{asked.rounds} rounds")
            with bench_site.site.faults_injected():
                run = world.play(rounds(asked), "pairs", "all pairs")
            show_progress("")
    found = matrix_of(run, [device.host for device in devices])
    for text in pairs_table.body(asked, found):
        print(text, flush=True)
    warn_of_retransmits(found.retransmitted)
    if out is not None:
        described = world.notes() or [f"Measured over {'+'.join(sorted({each.what.split()[0] for each in devices}))}"]
        replace_own(out / PAGE, page(asked, found, described[0]), PAGE_KIND)
        print(f"# heat maps: {out / PAGE}")
    if as_json is not None:
        write_json(as_json, report(asked, found, {"world": run.info["world"], "run": run.info}))
    if found.wrong_bytes:
        print(f"genie: {found.wrong_bytes} bytes of what arrived are not what was sent", file=sys.stderr)
    return EXIT_FAILED if found.wrong_bytes else 0
