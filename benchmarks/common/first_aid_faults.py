"""Eight faults that first aid must find, each at a random place in a lab of eight hosts. Not a benchmark.

Each fault states its place, so that findings can be judged.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from genie.lab import Lab, parse_change

HOSTS, LEAVES, SPINES = 8, 2, 2
FABRIC = f"""name = "first-aid"
[topology]
kind = "leaf-spine"
leaves = {LEAVES}
spines = {SPINES}
hosts_per_leaf = {HOSTS // LEAVES}
[topology.spine_link]
rate = "200Mb/s"
[link]
rate = "100Mb/s"
[switch]
buffer = "512KiB"
[ecn]
minimum = "32KiB"
maximum = "128KiB"
probability = 0.2
"""


@dataclass(frozen=True)
class Put:
    """A fault in the lab: its place, the start of its finding, and names of which a finding must have one."""

    where: str
    kinds: tuple[str, ...]
    names: tuple[str, ...]
    options: list[str] = field(default_factory=list)  # of genie check


Fault = Callable[[Lab, random.Random, Path], Put]


def run(lab: Lab, node: str, *argv: str, text: str | None = None) -> str:
    """Output of a command on a host or switch. Raises CalledProcessError."""
    line = lab.inside(node, *argv)
    return subprocess.run(line, input=text, capture_output=True, text=True, check=True, timeout=20).stdout


def host_of(lab: Lab, chance: random.Random) -> int:
    return chance.randrange(lab.plan.hosts)


def host_link(lab: Lab, host: int, *, out: bool) -> str:
    """A host's link in one direction."""
    name = lab.plan.nodes[host]
    return next(link.name for link in lab.plan.links if name == lab.plan.nodes[link.source if out else link.target])


def some_link(lab: Lab, chance: random.Random) -> str:
    """One direction of a random cable."""
    return chance.choice(lab.plan.links).name


def said_as(lab: Lab, link: str) -> tuple[str, ...]:
    """Names of a link in findings; a host's link is named by its host."""
    for host in range(lab.plan.hosts):
        address = f"{lab.plan.nodes[host]}, {lab.addresses[lab.plan.nodes[host]][0]}"
        if link == host_link(lab, host, out=True):
            return (f"from rank {host} ({address})",)
        if link == host_link(lab, host, out=False):
            return (f"to rank {host} ({address})",)
    return (link,)


def control_off(lab: Lab, chance: random.Random, folder: Path) -> Put:
    host = host_of(lab, chance)
    plan = folder / "faults.toml"
    plan.write_text(f"[[congestion]]\nrank = {host}\ncontrol = false\n")
    return Put(f"host{host}", ("congestion",), (f"rank {host} ",), ["--faults", str(plan)])


def small_mtu(lab: Lab, chance: random.Random, _: Path) -> Put:
    link = some_link(lab, chance)
    lab.set([parse_change(f"{link} mtu=1500", lab.plan.links)])
    return Put(link, ("mtu",), said_as(lab, link))


def wrong_address(lab: Lab, chance: random.Random, _: Path) -> Put:
    host = host_of(lab, chance)
    name, own = lab.plan.nodes[host], lab.addresses[lab.plan.nodes[host]][0]
    device = interface_of(lab, name)
    run(lab, name, "ip", "addr", "add", f"10.99.{host}.1/32", "dev", device)
    run(lab, name, "ip", "addr", "del", f"{own}/31", "dev", device)
    return Put(name, ("address",), (f"rank {host} ",))


def duplicated_address(lab: Lab, chance: random.Random, _: Path) -> Put:
    host = host_of(lab, chance)
    other = chance.choice([each for each in range(lab.plan.hosts) if each != host])
    own = lab.addresses[lab.plan.nodes[host]][0]
    name = lab.plan.nodes[other]
    run(lab, name, "ip", "addr", "add", f"{own}/32", "dev", interface_of(lab, name))
    return Put(f"{lab.plan.nodes[host]}'s at {name}", ("duplicate",), (f"{own} is on two hosts",))


def dropped_port(lab: Lab, chance: random.Random, _: Path) -> Put:
    link = some_link(lab, chance)
    rule_at_the_end(lab, link, "udp dport 4791 drop")
    return Put(link, ("dropped",), said_as(lab, link))


def bleached_ecn(lab: Lab, chance: random.Random, _: Path) -> Put:
    link = some_link(lab, chance)
    rule_at_the_end(lab, link, "ip ecn set not-ect")
    return Put(link, ("ecn",), said_as(lab, link))


def half_rate(lab: Lab, chance: random.Random, _: Path) -> Put:
    link = some_link(lab, chance)
    lab.set([parse_change(f"{link} rate=50%", lab.plan.links)])
    return Put(link, ("rate",), said_as(lab, link))


def lost_packets(lab: Lab, chance: random.Random, _: Path) -> Put:
    link = some_link(lab, chance)
    lab.set([parse_change(f"{link} loss=1%", lab.plan.links)])
    return Put(link, ("loss",), said_as(lab, link))


def interface_of(lab: Lab, name: str) -> str:
    """The interface of a host that has its address in the lab."""
    own = lab.addresses[name][0]
    for each in json.loads(run(lab, name, "ip", "-j", "addr")):
        if own in [address.get("local") for address in each["addr_info"]]:
            return str(each["ifname"])
    raise LookupError(f"{name} has no {own}")


def rule_at_the_end(lab: Lab, link: str, rule: str) -> None:
    """Add a rule for packets that arrive by a link, in a table of its own."""
    chosen = next(each for each in lab.plan.links if each.name == link)
    table = "table ip aid {\n chain arrivals {\n  type filter hook prerouting priority mangle; policy accept;\n"
    text = f'{table}  iifname "{chosen.device}" {rule}\n }}\n}}\n'
    run(lab, lab.plan.nodes[chosen.target], "nft", "-f", "-", text=text)


def clean(lab: Lab, chance: random.Random, _: Path) -> Put:
    del lab, chance
    return Put("nowhere", (), ())


FAULTS: dict[str, Fault] = {
    "clean": clean,
    "control-off": control_off,
    "small-mtu": small_mtu,
    "wrong-address": wrong_address,
    "dropped-4791": dropped_port,
    "ecn-cleared": bleached_ecn,
    "half-rate": half_rate,
    "duplicate": duplicated_address,
    "loss": lost_packets,
}


if __name__ == "__main__":
    print(f"{__doc__}\nNot a benchmark: run first_aid.py.")
