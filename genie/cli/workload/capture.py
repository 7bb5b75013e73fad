"""`genie capture`: the workload of a PyTorch script, on a CPU and for any number of ranks."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from genie.capture.script import Recording, Script, check, record
from genie.capture.workload import MESSAGES, capture, float32_products, other_sizes, standing_for
from genie.cli.convert.workloads import Compress, Prefix
from genie.cli.convert.writing import Out, check_traces_folder, writing
from genie.cli.groups import flattened
from genie.config.rank_lists import parse_ranks
from genie.errors import UsageError
from genie.invocation import note
from genie.job.generation import ComputeOptions
from genie.job.warnings import warn
from genie.page.words import amount, duration
from genie.workload.graph import Kind, Op, Workload
from genie.workload.pytorch.convert import check_prefix
from genie.workload.write import save

CAPTURE_EXAMPLES = """
Examples:

```text
genie capture --world 64 -o traces/mine -- train.py --config small.toml
genie capture --world 1024 --ranks 0,64,128,192 -o traces/pipeline -- train.py
genie capture --world 64 --python /opt/torch/bin/python --gpu h200 -o traces/mine -- train.py
genie simulate traces/mine --fabric FABRIC.toml
```
"""


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command("capture", epilog=CAPTURE_EXAMPLES)(flattened(captured))


def captured(
    compute: ComputeOptions,
    out: Out,
    script: Annotated[list[str], typer.Argument(help="The script and its arguments, after `--`.")],
    world: Annotated[int, typer.Option(min=1, max=1 << 20, help="Number of ranks that the script sees.")],
    ranks: Annotated[
        str | None,
        typer.Option(
            help="Ranks to capture, one of each kind: 0,64,128. The others do as the captured rank at their place in "
            "their groups.  [default: rank 0, and the ranks of its pipeline]"
        ),
    ] = None,
    steps: Annotated[
        int, typer.Option(min=1, max=100, help="Steps of the optimizer to run. The last one is the workload.")
    ] = 2,
    server: Annotated[int, typer.Option("--gpus-per-server", min=1, help="Ranks of a server, for LOCAL_RANK.")] = 8,
    python: Annotated[
        str, typer.Option(help="Python that has PyTorch.  [default: that of genie]", show_default=False)
    ] = sys.executable,
    prefix: Prefix = "workload",
    compress: Compress = False,
) -> int:
    """Capture the workload of a PyTorch training script, without data and without GPUs.

    The script runs unmodified on a CPU, once for each captured rank, with tensors that have shapes and no values. Genie
    records operators, collectives and messages, and what each waits for. PyTorch must be installed; Genie does not need
    it otherwise. The script is given after `--`.
    """
    check_prefix(prefix)
    check_traces_folder(out, prefix)
    given = parse_ranks("--ranks", ranks) if ranks is not None else []
    if given and given[-1] >= world:
        raise UsageError(f"--ranks {ranks}: there is no rank {given[-1]}: --world is {world}")
    job = Script(tuple(script), world, steps, server, python)
    check(job)
    began = time.monotonic()
    times = compute.times()
    recordings, checks = _recorded(job, given)
    workload = capture(recordings, checks, world, Path(script[0]).stem, times.timed)
    with writing(out):
        save(workload, out, prefix, compress)
    print("\n".join(_summary(workload, recordings, checks, steps, time.monotonic() - began)))
    print(f"{out}: written")
    for text, count in _notes(recordings).items():
        note(f"{text} ({count} times)" if count > 1 else text)
    for each in checks:
        count, less = other_sizes(standing_for(recordings, each.rank, world), each)
        if count:
            part = f"{abs(less):.2%} {'less' if less > 0 else 'more'} memory traffic in all"
            note(f"rank {each.rank}: {count} operators have other sizes, {part}: shards may be uneven")
    if count := float32_products(recordings):
        warn(f"{count} matrix products in FP32 are timed as in BF16")
    return 0


def _recorded(job: Script, given: list[int]) -> tuple[list[Recording], list[Recording]]:
    """Return the recordings of a rank of each kind, and of one more rank to check them."""

    def told(rank: int) -> None:
        note(f"rank {rank} of {job.world} captured")

    first = record(job, given or [0], told)
    if not given:  # the members of the groups in which rank 0 sends and receives do other things
        named = {node["group"] for node in first[0].nodes if node.get("op") in MESSAGES}
        stages = {rank for group in first[0].groups if group["name"] in named for rank in group["ranks"]}
        first += record(job, sorted(stages - {0}), told) if stages - {0} else []
    last = job.world - 1
    is_captured = any(each.rank == last for each in first)
    return first, [] if is_captured else record(job, [last], told)


def _notes(recordings: list[Recording]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for each in recordings:
        found.update(each.notes)
    return dict(found)


def _summary(
    workload: Workload, recordings: list[Recording], checks: list[Recording], steps: int, took_s: float
) -> list[str]:
    graph = workload.ranks[0]
    compute = graph.kind == Kind.COMP
    checked = f"; rank {checks[0].rank} does as the rank that stands for it" if checks else ""
    listed = ", ".join(str(each.rank) for each in recordings[:8]) + (", ..." if len(recordings) > 8 else "")
    lines = [
        f"{workload.name}: step {steps} of {workload.world_size} ranks, in {took_s:.1f} s with PyTorch "
        f"{recordings[0].torch}",
        f"captured: {'rank' if len(recordings) == 1 else 'ranks'} {listed}{checked}",
        f"rank 0: {len(graph):,} nodes, compute {duration(int(graph.duration_ns[compute].sum()))}, "
        f"{int(graph.num_ops[compute].clip(0).sum()) / 1e12:.3g} TFLOP",
    ]
    counts: Counter[tuple[str, str, int]] = Counter()
    for row in np.flatnonzero(graph.kind == Kind.COLL).tolist():
        group = workload.groups[int(graph.group[row])]
        counts[Op(int(graph.op[row])).name.lower(), group.name, int(graph.size_bytes[row])] += 1
    lines += [f"  {count} {op} of {amount(size)}, group {group}" for (op, group, size), count in counts.items()]
    for kind in (Kind.SEND, Kind.RECV):
        if count := int((graph.kind == kind).sum()):
            lines.append(f"  {count} {kind.name.lower()}s")
    return lines
