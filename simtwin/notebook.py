"""Fabrics and simulations as tables and figures for notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from genie.config.congestion import name_of
from simtwin.fabric.size import size_of

if TYPE_CHECKING:
    from genie.figures import Fact, Figure
    from simtwin.fabric.schema import Fabric
    from simtwin.play.simulated import Simulated

TRANSFERS_MAX = 100_000  # of a table of headline facts, which is shown at once


def kind_of(fabric: Fabric) -> str:
    """Return the kind of a fabric's topology, as in its file."""
    return str(fabric.topology.__struct_config__.tag)


def in_one_line(fabric: Fabric) -> str:
    """Return a fabric in a line, for its repr."""
    from genie.page import count_of, rate

    link = f", {rate(fabric.link.rate)}" if fabric.link is not None else ""
    control = name_of(fabric.control)
    hosts = count_of(fabric.hosts, "host")
    return f"<Fabric {fabric.name!r}: {kind_of(fabric)}, {hosts}{link}, congestion control {control}>"


def headline_of_fabric(fabric: Fabric) -> str:
    """Return a fabric's headline facts as HTML."""
    from genie.figures import headline
    from genie.page import amount, count_of, duration, rate

    link, switch = fabric.link, fabric.switch
    buffer = switch.shared_buffer if switch.shared_buffer is not None else switch.buffer
    whose = "of a switch, shared" if switch.shared_buffer is not None else "of each output port"
    facts: list[Fact] = [
        ("Topology", kind_of(fabric), f"{count_of(fabric.hosts, 'host')}, {count_of(size_of(fabric).cables, 'cable')}"),
    ]
    if link is not None:
        facts.append(("Links", rate(link.rate), f"default; delay {duration(link.delay / 1000)}"))
    facts += [
        ("Congestion control", name_of(fabric.control)),
        ("Load balancing", fabric.load_balancing.mode),
        ("Buffer", "unlimited" if buffer < 0 else amount(buffer), "" if buffer < 0 else whose),
        ("ECN", "off" if fabric.ecn is None else f"{amount(fabric.ecn.minimum)} to {amount(fabric.ecn.maximum)}"),
        ("PFC", "off" if fabric.pfc is None else f"priorities {', '.join(map(str, fabric.lossless_priorities))}"),
        ("Path MTU", f"{fabric.transport.mtu} B", "payload of a packet"),
    ]
    if fabric.fault:
        facts.append(("Faults", str(len(fabric.fault)), "tables [[fault]]"))
    return headline(f"Fabric {fabric.name}", facts)


def headline_of_simulation(run: Simulated) -> str:
    """Return a simulation's headline facts as HTML."""
    from genie.figures import headline
    from genie.page import count_of, duration
    from genie.record.display import facts_of, network_facts, title_of

    facts: list[Fact] = [("Failed", run.failure, "the facts below are of the part played")] if run.failure else []
    facts += [("Fabric", str(run.info.get("fabric", ""))), *facts_of(run)]
    if run.transfers.height > TRANSFERS_MAX:
        facts.append(
            ("Flow completion", "not computed here", f"{run.transfers.height:,} transfers: see .flow_completion")
        )
    elif len(times := run.flow_completion):
        median, p99 = (duration(float(times["fct_ns"].quantile(at) or 0)) for at in (0.5, 0.99))
        facts.append(("Flow completion", median, f"median; 99th percentile {p99}; {count_of(len(times), 'transfer')}"))
    texts = run.info.get("warnings") or []
    warnings: Fact = ("Warnings", str(len(texts)), "in info['warnings']" if texts else "")
    title = title_of(run)
    return headline(title[:1].upper() + title[1:], [*facts, *network_facts(run), warnings])


def fct_figure(runs: Mapping[str, Simulated]) -> Figure:
    """Compare the flow completion times of simulations, as one cumulative distribution for each.

    runs: name of a curve -> simulation.
    Returns a figure of the share of transfers (0 to 100 %) at or below each time.
    """
    from genie.figures import distribution

    times = {name: run.flow_completion["fct_ns"].to_numpy() for name, run in runs.items()}
    return distribution("Share of transfers by flow completion time", "flow completion time", times)
