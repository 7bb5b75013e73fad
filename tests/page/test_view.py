"""The view of a page in a browser: sorted tables, the filter, choices in cells, and packed lanes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from browsed import LOW_CONTRAST, Opened, address

from genie.page import document, duration, filter_data, filters, quantity, rank_text, section, table
from genie.page.lanes import TIME_STEPS, fitting, packed, size_of

TIMES_NS = (1_200_000, 800_000, 3e9, None, 41, 950)
MEMBERS = {"tp0": [0, 1], "tp1": [2, 3], "dp": [0, 2, 4]}


def write(path: Path) -> Path:
    """A page of six ranks, with a row for each."""
    rows = [
        [rank, f"tp{rank // 2}", f"leaf{rank % 2}->host{rank}", quantity(duration, time, none="–"), 10 - rank]
        for rank, time in enumerate(TIMES_NS)
    ]
    header = ["rank", "group", "link", "time", "count"]
    shown = table(header, rows, keys={"rank": "rank", "group": "group", "link": "link"})
    data = {"view": filter_data(range(6), MEMBERS, [0, 1], True)}
    path.write_text(document("Six", [filters(data["view"]), section("Ranks", "", shown)], data, []), encoding="utf-8")
    return path


@pytest.fixture
def page(tmp_path: Path, opened: Opened) -> Any:
    return opened(write(tmp_path / "page.html"))


def column(page: Any, at: int) -> list[str]:
    """Texts of the shown cells of a column."""
    cells: list[str] = page.locator(f"tbody tr:visible td:nth-child({at})").all_inner_texts()
    return cells


def test_durations_are_sorted_by_their_value(page: Any) -> None:
    heading = page.locator("th", has_text="time")
    heading.locator("button").click()
    assert column(page, 4) == ["41 ns", "950 ns", "800 µs", "1.2 ms", "3 s", "–"]
    assert heading.get_attribute("aria-sort") == "ascending"
    heading.locator("button").click()
    assert column(page, 4) == ["3 s", "1.2 ms", "800 µs", "950 ns", "41 ns", "–"], "what has no value stays last"
    assert heading.get_attribute("aria-sort") == "descending"


@pytest.mark.parametrize("key", ["Enter", "Space"])
def test_a_column_is_sorted_by_keyboard(page: Any, key: str) -> None:
    page.locator("th", has_text="count").locator("button").focus()
    page.keyboard.press(key)
    assert column(page, 5) == ["5", "6", "7", "8", "9", "10"]
    assert page.locator("[aria-sort]").count() == 1
    page.locator("th", has_text="link").locator("button").press(key)
    assert column(page, 3)[0] == "leaf0->host0"
    assert page.locator("[aria-sort]").inner_text() == "link"


def test_a_filter_of_ranks_hides_other_rows_and_says_so(page: Any) -> None:
    page.fill("[name=rank]", "1-2, 5")
    assert column(page, 1) == ["1", "2", "5"]
    assert page.inner_text("#view-said") == "3 of 6 ranks"
    assert page.inner_text(".filtered") == "The filter shows 3 of 6 rows."
    page.select_option("[name=group]", "tp1")
    assert column(page, 1) == ["2"]
    assert page.inner_text("#view-said") == "1 of 6 ranks, group tp1"
    page.click("button[type=reset]")
    assert len(column(page, 1)) == 6
    assert page.inner_text("#view-said") == "all 6 ranks"
    assert address(page) == ""


def test_a_link_of_the_view_shows_the_same(page: Any) -> None:
    page.fill("[name=link]", "LEAF1")
    page.fill("[name=rank]", "0-3")
    assert address(page) == "#link=LEAF1&rank=0-3"
    page.reload()
    assert column(page, 3) == ["leaf1->host1", "leaf1->host3"]
    assert page.input_value("[name=link]") == "LEAF1"
    page.evaluate("location.hash = '#rank=4'")
    assert column(page, 1) == ["4"]
    assert page.input_value("[name=link]") == ""


def test_several_links_are_separated_by_commas(page: Any) -> None:
    page.fill("[name=link]", "host3, LEAF0->host0,")
    assert column(page, 3) == ["leaf0->host0", "leaf1->host3"]
    assert page.inner_text("#view-said") == "all 6 ranks, links with “host3” or “LEAF0->host0”"


def test_a_row_of_a_group_stays_while_the_filter_has_one_of_its_ranks(tmp_path: Path, opened: Opened) -> None:
    path = tmp_path / "page.html"
    data = {"view": filter_data(range(6), MEMBERS, [0], False)}
    shown = table(["group", "time"], [["tp0", 1], ["tp1", 2], ["dp", 3], ["unknown", 4]], keys={"group": "group"})
    path.write_text(document("Groups", [filters(data["view"]), shown], data, []), encoding="utf-8")
    page = opened(path)
    page.fill("[name=rank]", "3")
    assert column(page, 1) == ["tp1", "unknown"]
    page.fill("[name=rank]", "0,3")
    assert column(page, 1) == ["tp0", "tp1", "dp", "unknown"]
    page.select_option("[name=group]", "dp")
    assert column(page, 1) == ["dp"]


def test_a_text_that_is_no_list_of_ranks_changes_nothing(page: Any) -> None:
    page.fill("[name=rank]", "1")
    page.fill("[name=rank]", "first")
    page.locator("[name=rank]").blur()
    assert page.locator("[name=rank]").get_attribute("aria-invalid") == "true"
    assert "such as 0-7,12" in page.inner_text("#view-said")
    assert column(page, 1) == ["1"]
    page.fill("[name=rank]", "2")
    assert page.locator("[aria-invalid]").count() == 0


def test_a_cell_chooses_what_it_names_and_a_second_click_all(page: Any) -> None:
    page.locator("td button", has_text="tp1").first.click()
    assert column(page, 1) == ["2", "3"]
    assert page.input_value("[name=group]") == "tp1"
    page.locator("td button", has_text="tp1").first.click()
    assert len(column(page, 1)) == 6


def test_cells_are_reached_by_arrows_from_one_stop(page: Any) -> None:
    stops = page.locator('td button[tabindex="0"]')
    assert stops.all_inner_texts() == ["0", "tp0", "leaf0->host0"]
    stops.first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.input_value("[name=rank]") == "2"
    page.keyboard.press("Enter")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert page.input_value("[name=rank]") == "5"


def test_the_skip_link_is_first_and_keeps_the_view(page: Any) -> None:
    page.fill("[name=rank]", "3")
    page.evaluate("document.activeElement.blur(); window.getSelection().removeAllRanges()")
    page.locator(".skip").focus()
    assert page.locator(".skip").bounding_box()["y"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    assert address(page) == "#rank=3"


def test_tables_need_no_script(tmp_path: Path, opened: Opened) -> None:
    tab = opened(write(tmp_path / "page.html"), java_script_enabled=False)
    assert len(column(tab, 4)) == 6
    assert not tab.locator("#view").is_visible()
    assert "need JavaScript" in tab.inner_text("noscript")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_form_can_be_read(scheme: str, tmp_path: Path, opened: Opened) -> None:
    tab = opened(write(tmp_path / "page.html"), scheme=scheme)
    tab.fill("[name=rank]", "1")
    assert tab.evaluate(LOW_CONTRAST, 4.5) == []
    tab.add_style_tag(content=".why { color: #888; } @media (prefers-color-scheme: dark) { .why { color: #666; } }")
    assert [words for words, _ in tab.evaluate(LOW_CONTRAST, 4.5)] == ["The filter shows 1 of 6 rows."]


def test_ranks_as_text() -> None:
    assert rank_text([7, 0, 1, 2, 12, 11, 7]) == "0-2,7,11-12"
    assert rank_text([]) == ""


def test_one_value_needs_no_field() -> None:
    assert filters(filter_data([0], {"world": [0]}, [3], False)) == ""
    names = re.findall(r'name="(\w+)"', filters(filter_data(range(2), {"world": [0, 1]}, [3, 4], False)))
    assert names == ["rank", "iteration"]


def test_a_page_unpacks_lanes_as_they_were(tmp_path: Path, opened: Opened) -> None:
    slices = [
        [0, 0, "comp", 5, 1000, 5, "comp 0", ""], [0, 0, "comp", 990, 2000, 990, "overlaps", ""],
        [1, 2, "coll", 1000, 9000, 5000, "all_reduce", "tp0"], [1, 3, "coll", 700, 9000, 5000, "all_reduce", "tp0"],
    ]  # fmt: skip
    path = tmp_path / "page.html"
    assets = [("genie.page", "assets/zoom.js"), ("genie.page", "assets/lanes.js")]
    path.write_text(document("Lanes", ["<p></p>"], {"drawing": packed(slices)}, assets), encoding="utf-8")
    found = opened(path).evaluate(
        "unpacked(data.drawing).map(it => [it.lane, it.row, it.kind, it.start, it.stop, it.there, it.name, it.group])"
    )
    assert found == slices


def test_packed_times_are_off_by_less_than_a_millionth() -> None:
    slices = [[0, 0, "comp", at * 7_777_777, at * 7_777_777 + 5_000_001, 0, "comp", ""] for at in range(1000)]
    drawing = packed(slices)
    assert drawing["end"] / TIME_STEPS == pytest.approx(drawing["unit"], rel=0.01)
    ((_, _, numbers),) = drawing["lanes"]
    ended = 0
    for (_, _, _, start, stop, *_), gap, long in zip(slices, numbers[::4], numbers[1::4], strict=True):
        assert abs((ended + gap) * drawing["unit"] - start) < drawing["unit"]
        ended += gap + long
        assert abs(ended * drawing["unit"] - stop) < drawing["unit"]


def test_the_first_drawing_that_fits_is_taken() -> None:
    def of(count: int) -> list[list[Any]]:
        return [[0, 0, "comp", at, at + 1, 0, "comp", ""] for at in range(count)]

    makers = [lambda count=count: of(count) for count in (900, 90, 9)]
    assert fitting(makers, size_of(packed(of(90))))[1] == 1
    assert fitting(makers, 10)[1] == 2
