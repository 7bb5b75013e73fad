"""A sweep's page: a line for each value of the first key, along the last, in panels of those between."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from browsed import Opened, press, tip_in_one_line
from hypothesis import given
from hypothesis import strategies as st

from genie.figures.scale import ticks_of
from simtwin.sweep.page import sweep_page, unit_of
from simtwin.sweep.rows import RESULTS, table_of

AXES = ["fabric.transport.congestion", "fabric.switch.buffer", "traffic.load"]
GRID = [["dcqcn", "<swift>"], ["1MB", "4MB", "16MB"], [0.3, 0.5]]


def rows_of(failed: int | None = None) -> pl.DataFrame:
    """Completion in ms is 1, 2, ... in the order of the grid."""
    rows = []
    for at, values in enumerate(product(*GRID)):
        results = dict.fromkeys(RESULTS, at + 1) | {"completion_s": (at + 1) / 1000, "dropped": 0}
        row = {"id": str(at), "error": "no way" if at == failed else "", **({} if at == failed else results)}
        rows.append((dict(zip(AXES, values, strict=True)), row))
    return table_of(rows)


def test_a_person_reads_lines_and_tips(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "sweep.html"
    path.write_text(sweep_page(rows_of(failed=3), AXES, "sweep.toml"), encoding="utf-8")
    page = browser.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(path.as_uri())
    assert page.locator("h1").inner_text() == "sweep.toml: 12 runs, 1 failed"
    assert page.locator(".key span").all_inner_texts() == ["dcqcn", "<swift>"]
    completion = page.locator("section").first
    heads = completion.locator("svg > text.soft:not(.small)").all_text_contents()
    assert heads == ["buffer 1MB", "buffer 4MB", "buffer 16MB"]
    assert completion.locator("circle").count() == 11, "what failed is not drawn"
    last = completion.locator("circle").last
    last.hover()
    assert page.locator("#tip").inner_text() == "<swift>\nload 0.5: 12 ms"
    heights = [float(it.get_attribute("cy")) for it in completion.locator("circle").all()]
    assert heights[-1] == min(heights)
    assert errors == []
    page.close()


def test_lines_are_read_by_keyboard_and_rows_are_sorted(tmp_path: Path, opened: Opened) -> None:
    path = tmp_path / "sweep.html"
    path.write_text(sweep_page(rows_of(), AXES, "sweep.toml"), encoding="utf-8")
    page = opened(path)
    drawn = page.locator("svg").count()
    assert page.locator("svg [tabindex='0']").count() == drawn > 3, "a drawing is one stop of the Tab key"
    page.locator("svg [tabindex='0']").first.focus()
    assert press(page, "ArrowRight") == ["img", "dcqcn; load 0.5: 2 ms"]
    assert press(page, "ArrowDown") == ["img", "<swift>; load 0.5: 8 ms"]
    assert tip_in_one_line(page) == "<swift>; load 0.5: 8 ms"
    assert press(page, "Home") == ["img", "<swift>; load 0.3: 7 ms"]
    page.locator("details summary").click()
    heading = page.locator("th", has_text="completion_s")
    heading.locator("button").click(click_count=2)
    at = heading.evaluate("it => it.cellIndex")
    cells = page.locator(f"tbody td:nth-child({at + 1})").all_inner_texts()
    assert [float(it) for it in cells] == [it / 1000 for it in range(12, 0, -1)]


def test_a_page_asks_for_nothing_and_leaves_out_what_never_was() -> None:
    text = sweep_page(rows_of(), AXES, "sweep.toml")
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)|<link|@import|src=|url\(", text) == []
    assert "Longest queue" in text
    assert "Drops" not in text
    assert "<swift>" not in text


@pytest.mark.parametrize(
    ("highest", "whole", "ticks"),
    [
        (23.4, False, [0, 5, 10, 15, 20, 25]),
        (1.01, False, [0, 0.5, 1, 1.5]),
        (0.61, False, [0, 0.2, 0.4, 0.6, 0.8]),
        (1000, False, [0, 250, 500, 750, 1000]),
        (9.2, False, [0, 2.5, 5, 7.5, 10]),
        (1, True, [0, 1]),
        (2, True, [0, 1, 2]),
        (7, True, [0, 2, 4, 6, 8]),
    ],
)
def test_scales_end_near_what_is_highest(highest: float, whole: bool, ticks: list[float]) -> None:
    assert ticks_of(highest, whole) == pytest.approx(ticks)


@given(st.floats(1e-12, 1e15), st.booleans())
def test_a_scale_holds_the_highest_and_is_two_thirds_full(highest: float, whole: bool) -> None:
    highest = max(round(highest), 1) if whole else highest
    *ticks, top = ticks_of(highest, whole)
    assert top >= highest * (1 - 1e-9)
    assert highest >= 0.66 * top
    assert 1 <= len(ticks) <= 5


def test_large_times_have_a_large_unit() -> None:
    assert unit_of("time", 23_400_000e-9) == ("ms", 1e-3)
    assert unit_of("time", 1.5) == ("s", 1.0)
    assert unit_of("time", 2e-10) == ("ns", 1e-9)
    table = rows_of().with_columns(fct_p50_ns=pl.lit(23_400_000))
    assert "load 0.5: 23.4 ms" in sweep_page(table, AXES, "sweep.toml")


@pytest.mark.parametrize("axes", [[], AXES[2:], AXES[1:]])
def test_few_keys_are_drawn_too(axes: list[str]) -> None:
    table = rows_of()
    drawn = [values for values in product(*GRID) if values[0] == "dcqcn" and (values[1] == "1MB" or AXES[1] in axes)]
    table = table.head(len(drawn) if axes else 1)
    text = sweep_page(table, axes, "sweep.toml")
    assert text.count("<circle") == len(table) * 12  # figures that are not 0
    assert text.count("<svg") == 12
