"""The studies of docs/studies.md: their drawings are those of simulations, and show what the page says."""

from __future__ import annotations

import pytest
from study_pictures import PICTURES, ROOT, Bars, drawing

EACH = pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.file)


@EACH
def test_the_picture_is_drawn_from_simulations(picture: Bars) -> None:
    rows = picture.rows()
    assert (ROOT / "docs" / picture.file).read_text() == drawing(picture, rows), "make picture draws it anew"
    took = {(group, member): value_ms for group, member, value_ms in rows}
    if picture.file == "circuits.svg":
        for case in ("data", "tensor", "pipeline", "experts"):
            assert took[case, "circuits"] < took[case, "mesh"]
        assert took["experts", "slow-circuits"] > 2 * took["experts", "circuits"]
        assert took["data", "slow-circuits"] < 1.5 * took["data", "circuits"]
    else:
        for rate in ("10Gb/s", "100Gb/s"):
            assert took["ring, staleness 0", rate] < took["all-reduce", rate]
            assert took["ring, staleness 5", rate] < took["ring, staleness 2", rate] < took["ring, staleness 0", rate]
        assert took["double ring, staleness 0", "10Gb/s"] > took["all-reduce", "10Gb/s"]


@EACH
def test_the_page_shows_the_picture(picture: Bars) -> None:
    assert f"]({picture.file})" in (ROOT / "docs" / "studies.md").read_text()
