"""`genie convert`, with its commands for PyTorch's traces and ns-3's experiments."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from genie.cli.convert import fabric, operators, workloads
from genie.cli.convert.writing import Out, check_experiment_folder, check_traces_folder, reading, writing
from genie.errors import UsageError
from genie.inputs.printable import one_line
from genie.record import marked_text, replace_own
from genie.workload.pytorch.convert import check_prefix, convert
from genie.workload.pytorch.device_only import GroupShape
from genie.workload.pytorch.files import FoundTraces, find_device_traces, find_host_traces
from genie.workload.write import save
from simtwin.fabric.text import to_toml
from simtwin.imports.ns3 import read_experiment

convert_app = typer.Typer(
    help="Convert traces, experiments, algorithms and fabrics of other tools into files of Genie.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

CONVERT_EXAMPLES = """
Examples:

```text
genie convert pytorch --host host_traces/ --device kineto/ -o traces/dlrm
genie convert pytorch --device kineto/ -o traces/dlrm
genie convert pytorch --device rank0.json --replicate 1024 -o traces/dlrm
```
"""

GROUP_SHAPE = re.compile(r"(?P<stream>\d{1,9})=(?P<size>\d{1,7})(:(?P<stride>\d{1,7}))?")

NS3_EXAMPLES = """
Example:

```text
genie convert ns3 mix/config.txt -o incast
genie simulate incast/traces --fabric incast/fabric.toml -o run
```
"""


def register(app: typer.Typer) -> None:
    """Add `genie convert` with all its commands."""
    convert_app.command("pytorch", epilog=CONVERT_EXAMPLES)(convert_pytorch)
    convert_app.command("ns3", epilog=NS3_EXAMPLES)(convert_ns3)
    fabric.register(convert_app)
    workloads.register(convert_app)
    operators.register(convert_app)
    app.add_typer(convert_app, name="convert")


def convert_pytorch(
    out: Out,
    host: Annotated[
        Path | None,
        typer.Option(
            help="Folder with one host execution trace for each rank.  [default: none. The Kineto traces then tell the "
            "communications]"
        ),
    ] = None,
    device: Annotated[
        Path | None,
        typer.Option(
            help="Folder with one Kineto trace for each rank.  [default: none. Compute nodes then have no durations]"
        ),
    ] = None,
    replicate: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Make a job of N ranks that all play the trace of one rank.  [default: the traces' job]"
        ),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STREAM=SIZE[:STRIDE]",
            help="Groups of the communications on a stream, where a Kineto trace does not name them. Give the number "
            "of members, and the distance of their ranks. Repeat the option for several streams.  "
            "[default: from the sizes of all-gathers, otherwise all ranks]",
        ),
    ] = None,
    prefix: Annotated[str, typer.Option(help="Prefix of the file names, which are `PREFIX.RANK.et`.")] = "workload",
    compress: Annotated[bool, typer.Option("--compress", help="Write compressed traces: `.et.gz` files.")] = False,
) -> int:
    """Convert host execution traces and Kineto traces of PyTorch into Chakra traces, one for each rank.

    Kineto traces alone are enough if they tell the sizes of the communications. Host traces alone have no times.
    """
    check_prefix(prefix)
    if host is None and device is None:
        raise UsageError("give --host, --device or both: folders with PyTorch's traces")
    if group and host is not None:
        raise UsageError("--group: host traces name the groups; leave it out, or give --device alone")
    shapes = dict(_group_shape(text) for text in group or ())
    check_traces_folder(out, prefix)
    hosts = find_host_traces(host) if host else FoundTraces({})
    devices = find_device_traces(device) if device else FoundTraces({})
    passed_over = hosts.passed_over | devices.passed_over
    with writing(out):
        report = convert(hosts.by_rank, devices.by_rank, out, prefix, compress, passed_over, replicate, shapes)
    for rank, summary in sorted(report.ranks.items()):
        counts = ", ".join(f"{count} {op}" for op, count in sorted(summary.collectives.items())) or "none"
        print(
            f"rank {rank}: {summary.nodes} nodes, compute {summary.device_compute_ns / 1e6:.3f} ms, "
            f"memory {summary.memory_ns / 1e6:.3f} ms, host {summary.host_ns / 1e6:.3f} ms; collectives: {counts}"
        )
    for note in report.notes:
        print(f"note: {one_line(note)}")
    if replicate is not None:
        print(f"a trace that {replicate} ranks share in {out}")
    else:
        print(f"{len(report.files)} files in {out}")
    return 0


def _group_shape(text: str) -> tuple[int, GroupShape]:
    """Return the stream and the groups of a `--group`. Raises UsageError."""
    parts = GROUP_SHAPE.fullmatch(text)
    if parts is None or not int(parts["size"]) or not int(parts["stride"] or 1):
        raise UsageError(f"--group {text}: give STREAM=SIZE or STREAM=SIZE:STRIDE, such as 84=8 or 84=2:8")
    return int(parts["stream"]), GroupShape(int(parts["size"]), int(parts["stride"] or 1))


def convert_ns3(
    config: Annotated[
        Path,
        typer.Argument(
            help="Configuration file of the RDMA model of ns-3, as in the source tree of HPCC.", show_default=False
        ),
    ],
    out: Out,
) -> int:
    """Convert an experiment of the RDMA model of ns-3 into a fabric file and traces of its flows.

    The fabric file has the frames and the parameters of the model. The configuration file names a topology file and a
    flow file. Both must be in the folder of the configuration file, or in the folder above it.
    """
    check_experiment_folder(out, "flows")
    with reading(config):
        experiment = read_experiment(config)
    with writing(out / "traces"):
        save(experiment.workload, out / "traces", "flows")
    replace_own(out / "fabric.toml", marked_text("fabric", to_toml(experiment.fabric)), "fabric")
    for note in experiment.notes:
        print(f"note: {one_line(note)}")
    print(f"{len(experiment.flows)} flows among {experiment.fabric.hosts} hosts in {out}: simulate them with")
    print(f"genie simulate {out / 'traces'} --fabric {out / 'fabric.toml'} -o {out / 'run'}")
    return 0
