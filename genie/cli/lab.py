"""`genie lab`: a fabric file's network on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from genie.cli.exits import counted, text_of
from genie.config.units import format_rate, format_size
from genie.errors import UsageError, exit_code_of
from genie.lab import Fault, Lab, LabError, change_of, down, find, lab_named, names_of, up
from genie.lab.state import all_names, load
from simtwin.fabric.reading import FabricError

UP_EXAMPLES = """
Examples:

```text
genie lab up FABRIC.toml
genie validate TRACE --lab FABRIC.toml -o runs/lab
genie lab exec FABRIC.toml host0 ip route
genie lab down FABRIC.toml
```
"""

SET_EXAMPLES = """
Examples:

```text
genie lab set FABRIC.toml leaf0-spine1 --rate 40%    # both directions
genie lab set FABRIC.toml 'leaf0->spine1' --loss 1%  # one direction
genie lab set FABRIC.toml host3-leaf0 --mtu 1500     # drops longer packets
genie lab set FABRIC.toml leaf0-spine1 --ecn 10%     # marks packets
genie lab set FABRIC.toml leaf0-spine1 --delay 300us --reorder 1%
genie lab set FABRIC.toml leaf0-spine1 --dscp 0      # rewrites header bits
genie lab set FABRIC.toml leaf0-spine1 --down        # --up restores it
genie lab set FABRIC.toml leaf0-spine1 --clear
```
"""

DOWN_EXAMPLES = """
Example:

```text
genie lab down FABRIC.toml
```
"""

STATUS_EXAMPLES = """
Examples:

```text
genie lab status              # all your labs
genie lab status FABRIC.toml
```
"""

EXEC_EXAMPLES = """
Examples:

```text
genie lab exec FABRIC.toml host0 ip route
genie lab exec FABRIC.toml leaf0 tc -s qdisc
genie lab exec FABRIC.toml host0 bash
```
"""

FabricOfLab = Annotated[Path, typer.Argument(metavar="FABRIC", help="Fabric file of the lab.", show_default=False)]

lab_app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")


def register(app: typer.Typer) -> None:
    """Add this file's commands."""
    app.add_typer(
        lab_app,
        name="lab",
        help="Build the network of a fabric file on this machine, from network namespaces.",
    )


@lab_app.command("up", epilog=UP_EXAMPLES)
def lab_up(fabric: FabricOfLab) -> int:
    """Build the network of a fabric file on this machine. The lab stays until `genie lab down`.

    Hosts and switches are network namespaces. Switches route with ECMP, and each link has a rate and a queue. No
    traffic leaves the lab. The command lists the parts of the fabric file that a lab cannot build.
    """
    lab, was_up = up(fabric)
    print(f"{lab.name}: {'is up already' if was_up else 'up'}, {_size(lab)}")
    _print_cannot(lab)
    return 0


@lab_app.command("down", epilog=DOWN_EXAMPLES)
def lab_down(fabric: FabricOfLab) -> int:
    """Remove a lab, and end all processes in it.

    The command also removes the remains of a killed `genie lab up` or of a killed run.
    """
    taken, code = [], 0
    for name in names_of(fabric):
        try:
            if down(name):
                taken.append(f"{name}: down")
        except LabError as error:
            code = max(code, _told(error))
    if taken or code == 0:
        print("\n".join(taken) or f"{fabric}: has no lab that is up{_if_missing(fabric)}: nothing to do")
    return code


@lab_app.command("status", epilog=STATUS_EXAMPLES)
def lab_status(
    fabric: Annotated[
        Path | None,
        typer.Argument(metavar="FABRIC", help="Fabric file of one lab.  [default: all labs]", show_default=False),
    ] = None,
) -> int:
    """List your labs that are up: hosts, addresses, links with their faults, and omissions.

    Omissions are the parts of the fabric file that the lab could not build. The command does not list the labs of other
    users.
    """
    if fabric is not None:
        lab = find(fabric)
        if lab is None:
            print(f"{fabric}: has no lab that is up{_if_missing(fabric)}")
            return 0
        for line in _described(lab):
            print(line)
        return 0
    names, code = all_names(), 0
    for name in names:
        try:
            for line in _described_by_name(name):
                print(line)
        except (LabError, FabricError) as error:
            code = max(code, _told(error))
    if not names:
        print("no lab of this user is up")
    return code


@lab_app.command("set", epilog=SET_EXAMPLES)
def lab_set(
    fabric: FabricOfLab,
    link: Annotated[
        str,
        typer.Argument(
            metavar="LINK",
            help="Cable such as `leaf0-spine1` (both directions), or link such as `leaf0->spine1` (one direction).",
            show_default=False,
        ),
    ],
    rate: Annotated[
        str | None,
        typer.Option(help="Rate of the link, such as 80Mb/s, or a share of the rate in the fabric file, such as 40%."),
    ] = None,
    loss: Annotated[str | None, typer.Option(help="Share of the packets that the link loses, such as 1%.")] = None,
    ecn: Annotated[
        str | None, typer.Option(help="Share of the ECN-capable packets that the link marks, such as 10%.")
    ] = None,
    mtu: Annotated[str | None, typer.Option(help="Size in bytes. The link silently drops longer IP packets.")] = None,
    delay: Annotated[str | None, typer.Option(help="Time by which the link delays packets, such as 300us.")] = None,
    reorder: Annotated[
        str | None,
        typer.Option(help="Share of the packets, such as 1%, that are held for 2 ms. Later packets overtake them."),
    ] = None,
    dscp: Annotated[str | None, typer.Option(help="DSCP that the link writes into all packets, such as 0.")] = None,
    is_down: Annotated[
        bool, typer.Option("--down", help="Cut the link. Switches then use other paths, if there are any.")
    ] = False,
    is_up: Annotated[bool, typer.Option("--up", help="Restore a link that was cut.")] = False,
    clear: Annotated[
        bool, typer.Option("--clear", help="Remove all faults of the link before the other options take effect.")
    ] = False,
) -> int:
    """Change a link of a lab while the lab runs. The other faults of the link stay."""
    lab = _found(fabric)
    flags = {"down": is_down, "up": is_up, "clear": clear}
    given: dict[str, str | None] = {key: "" if is_given else None for key, is_given in flags.items()}
    given |= {"rate": rate, "loss": loss, "ecn": ecn, "mtu": mtu, "delay": delay, "reorder": reorder, "dscp": dscp}
    lab.set([change_of(link, lab.plan.links, values=given)])
    print("\n".join(_faults(lab)) or f"{lab.name}: no faults")
    return 0


@lab_app.command(
    "exec",
    epilog=EXEC_EXAMPLES,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
def lab_exec(
    fabric: FabricOfLab,
    node: Annotated[str, typer.Argument(metavar="NODE", help="Name of a host or of a switch.", show_default=False)],
    command: Annotated[
        list[str],
        typer.Argument(metavar="COMMAND...", help="Command to run there, with its arguments.", show_default=False),
    ],
) -> int:
    """Run a command on a host or a switch of a lab.

    In the lab of a user who is not root, the command seems to run as root (uid 0). It is root only in the user
    namespace of the lab. Outside the lab, for example on files, it has the rights of the user.
    """
    argv = _found(fabric).inside(node, *command[command[0] == "--" :])
    os.execvp(argv[0], argv)


def _found(fabric: Path) -> Lab:
    lab = find(fabric)
    if lab is None:
        raise UsageError(f"{fabric}: has no lab that is up{_if_missing(fabric)}: genie lab up {fabric}")
    return lab


def _if_missing(fabric: Path) -> str:
    """Return a hint if the fabric file is missing: a lab outlives its file, and a name may be mistyped."""
    return "" if fabric.exists() else " (there is no such file)"


def _size(lab: Lab) -> str:
    plan = lab.plan
    switches = len(plan.nodes) - plan.hosts
    counts = (counted(plan.hosts, "host"), counted(switches, "switch", "es"), counted(len(plan.links) // 2, "cable"))
    return ", ".join(counts)


def _told(error: Exception) -> int:
    """Print the error of one lab of several, and return its exit code."""
    print(f"genie: {text_of(error)}", file=sys.stderr)
    return exit_code_of(error) or 0


def _described_by_name(name: str) -> Iterator[str]:
    if (lab := lab_named(name)) is not None:
        yield from _described(lab)
    elif (left := load(name)) is not None:
        yield f"{name}: not up: genie lab down {left.fabric_path} removes what is left of it"


def _described(lab: Lab) -> Iterator[str]:
    plan = lab.plan
    yield f"{lab.name}: up, {_size(lab)}, from {lab.state.fabric_path}; kept by process {lab.state.pid}"
    for name, addresses in lab.addresses.items():
        yield f"  {name}: {' '.join(addresses)}"
    for link in plan.links:
        delay = "" if lab.faults.get(link.name, Fault()).delay_ns else ", no delay"
        limits = "" if link.rate_bps == 0 else f", burst {link.burst_bytes} B, queue {format_size(link.queue_bytes)}"
        yield f"  {link.name}: {format_rate(link.rate_bps)}{limits}{delay}"
    for line in _faults(lab):
        yield f"  {line}"
    if lab.state.is_in_doubt:
        yield "  links may have other faults than these: the last change was cut short; the next one sets every link"
    for sentence in lab.cannot:
        yield f"  {sentence}"


def _faults(lab: Lab) -> list[str]:
    return [f"fault: {name}: {fault.words()}" for name, fault in lab.faults.items()]


def _print_cannot(lab: Lab) -> None:
    for sentence in lab.cannot:
        print(f"  {sentence}")
