"""The drawings of timelines in the documents are those of simulations."""

from __future__ import annotations

import pytest
from timeline_picture import PICTURES, ROOT, SIMULATION, Picture, drawing

EACH = pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.file)


@EACH
def test_the_picture_is_drawn_from_a_simulation(request: pytest.FixtureRequest, picture: Picture) -> None:
    if picture.data[0]:
        request.getfixturevalue("shared_data")
    drawn = drawing(picture)
    assert (ROOT / "docs" / picture.file).read_text() == drawn, "make picture draws it anew"
    assert len(drawn) < 100_000


@EACH
def test_the_page_shows_the_picture_and_its_commands(picture: Picture) -> None:
    text = (ROOT / "docs" / picture.page).read_text()
    made = " ".join(picture.command[: picture.command.index("-o")])
    assert f"genie {made.replace('{data}/', '')} -o" in text
    assert f"{' '.join(SIMULATION)} -o" in text
    assert f"]({picture.file})" in text
