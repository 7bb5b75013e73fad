"""How people say what is wrong with a link, and what they are told when they say it wrong."""

from __future__ import annotations

import pytest
from lab_fabrics import leaf_spine

from genie.lab import Change, Fault, LabError, change_of, parse_change, plan_of
from genie.lab.faults import changed
from simtwin.fabric.reading import parse_fabric

pytestmark = pytest.mark.live

LINKS = plan_of(parse_fabric(leaf_spine())).links


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
    said = change_of("leaf0-spine1", LINKS, rate="40%", loss=None, ecn=None, mtu="1500", down="")
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
