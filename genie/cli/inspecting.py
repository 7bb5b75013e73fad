"""`genie inspect` and `genie convert`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from genie.cli import options
from genie.cli.convert import fabric as convert_fabric
from genie.cli.convert import workloads as convert_workloads
from genie.cli.convert.writing import check_experiment_folder, check_traces_folder, reading, writing
from genie.errors import EXIT_FAILED, EXIT_OK
from genie.inputs.printable import one_line
from genie.record import marked_text, replace_own
from genie.workload.compute import fill_durations, parse_compute
from genie.workload.inspect import inspect_workload
from genie.workload.load import load
from genie.workload.pytorch.convert import check_prefix, convert
from genie.workload.pytorch.files import FoundTraces, find_device_traces, find_host_traces
from genie.workload.write import save
from simtwin.fabric.text import to_toml
from simtwin.imports.ns3 import read_experiment

convert_app = typer.Typer(help="Convert other tools' files: traces, experiments and fabrics.", no_args_is_help=True)

CONVERT_EXAMPLES = """
Example:

```text
genie convert pytorch --host host_traces/ --device kineto/ -o traces/dlrm
```
"""

NS3_EXAMPLES = """
Example:

```text
genie convert ns3 mix/config.txt -o incast
genie simulate incast/traces --fabric incast/fabric.toml -o run
```
"""


def register(app: typer.Typer) -> None:
    """Add this file's commands."""
    app.command()(inspect)
    convert_app.command("pytorch", epilog=CONVERT_EXAMPLES)(convert_pytorch)
    convert_app.command("ns3", epilog=NS3_EXAMPLES)(convert_ns3)
    convert_fabric.register(convert_app)
    convert_workloads.register(convert_app)
    app.add_typer(convert_app, name="convert")


def inspect(
    workload: options.Workload,
    compute: options.Compute = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> int:
    """Statistics and lint of a workload: nodes, bytes, durations, critical path. Exit code 1 when it has an error."""
    model = None if compute is None else parse_compute(compute)
    loaded = load(workload, allow_cycles=True)
    if model is not None:
        fill_durations(loaded, model)
    inspection = inspect_workload(loaded)
    print(json.dumps(inspection.to_dict(), indent=1) if as_json else "\n".join(inspection.lines()))
    return EXIT_OK if inspection.ok else EXIT_FAILED


def convert_pytorch(
    out: options.Out,
    host: Annotated[Path, typer.Option(help="Folder of the host execution traces, one a rank.", show_default=False)],
    device: Annotated[
        Path | None, typer.Option(help="Folder of the Kineto traces, one a rank.  [default: none, no durations]")
    ] = None,
    prefix: Annotated[str, typer.Option(help="Name of the files: PREFIX.RANK.et.")] = "workload",
    compress: Annotated[bool, typer.Option("--compress", help="Write .et.gz.")] = False,
) -> int:
    """PyTorch host execution traces and Kineto traces, one of each a rank."""
    check_prefix(prefix)
    check_traces_folder(out, prefix)
    hosts = find_host_traces(host)
    devices = find_device_traces(device) if device else FoundTraces({})
    passed_over = hosts.passed_over | devices.passed_over
    with writing(out):
        report = convert(hosts.by_rank, devices.by_rank, out, prefix, compress, passed_over)
    for rank, summary in sorted(report.ranks.items()):
        counts = ", ".join(f"{count} {op}" for op, count in sorted(summary.collectives.items())) or "none"
        print(
            f"rank {rank}: {summary.nodes} nodes, compute {summary.device_compute_ns / 1e6:.3f} ms, "
            f"memory {summary.memory_ns / 1e6:.3f} ms, host {summary.host_ns / 1e6:.3f} ms; collectives: {counts}"
        )
    for note in report.notes:
        print(f"note: {one_line(note)}")
    print(f"{len(report.files)} files in {out}")
    return 0


def convert_ns3(
    config: Annotated[
        Path, typer.Argument(help="Configuration of ns-3's RDMA model (HPCC's tree).", show_default=False)
    ],
    out: options.Out,
) -> int:
    """An experiment of ns-3's RDMA model: a fabric with its frames and parameters, and its flows as traces.

    The topology and flow files are found by the names that the configuration gives, beside it or in the folder above.
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
