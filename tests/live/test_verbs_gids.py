"""The GID index that is found: RoCE v2, the family asked for, the rank's own address before others."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genie.live.verbs.gids import ROCE_V1, ROCE_V2, GidEntry, address_of, choose_gid, gid_of

pytestmark = pytest.mark.live

MAPPED = "0000:0000:0000:0000:0000:ffff:0a4d:0001"  # 10.77.0.1
TABLE = [  # as a RoCE NIC has it with one IPv4 and one IPv6 address
    GidEntry(0, "fe80:0000:0000:0000:5054:00ff:fe12:3456", ROCE_V1),
    GidEntry(1, "fe80:0000:0000:0000:5054:00ff:fe12:3456", ROCE_V2),
    GidEntry(2, MAPPED, ROCE_V1),
    GidEntry(3, MAPPED, ROCE_V2),
    GidEntry(4, "fd00:0000:0000:0000:0000:0000:0000:0001", ROCE_V1),
    GidEntry(5, "fd00:0000:0000:0000:0000:0000:0000:0001", ROCE_V2),
    GidEntry(6, "0000:0000:0000:0000:0000:ffff:0a4d:0002", ROCE_V2),
    GidEntry(7, "0000:0000:0000:0000:0000:0000:0000:0000", ROCE_V2),
]


@pytest.mark.parametrize(
    ("address", "given_index", "version", "index"),
    [
        ("10.77.0.1", -1, 2, 3),
        ("10.77.0.2", -1, 2, 6),
        ("10.77.0.1", -1, 1, 2),
        ("fd00::1", -1, 2, 5),
        ("fd00::9", -1, 2, 5),  # not there: of its family, link-local last
        ("10.99.0.1", -1, 2, 3),
        ("", -1, 2, 3),
        ("fe80::5054:ff:fe12:3456", -1, 2, 1),
        ("10.77.0.1", 0, 2, 0),  # given: as it is
    ],
)
def test_which_entry(address: str, given_index: int, version: int, index: int) -> None:
    assert choose_gid(TABLE, "mlx5_0 port 1", address, index=given_index, roce_version=version).index == index


def test_mistakes_name_the_port_and_the_table() -> None:
    with pytest.raises(ValueError, match=r"^mlx5_0 port 1: GID index 7 is empty: it has 0: fe80::5054"):
        choose_gid(TABLE, "mlx5_0 port 1", index=7)
    with pytest.raises(ValueError, match=r"rxe0 port 1: no RoCE v2 GID of an IPv6 address: it has 2: 10.77.0.1"):
        choose_gid(TABLE[2:4], "rxe0 port 1", "fd00::1")
    with pytest.raises(ValueError, match="its GID table is empty"):
        choose_gid([], "rxe0 port 1", "10.0.0.1")


@given(st.ip_addresses())
def test_addresses_and_gids_are_one_to_one(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    gid = gid_of(str(address))
    assert len(gid) == 39
    if isinstance(address, ipaddress.IPv4Address) or address.ipv4_mapped is None:
        assert address_of(gid) == address


@given(st.permutations(TABLE), st.sampled_from(["10.77.0.1", "10.77.0.2", "fd00::1", "10.1.2.3", ""]))
def test_the_order_of_the_listing_does_not_matter(table: list[GidEntry], address: str) -> None:
    assert choose_gid(table, "p", address) == choose_gid(TABLE, "p", address)
