"""Fabric files: what is read, what is refused and in which words, and that writing is the inverse of reading."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genie.config.congestion import Dcqcn, DcqcnTimer, NoControl, Swift
from genie.config.strict_toml import CHARACTERS_MAX, SettingsError
from genie.config.units import Duration, Rate, Size
from simtwin.fabric.placement import ranks_per_server
from simtwin.fabric.reading import (
    FabricError,
    changed_fabric,
    load_fabric,
    loopback_fabric,
    parse_fabric,
    to_toml,
    with_host_latency,
)
from simtwin.fabric.schema import (
    Downlink,
    Ecn,
    Explicit,
    Fabric,
    Frame,
    Host,
    LeafSpine,
    Link,
    NamedHost,
    NamedLink,
    NamedSwitch,
    Priority,
    SingleSwitch,
    Switch,
    Transport,
)

SINGLE = """\
name = "eight"
[topology]
kind = "single-switch"
hosts = 8
[link]
rate = "200Mb/s"
delay = "1.5us"
"""
EXPLICIT = """\
[topology]
kind = "explicit"
[[topology.host]]
name = "a"
[[topology.host]]
name = "b"
[[topology.switch]]
name = "s"
[[topology.link]]
a = "a"
b = "s"
rate = "1Gb/s"
[[topology.link]]
a = "b"
b = "s"
rate = "1Gb/s"
"""


def test_reads_a_fabric() -> None:
    fabric = parse_fabric(
        SINGLE + '[downlink]\nrate = "unlimited"\n[switch]\nbuffer = "64KiB"\n[transport]\nmtu = 1024\n'
    )
    assert fabric.name == "eight"
    assert fabric.topology == SingleSwitch(hosts=8)
    assert fabric.link == Link(rate=Rate(200_000_000), delay=Duration(1_500_000))
    assert fabric.downlink == Downlink(rate=Rate(0))
    assert fabric.switch.buffer == 65536
    assert fabric.transport.mtu == 1024
    assert fabric.transport.window_packets is None


# Text, then the line, the key and the words that the error has to hold.
REFUSED = [
    ("", 1, "topology", "is missing"),
    (SINGLE.replace("hosts = 8", "hosts = 0"), 4, "topology.hosts = 0", "an integer from 1 to 65536"),
    (SINGLE.replace("hosts = 8", "host = 8"), 4, "topology.host", "unknown key; the keys here are kind, hosts"),
    (SINGLE.replace("hosts = 8", ""), 2, "topology.hosts", "is missing: give an integer"),
    (SINGLE.replace("single-switch", "ring"), 3, "topology.kind", '"single-switch" or "leaf-spine" or "fat-tree"'),
    (SINGLE.replace("single-switch", "fat-tree"), 4, "topology.hosts", "the keys here are kind, k"),
    (SINGLE.replace('"200Mb/s"', "0"), 6, "link.rate = 0", "above 0"),
    (SINGLE.replace('"200Mb/s"', '"0Gb/s"'), 6, "link.rate", "above 0"),
    (SINGLE.replace('"200Mb/s"', '"25GB/s"'), 6, "link.rate", "unknown unit 'GB/s'"),
    (SINGLE.replace('"1.5us"', '"-1us"'), 7, "link.delay", "from 0"),
    (SINGLE.replace('"1.5us"', "-1"), 7, "link.delay", "from 0"),
    (SINGLE.replace('"1.5us"', "1.5"), 7, "link.delay", "its unit"),
    (SINGLE.replace('"1.5us"', "500"), 7, "link.delay", "its unit"),
    (SINGLE.replace('"1.5us"', '"0.1ps"'), 7, "link.delay", "finer than 1 ps"),
    (SINGLE.replace('rate = "200Mb/s"', ""), 5, "link.rate", "is missing"),
    (SINGLE.split("[link]")[0], 1, "link", "is missing: give [link] with rate"),
    (SINGLE + "[transport]\nmtu = 1500\n", 9, "transport.mtu = 1500", "256 or 512 or 1024 or 2048 or 4096"),
    (SINGLE + "[transport]\nretry_limit = 8\n", 9, "transport.retry_limit", "from 0 to 7"),
    (SINGLE + "[transport]\nwindow_packets = 0\n", 9, "transport.window_packets", "from 1 to 8388607"),
    (SINGLE + "[switch]\nbuffer = 100\n", 9, "switch.buffer", "cannot hold one packet: give 4198 B or more"),
    (SINGLE + "[switch]\nbuffer = 0\n", 9, "switch.buffer", "above 0"),
    (SINGLE + '[load_balancing]\nmode = "luck"\n', 9, "load_balancing.mode", '"ecmp" or "flowlet"'),
    (SINGLE + "[ecn]\nkmin = 5\n", 9, "ecn.kmin", "unknown key; the keys here are minimum, maximum"),
    (SINGLE + '[ecn]\nminimum = "1MB"\nmaximum = "1kB"\n', 9, "ecn.minimum = 1000000 B", "above maximum = 1000 B"),
    (SINGLE + "[pfc]\n", 8, "pfc", "give [switch] shared_buffer"),
    (SINGLE + '[congestion]\nkind = "luck"\n', 9, "congestion.kind", '"dcqcn" or'),
    (SINGLE + '[congestion]\nkind = "dcqcn"\neta = 1\n', 10, "congestion.eta", "unknown key"),
    (
        SINGLE + '[transport]\ncongestion = "hpcc"\n[congestion]\nkind = "dcqcn"\n',
        11, "congestion.kind", 'dcqcn, and [transport] says "hpcc": give one'
    ),
    (SINGLE + "[colour]\nred = 1\n", 8, "colour", "unknown key; the keys here are name, topology"),
    (SINGLE + "link = 3\n", 8, "link", "unknown key; the keys here are rate, delay"),
    (SINGLE + "[link]\n", 8, "", "is not TOML"),
    (SINGLE.replace("hosts = 8", "hosts = 8\nhosts = 4"), 5, "", "is not TOML: this key is given twice"),
    (SINGLE.replace("single-switch", "leaf-spine"), 4, "topology.hosts", "the keys here are kind, leaves, spines"),
    (EXPLICIT.replace('name = "b"', 'name = "a"'), 6, "topology.host[1].name", '"a" is taken'),
    (EXPLICIT.replace('name = "s"', 'name = "a"'), 8, "topology.switch[0].name", '"a" is taken'),
    (EXPLICIT.replace('b = "s"', 'b = "t"', 1), 11, "topology.link[0].b", '"t" is not a node'),
    (EXPLICIT.replace('a = "b"', 'a = "s"'), 15, "topology.link[1].b", "give another node"),
    (EXPLICIT[: EXPLICIT.rindex("rate")], 13, "topology.link[1].rate", "is missing, and so is [link]"),
    (EXPLICIT[: EXPLICIT.rindex("[[")], 9, "topology.link", "no path from b to a"),
    (EXPLICIT + '[downlink]\nrate = "1Gb/s"\n', 17, "downlink", "rate_back"),
    (EXPLICIT.replace('name = "s"', 'name = ""'), 8, "topology.switch[0].name", "1 to 64 characters"),
    (EXPLICIT.replace('name = "s"', 'name = "s"\nbuffer = "1kB"'), 9, "topology.switch[0].buffer", "one packet"),
    (
        EXPLICIT.replace('name = "s"', 'name = "s"\nbuffer = "64KiB"\nbridge = true'),
        9, "topology.switch[0].buffer", "is not for a bridge, which holds all that comes"
    ),
    (
        EXPLICIT.replace('kind = "explicit"', 'kind = "explicit"\nhosts_per_server = 3'),
        3, "topology.hosts_per_server = 3", "does not divide the 2 hosts"
    ),
    (SINGLE + "[server]\n", 8, "server", "is empty: give gpu, gpus or both"),
    (SINGLE + "[server]\ngpus = 3\n", 9, "server.gpus = 3", "does not divide the 8 hosts"),
    (SINGLE + "[server]\ngpus = 0\n", 9, "server.gpus", "from 1 to 1024"),
    (
        EXPLICIT.replace('kind = "explicit"', 'kind = "explicit"\nhosts_per_server = 2') + "[server]\ngpus = 1\n",
        19, "server.gpus = 1", "[topology] has servers of 2 hosts: give one"
    ),
    (EXPLICIT.replace('"1Gb/s"', '"1Gb/s"\nrate_back = 0', 1), 13, "topology.link[0].rate_back = 0", "above 0"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "key", "words"), REFUSED)
def test_errors_name_line_key_and_allowed_value(text: str, line: int, key: str, words: str) -> None:
    with pytest.raises(FabricError) as refused:
        parse_fabric(text, "f.toml")
    message = str(refused.value)
    assert message.startswith(f"f.toml:{line}: {key}")
    assert words in message
    assert "\n" not in message


def test_a_scale_up_domain_of_72_gpus() -> None:
    """On any topology, and as the rails of one; a changed fabric keeps it."""
    racks = '[topology]\nkind = "fat-tree"\nk = 12\n[link]\nrate = "400Gb/s"\n[server]\ngpu = "gb200"\ngpus = 72\n'
    found = parse_fabric(racks)
    assert ranks_per_server(found) == 72
    assert ranks_per_server(changed_fabric(found, {"transport.mtu": 1024})) == 72
    rails = '[topology]\nkind = "rail-optimized"\nservers = 2\nrails = 72\nspines = 1\ndomain = {rate = "7.2Tb/s"}\n'
    assert ranks_per_server(parse_fabric(rails + '[link]\nrate = "400Gb/s"\n')) == 72
    assert ranks_per_server(parse_fabric(SINGLE)) == 1


def test_too_many_hosts_of_a_leaf_spine() -> None:
    text = '[topology]\nkind = "leaf-spine"\nleaves = 64\nspines = 1\nhosts_per_leaf = 1025\n[link]\nrate = "1Gb/s"\n'
    with pytest.raises(FabricError, match=r"f:5: topology.hosts_per_leaf = 1025 makes 65600 hosts: give at most 1024"):
        parse_fabric(text, "f")


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(FabricError, match=r"none\.toml: cannot be read: No such file"):
        load_fabric(tmp_path / "none.toml")
    (tmp_path / "raw.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match=r"raw\.toml: is not text"):
        load_fabric(tmp_path / "raw.toml")
    with pytest.raises(FabricError, match=r"^/dev/zero: is not text; give the path of a TOML file$"):
        load_fabric(Path("/dev/zero"))
    (tmp_path / "long.toml").write_text("#" * (CHARACTERS_MAX + 1))
    with pytest.raises(FabricError, match=r"long\.toml: has more than 33554432 characters: give a shorter file"):
        load_fabric(tmp_path / "long.toml")


def test_a_byte_order_mark_is_none_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "bom.toml").write_text(SINGLE, encoding="utf-8-sig")
    assert load_fabric(tmp_path / "bom.toml") == parse_fabric(SINGLE)


def test_loopback_serialises_on_the_uplink_only() -> None:
    fabric = loopback_fabric(8, 200_000_000, packet_latency_ns=61_000, message_latency_ns=5_000)
    assert fabric.hosts == 8
    assert fabric.link == Link(rate=Rate(200_000_000))
    assert fabric.downlink == Downlink(rate=Rate(0))
    assert fabric.switch.buffer == -1
    assert fabric.host == Host(packet_latency=Duration(61_000_000), message_latency=Duration(5_000_000))
    assert parse_fabric(to_toml(fabric)) == fabric
    assert 'rate = "200Mb/s"' in to_toml(fabric)


def test_measured_host_latency_replaces_the_files_on_every_host() -> None:
    text = EXPLICIT.replace('name = "a"', 'name = "a"\npacket_latency = "9us"')
    fabric = with_host_latency(parse_fabric(text), 61_000, 5_000)
    assert fabric.host == Host(packet_latency=Duration(61_000_000), message_latency=Duration(5_000_000))
    assert isinstance(fabric.topology, Explicit)
    assert [host.packet_latency for host in fabric.topology.host] == [None, None]


rates = st.sampled_from([0, 10**4, 123_456_789, 10**13]).map(Rate)
durations = st.integers(0, 10**13).map(Duration)
buffers = st.one_of(st.just(Size(-1)), st.integers(5000, 2**32).map(Size))
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
links = st.builds(Link, rate=rates, delay=durations)
shares = st.floats(2**-10, 1)
limited, intervals = st.integers(10**4, 10**13).map(Rate), st.integers(1000, 10**12).map(Duration)
controls = st.one_of(
    st.builds(NoControl),
    st.builds(Dcqcn, additive=limited, alpha_timer=intervals, cnp_interval=durations),
    st.builds(DcqcnTimer, gain=shares, clamp_target=st.booleans(), fast_recovery=st.integers(0, 9)),
    st.builds(Swift, flow_minimum=shares, base_target=intervals, base_round_trip=intervals),
)


@st.composite
def explicit_topologies(draw: st.DrawFn) -> Explicit:
    drawn = draw(st.lists(names, min_size=3, max_size=6, unique=True))
    hosts = [NamedHost(n, draw(st.none() | durations), draw(st.none() | durations)) for n in drawn[:-1]]
    cables = [
        NamedLink(host.name, drawn[-1], draw(st.none() | rates), draw(st.none() | durations), draw(st.none() | rates))
        for host in hosts
    ]
    switch = draw(st.builds(NamedSwitch, st.just(drawn[-1]), buffer=st.none() | buffers) | bridges(drawn[-1]))
    return Explicit(hosts_per_server=draw(st.none() | st.just(len(hosts))), host=hosts, switch=[switch], link=cables)


def bridges(name: str) -> st.SearchStrategy[NamedSwitch]:
    return st.just(NamedSwitch(name, bridge=True))


@st.composite
def fabrics(draw: st.DrawFn) -> Fabric:
    topology = draw(
        st.one_of(
            st.builds(SingleSwitch, hosts=st.integers(1, 4096)),
            st.builds(
                LeafSpine,
                leaves=st.integers(1, 64),
                spines=st.integers(1, 64),
                hosts_per_leaf=st.integers(1, 64),
                spine_link=st.none() | links,
            ),
            explicit_topologies(),
        )
    )
    return Fabric(
        topology=topology,
        name=draw(names),
        link=draw(links),
        downlink=None if isinstance(topology, Explicit) else draw(st.none() | st.builds(Downlink, rate=rates)),
        transport=Transport(
            mtu=draw(st.sampled_from([256, 512, 1024, 2048, 4096])),  # type: ignore[arg-type]
            window_packets=draw(st.none() | st.integers(1, 2**23 - 1)),
            ack_timeout=draw(st.none() | intervals),
        ),
        frame=Frame(draw(st.integers(0, 256))),
        host=Host(draw(durations), draw(durations)),
        switch=Switch(draw(buffers)),
        ecn=draw(
            st.none()
            | st.builds(Ecn, minimum=st.just(Size(9)), maximum=st.integers(9, 2**32).map(Size), probability=shares)
        ),
        priority=draw(st.builds(Priority, data=st.integers(0, 6), control=st.integers(0, 6))),
        congestion=draw(st.none() | controls),
    )


@settings(max_examples=150, deadline=None, derandomize=True)
@given(fabrics())
def test_writing_is_the_inverse_of_reading(fabric: Fabric) -> None:
    assert parse_fabric(to_toml(fabric)) == fabric
