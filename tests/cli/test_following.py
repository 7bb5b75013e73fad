"""Live runs that cannot be followed."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from live_runs import in_this_process, rings

pytestmark = pytest.mark.live


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("start_ns", None, "column start_ns has no value in row 5"),
        ("start_ns", -1, "row 5 (iteration {iteration}, rank {rank}, node {node_id}) has start_ns -1"),
        ("end_ns", None, "column end_ns has no value in row 5"),
    ],
)
def test_a_timeline_without_starts_is_refused_by_row(
    column: str, value: int | None, words: str, tmp_path: Path
) -> None:
    job, live = rings(tmp_path / "rings", ranks=2), tmp_path / "live"
    assert in_this_process("simulate", job, "--rate", "200Mb/s", "-n", "2", "-o", str(live)).code == 0
    info = json.loads((live / "run.json").read_bytes())
    (live / "run.json").write_text(json.dumps({**info, "world": "live"}))
    table = pl.read_parquet(live / "timeline.parquet").with_row_index("row")
    damaged = pl.when(pl.col("row") == 5).then(pl.lit(value, pl.Int64)).otherwise(pl.col(column)).alias(column)
    table.with_columns(damaged).drop("row").write_parquet(live / "timeline.parquet")
    row = table.row(5, named=True)
    follow = ("simulate", job, "--rate", "200Mb/s", "--follow", str(live), "-o", str(tmp_path / "twin"))
    ended = in_this_process(*follow)
    assert ended.code == 2, ended
    assert len(ended.said) == 1
    assert words.format(**row) in ended.said[0]
