"""[addresses] of a fabric file: nodes of the fabric, addresses that are some, each one node's."""

from __future__ import annotations

import pytest

from simtwin.fabric.reading import FabricError, parse_fabric, to_toml

PLAIN = '[topology]\nkind = "leaf-spine"\nleaves = 2\nspines = 1\nhosts_per_leaf = 1\n[link]\nrate = "1Gb/s"\n'


def test_addresses_are_written_as_they_are_read() -> None:
    fabric = parse_fabric(PLAIN + '[addresses]\nleaf0 = ["10.0.0.1", "fd00::1"]\nspine0 = []\n')
    assert fabric.addresses == {"leaf0": ["10.0.0.1", "fd00::1"], "spine0": []}
    assert parse_fabric(to_toml(fabric)) == fabric
    assert "[addresses]" not in to_toml(parse_fabric(PLAIN))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('leaf7 = ["10.0.0.1"]', "fabric.toml:9: addresses.leaf7 is not a node"),
        ('leaf0 = ["10.0.0"]', 'fabric.toml:9: addresses.leaf0: "10.0.0" is not an IP address'),
        ('leaf0 = ["10.0.0.1"]\nleaf1 = ["10.0.0.1"]', "addresses.leaf1: 10.0.0.1 is leaf0's: give each node its own"),
        ('leaf0 = "10.0.0.1"', "addresses[...] = '...': give a list"),
    ],
)
def test_what_is_wrong_is_named(line: str, words: str) -> None:
    with pytest.raises(FabricError) as caught:
        parse_fabric(f"{PLAIN}[addresses]\n{line}\n")
    assert words in str(caught.value)


def test_pinned_ports_are_the_live_world_s() -> None:
    with pytest.raises(FabricError, match="pinned"):
        parse_fabric(PLAIN + '[load_balancing]\nsource_ports = "pinned"\n')
