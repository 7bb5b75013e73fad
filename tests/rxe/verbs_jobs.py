"""Jobs whose ranks sit in the guests, on verbs, and on the host, on softroce, met through the TCP rendezvous."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from rxe.command import Command
from rxe.guest import SHARE
from rxe.machine import end
from rxe.network import HOST, ipv4, ipv6
from rxe.rig import Rig
from rxe.warm import WarmPython

from genie.live.settings import RunSettings
from genie.record import Run, open_run

LIMIT_S = 200  # a busy machine takes 110 s for `genie validate` between guests
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}  # of all ranks
# Imports of verbs ranks, the first at once and the others on first use. Rank 0's imports for writing the run folder are
# left out: polars starts threads when it is loaded.
RANK_IMPORTS = ("genie.bench.rank", "genie.bench.verbs_pair", "genie.live.verbs.transport", "genie.live.rendezvous.tcp")
_numbers, _ports = itertools.count(), itertools.count()


@dataclass
class Seats:
    """The seats of ranks: for each rank the number of its guest, or HOST for a softroce rank on the host."""

    ranks: Sequence[int]
    ipv6: bool = False
    environment: dict[str, str] = field(default_factory=dict)  # of the guests' ranks
    warm: Sequence[WarmPython] = ()  # of the guests, if their ranks start from one
    settings: dict[str, Any] = field(default_factory=dict)  # of RunSettings, beside places and paths


@dataclass
class Played:
    """How a job ended: exit codes and outputs in rank order, and its run folder if there is one."""

    codes: list[int]
    said: list[str]
    out: Path
    wall_s: float

    @property
    def run(self) -> Run:
        return open_run(self.out)


class Ranks:
    """Processes under way, one a rank, each in its place, told by torchrun's variables how to find each other."""

    def __init__(
        self,
        rig: Rig,
        places: Sequence[int],
        environment: dict[str, str],
        line: Callable[[int], list[str]],
        out: Path,
        variables: dict[str, str] | None = None,
        warm: Sequence[WarmPython] = (),
    ) -> None:
        """`environment`: of guests. `line`: what to start in a place. `out`: the folder with what they write.
        `variables`: of all ranks' environments. `warm`: of the guests, if what starts there starts from one.
        """
        self.out = out
        meeting = {"MASTER_ADDR": ipv4(places[0]), "MASTER_PORT": str(29500 + next(_ports))}
        self._began = time.monotonic()
        self.ranks: list[Command | subprocess.Popen[str]] = []
        for rank, place in enumerate(places):
            env = {
                "RANK": str(rank), "WORLD_SIZE": str(len(places)), **meeting, **(variables or {}),
                **ONE_THREAD,
            }  # fmt: skip
            if place == HOST:
                pipe = subprocess.PIPE
                argv = rig.network.inside(*line(place))
                self.ranks.append(
                    subprocess.Popen(argv, env={**os.environ, **env}, stdout=pipe, stderr=pipe, text=True)
                )
            else:
                starter = (warm or rig.guests)[place - 1]
                self.ranks.append(starter.start(line(place), env={**environment, **env}))

    def until_playing(self, limit_s: float = 60) -> None:
        """Wait until a first iteration has been played and saved."""
        until = time.monotonic() + limit_s
        while not list((self.out / "parts").glob("*-00000.npz")):
            assert time.monotonic() < until, "it does not begin"
            ended = [rank for rank, process in enumerate(self.ranks) if _code(process) is not None]
            assert not ended, f"ranks {ended} have ended: {self.end().said}"
            time.sleep(0.02)

    def end(self) -> Played:
        """Wait for all ranks."""
        codes, said = [], []
        for process in self.ranks:
            if isinstance(process, Command):
                done = process.wait(LIMIT_S)
                codes.append(done.returncode)
                said.append(done.stdout + done.stderr)
            else:
                try:
                    output, errors = process.communicate(timeout=LIMIT_S)
                except subprocess.TimeoutExpired:
                    end(process)  # type: ignore[arg-type]
                    raise
                codes.append(process.returncode)
                said.append(output + errors)
        return Played(codes, said, self.out, time.monotonic() - self._began)


class Job(Ranks):
    """A job started rank by rank from its settings, as the launcher does it."""

    def __init__(self, rig: Rig, seats: Seats, make_trace: Callable[[Path, int], object]) -> None:
        assert rig.share
        name = f"job{next(_numbers)}"
        folder = rig.share / name
        out = folder / "out"
        out.mkdir(parents=True)
        make_trace(folder / "trace", len(seats.ranks))
        for place, base in (("host", rig.share), ("guest", Path(SHARE))):
            settings = settings_of(seats, base / name)
            (out / f"{place}.json").write_bytes(msgspec.json.encode(settings))

        def line(place: int) -> list[str]:
            python, settings = (
                (sys.executable, str(out / "host.json"))
                if place == HOST
                else ("python3", f"{SHARE}/{name}/out/guest.json")
            )
            return [python, "-P", "-m", "genie.live.rank.process", settings]

        super().__init__(rig, seats.ranks, seats.environment, line, out, warm=seats.warm)


def _code(process: Command | subprocess.Popen[str]) -> int | None:
    return process.code if isinstance(process, Command) else process.poll()


def settings_of(seats: Seats, folder: Path) -> RunSettings:
    """A job's settings, with paths as they are where `folder` is."""
    address = ipv6 if seats.ipv6 else ipv4
    given = {"mtu": 1024, "iterations": 2, "stall_s": 60.0, **seats.settings}
    return RunSettings(
        workload=str(folder / "trace"),
        out=str(folder / "out"),
        ranks=len(seats.ranks),
        addresses=[address(place) for place in seats.ranks],
        ports=[None] * len(seats.ranks),
        host_names=["host" if place == HOST else f"guest{place}" for place in seats.ranks],
        transport="verbs",
        transports=["softroce" if place == HOST else "verbs" for place in seats.ranks],
        **given,
    )
