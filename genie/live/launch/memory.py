"""Memory limits (`ulimit -v`): settings that need less memory, and a test of whether the limit suffices.

The library of tables (polars) aborts its process when memory runs out. So under a limit, work that needs it runs in a
process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec

from genie.inputs.fault import memory_advice, memory_limit_kib
from genie.live.parts import PARTS
from genie.live.settings import RunSettings

FRUGAL = {"POLARS_MAX_THREADS": "1", "_RJEM_MALLOC_CONF": "background_thread:false", "MALLOC_ARENA_MAX": "2"}
PROBE = """
import io, mpi4py, genie_core, genie.live.launch.merge, polars
table = polars.DataFrame({"a": range(1000), "b": ["x"] * 1000})
table.join(table, on="a").write_parquet(io.BytesIO())
"""
PROBE_LIMIT_S = 60.0
SALVAGE = "import sys; from genie.live.launch.memory import main; main(*sys.argv[1:])"


def save_memory() -> str | None:
    """Reduce the memory use of ranks and tables under a limit; return why even that exceeds it, else None."""
    limit = memory_limit_kib()
    if limit is None:
        return None
    for name, value in FRUGAL.items():
        os.environ.setdefault(name, value)
    if _python(PROBE) is not None:
        return None
    return f"{limit} KiB of memory are too few to write a run folder: {memory_advice()}"


def salvage_apart(settings: RunSettings, problem: str) -> str:
    """Salvage in another process, which may run out of memory; return the place of the records."""
    said = _python(SALVAGE, msgspec.json.encode(settings).decode(), problem)
    if said is not None:
        return said
    return f"memory ran out while the run folder was written: what was recorded stays in {settings.out_path / PARTS}"


def main(settings: str, problem: str) -> None:
    """Salvage: the body of that other process."""
    from genie.live.launch.merge import try_to_salvage

    print(try_to_salvage(msgspec.json.decode(settings, type=RunSettings), problem))


def _python(code: str, *arguments: str) -> str | None:
    """Run code in a new Python process; return its output, None unless it succeeds."""
    try:
        ended = subprocess.run(
            [sys.executable, "-P", "-c", code, *arguments],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PROBE_LIMIT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ended.stdout.strip() if ended.returncode == 0 else None
