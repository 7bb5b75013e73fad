"""`genie simulate`: its progress, its series, and a stop that leaves a record."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from live_runs import GENIE, Ended, heed_signals, in_this_process, rings

from genie.cli.simulation.progress import Progress, StopSignals
from genie.record import open_run
from genie.record.schemas import SERIES_SCHEMA

pytestmark = pytest.mark.live

FABRICS = Path(__file__).parents[2] / "hosts" / "fabrics"
LIMIT_S = 10.0  # from a signal to the end: half a second on a free machine


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    return rings(tmp_path_factory.mktemp("rings"), 8, size_bytes=1 << 20)


@pytest.fixture(scope="module")
def long_trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A trace whose simulation takes minutes."""
    return rings(tmp_path_factory.mktemp("long"), 8, collectives=50, size_bytes=64 << 20, compute_ns=1000)


def simulate(trace: str, out: Path, *arguments: str) -> Ended:
    return in_this_process("simulate", trace, "--rate", "100Gb/s", "-o", str(out), *arguments)


# Progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The present time, which tests may set."""
    now = [100.0]
    monkeypatch.setattr("genie.cli.simulation.progress.time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def screen(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool) -> io.StringIO:
    shown = io.StringIO()
    shown.isatty = lambda: is_terminal  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stderr", shown)
    return shown


Play = tuple[int, int, int, float]  # seconds, place of the iteration, events, share that is done


def lines_of(plays: list[Play | None], clock: list[float], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines of a log about two iterations; None: the present one begins again."""
    shown = screen(monkeypatch, is_terminal=False)
    progress = Progress()
    for play in plays:
        if play is None:
            progress.begin_again()
            continue
        second, place, events, share = play
        clock[0] = 100.0 + second
        progress(SimpleNamespace(events=events, now_ps=second * 10**9, share_done=share), place, 2)
    return shown.getvalue().splitlines()


def test_lines_of_a_log(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    plays: list[Play | None] = [(9, 0, 1, 0.1), (10, 0, 20_000_000, 0.2), (19, 1, 1, 0), (30, 1, 8_000_000, 0.5)]
    assert lines_of(plays, clock, monkeypatch) == [
        "genie: iteration 1 of 2: 10.000 ms simulated, 2.00 M events/s, 10 % done, about 90 s left",
        "genie: iteration 2 of 2: 30.000 ms simulated, 0.40 M events/s, 75 % done, about 10 s left",
    ]


def test_an_iteration_that_begins_again_is_said(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    plays: list[Play | None] = [(20, 0, 20_000_000, 0.8), None, (30, 0, 9_000_000, 0.5), (40, 1, 1, 0)]
    assert lines_of(plays, clock, monkeypatch) == [
        "genie: iteration 1 of 2: 20.000 ms simulated, 1.00 M events/s, 40 % done, about 30 s left",
        "genie: iteration 1 of 2: begun again: 30.000 ms simulated, 0.90 M events/s, 25 % done, about 30 s left",
        "genie: iteration 2 of 2: 40.000 ms simulated, 0 events/s, 50 % done, about 20 s left",
    ]


def test_the_line_of_a_terminal_is_gone_at_the_end(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    shown = screen(monkeypatch, is_terminal=True)
    with Progress() as progress:
        for half_seconds in range(1, 4):
            clock[0] = 100.0 + half_seconds / 2
            progress(SimpleNamespace(events=1_000_000 * half_seconds, now_ps=10**9), 0, 1)
    drawn = shown.getvalue()
    assert drawn.count("1.000 ms simulated, 2.00 M events/s") >= 3
    assert "\n" not in drawn.rstrip("\n").partition("simulated")[2].partition("simulated")[0], "one line, in place"
    assert drawn.endswith("\x1b[2K"), "the line is gone at the end"


def test_hours_are_said_roughly(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    shown = screen(monkeypatch, is_terminal=False)
    progress = Progress()
    clock[0] += 100
    for share in (0.5, 0.1, 0.01, 0.0):
        clock[0] += 10
        progress(SimpleNamespace(events=0, now_ps=0, share_done=share), 0, 1)
    assert re.findall(r"done.*", shown.getvalue()) == [
        "done, about 2 min left", "done, about 18 min left", "done, about 3 h 34 min left", "done"
    ]  # fmt: skip


def test_iterations_are_a_share_where_a_level_knows_none(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    shown = screen(monkeypatch, is_terminal=False)
    progress = Progress()
    for place in (0, 300, 500_000):
        clock[0] += 10
        progress(SimpleNamespace(events=0, now_ps=0), place, 1_000_000)
    assert [line.partition(" events/s")[2] for line in shown.getvalue().splitlines()] == [
        "", ", under 1 % done, about 18 h 31 min left", ", 50 % done, about 30 s left"
    ]  # fmt: skip


def test_what_takes_long_to_write_is_said(trace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert simulate(trace, tmp_path / "few", "-n", "3").stderr == ""
    monkeypatch.setattr("genie.cli.simulation.progress.ROWS_AT_ONCE", 10)
    assert (
        simulate(trace, tmp_path / "many", "-n", "3").stderr == f"genie: writing 3 iterations to {tmp_path / 'many'}\n"
    )


# Stopping


@pytest.mark.parametrize(("number", "code", "words"), [
    (signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "told to end by SIGTERM")
])  # fmt: skip
def test_a_signal_leaves_a_record(number: int, code: int, words: str, long_trace: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["simulate", long_trace, "--rate", "100Gb/s", "-n", "20", "--series", "100us", "-o", str(out)]
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [str(GENIE), *arguments],
        stdout=subprocess.PIPE,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=heed_signals,
    ) as command:
        os.close(theirs)
        try:
            said = b""
            while b"left" not in said:
                said += os.read(ours, 4096)
            os.kill(command.pid, number)
            told = time.monotonic()
            try:
                while chunk := os.read(ours, 4096):
                    said += chunk
            except OSError:  # no process writes to the terminal any more
                pass
            assert command.wait(60) == code
            assert time.monotonic() - told < LIMIT_S
        finally:
            command.kill()
            os.close(ours)
    text = said.decode()
    assert re.search(
        r"iteration 1 of 20: \d+\.\d{3} ms simulated, \d+\.\d\d M events/s, about \d+ \w+.* left",
        text,
    )
    assert f"{words}: the simulation stops, and is written" in text
    (last,) = text.rpartition("\x1b[2K")[2].splitlines()
    run = open_run(out)
    assert (run.info["complete"], run.info["problem"], run.info["stopped_iteration"]) == (False, words, 0)
    at_ns = run.info["stopped_at_ns"]
    assert (
        last
        == f"genie: {words}, stopped at {at_ns / 1e6:.3f} ms of iteration 0; what was played until then is in {out}"
    )
    assert set(run.timeline.filter(pl.col("end_ns") < 0)["rank"]) == set(range(8))
    assert run.timeline["end_ns"].max() < at_ns  # type: ignore[operator]
    assert run.transfers.height > 0
    assert run.series is not None
    assert run.series["time_ns"].max() == at_ns
    links = {link["link"]: link["size_bytes"] for link in run.counters["links"]}
    assert run.series.filter(name="host0->switch")["sent_bytes"].sum() == pytest.approx(
        links["host0->switch"], abs=4200
    )


def test_only_the_first_signal_while_it_plays_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    ignored = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals() as stop:
            signal.raise_signal(signal.SIGTERM)  # no part has been played: the signal ends the command
            assert (heard, stop.number) == ([signal.SIGTERM], None)
            assert stop() is None
            signal.raise_signal(signal.SIGHUP)
            assert stop() is None
            signal.raise_signal(signal.SIGTERM)
            assert (stop(), stop.number, len(heard)) == ("told to end by SIGTERM", signal.SIGTERM, 1)
            signal.raise_signal(signal.SIGTERM)  # the same, to the group
            assert len(heard) == 1
            monkeypatch.setattr("genie.cli.simulation.progress.TWICE_S", 0.0)
            signal.raise_signal(signal.SIGTERM)
            assert len(heard) == 2
        signal.raise_signal(signal.SIGTERM)
        assert len(heard) == 3
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGHUP, ignored)


def test_a_beginning(trace: str, tmp_path: Path) -> None:
    ended = simulate(trace, tmp_path, "--stop-after", "0.3ms", "--series", "50us")
    assert (ended.code, ended.stderr) == (0, "")
    assert ", stopped at 0.300 ms of iteration 0, " in ended.stdout
    assert ended.stdout.endswith(f"; {tmp_path}\n")
    run = open_run(tmp_path)
    assert (run.info["complete"], run.info["stopped_at_ns"]) == (False, 300_000)
    assert run.timeline.filter(pl.col("end_ns") < 0)["rank"].to_list() == list(range(8))
    assert run.series is not None
    assert run.series["time_ns"].unique().sort().to_list() == [250_000, 300_000]


def test_a_time_that_never_comes_stops_nothing(trace: str, tmp_path: Path) -> None:
    ended = simulate(trace, tmp_path, "--stop-after", "10s")
    assert (ended.code, ended.stderr) == (0, "genie: no iteration took as long as --stop-after\n")
    assert " ms an iteration, " in ended.stdout
    run = open_run(tmp_path)
    assert run.info["complete"] is True
    assert run.timeline["end_ns"].min() >= 0  # type: ignore[operator]


def test_a_simulation_that_fails_leaves_a_record(trace: str, tmp_path: Path) -> None:
    fabric = tmp_path / "fabric.toml"
    fabric.write_text(
        '[topology]\nkind = "single-switch"\nhosts = 8\n[link]\nrate = "100Gb/s"\ndelay = "500ns"\n'
        '[transport]\nack_timeout = "100us"\nretry_limit = 1\n'
        '[[fault]]\nat = "300us"\ncable = ["host3", "switch"]\n'
    )
    out = tmp_path / "out"
    ended = in_this_process("simulate", trace, "--fabric", str(fabric), "-o", str(out))
    assert (ended.code, ended.stdout) == (1, "")
    assert ended.stderr.startswith("genie: switch->host3 is down since 300us")
    assert ended.stderr.endswith(f"; what was played until then is in {out}\n")
    run = open_run(out)
    assert run.info["complete"] is False
    assert "switch->host3 is down" in run.info["problem"]
    assert run.timeline.filter((pl.col("kind") == "comp") & (pl.col("end_ns") == 200_000)).height == 8


def test_a_run_of_the_twin_is_not_followed(trace: str, tmp_path: Path) -> None:
    assert simulate(trace, tmp_path / "run").code == 0
    ended = simulate(trace, tmp_path / "out", "--follow", str(tmp_path / "run"))
    said = f"--follow {tmp_path / 'run'}: is not a live run: give the folder of genie run"
    assert (ended.code, ended.stdout, ended.stderr) == (2, "", f"genie: {said}\n")
    assert not (tmp_path / "out").exists()


def test_what_several_threads_do_not_skip_is_said(tmp_path: Path) -> None:
    again = rings(tmp_path, 8, collectives=5, size_bytes=64 << 10, compute_ns=100_000_000)
    fabric = ("--fabric", str(FABRICS / "lab-8.toml"))
    reason = "no episodes: several threads play"

    def simulated(*arguments: str) -> tuple[Ended, list[str], int]:
        ended = in_this_process("simulate", again, *fabric, "-o", str(tmp_path / "out"), *arguments)
        skip = open_run(tmp_path / "out").info["skip"]
        assert skip["episodes"]["need_one_thread"] == (reason in skip["reasons"])
        return ended, skip["reasons"], skip["episodes"]["replayed"]

    one, reasons, replayed = simulated()
    assert " data packets skipped, " in one.stdout
    assert (one.code, reasons, replayed > 0) == (0, [], True)
    two, reasons, replayed = simulated("--threads", "2")
    said = (
        "--threads 2: collectives and messages that come again were played each time; one thread may play them once "
        "for all that are alike"
    )
    # On a slow machine progress comes before it.
    assert (two.code, two.stderr.splitlines()[-1], replayed) == (0, f"genie: {said}", 0)
    assert said not in one.stderr
    assert reason in reasons
    assert " M/s), none skipped, " in two.stdout
    # Nothing is lost by threads where one thread plays them too.
    for other in (("--series", "10ms"), ("--stop-after", "1s"), ("--spray", "2")):
        ended, reasons, replayed = simulated("--threads", "2", *other)
        assert (said in ended.stderr, reason in reasons, replayed) == (False, False, 0), other
    estimated, reasons, replayed = simulated("--skip-error", "1%")
    assert "--skip-error: no estimate was made" in estimated.stderr
    assert (estimated.code, replayed, "an estimate needs all packets" in reasons[-1]) == (0, 0, True)


@pytest.mark.parametrize(
    "other", ["--skip-error 1%", "--series 1ms", "--stop-after 1ms", "--threads 2", ""], ids=lambda other: other[:8]
)
def test_memory_that_is_not_used_is_said(other: str, trace: str, tmp_path: Path) -> None:
    ended = simulate(trace, tmp_path, "--skip-memory", "500MiB", *other.split())
    said = f"--skip-memory changes nothing beside {other}".removesuffix(" 1%").removesuffix(" 1ms")
    assert ended.code == 0
    assert ended.stderr.count("--skip-memory") == ended.stderr.count(said) == bool(other)
    assert "--skip-memory" not in simulate(trace, tmp_path, *other.split()).stderr


# Series


def test_series_of_a_run(trace: str, tmp_path: Path) -> None:
    plain = simulate(trace, tmp_path / "plain", "-n", "2")
    ended = simulate(trace, tmp_path / "series", "-n", "2", "--series", "20us", "--threads", "2")
    assert (plain.code, ended.code, ended.stderr) == (0, 0, "")
    without, run = open_run(tmp_path / "plain"), open_run(tmp_path / "series")
    assert without.series is None
    assert run.series is not None
    assert dict(run.series.schema) == SERIES_SCHEMA
    assert run.series["iteration"].unique().to_list() == [0, 1]
    assert run.timeline.equals(without.timeline)
    assert run.transfers.equals(without.transfers)
    assert run.counters == without.counters
    simulate(trace, tmp_path / "series")
    assert open_run(tmp_path / "series").series is None


@pytest.mark.parametrize(("option", "said"), [
    ("--series 0us", "--series 0us: must be a whole number of nanoseconds above 0, such as 10us"),
    ("--series 10", "--series 10: has no unit; give for example 10us"),
    ("--series 1500ps", "--series 1500ps: must be a whole number of nanoseconds above 0, such as 10us"),
    ("--stop-after 0", "--stop-after 0: must be a whole number of nanoseconds above 0, such as 5ms"),
    ("--stop-after soon", "--stop-after soon: is not a number with a unit; give for example 5ms"),
])  # fmt: skip
def test_times_that_are_none(option: str, said: str, trace: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ended = simulate(trace, out, *option.split())
    assert (ended.code, ended.stdout, ended.stderr) == (2, "", f"genie: {said}\n")
    assert not out.exists()
