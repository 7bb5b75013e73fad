"""The table of ARCHITECTURE.md from rows of `twin_skip.py --json FILE`: `python skip_table.py FILE`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

JOBS = {
    "gpt13b": "GPT-13B, 128 GPUs",
    "moe": "Mixtral-8x7B, 128 GPUs",
    "moe-zipf": "Mixtral-8x7B with Zipf sizes, 128 GPUs",
    "ring-128": "ring all-reduce of 1 GiB, 128 ranks",
    "ring-1024": "ring all-reduce of 1 GiB, 1,024 ranks",
    "gpt175b": "GPT-175B, tp8 dp128, 1,024 GPUs",
    "gpt175b-pp": "GPT-175B, tp8 pp8 dp16, 1,024 GPUs",
    "llama3-405b": "Llama-3 405B, tp8 pp16 dp128, 16,384 GPUs",
}
HEADS = ("job", "seconds", "whole command", "times level `packet`", "times ns-3 -O3", "error")


def table_of(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows of JOBS as a Markdown table; a row that was not measured is left out."""
    by_name = {row["row"]: row for row in rows}
    lines = [f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|"]
    lines += [f"| {' | '.join((job, *_cells(by_name[name])))} |" for name, job in JOBS.items() if name in by_name]
    return "\n".join(lines)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    absent = "not measured"
    seconds, command_s, times, error = row["seconds"], row["command_s"], row["times"], row["error"]
    return (
        f"{seconds:.3g}",
        absent if command_s is None else f"{command_s:.2g}",
        absent if times is None else f"{times:.0f}",
        f"{round(row['over_ns3'], -2):,.0f}",
        absent if error is None else f"{error:.2g}",
    )


if __name__ == "__main__":
    print(table_of(json.loads(Path(sys.argv[1]).read_text())["rows"]))
