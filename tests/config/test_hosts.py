"""Hosts files: places of ranks, what is refused, and calibrations written back."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genie.cli.exits import text_of
from genie.config.hosts import (
    Calibration,
    HostsError,
    Place,
    load_hosts,
    loopback_hosts,
    parse_hosts,
    with_calibration,
    write_calibration,
)
from genie.errors import exit_code_of

TWO_NODES = """\
# our rack
[[host]]
name = "node1"
address = "10.0.0.1"
ranks = "0-1"
device = "mlx5_0"
port = "host{rank}"
[[host]]
name = "node2"
address = ["10.0.0.2", "10.0.1.2"]
ranks = [2, 3]
"""


def test_places_in_rank_order() -> None:
    hosts = parse_hosts(TWO_NODES)
    assert hosts.ranks == 4
    assert hosts.places[1] == Place(1, "node1", "10.0.0.1", "mlx5_0", "host1")
    assert hosts.places[3] == Place(3, "node2", "10.0.1.2", None, None)
    assert hosts.names() == ["node1", "node2"]
    assert hosts.mpirun_hosts() == "node1:2,node2:2"
    assert hosts.calibration is None
    assert hosts.first(3).places == hosts.places[:3]


def test_templates_fill_in_rank_and_index() -> None:
    text = '[[host]]\nname = "n"\nranks = "2-3,0,1"\naddress = "127.0.{rank+5}.{index+1}"\nport = "p{index}"\n'
    hosts = parse_hosts(text)
    assert [place.address for place in hosts.places] == ["127.0.5.3", "127.0.6.4", "127.0.7.1", "127.0.8.2"]
    assert [place.port for place in hosts.places] == ["p2", "p3", "p0", "p1"]


def test_ipv6_addresses_are_written_in_one_way() -> None:
    text = '[[host]]\nname = "n"\nranks = "0-1"\naddress = "FD00:0::{rank+16}"\n'
    assert [place.address for place in parse_hosts(text).places] == ["fd00::16", "fd00::17"]


def test_devices_and_transports_of_ranks() -> None:
    text = """
[[host]]
name = "a"
ranks = "0-1"
address = "10.0.0.1"
transport = "verbs"
device = "mlx5_{index}:1"
[[host]]
name = "b"
ranks = "2-3"
address = "10.0.0.2"
device = ["=mlx5_3", "^mlx5_0"]
[[host]]
name = "c"
ranks = 4
address = "10.0.0.3"
transport = "softroce"
"""
    places = parse_hosts(text).places
    assert [place.device for place in places] == ["mlx5_0:1", "mlx5_1:1", "=mlx5_3", "^mlx5_0", None]
    assert [place.transport for place in places] == ["verbs", "verbs", None, None, "softroce"]


@given(st.integers(0, 600))
def test_loopback_gives_each_rank_an_address(ranks: int) -> None:
    hosts = loopback_hosts(ranks)
    assert len({place.address for place in hosts.places}) == ranks
    assert all(place.address.startswith("127.0.") for place in hosts.places)
    assert [place.rank for place in hosts.places] == list(range(ranks))


def test_loopback_ends_at_127_8() -> None:
    assert loopback_hosts(2, "127.0.1.1").places[1].address == "127.0.1.2"
    with pytest.raises(HostsError, match=r"leave 127\.0\.0\.0/8"):
        loopback_hosts(3, "127.255.255.254")


REFUSED = [
    ("", 1, "host", "is missing: give tables [[host]]"),
    ("host = []\n", 1, "host = []", "give tables [[host]]"),
    (TWO_NODES.replace('ranks = "0-1"', ""), 2, "host[0].ranks", "is missing: give a rank, a list"),
    (TWO_NODES.replace('"0-1"', '"1-0"'), 5, "host[0].ranks", 'such as "0-3,8"'),
    (TWO_NODES.replace('"0-1"', '"all"'), 5, "host[0].ranks", 'such as "0-3,8"'),
    (TWO_NODES.replace('"0-1"', '"0-99999999"'), 5, "host[0].ranks", "below 65536"),
    (TWO_NODES.replace('"0-1"', "[]"), 5, "host[0].ranks", "one or more ranks"),
    (TWO_NODES.replace('"0-1"', "[0, -1]"), 5, "host[0].ranks", "from 0 to 65535"),
    (TWO_NODES.replace("[2, 3]", "[1, 2]"), 11, "host[1].ranks", "rank 1 is on node1 too"),
    (TWO_NODES.replace("[2, 3]", "[3, 4]"), 2, "host", "rank 2 is on no host: give ranks 0 to 4"),
    (TWO_NODES.replace('"10.0.0.1"', '"node1.lan"'), 4, "host[0].address", "give an IP address"),
    (TWO_NODES.replace('"10.0.0.1"', '"10.0.0.{rank+255}"'), 4, "host[0].address", '"10.0.0.256" (rank 1)'),
    (TWO_NODES.replace('"10.0.0.1"', '"10.0.0.{slot}"'), 4, "host[0].address", "give {rank}, {rank+1}"),
    *(
        (TWO_NODES.replace("10.0.0.1", address), 4, "host[0].address", f'"{address}" (rank 0): give an address of one')
        for address in ("0.0.0.0", "224.0.0.1", "239.255.255.255", "255.255.255.255", "127.255.255.255")
    ),
    (TWO_NODES.replace('"10.0.0.1"', "10"), 4, "host[0].address", "an IP address"),
    (TWO_NODES.replace(', "10.0.1.2"', ""), 10, "host[1].address", "has 1 addresses: give one for each"),
    (TWO_NODES.replace("10.0.0.2", "10.0.0.1"), 10, "host[1].address", "10.0.0.1 is node1's"),
    (TWO_NODES.replace("device", "nic"), 6, "host[0].nic", "address, transport, device, port"),
    (TWO_NODES.replace('"mlx5_0"', '["mlx5_0"]'), 6, "host[0].device", "has 1 devices: give one for each"),
    (TWO_NODES.replace('"mlx5_0"', '"mlx5_{slot}"'), 6, "host[0].device", "give {rank}, {rank+1}"),
    (TWO_NODES + 'transport = "tcp"\n', 12, "host[1].transport", "softroce"),
    (TWO_NODES.replace("10.0.0.1", "::ffff:10.0.0.1"), 4, "host[0].address", 'write it as "10.0.0.1"'),
    (TWO_NODES.replace("10.0.0.1", "fe80::1"), 4, "host[0].address", "global or unique local address"),
    (TWO_NODES.replace("10.0.0.1", "::"), 4, "host[0].address", "give an address of one host"),
    (TWO_NODES.replace("10.0.0.1", "fd00::1"), 2, "host", "some ranks have IPv4 and some IPv6 addresses"),
    (TWO_NODES + "[calibration]\n", 12, "calibration.packet_latency_ns", "is missing: give an integer from 0"),
    (TWO_NODES + "[calibration]\npacket_latency_ns = -4\n", 13, "calibration.packet_latency_ns", "from 0"),
    (TWO_NODES + "[calibration]\npacket_latency_ns = 4\nspread = 3\n", 14, "calibration.spread", "unknown key"),
]


@pytest.mark.parametrize(("text", "line", "key", "words"), REFUSED)
def test_errors_name_line_key_and_allowed_value(text: str, line: int, key: str, words: str) -> None:
    with pytest.raises(HostsError) as refused:
        parse_hosts(text, "h.toml")
    assert str(refused.value).startswith(f"h.toml:{line}: {key}")
    assert words in str(refused.value)


def test_more_ranks_than_places() -> None:
    with pytest.raises(HostsError, match=r"hosts\.toml: has places for 4 ranks, 8 are asked for"):
        parse_hosts(TWO_NODES).first(8)


MEASURED = Calibration(packet_latency_ns=61_000, packet_latency_spread_ns=4_000, samples=1000, rate="200Mb/s")


def test_a_calibration_is_added_then_replaced_and_nothing_else_changes(tmp_path: Path) -> None:
    path = tmp_path / "hosts.toml"
    path.write_text(TWO_NODES)
    write_calibration(path, MEASURED)
    assert load_hosts(path).calibration == MEASURED
    assert path.read_text().startswith(TWO_NODES)
    again = Calibration(packet_latency_ns=55_000, commit='a "quoted" one')
    write_calibration(path, again)
    assert load_hosts(path).calibration == again
    assert path.read_text().startswith(TWO_NODES)
    assert path.read_text().count("[calibration]") == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["hosts.toml"]


def test_a_calibration_in_the_middle_keeps_what_surrounds_it() -> None:
    head, tail = "# head\n", "\n# node2 is new\n[[host]]  # keep\nname = 'b'\n"
    text = head + "[calibration]\npacket_latency_ns = 1\n# stale warning\nsamples = 2\n" + tail
    replaced = with_calibration(text, MEASURED)
    assert replaced.startswith(head)
    assert replaced.endswith(tail)
    assert "stale" not in replaced


@settings(max_examples=50, derandomize=True)
@given(
    st.builds(
        Calibration,
        packet_latency_ns=st.integers(0, 10**12),
        message_latency_spread_ns=st.integers(0, 10**12),
        dilation=st.floats(1, 1000),
        commit=st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=12),
    )
)
def test_any_calibration_is_read_as_it_was_written(calibration: Calibration) -> None:
    assert parse_hosts(with_calibration(TWO_NODES, calibration)).calibration == calibration


def test_an_inline_calibration_is_not_doubled(tmp_path: Path) -> None:
    path = tmp_path / "hosts.toml"
    path.write_text("calibration = {packet_latency_ns = 3}\n" + TWO_NODES)
    with pytest.raises(HostsError, match=r"hosts\.toml:1: calibration cannot be replaced: give it as a table"):
        write_calibration(path, MEASURED)
    assert "packet_latency_ns = 3" in path.read_text()


def test_a_calibration_keeps_mode_and_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "rack.toml", tmp_path / "hosts.toml"
    target.write_text(TWO_NODES)
    target.chmod(0o640)
    link.symlink_to(Path("real") / "rack.toml")
    write_calibration(link, MEASURED)
    assert link.readlink() == Path("real") / "rack.toml"
    assert load_hosts(target).calibration == MEASURED
    assert target.stat().st_mode & 0o7777 == 0o640


@pytest.mark.parametrize("step", ["replace", "write"])
def test_a_failed_write_leaves_the_file_and_nothing_beside_it(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "hosts.toml"
    path.write_text(TWO_NODES)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(*((os, "replace") if step == "replace" else (Path, "write_text")), full)
        with pytest.raises(OSError, match="No space left on device") as caught:
            write_calibration(path, MEASURED)
    assert exit_code_of(caught.value) == 3
    assert text_of(caught.value) == f"{path}: No space left on device"
    assert [entry.name for entry in tmp_path.iterdir()] == ["hosts.toml"]
    assert path.read_text() == TWO_NODES


def test_a_hosts_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(HostsError, match="cannot be read"):
        write_calibration(tmp_path / "absent.toml", MEASURED)


@pytest.mark.parametrize(
    "name", ["-oProxyCommand=x", "a,b", "a:4", "a b", "a\\nb", "a\\u001bb", "", ".a", "a-", "x" * 254]
)
def test_a_name_that_is_not_a_host_s_is_refused(name: str) -> None:
    """ssh would take a hyphen in front for an option, and mpirun splits its list at commas and colons."""
    text = f'[[host]]\nranks = 0\nname = "{name}"\naddress = "127.0.1.1"\n'
    with pytest.raises(
        HostsError, match=r"^h\.toml:3: host\[0\]\.name = .*: give the host's name, as mpirun and srun know"
    ):
        parse_hosts(text, "h.toml")


@pytest.mark.parametrize("name", ["localhost", "node1", "gpu_3.rack-2.example.org", "10.0.0.1", "n", "7"])
def test_a_host_s_name_or_address_is_taken(name: str) -> None:
    assert parse_hosts(f'[[host]]\nname = "{name}"\nranks = 0\naddress = "127.0.1.1"\n').names() == [name]
