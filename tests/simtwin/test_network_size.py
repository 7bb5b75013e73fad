"""Size of a network by arithmetic: equal to a count of the built network, and limited."""

from __future__ import annotations

import time

import pytest

from simtwin.fabric.reading import FabricError, parse_fabric
from simtwin.fabric.routing import shortest_path_routes
from simtwin.fabric.size import LINKS_MAX, ROUTES_MAX, SEARCHED_MAX, size_of
from simtwin.fabric.topology import build_network

LINK = '[link]\nrate = "100Gb/s"\ndelay = "500ns"\n'
RAILS = 'kind = "rail-optimized"\nservers = 5\nrails = 3\nspines = 2\nservers_per_leaf = 2\n'
LEAVES = 'kind = "leaf-spine"\nleaves = {}\nspines = {}\nhosts_per_leaf = 1'
SERVERS = 'kind = "leaf-spine"\nleaves = 3\nspines = 2\nhosts_per_leaf = 6\nhosts_per_server = 3\n'
SMALL = [
    'kind = "single-switch"\nhosts = 7',
    'kind = "leaf-spine"\nleaves = 3\nspines = 4\nhosts_per_leaf = 2',
    SERVERS + 'domain = {rate = "1Tb/s"}',
    SERVERS + 'domain = {rate = "1Tb/s", kind = "mesh"}',
    'kind = "fat-tree"\nk = 6',
    RAILS,
    RAILS + 'domain = {rate = "1Tb/s"}',
    RAILS + 'domain = {rate = "1Tb/s", pxn = true}',
    'kind = "rail-optimized"\nservers = 64\nrails = 4\nspines = 1\ndomain = {rate = "1Tb/s", pxn = true}',
    'kind = "rail-optimized"\nservers = 64\nrails = 4\nspines = 1\ndomain = {rate = "1Tb/s"}',
    RAILS + 'domain = {rate = "1Tb/s", kind = "mesh"}',
    'kind = "dual-plane"\nleaves = 3\nspines = 4\nhosts_per_leaf = 2',
    'kind = "dragonfly"\nrouters = 3\nhosts_per_router = 2\nglobal_links = 2',
    'kind = "torus"\nsize = [4, 1, 3]\nhosts_per_router = 2',
    'kind = "torus"\nsize = [5, 2]',
    'kind = "torus"\nsize = [4, 3, 2]\nwraps = false',
    'kind = "explicit"\nhost = [{name = "a"}, {name = "b"}, {name = "c"}]\nswitch = [{name = "s"}, {name = "t"}]\n'
    'link = [{a = "a", b = "s"}, {a = "t", b = "b"}, {a = "s", b = "t"}, {a = "s", b = "t"}, {a = "c", b = "s"}]',
    # Two servers of two hosts, whose own switches lead to them alone.
    'kind = "explicit"\nhost = [{name = "a"}, {name = "b"}, {name = "c"}, {name = "d"}]\n'
    'switch = [{name = "s"}, {name = "u", bridge = true}, {name = "v", bridge = true}]\n'
    'link = [{a = "a", b = "s"}, {a = "b", b = "s"}, {a = "c", b = "s"}, {a = "s", b = "d"},\n'
    '{a = "a", b = "u"}, {a = "b", b = "u"}, {a = "v", b = "c"}, {a = "d", b = "v"}, {a = "d", b = "v"}]',
]


@pytest.mark.parametrize("text", SMALL)
def test_the_arithmetic_counts_what_is_built(text: str) -> None:
    fabric = parse_fabric(f"[topology]\n{text}\n{LINK}")
    network, size = build_network(fabric), size_of(fabric)
    routes = shortest_path_routes(network)
    assert (size.links, size.groups) == (network.links, routes.groups)
    assert routes.hops.runs <= size.routes
    assert network.nodes <= size.cables + 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (LEAVES.format(60000, 60000), f"makes 7200120000 links: give a smaller one, at most {LINKS_MAX}"),
        (LEAVES.format(4096, 240), f"makes 4043309056 steps of routing (cables times groups of hosts on the same "
         f"switches): give a smaller one, at most {SEARCHED_MAX}"),
        ('kind = "rail-optimized"\nservers = 1\nrails = 64\nspines = 65536', "makes 8388736 links: give a smaller one"),
        (
            'kind = "rail-optimized"\nservers = 1000\nrails = 64\nspines = 1\n'
            'domain = {rate = "1Tb/s", kind = "mesh"}',
            "makes 4160128 links: give a smaller one",
        ),
        ('kind = "torus"\nsize = [40, 40, 40]', f"makes 16384000000 routes (at most cables times groups of hosts on "
         f"the same switches): give a smaller one, at most {ROUTES_MAX}"),
        ('kind = "dragonfly"\nrouters = 240\nhosts_per_router = 1\nglobal_links = 1', "makes 13997280 links"),
    ],
)  # fmt: skip
def test_what_would_take_all_memory_is_refused_at_once(text: str, says: str) -> None:
    began = time.monotonic()
    with pytest.raises(FabricError) as told:
        parse_fabric(f"[topology]\n{text}\n{LINK}", "f.toml")
    assert str(told.value).startswith("f.toml:1: topology makes ")
    assert says in str(told.value)
    assert "\n" not in str(told.value)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "text",
    [
        'kind = "fat-tree"\nk = 32',
        'kind = "rail-optimized"\nservers = 1024\nrails = 8\nspines = 8\ndomain = {rate = "1Tb/s"}',
        'kind = "rail-optimized"\nservers = 2048\nrails = 8\nspines = 64\nservers_per_leaf = 64\n'
        'domain = {rate = "1Tb/s"}',
        'kind = "torus"\nsize = [16, 16, 16]',
        'kind = "torus"\nsize = [4096]',
    ],
)
def test_thousands_of_hosts_are_not(text: str) -> None:
    assert parse_fabric(f"[topology]\n{text}\n{LINK}").hosts >= 4096
