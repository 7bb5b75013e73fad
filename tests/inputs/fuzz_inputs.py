# ruff: noqa: E402
"""Mutated files of every format through the commands that read them: `make fuzz-inputs`.

    python tests/inputs/fuzz_inputs.py --cases 100000 --jobs 2 --seed 1
    python tests/inputs/fuzz_inputs.py --format kineto --case 17 --seed 1 --keep DIR   # one case again, its files kept

Commands run inside worker processes with a limit of memory; a case that takes too long has its worker killed.
"""

from __future__ import annotations

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ[_name] = "1"  # before what they are for is imported

import argparse
import ctypes
import json
import resource
import select
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from random import Random
from tempfile import mkdtemp

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2])]

from input_cases import Outcome, judge, run_case
from input_formats import FORMATS, pytorch_samples, samples

MEMORY_BYTES = 2 << 30
LIMIT_S = 10.0  # of a case's processor time, so that a busy machine changes nothing,
WALL_LIMIT_S = 120.0  # and of time, for one that waits for ever
PRELOADED = (
    "genie.live.rank.process", "genie.report.metrics", "genie.lab.life", "simtwin.api", "simtwin.report",
    "simtwin.sweep.page", "simtwin.sweep.workers",
)  # fmt: skip
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl.h
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
CASES_OF_A_WORKER = 400  # then it begins anew, so that nothing of long ago matters


@dataclass
class Tally:
    """The outcomes of a format's cases."""

    cases: int = 0
    refused: int = 0
    accepted: int = 0
    other: int = 0  # exit codes that say that a run failed, or memory was short
    seconds: float = 0.0
    slowest: float = 0.0
    findings: list[dict[str, object]] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.cases += 1
        self.seconds += outcome.seconds
        self.slowest = max(self.slowest, outcome.seconds)
        self.refused += outcome.code == 2
        self.accepted += outcome.code == 0
        self.other += outcome.code not in (0, 2)


def case_random(seed: int, name: str, case: int) -> Random:
    return Random(f"{seed}/{name}/{case}")


def replay(seed: int, name: str, case: int) -> str:
    return f"{Path(sys.executable).name} tests/inputs/fuzz_inputs.py --format {name} --seed {seed} --case {case}"


class Worker:
    """A forked process that plays every `step`-th case from `first` on, and tells of each begin and end."""

    def __init__(self, seed: int, name: str, cases: range) -> None:
        self.name, self.cases = name, cases
        self.current: int | None = None
        self.began = time.monotonic()
        self._began_cpu_s = 0.0
        self._rest = b""
        reader, writer = os.pipe()
        self.folder = Path(mkdtemp(prefix="genie-fuzz-"))
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reader)
            try:
                _work(seed, name, cases, writer, self.folder)
            finally:
                os._exit(0)
        os.close(writer)
        self.pipe = reader

    def said(self) -> Iterator[dict[str, object]]:
        """Its reports since then; ends with {} when it has ended."""
        data = os.read(self.pipe, 1 << 16)
        *lines, self._rest = (self._rest + data).split(b"\n")
        yield from map(json.loads, lines)
        if not data:
            yield {}

    def begin(self, case: int) -> None:
        self.current, self.began, self._began_cpu_s = case, time.monotonic(), self._cpu_s()

    def is_too_slow(self) -> bool:
        """Whether its case takes too long."""
        if self.current is None:
            return False
        return self._cpu_s() - self._began_cpu_s > LIMIT_S or time.monotonic() - self.began > WALL_LIMIT_S

    def _cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def end(self) -> int:
        """Kill what is left; the status it ended with."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        os.close(self.pipe)
        shutil.rmtree(self.folder, ignore_errors=True)
        return status


def _work(seed: int, name: str, cases: range, pipe: int, folder: Path) -> None:
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in cases:
        os.write(pipe, json.dumps({"begin": number}).encode() + b"\n")
        outcome = run_case(FORMATS[name], case_random(seed, name, number), folder / f"c{number}")
        os.write(pipe, json.dumps({"end": number, **asdict(outcome)}).encode() + b"\n")


def play(seed: int, name: str, count: int, jobs: int) -> Tally:
    """All cases of a format."""
    tally = Tally()
    waiting = [range(at, min(at + CASES_OF_A_WORKER, count)) for at in range(0, count, CASES_OF_A_WORKER)]
    waiting = [part for whole in waiting for part in _shares(whole, jobs)]
    workers: dict[int, Worker] = {}
    while waiting or workers:
        while waiting and len(workers) < jobs:
            worker = Worker(seed, name, waiting.pop(0))
            workers[worker.pipe] = worker
        ready, _, _ = select.select(list(workers), [], [], 0.5)
        for pipe in ready:
            for line in workers[pipe].said():
                _heed(workers, pipe, line, tally, waiting, seed)
        for pipe, worker in list(workers.items()):
            if worker.is_too_slow():
                _lost(workers, pipe, "hang", f"took more than {LIMIT_S:g} s", tally, waiting, seed)
    return tally


def _shares(cases: range, jobs: int) -> list[range]:
    return [part for start in range(jobs) if len(part := cases[start::jobs])]


def _heed(
    workers: dict[int, Worker], pipe: int, line: dict[str, object], tally: Tally, waiting: list[range], seed: int
) -> None:
    worker = workers.get(pipe)
    if worker is None:
        return
    if not line:
        if worker.current is None:
            worker.end()
            del workers[pipe]
        else:
            _lost(workers, pipe, "died", "its process died", tally, waiting, seed)
    elif "begin" in line:
        worker.begin(int(str(line["begin"])))
    else:
        number = int(str(line.pop("end")))
        worker.current = None
        outcome = Outcome(**line)  # type: ignore[arg-type]
        tally.add(outcome)
        if problem := judge(outcome):
            _found(tally, seed, worker.name, number, problem, outcome.error[-600:])


def _lost(
    workers: dict[int, Worker], pipe: int, kind: str, what: str, tally: Tally, waiting: list[range], seed: int
) -> None:
    worker = workers.pop(pipe)
    assert worker.current is not None
    done = worker.cases.index(worker.current) + 1
    if done < len(worker.cases):
        waiting.insert(0, worker.cases[done:])
    log = b""
    for path in worker.folder.glob("*.err"):
        log = path.read_bytes()[-600:]
    status = worker.end()
    tally.cases += 1
    tally.seconds += time.monotonic() - worker.began
    tally.slowest = max(tally.slowest, time.monotonic() - worker.began)
    how = what if kind == "hang" else f"{what} with status {status}"
    _found(tally, seed, worker.name, worker.current, how, log.decode(errors="replace"))


def _found(tally: Tally, seed: int, name: str, case: int, problem: str, said: str) -> None:
    tally.findings.append({"case": case, "problem": problem, "said": said, "replay": replay(seed, name, case)})
    if len(tally.findings) <= 20:
        print(f"{name} {case}: {problem}\n    {said.strip()[-300:]!r}\n    {replay(seed, name, case)}", flush=True)


def _preload() -> None:
    """Import the modules that commands import late: once, before there are workers."""
    import typer

    from genie.cli import main as cli

    for name in PRELOADED:
        import_module(name)
    # Built once: to build it takes twenty times what a case takes.
    cli.app = typer.main.get_command(cli.app)  # type: ignore[assignment]


def play_one(seed: int, name: str, case: int, keep: Path | None) -> int:
    """One case in this process; its files stay in `keep`."""
    folder = (keep or Path(mkdtemp(prefix="genie-fuzz-"))).resolve() / f"c{case}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    outcome = run_case(FORMATS[name], case_random(seed, name, case), folder, keep=True)
    print(json.dumps(asdict(outcome), indent=1))
    print(f"files: {folder}\n{judge(outcome) or 'no finding'}")
    return 1 if judge(outcome) else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000, help="of all formats together")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--format", action="append", choices=sorted(FORMATS), help="only this; may be repeated")
    parser.add_argument("--case", type=int, help="only this one, of one --format, in this process")
    parser.add_argument("--keep", type=Path, help="with --case: where its files stay")
    parser.add_argument("--json", type=Path, help="write all counts and findings")
    given = parser.parse_args()
    names = given.format or list(FORMATS)
    if given.case is not None:
        return play_one(given.seed, names[0], given.case, given.keep)
    _preload()
    samples()
    if {"pytorch-host", "kineto"} & set(names):
        pytorch_samples()
    began = time.monotonic()
    tallies = {}
    try:
        for at, name in enumerate(names):
            count = given.cases // len(names) + (at < given.cases % len(names))
            tallies[name] = play(given.seed, name, count, given.jobs)
            print(f"{name}: {count} cases, {len(tallies[name].findings)} findings", file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(samples(), ignore_errors=True)
        show(tallies, time.monotonic() - began)
        if given.json:
            given.json.write_text(json.dumps({name: asdict(tally) for name, tally in tallies.items()}, indent=1) + "\n")
    return 1 if any(tally.findings for tally in tallies.values()) else 0


def show(tallies: dict[str, Tally], seconds: float) -> None:
    """A table by format."""
    heads = ("format", "cases", "refused", "accepted", "other", "findings", "seconds", "slowest s")
    rows = [
        (name, t.cases, t.refused, t.accepted, t.other, len(t.findings), round(t.seconds, 1), round(t.slowest, 2))
        for name, t in tallies.items()
    ]
    total = Counter[str]()
    for tally in tallies.values():
        total += Counter(cases=tally.cases, refused=tally.refused, accepted=tally.accepted, other=tally.other)
    found = sum(len(tally.findings) for tally in tallies.values())
    slowest = max((tally.slowest for tally in tallies.values()), default=0.0)
    counts = (total["cases"], total["refused"], total["accepted"], total["other"])
    rows.append(("all", *counts, found, round(seconds, 1), round(slowest, 2)))
    widths = [max(len(str(row[at])) for row in (heads, *rows)) for at in range(len(heads))]
    for row in (heads, *rows):
        print("  ".join(str(cell).rjust(width) for cell, width in zip(row, widths, strict=True)))


if __name__ == "__main__":
    sys.exit(main())
