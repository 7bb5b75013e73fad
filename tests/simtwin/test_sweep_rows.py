"""Rows of a sweep as files: what a spreadsheet would take for a formula is text, and numbers stay numbers."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from genie.record import unlock_folders
from simtwin.sweep.rows import Rows, neutral, read_rows, table_of


def test_texts_that_begin_like_a_formula_are_neutralised() -> None:
    texts = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "plain", "a=b", "", None]
    numbers = ["-5", "+1.5e3", "-.5", "7"]
    table = pl.DataFrame({"=key": [*texts, *numbers], "n": [-1.5] * (len(texts) + len(numbers))})
    made = neutral(table)
    assert made.columns == ["'=key", "n"]
    expected = ["'=1+1", "'+cmd|' /C calc'!A0", "'-2+3", "'@SUM(A1)", "'\t=1", "plain", "a=b", "", None]
    assert made["'=key"].to_list() == [*expected, *numbers]
    assert made["n"].to_list() == table["n"].to_list()


def test_an_error_in_a_row_is_text_in_the_table(tmp_path: Path) -> None:
    row = {"id": "x", "error": "=HYPERLINK(1)", "parameters": {}}
    table = table_of([({"seed": -1}, row)])
    assert neutral(table)["error"].to_list() == ["'=HYPERLINK(1)"]
    assert neutral(table)["seed"].to_list() == [-1]


def test_a_line_that_is_no_row_is_left_out(tmp_path: Path) -> None:
    lines = [
        '{"schema": "genie.sweep.1"}',
        '{"wrote": {"sweep.csv": []}}',
        "[" * 5000 + "]" * 5000,
        "7",
        '{"id": "a", "error": "", "dropped": "x"}',
        '{"id": "b", "error": "", "dropped": 3}',
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
    assert list(read_rows(tmp_path)) == ["b"]
    rows = Rows(tmp_path)
    rows.write_beside("sweep.csv", "a")
    rows.write_beside("sweep.csv", "b")
    unlock_folders()
    assert (tmp_path / "sweep.csv").read_text() == "b"
