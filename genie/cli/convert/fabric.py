"""`genie convert fabric`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from genie.cli.convert.writing import quantity, reading
from genie.cli.exits import counted
from genie.config.units import format_rate, parse_duration, parse_rate
from genie.errors import UsageError
from genie.inputs.printable import one_line
from genie.record import is_special, marked_text, refuse_foreign, replace_own
from simtwin.fabric.schema import Fabric
from simtwin.fabric.text import to_toml
from simtwin.fabric.topology import build_network
from simtwin.imports.fabrics import READERS, import_fabric
from simtwin.imports.options import ImportOptions

FABRIC_EXAMPLES = """
Example:

```text
genie convert fabric Spectrum-X_16g --conf SimAI.conf -o fabric.toml
genie convert fabric ndv5-topo.xml --nic-rate 400Gb/s -o fabric.toml
```
"""
GIVE_RATE = "give a rate such as 200Gb/s"


def register(app: typer.Typer) -> None:
    """Add this file's command to `genie convert`."""
    app.command("fabric", epilog=FABRIC_EXAMPLES)(convert_fabric)


def convert_fabric(
    source: Annotated[Path, typer.Argument(metavar="IN", help="File of the other tool.", show_default=False)],
    target: Annotated[Path | None, typer.Argument(metavar="OUT", help="Same as --out.", show_default=False)] = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="Fabric file to write, such as `fabric.toml`.", show_default=False),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option("--from", help=f"Format of the file: {', '.join(READERS)}.  [default: recognised by the content]"),
    ] = None,
    conf: Annotated[
        Path | None,
        typer.Option(help="For `simai` and `ns3`: configuration file, such as `SimAI.conf`.  [default: none]"),
    ] = None,
    servers: Annotated[
        int | None, typer.Option(min=1, help="For `nccl`: number of servers of this kind.  [default: 2]")
    ] = None,
    spines: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="For `nccl`: number of spine switches that join the rails.  [default: the number of servers, or 0 "
            "with one rail]",
        ),
    ] = None,
    nic_rate: Annotated[
        str | None,
        typer.Option(
            help="For `nccl`: rate of the NICs for which the file has no speed, such as 200Gb/s.  [default: none]"
        ),
    ] = None,
    nvlink_rate: Annotated[
        str | None,
        typer.Option(
            help="For `nccl`, if the file has no NVLinks: rate from each GPU to an NVSwitch.  [default: none. The "
            "servers then have no NVSwitch]"
        ),
    ] = None,
    nic: Annotated[
        list[str] | None,
        typer.Option(
            help="For `nccl`, if the file has no device classes: bus id of a NIC. May be repeated.  [default: none]"
        ),
    ] = None,
    delay: Annotated[
        str | None, typer.Option(help="For `nccl`: delay of the cables outside the servers.  [default: 500ns]")
    ] = None,
) -> int:
    """Convert a network of SimAI, ns-3 or ASTRA-sim, or a topology XML of NCCL, into a fabric file.

    The command prints notes. They list the values that the input leaves open, and the parts that Genie does not
    understand.
    """
    if (target is None) == (out is None):
        raise UsageError("give one file to write: -o OUT.toml")
    written = out or target
    assert written is not None
    if written.is_dir():
        raise UsageError(f"{written}: is a folder; give a file there to write, such as {written / 'fabric.toml'}")
    if not written.parent.is_dir():
        raise UsageError(f"{written}: there is no folder {written.parent}; make it, or choose another -o")
    if not is_special(written):
        refuse_foreign(written, "fabric")
    options = ImportOptions(
        conf=conf,
        servers=servers,
        spines=spines,
        nic_rate=None if nic_rate is None else quantity("--nic-rate", nic_rate, parse_rate, GIVE_RATE),
        nvlink_rate=None if nvlink_rate is None else quantity("--nvlink-rate", nvlink_rate, parse_rate, GIVE_RATE),
        nic=tuple(nic or ()),
        delay=None if delay is None else quantity("--delay", delay, parse_duration, "give 0s to 1000s, such as 500ns"),
    )
    with reading(source):
        imported = import_fabric(source, kind, options)
    replace_own(written, marked_text("fabric", to_toml(imported.fabric)), "fabric")
    for note in imported.notes:
        print(f"note: {one_line(note)}")
    print(f"{summary(imported.fabric)}; in {written}")
    return 0


def summary(fabric: Fabric) -> str:
    """Return the numbers of hosts and switches, and of cables of each rate, in the fabric's network."""
    network = build_network(fabric)
    bridges = int(network.is_bridge.sum())
    rates = Counter(network.rate_bps[::2].tolist())
    parts = [
        counted(network.hosts, "host"),
        counted(network.nodes - network.hosts - bridges, "switch", "es"),
        *([counted(bridges, "bridge") + " inside servers"] if bridges else []),
        counted(network.links // 2, "cable"),
    ]
    return (
        f"{', '.join(parts)} ({', '.join(f'{count} of {format_rate(rate)}' for rate, count in sorted(rates.items()))})"
    )
