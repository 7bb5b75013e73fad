"""`genie bench pairs`: what each pair of ranks carries, as a matrix."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from genie.bench import pairs_table
from genie.bench.pairs import PairsAsked, matrix_of, report, rounds
from genie.bench.pairs_page import PAGE_KIND, page
from genie.cli import options
from genie.cli.bench.runs import (
    Kept,
    Mtu,
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
from genie.errors import EXIT_FAILED
from genie.job.resolve import Live, Play, UsageError
from genie.live.transport import SOFTROCE
from genie.record import refuse_foreign, replace_own

PAGE = "pairs.html"
RANKS_MAX, MESSAGES_MAX, NODES_MAX = 1024, 256, 4 * 10**6

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
    app.command(epilog=PAIRS_EXAMPLES)(pairs)


def pairs(
    ranks: Annotated[
        int | None,
        typer.Option(min=2, max=RANKS_MAX, help="Number of ranks.  [default: all of the hosts or the fabric file]"),
    ] = None,
    size: Annotated[str, typer.Option("-s", "--size", help="Bytes of a message for bandwidth.")] = "1M",
    count: Annotated[
        int, typer.Option("-n", "--iters", min=1, max=MESSAGES_MAX, help="Such messages, posted together.")
    ] = 4,
    small: Annotated[str, typer.Option("--small-size", help="Bytes of a message for latency.")] = "64",
    small_count: Annotated[
        int, typer.Option("--small-iters", min=0, max=10**4, help="Such messages, one after another; 0: no latency.")
    ] = 20,
    both_ways: Annotated[
        bool, typer.Option("--both-ways", help="Both directions of a pair at once.  [default: one after the other]")
    ] = False,
    alone: Annotated[
        bool,
        typer.Option("--alone", help="One pair a round: slower, and pairs share no link.  [default: disjoint pairs]"),
    ] = False,
    check: Annotated[
        int, typer.Option("-c", "--check", min=0, max=1, help="Whether receivers compare every byte; it takes time.")
    ] = 1,
    as_json: Annotated[Path | None, typer.Option("-J", "--json", help="Write all figures here.")] = None,
    out: Kept = None,
    simulate: Annotated[bool, typer.Option("--simulate", help="In the twin, and nowhere else.")] = False,
    hosts: options.HostsFile = None,
    fabric: options.FabricFile = None,
    rate: options.Rate = None,
    level: options.Level = "packet",
    seed: options.Seed = 1,
    threads: options.Threads = 1,
    transport: options.Transport = SOFTROCE,
    queue_pairs: options.QueuePairs = None,
    split: options.Split = None,
    congestion: options.Congestion = None,
    source_ports: options.Ports = "pair",
    traffic_class: options.TrafficClass = None,
    icrc: options.Icrc = "auto",
    mtu: Mtu = None,
    verbs: options.Verbs = None,
    events: Annotated[
        bool, typer.Option("--events", help="Sleep until something comes.  [default: poll, with a core for each rank]")
    ] = False,
    no_offload: options.NoOffload = False,
    lab: options.Lab = None,
    lab_fault: options.LabFault = None,
    udp_port: options.UdpPort = 4791,
    join_limit: options.Join = 60.0,
    stall: options.Stall = 10.0,
) -> int:
    """Bandwidth and latency between all pairs of ranks, in rounds of disjoint pairs: n ranks take n - 1 rounds.

    In each round all pairs are busy at once, so that two of them may share a link: --alone has one pair a round. Cells
    below 0.93 of the best are marked; -o DIR has heat maps too.
    """
    if not simulate:
        check_started_by_hand(transport, lab)
    check_json(as_json)
    if out is not None:
        refuse_foreign(out / PAGE, PAGE_KIND)
    size_bytes, small_bytes, mtu_bytes = size_from("-s", size, "1G"), size_from("--small-size", small), mtu_from(mtu)
    play = Play(
        "", hosts=hosts, fabric=fabric, rate=rate, seed=seed, queue_pairs=queue_pairs, split=split,
        congestion=congestion,
    )  # fmt: skip
    live = Live(
        offload=not no_offload, udp_port=udp_port, join_s=join_limit, stall_s=stall, transport=transport,
        source_ports=source_ports, traffic_class=traffic_class, verify=bool(check), icrc=icrc,
        verbs=tuple(verbs or ()),
    )  # fmt: skip
    with staged(play, live, ranks, runs=not simulate, lab=lab, faults=lab_fault) as bench_site:
        asked = PairsAsked(bench_site.hosts.ranks, size_bytes, count, small_bytes, small_count, both_ways, alone)
        if asked.nodes > NODES_MAX:
            text = f"{asked.nodes} steps of {asked.ranks} ranks are more than {NODES_MAX}"
            raise UsageError(f"{text}: give a smaller -n or --small-iters")
        with workplace(out, None if simulate else bench_site.hosts) as folder:
            world: World
            if simulate:
                world = twin = TwinWorld(bench_site, folder, level=level, threads=threads, mtu_bytes=mtu_bytes)
                twin.warn()
            else:
                spin = False if events else None
                world = network = LiveWorld(bench_site, folder, spin=spin, mtu_bytes=mtu_bytes)
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
    matrix = matrix_of(run, [device.host for device in devices])
    for text in pairs_table.body(asked, matrix):
        print(text, flush=True)
    warn_of_retransmits(matrix.retransmitted)
    if out is not None:
        described = world.notes() or [f"Measured over {'+'.join(sorted({each.what.split()[0] for each in devices}))}"]
        replace_own(out / PAGE, page(asked, matrix, described[0]), PAGE_KIND)
        print(f"# heat maps: {out / PAGE}")
    if as_json is not None:
        write_json(as_json, report(asked, matrix, {"world": run.info["world"], "run": run.info}))
    if matrix.wrong_bytes:
        print(f"genie: {matrix.wrong_bytes} bytes of what arrived are not what was sent", file=sys.stderr)
    return EXIT_FAILED if matrix.wrong_bytes else 0
