"""Merging all ranks' records into one run folder: by rank 0 at the end, or by the launcher from files on disk."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from genie.live.counters.warnings import warnings_of
from genie.live.failure import FailureRecord
from genie.live.fault_warnings import missed_faults
from genie.live.launch.watch import still_running
from genie.live.parts import CUT, FACTS, FAILED, LAUNCH_FILE, PARTS, remove_parts
from genie.live.paths.record import paths_of
from genie.live.settings import RunSettings
from genie.plan.facts import facts_of_build
from genie.plan.tables import Records, join_transfers, receives_of, sends_of, timeline_of
from genie.record import (
    CALIBRATION,
    LIVE,
    RUN_FILES,
    RecordError,
    RecordWriteError,
    Run,
    final_name,
    launch_mark,
    open_run,
    write_run,
)
from genie.workload.graph import Workload
from genie.workload.load import load

if TYPE_CHECKING:
    import polars as pl


def unpack(part: bytes) -> Records:
    """Return a rank's saved iteration as tables of arrays."""
    tables: dict[str, dict[str, Any]] = {}
    with np.load(io.BytesIO(part)) as arrays:
        for key in arrays.files:
            table, _, name = key.partition(".")
            tables.setdefault(table, {})[name] = arrays[key]
    return tables


def write_live_run(
    settings: RunSettings,
    facts: list[dict[str, Any] | None],
    parts: list[list[bytes] | None],
    problem: str | None = None,
) -> None:
    """Write the run folder. `facts`: by rank, None if lost; `parts`: iteration -> rank -> bytes, b"" if lost.

    Raise ValueError when there are no records, and RecordWriteError.
    """
    import polars as pl

    workload = load(settings.workload)
    timelines, sends, receives = [], [], []
    for iteration, of_ranks in enumerate(parts):
        for rank, part in enumerate(of_ranks or []):
            if not part:
                continue
            fact = facts[rank] or {}
            frames = _frames(settings, workload, rank, iteration, unpack(part), fact)
            timelines.append(frames[0])
            sends.append(frames[1])
            receives.append(frames[2])
    if not timelines:
        raise ValueError("no rank has played anything: there is nothing to write")
    transfers = join_transfers(workload, pl.concat(sends), pl.concat(receives))
    info, paths = info_of(settings, facts, problem), None
    if settings.trace is not None:
        paths, info["paths"] = paths_of(settings.trace, facts)
    kind = CALIBRATION if settings.schema == launch_mark(CALIBRATION) else LIVE
    counters = counters_of(settings, facts)
    missed = missed_faults(settings, transfers, paths, counters["ranks"])
    info["warnings"] += [text for text in missed if text not in info["warnings"]]
    write_run(settings.out_path, info, pl.concat(timelines), transfers, counters, paths, kind=kind)


def counters_of(settings: RunSettings, facts: list[dict[str, Any] | None]) -> dict[str, Any]:
    """Return counters.json: counters by rank, growth of devices' counters, and warnings.

    `ranks` are totals since a rank opened its transport, over all iterations with warm-up. `devices` are differences
    over the same time. `refused_senders`, by rank: the sources of packets that the rank refused.
    """
    ranks = [fact["counters"] if fact else None for fact in facts]
    devices = [device for fact in facts if fact for device in fact.get("devices", [])]
    senders = [(fact or {}).get("refused_senders", []) for fact in facts]
    return {
        "ranks": ranks,
        "devices": devices,
        "refused_senders": senders,
        "warnings": warnings_of(
            ranks, settings.host_names, devices, senders, settings.addresses, sprayed=settings.spray > 1
        ),
    }


def _frames(
    settings: RunSettings, workload: Workload, rank: int, iteration: int, records: Records, fact: dict[str, Any]
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    graph, k = workload.ranks[rank], settings.dilation
    paths = {peer: str(port) for peer, port in enumerate(fact.get("paths", []))}
    frames = (
        timeline_of(workload, graph, records, iteration, k),
        sends_of(graph, records, iteration, paths, k),
        receives_of(graph, records, iteration, k),
    )
    corrections = fact.get("corrections_ns", [])
    shift = corrections[iteration] // k if iteration < len(corrections) else 0
    if shift == 0:
        return frames
    # A node's times are of its own rank's clock, which starts at the origin. A message from a clock that is ahead may
    # seem to arrive before the origin: this shows the clock's error, so it is not clipped.
    return (
        _shift(frames[0], ("ready_ns", "start_ns", "end_ns"), shift, lowest=0),
        _shift(frames[1], ("post_ns", "acked_ns"), shift),
        _shift(frames[2], ("first_ns", "last_ns"), shift),
    )


def _shift(frame: pl.DataFrame, columns: tuple[str, ...], shift_ns: int, lowest: int | None = None) -> pl.DataFrame:
    """Move times by shift_ns; -1, which means "not yet", stays, and no other time becomes -1."""
    import polars as pl

    def moved(name: str) -> pl.Expr:
        time = pl.col(name) + shift_ns
        kept = pl.max_horizontal(time, lowest) if lowest is not None else pl.when(time == -1).then(-2).otherwise(time)
        return pl.when(pl.col(name) == -1).then(-1).otherwise(kept).alias(name)

    return frame.with_columns(moved(name) for name in columns)


def info_of(settings: RunSettings, facts: list[dict[str, Any] | None], problem: str | None) -> dict[str, Any]:
    """Return run.json: all facts needed to repeat the run and to judge it."""
    known = [fact for fact in facts if fact]
    return {
        "world": "live",
        "transport": "+".join(sorted(settings.kinds)),
        "icrc": sorted({fact["icrc"] for fact in known}),
        "complete": problem is None,
        "problem": problem,
        **facts_of_build(),
        "command": settings.command,
        "workload": settings.workload,
        "ranks": settings.ranks,
        "iterations": settings.iterations + settings.warmup,
        "warmup": settings.warmup,
        "seed": settings.seed,
        "rate_bps": settings.rate_bps,
        "dilation": settings.dilation,
        "slots": known[0]["slots"] if known else settings.slots,
        "compute": settings.compute,
        "lowering": settings.lowering.facts(),
        "nccl_variables": settings.nccl_variables,
        "algorithms": known[0]["algorithms"] if known else {},
        "hosts": [
            {"rank": rank, "host": settings.host_names[rank], "address": settings.addresses[rank],
             "port": settings.ports[rank]}
            for rank in range(settings.ranks)
        ],
        "clock_bound_ns": [fact["clock_bound_ns"] if fact else None for fact in facts],
        "clock_offset_ns": [fact["clock_offset_ns"] if fact else None for fact in facts],
        "scheduling": sorted({fact["scheduling"] for fact in known}),
        "spin": sorted({fact["spin"] for fact in known}),
        "nodes": [fact["node"] if fact else None for fact in facts],
        # By rank and iteration: time runnable without a core; -1 where the kernel does not count it.
        "run_queue_ns": [fact.get("run_queue_ns", []) if fact else None for fact in facts],
        "warnings": list(settings.warnings),
        "faults": msgspec.to_builtins(settings.faults),
        "settings": msgspec.to_builtins(msgspec.structs.replace(settings, trace=None, warnings=[], command="")),
    }  # fmt: skip


def salvage(settings: RunSettings, problem: str) -> Path | None:
    """Write a run folder, marked incomplete, from the parts on disk; None without any. Raise RecordWriteError."""
    folder = settings.out_path / PARTS
    found = {path: _readable(path) for path in sorted(folder.glob("*-*.npz"))}
    by_name = {path.stem.removesuffix(CUT): data for path, data in found.items() if data}
    if not by_name:
        return None
    iterations = 1 + max(int(name.partition("-")[2]) for name in by_name)
    parts: list[list[bytes] | None] = [
        [by_name.get(f"{rank:05d}-{iteration:05d}", b"") for rank in range(settings.ranks)]
        for iteration in range(iterations)
    ]
    facts = [_facts(folder / f"{rank:05d}{FACTS}") for rank in range(settings.ranks)]
    try:
        write_live_run(settings, facts, parts, problem)
    except RecordWriteError:
        # The disk may be full of these very parts, and the tables are smaller.
        for path in found:
            path.unlink()
        try:
            write_live_run(settings, facts, parts, problem)
        except RecordWriteError:
            for name in RUN_FILES:
                (settings.out_path / name).unlink(missing_ok=True)
            for path, data in found.items():
                path.write_bytes(data)
            raise
    return settings.out_path


def try_to_salvage(settings: RunSettings, problem: str) -> str:
    """Salvage, and remove the parts on success; return the place of the records, "" when there are none."""
    parts = settings.out_path / PARTS
    try:
        salvaged = salvage(settings, problem)
    except BaseException as error:  # any error: the first problem is the one to report
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":  # polars raises it
            raise
        return f"what was recorded stays in {parts} ({' '.join(str(error).split())})"
    remove_parts(settings)
    return f"what was recorded is in {settings.out_path}" if salvaged else ""


def open_live_run(path: Path) -> Run:
    """Open a run folder; one whose run was cut off before its parts were merged is completed first.

    Raise RecordError.
    """
    whole = (path / RUN_FILES[0]).exists()
    if (path / PARTS).is_dir() and (whole or any((path / PARTS).glob("*-*.npz"))):
        busy = still_running(path)
        if busy is not None and not whole:
            raise RecordError(
                f"{path}: rank {busy[0]} is still running (process {busy[1]}); wait until the run has ended"
            )
        if not whole:
            _complete(path)
    return open_run(path)


def _complete(path: Path) -> None:
    """Merge the parts of a run that was cut off. Raise RecordError when that fails."""
    try:
        settings = msgspec.json.decode((path / LAUNCH_FILE).read_bytes(), type=RunSettings)
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        why = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise RecordError(
            f"{path / LAUNCH_FILE}: cannot be read ({why}): the parts beside it cannot be put together; make the run "
            "again"
        ) from error
    if not settings.ranks == len(settings.addresses) == len(settings.ports) == len(settings.host_names):
        raise RecordError(
            f"{path / LAUNCH_FILE}: ranks is {settings.ranks} and there are {len(settings.addresses)} addresses, "
            f"{len(settings.ports)} ports and {len(settings.host_names)} hosts: make the run again"
        )
    settings = msgspec.structs.replace(settings, out=str(path.resolve()))
    said = try_to_salvage(settings, "cut off: the process that gathers the records was gone")
    if not (path / RUN_FILES[0]).exists():
        raise RecordError(f"{path}: {said or 'no part in it can be read'}; make the run again")


def remove_halves(folder: Path) -> None:
    """Remove a run folder's files that killed processes left half-written."""
    for path in folder.glob("*.part"):
        if final_name(path.name) != path.name:
            with suppress(OSError):
                path.unlink()


def _facts(path: Path) -> dict[str, Any] | None:
    try:
        facts = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return None
    return facts if isinstance(facts, dict) else None


def _readable(path: Path) -> bytes:
    """Return the part's bytes; b"" when its writer was killed half-way."""
    try:
        data = path.read_bytes()
        unpack(data)
    except Exception:
        return b""
    return data


def failures(settings: RunSettings) -> list[FailureRecord]:
    """Return the records of failed ranks, the earliest first."""
    records: list[FailureRecord] = []
    for path in sorted((settings.out_path / PARTS).glob(f"*{FAILED}")):
        with suppress(OSError, ValueError, RecursionError):
            records.append(msgspec.json.decode(path.read_bytes(), type=FailureRecord))
    return sorted(records, key=lambda record: record.time_ns)
