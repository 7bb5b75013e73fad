"""How people say what is wrong with a link, and what they are told when they say it wrong."""

from __future__ import annotations

import struct
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab_fabrics import leaf_spine

from genie.lab import Change, Fault, LabError, change_of, parse_change, plan_of
from genie.lab.commands import filters
from genie.lab.faults import changed
from genie.lab.forwarder import marked
from genie.lab.timetable import NEVER_S, Timetable, followed
from simtwin.fabric.reading import parse_fabric

pytestmark = pytest.mark.live

PLAN = plan_of(parse_fabric(leaf_spine()))
LINKS = PLAN.links


def after(*texts: str) -> dict[str, Fault]:
    return changed({}, [parse_change(text, LINKS) for text in texts], LINKS)


def test_one_way_and_both() -> None:
    assert set(after("leaf0-spine1 loss=1%")) == {"leaf0->spine1", "spine1->leaf0"}
    assert set(after("spine1-leaf0 loss=1%")) == {"leaf0->spine1", "spine1->leaf0"}
    assert after("spine1->leaf0 loss=1%") == {"spine1->leaf0": Fault(loss=0.01)}


def test_all_keys() -> None:
    whole = after("host0->leaf0 rate=40% loss=0.5% ecn=10% mtu=1500 down")["host0->leaf0"]
    assert whole == Fault(rate_bps=8_000_000, loss=0.005, ecn=0.1, mtu_bytes=1500, is_down=True)
    assert whole.words() == "rate 8Mb/s, loss 0.5 %, ECN marks 10 %, packets above 1500 B dropped, down"
    held = after("host0->leaf0 delay=300us reorder=2% dscp=8")["host0->leaf0"]
    assert held == Fault(delay_ns=300_000, reorder=0.02, dscp=8)
    assert held.is_held
    assert held.words() == "delay 300 us, 2 % of the packets overtaken, DSCP 8"
    assert not after("host0->leaf0 dscp=0")["host0->leaf0"].is_held
    assert after("host0->leaf0 rate=5Mb/s")["host0->leaf0"].rate_bps == 5_000_000
    faster = (after(f"host0->leaf0 rate={text}")["host0->leaf0"].rate_bps for text in ("400%", "80Mb/s"))
    assert set(faster) == {80_000_000}, "a rate and a share may both be above the file's"


def test_changes_add_up_and_are_taken_back() -> None:
    one = "leaf0->spine0"
    assert after(f"{one} loss=1%", f"{one} rate=50%", f"{one} down", f"{one} up") == {
        one: Fault(rate_bps=20_000_000, loss=0.01)
    }
    assert after(f"{one} loss=1% mtu=1500", f"{one} loss=0% mtu=9000") == {}
    assert after(f"{one} rate=50%", f"{one} rate=100%") == {}
    assert after(f"{one} loss=1%", f"{one} clear") == {}
    assert after(f"{one} loss=1%", f"{one} clear ecn=1%") == {one: Fault(ecn=0.01)}


def test_options_say_the_same() -> None:
    said = change_of("leaf0-spine1", LINKS, {"rate": "40%", "loss": None, "ecn": None, "mtu": "1500", "down": ""})
    assert said == parse_change("leaf0-spine1 rate=40% mtu=1500 down", LINKS)
    assert said == Change(("leaf0->spine1", "spine1->leaf0"), rate="40%", mtu_bytes=1500, is_down=True)


WRONG = {
    "leaf0-spine7 down": "leaf0-spine7: no link of this lab: give one such as leaf0-spine",
    "host0-host1 down": "host0-host1: no link of this lab: give one such as host",
    "leaf0-spine1": "leaf0-spine1: nothing to set: give rate=40%",
    "leaf0-spine1 down up": "down and up at once",
    "leaf0-spine1 rate=0%": "rate 0%: give above 0 % and at most 1000Tb/s",
    "leaf0-spine1 rate=99999999999%": "rate 99999999999%: give above 0 %",
    "leaf0-spine1 rate=fast": "rate fast: is not a number with a unit: give a rate such as 80Mb/s",
    "leaf0-spine1 rate=40": "rate 40: has no unit",
    "leaf0-spine1 rate=1b/s": "rate 1b/s: give 8kb/s or more",
    "leaf0-spine1 rate=unlimited": "rate unlimited: give 8kb/s or more",
    "leaf0-spine1 loss=1": "loss 1: give a share of the packets such as 1%",
    "leaf0-spine1 ecn=101%": "ecn 101%: give a share",
    "leaf0-spine1 mtu=20": "mtu 20: give bytes of an IP packet, 68 to 9000",
    "leaf0-spine1 mtu=big": "mtu big: give bytes",
    "leaf0-spine1 delay=fast": "delay fast: is not a number with a unit: give a time such as 300us",
    "leaf0-spine1 delay=2s": "delay 2s: give at most 1s",
    "leaf0-spine1 reorder=2": "reorder 2: give a share",
    "leaf0-spine1 dscp=64": "dscp 64: give a number from 0 to 63",
    "leaf0-spine1 down period=2s": "give period and on together",
    "leaf0-spine1 down on=20%": "give period and on together",
    "leaf0-spine1 down period=1ms on=20%": "period 1ms: give 200ms or more",
    "leaf0-spine1 down from=5s until=2s": "until 2s: give a time after 5s",
    "leaf0-spine1 down from=soon": "from soon: is not a number",
    "leaf0-spine1 from=2s": "nothing to set",
    "leaf0-spine1 speed=1": "speed=1: give rate=40%",
    "leaf0-spine1 cut": "cut: give rate=40%",
    "leaf0-spine1 loss=1% loss=2%": "loss=2%: give",
    "": "give a link and what is wrong with it",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_said_in_a_line(text: str) -> None:
    with pytest.raises(LabError) as wrong:
        parse_change(text, LINKS)
    assert WRONG[text] in str(wrong.value)
    assert "\n" not in str(wrong.value)
    assert wrong.value.code == 2


def test_a_share_of_no_rate() -> None:
    free = plan_of(parse_fabric(leaf_spine() + '[downlink]\nrate = "unlimited"\n')).links
    with pytest.raises(LabError, match="leaf0->host0 has no rate to take a share of"):
        parse_change("leaf0->host0 rate=40%", free)
    assert parse_change("leaf0->host0 rate=4Mb/s", free).rate == "4Mb/s"


def test_filters_of_held_packets_and_of_header_bits() -> None:
    node = PLAN.nodes.index("spine1")
    rules = filters(PLAN, node, after("leaf0->spine1 delay=1ms loss=1% dscp=8"))
    held, loss, dscp = (line.strip() for line in rules.splitlines() if "iifname" in line)
    assert "ether saddr & 04:00:00:00:00:00 == 00:00:00:00:00:00 counter drop" in held, (
        "first: others are for held ones"
    )
    assert "drop" in loss
    assert dscp.endswith("ip dscp != 0x08 counter ip dscp set 0x08")


def test_a_held_frame_has_a_mark_and_keeps_an_open_checksum() -> None:
    frame = struct.pack("=BBHHHH", 1 | 2, 0, 34, 0, 34, 6) + bytes.fromhex("0200 0a01 0001 0200 0a00 0001 0800") + b"ip"
    again = marked(frame)
    assert again[10:16] == frame[10:16], "the destination"
    assert again[16] == 0x06
    assert again[17:] == frame[17:]
    assert again[0] == 1, "only: the checksum is to be computed"
    assert again[1:10] == frame[1:10]


TIMES = st.floats(0, 50, allow_nan=False)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(TIMES, TIMES, st.floats(0.2, 10), st.floats(0.01, 1), TIMES)
def test_a_timetable_changes_only_at_its_times(
    start: float, more: float, period: float, share: float, at: float
) -> None:
    table = Timetable(start, start + more, period, share)
    upcoming = table.next_s(at)
    assert upcoming > at
    between = at + (min(upcoming, at + period) - at) * 0.999
    assert table.is_on(at) == table.is_on((at + between) / 2) or upcoming - at < 1e-6


def test_timetables() -> None:
    assert [Timetable(2, 8).is_on(at) for at in (1.9, 2, 7.9, 8)] == [False, True, True, False]
    assert [Timetable(0, NEVER_S, 2, 0.25).is_on(at) for at in (0, 0.49, 0.5, 1.9, 2.0)] == [
        True,
        True,
        False,
        False,
        True,
    ]
    assert parse_change("leaf0->spine1 rate=40% period=2s on=20%", LINKS).times == Timetable(0, NEVER_S, 2.0, 0.2)


def test_a_timetable_is_followed_and_its_error_is_raised_at_the_end() -> None:
    seen: list[bool] = []
    changed_twice = threading.Event()

    def switch(is_on: list[bool]) -> None:
        seen.extend(is_on)
        if len(seen) == 3:
            changed_twice.set()

    with followed([Timetable(0.05, 0.1)], switch):
        assert changed_twice.wait(60)
    assert seen == [False, True, False]

    def fail(is_on: list[bool]) -> None:
        if is_on[0]:
            changed_twice.set()
            raise LabError("down")

    changed_twice.clear()
    with pytest.raises(LabError), followed([Timetable(0.01)], fail):
        assert changed_twice.wait(60)
