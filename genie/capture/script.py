"""Running the recorder beside the user's PyTorch, once for each rank that is captured."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from genie.errors import UsageError

FORMAT = 1
PROCESSES_MAX = 2
_START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from torch_recorder import record; sys.path.pop(0); "
    "sys.exit(record.main(sys.argv[1:]))"
)


@dataclass(frozen=True)
class Script:
    """A command line, and how it is run. `server`: ranks of a server, for LOCAL_RANK."""

    words: tuple[str, ...]
    world: int
    steps: int = 2
    server: int = 8
    python: str = sys.executable
    limit_s: float = 3600.0


@dataclass(frozen=True)
class Recording:
    """A rank's step: its nodes as genie/capture/torch_recorder/graph.py writes them."""

    rank: int
    torch: str
    groups: list[dict[str, Any]]  # as the script made them: name, ranks, description
    nodes: list[dict[str, Any]]
    notes: dict[str, int] = field(default_factory=dict)


def check(script: Script) -> None:
    """Raises UsageError for a script or an interpreter that is not there."""
    if not script.words:
        raise UsageError("no script: give it after --, such as -- train.py --config FILE")
    if not Path(script.words[0]).is_file():
        raise UsageError(f"{script.words[0]}: there is no such script")
    if shutil.which(script.python) is None:
        raise UsageError(f"--python {script.python}: there is no such program")


def record(script: Script, ranks: Sequence[int], told: Callable[[int], None]) -> list[Recording]:
    """Record these ranks; `told` is called with each when it is done. Raises UsageError with the script's line."""
    workers = min(PROCESSES_MAX, os.cpu_count() or 1, len(ranks))

    def one(rank: int) -> Recording:
        found = _record(script, rank)
        told(rank)
        return found

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(one, ranks))


def _record(script: Script, rank: int) -> Recording:
    with tempfile.TemporaryDirectory(prefix="genie-capture-") as folder:
        out = Path(folder) / "rank.jsonl"
        words = [out, rank, script.world, min(script.server, script.world), script.steps, *script.words]
        line = [script.python, "-c", _START, str(Path(__file__).parent), *map(str, words)]
        try:
            ended = subprocess.run(line, capture_output=True, text=True, timeout=script.limit_s, check=False)
        except subprocess.TimeoutExpired as error:
            late = f"{script.words[0]} has not ended a step in {script.limit_s:.0f} s"
            raise UsageError(f"rank {rank}: {late}") from error
        if ended.returncode != 0 or not out.exists():
            said = ended.stderr.strip().splitlines() or ["it said nothing"]
            raise UsageError(f"rank {rank}: {said[-1]}")
        return read(out.read_text(), str(out))


def read(text: str, where: str) -> Recording:
    """Return a recording from the text of its file. Raises UsageError."""
    try:
        head, *nodes = (json.loads(line) for line in text.splitlines())
        if head["format"] != FORMAT:
            raise UsageError(f"{where}: has format {head['format']}: this version reads {FORMAT}")
        return Recording(head["rank"], head["torch"], head["groups"], nodes, head["notes"])
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{where}: is no recording: {error}") from error
