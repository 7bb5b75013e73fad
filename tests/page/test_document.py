"""Pages that need nothing else, whatever names and numbers are in them."""

from __future__ import annotations

import json
import re
from html import unescape

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genie.page import amount, as_table, count_of, document, duration, percent, rate, select, share, table, title_of
from genie.page.lanes import lane_slices
from genie.page.parts import TABLE_ROWS_MAX
from genie.page.words import upper_bound
from genie.record.schemas import TIMELINE_SCHEMA

NAMES = st.text(max_size=40) | st.sampled_from(["</script>", "<!--<script>", '"><b>', "&amp;", "\\u003c", "\u2028"])


@given(st.dictionaries(NAMES, NAMES | st.integers() | st.lists(NAMES, max_size=3), max_size=5), NAMES)
def test_data_comes_out_as_it_went_in(data: dict[str, object], title: str) -> None:
    text = document(title, ["<p>here</p>"], data, [])
    found = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert [json.loads(it) for it in found] == [data]
    assert text.count("</script>") == 2


@given(st.lists(st.lists(NAMES | st.integers(), min_size=2, max_size=2), max_size=4))
def test_a_table_shows_cells_as_they_are(rows: list[list[object]]) -> None:
    text = table(["one", "<two>"], rows)
    cells = re.findall(r"<td(?: class=number)?>(.*?)</td>", text, re.DOTALL)
    assert [unescape(it) for it in cells] == [str(cell) for row in rows for cell in row]
    assert text.count("class=number") == sum(isinstance(cell, int) for row in rows for cell in row)
    assert "&lt;two&gt;" in text


def test_a_long_table_says_where_the_rest_is() -> None:
    text = as_table(["number"], ([it] for it in range(TABLE_ROWS_MAX + 7)), rest_is_in="verdict.json")
    assert text.count("<tr>") == TABLE_ROWS_MAX + 1
    assert "7 more rows are in verdict.json." in text


def test_a_page_asks_for_nothing() -> None:
    text = document("title", [], {}, [("genie.page", "assets/lanes.js")])
    assert "function drawLanes" in text
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)|<link|@import|src=|url\(", text) == []


def test_a_choice_escapes_what_it_offers() -> None:
    text = select("id", "label", ["a", '"b"'], '"b"', {"a": "<A>"})
    assert '<option value="a">&lt;A&gt;</option>' in text
    assert '<option value="&quot;b&quot;" selected>&quot;b&quot;</option>' in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (percent(0.412), "41 %"),
        (percent(None), "none"),
        (upper_bound(0.01774), "1.78 %"),
        (upper_bound(0.00001), "0.01 %"),
        (upper_bound(0.05), "5.00 %"),
        (upper_bound(0.0), "0.00 %"),
        (share(0.412), "41 %"),
        (share(0.0034), "0.34 %"),
        (share(0.0), "0 %"),
        (share(1.6e-7), "below 0.1 %"),
        (duration(12_345_678), "12.3 ms"),
        (duration(999_900), "1000 µs"),
        (duration(41), "41 ns"),
        (amount(1023 * 1024), "1023 KiB"),
        (amount(1 << 20), "1 MiB"),
        (rate(400_000_000_000), "400 Gb/s"),
        (rate(0), "unlimited"),
        (count_of(1204, "mark"), "1,204 marks"),
        (count_of(1, "mark"), "1 mark"),
        (count_of(0, "mark"), "no marks"),
        (count_of(2, "cross", "crosses"), "2 crosses"),
    ],
)
def test_quantities_in_words(words: str, said: str) -> None:
    assert words == said


def _timeline(rows: list[tuple[int, str, int, int]]) -> pl.DataFrame:
    """(rank, kind, start, end)."""
    ranks, kinds, starts, ends = (list(column) for column in zip(*rows, strict=True))
    collective = pl.col("kind") == "coll"
    table = pl.DataFrame({"rank": ranks, "kind": kinds, "start_ns": starts, "end_ns": ends}).with_row_index("node_id")
    return table.with_columns(
        pl.when(collective).then(pl.lit("all_reduce")).alias("op"),
        pl.when(collective).then(pl.lit("0")).alias("group"),
        pl.when(collective).then(0).alias("seq"),
        name=pl.format("{} {}", "kind", "node_id"),
        ready_ns="start_ns",
        size_bytes=1,
        overshoot_ns=0,
        iteration=0,
    ).select(pl.col(name).cast(dtype) for name, dtype in TIMELINE_SCHEMA.items())


def test_a_collective_waits_until_all_are_there() -> None:
    rows = [(0, "comp", 0, 1000), (0, "coll", 1000, 9000), (1, "coll", 5000, 9000)]
    slices = lane_slices(_timeline(rows), {0: 0, 1: 1}, 0, {"coll": 1})
    assert slices == [
        [0, 0, "comp", 0, 1000, 0, "comp 0", ""],
        [1, 0, "coll", 1000, 9000, 5000, "all_reduce (coll 1)", "0"],
        [1, 1, "coll", 5000, 9000, 5000, "all_reduce (coll 2)", "0"],
    ]


def test_many_short_nodes_are_few_slices_and_lose_no_time() -> None:
    rows = [(0, "comp", at * 10, at * 10 + 10) for at in range(100_000)]
    slices = lane_slices(_timeline(rows), {0: 3})
    assert len(slices) <= 2001
    assert {it[1] for it in slices} == {3}
    assert sum(end - start for _, _, _, start, end, *_ in slices) == 1_000_000
    assert slices[0][6] == "50 short nodes of kind comp"


def test_a_title_fits_one_line() -> None:
    short = "link leaf0->spine1 (between 8 pairs of ranks) is slow (and link a (rate))"
    assert title_of(short) == short
    long = f"link leaf0->spine1 (between 8 pairs of ranks) is slow{' (and link a (rate), link b (loss))' * 3}"
    assert title_of(long) == f"link leaf0->spine1 is slow{' (and link a (rate), link b (loss))' * 2}"
    assert title_of("word " * 40) == f"{'word ' * 22}word …"
    assert len(title_of("x" * 500)) <= 120
