"""Warnings about legal but suspicious fabric settings, each printed once."""

from __future__ import annotations

import pytest
from twin_fabrics import twin_of

from simtwin.fabric.reading import parse_fabric

HEAD = '[topology]\nkind = "single-switch"\nhosts = 2\n[link]\nrate = "100Gb/s"\ndelay = "1us"\n'
ECN = '[ecn]\nminimum = "100kB"\nmaximum = "400kB"\n'
PFC = '[switch]\nshared_buffer = "2MB"\n[pfc]\n'


@pytest.mark.parametrize("control", ["dcqcn", "dcqcn-timer", "dctcp", "nscc"])
def test_a_control_by_marks_that_nobody_makes(control: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = f'name = "{control}"\n{HEAD}[transport]\ncongestion = "{control}"\n'
    twin_of(parse_fabric(text + ECN))
    assert capsys.readouterr().err == ""
    says = f"no switch marks the packets by which {control} would slow down"
    for _ in range(2):
        twin_of(parse_fabric(text))
    assert capsys.readouterr().err == f"genie: fabric '{control}': {says}: give [ecn]\n"


def test_other_controls_need_no_marks(capsys: pytest.CaptureFixture[str]) -> None:
    for control in ("none", "window", "timely", "swift", "hpcc"):
        twin_of(parse_fabric(f'{HEAD}[transport]\ncongestion = "{control}"\n'))
    assert capsys.readouterr().err == ""


def test_retry_of_links_that_lose_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    twin_of(parse_fabric('name = "retry"\n' + HEAD + 'retry = "go-back-n"\n'))
    assert "retry of links changes nothing, as they lose no frames: give loss beside it" in capsys.readouterr().err
    twin_of(parse_fabric('name = "retry"\n' + HEAD + 'retry = "go-back-n"\nloss = 1e-9\n'))
    assert capsys.readouterr().err == ""


def test_headroom_that_loses_packets(capsys: pytest.CaptureFixture[str]) -> None:
    """25 kB are on the way for 2 us; three frames and a pause come on top."""
    twin_of(parse_fabric(HEAD + PFC + 'headroom = "1B"\n'))
    said = capsys.readouterr().err
    assert (
        "[pfc] headroom = 1 B is below the 37678 B that may come by host0->switch until a pause is heard, and may lose"
        in said
    )
    assert said.count("\n") == 1
    twin_of(parse_fabric(HEAD + PFC + 'headroom = "37677B"\n'))
    assert "37678 B" in capsys.readouterr().err
    twin_of(parse_fabric(HEAD + PFC + 'headroom = "37678B"\n'))
    twin_of(parse_fabric(HEAD + PFC))
    assert capsys.readouterr().err == ""
