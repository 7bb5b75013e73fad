"""`genie validate` as people type it, with a rank on each machine: verbs in two guests, alone and beside softroce."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from documents import line_with
from live_runs import GENIE, rings
from rxe.guest import SHARE
from rxe.network import HOST, ipv4
from rxe.peer import TIMEOUT
from rxe.rig import Rig
from verbs_jobs import Ranks

from genie.record import Run, open_run

pytestmark = [pytest.mark.guests, pytest.mark.extended, pytest.mark.slow]

COLLECTIVES, SIZE_BYTES, ITERATIONS, WARMUP = 3, 49152, 3, 1
CLEAR_BYTES = 64
FABRIC = """name = "rig"

[topology]
kind = "single-switch"
hosts = {hosts}

[link]
rate = "1Gb/s"
delay = "1us"

[transport]
mtu = 1024
"""
_numbers = itertools.count()


@dataclass
class Validation:
    """How a validation ended: exit codes and outputs in rank order, and what rank 0 wrote."""

    codes: list[int]
    said: list[str]
    out: Path

    @property
    def verdict(self) -> dict[str, Any]:
        return json.loads((self.out / "verdict.json").read_text())  # type: ignore[no-any-return]

    @property
    def live(self) -> Run:
        return open_run(self.out / "live")

    @property
    def twin(self) -> Run:
        return open_run(self.out / "twin")


Validate = Callable[..., Validation]


def hosts_file(ranks: tuple[int, ...]) -> str:
    """The host's rank on softroce, the guests' on verbs."""
    tables = (
        f'[[host]]\nname = "{"host" if place == HOST else f"guest{place}"}"\nranks = {rank}\n'
        f'address = "{ipv4(place)}"\ntransport = "{"softroce" if place == HOST else "verbs"}"\n'
        for rank, place in enumerate(ranks)
    )
    return "\n".join(tables)


@pytest.fixture
def validate(rig: Rig, guest_environment: dict[str, str]) -> Validate:
    """Runs `genie validate` with a rank in each of some places and more options; returns how it ended."""

    def run(
        ranks: tuple[int, ...], *more: str, trace_ranks: int | None = None, variables: dict[str, str] | None = None
    ) -> Validation:
        assert rig.share
        name = f"validate{next(_numbers)}"
        folder = rig.share / name
        rings(folder / "trace", trace_ranks or len(ranks), collectives=COLLECTIVES, size_bytes=SIZE_BYTES)
        (folder / "hosts.toml").write_text(hosts_file(ranks))
        (folder / "fabric.toml").write_text(FABRIC.format(hosts=len(ranks)))

        def line(place: int) -> list[str]:
            there = str(folder) if place == HOST else f"{SHARE}/{name}"
            return [
                str(GENIE) if place == HOST else "genie", "validate", f"{there}/trace", "--transport", "verbs",
                "--hosts", f"{there}/hosts.toml", "--fabric", f"{there}/fabric.toml", "-n", str(ITERATIONS),
                "--warmup", str(WARMUP), "--stall", "60", "--join", "120", "-o", f"{there}/out", *more,
            ]  # fmt: skip

        ended = Ranks(rig, ranks, guest_environment, line, folder / "out", variables).end()
        return Validation(ended.codes, ended.said, ended.out)

    return run


def bytes_of_pairs(run: Run) -> dict[tuple[int, int, int], int]:
    """Return (iteration, source, destination) → bytes that a rank sent to another."""
    sums = run.transfers.group_by("iteration", "src", "dst").agg(pl.col("size_bytes").sum())
    return {(row["iteration"], row["src"], row["dst"]): row["size_bytes"] for row in sums.iter_rows(named=True)}


def check(done: Validation, ranks: int) -> None:
    """Judged, whatever the verdict: emulated processors keep no time that a twin could foretell."""
    assert done.codes[0] in (0, 1, 4), done.said
    assert done.codes[1:] == [0] * (ranks - 1), done.said
    assert (done.out / "verdict.json").exists(), done.said
    verdict = done.verdict
    assert (done.codes[0] == 0) == (verdict["result"] == "pass")
    assert "verdict" in (done.out / "report.html").read_text().lower()
    assert done.live.info["complete"] is True
    # A ring all-reduce among n ranks: each sends 2 (n - 1) blocks of 1/n to its neighbour.
    sent = COLLECTIVES * 2 * (ranks - 1) * SIZE_BYTES // ranks
    rings_of = {(source, (source + 1) % ranks) for source in range(ranks)}
    live, twin = bytes_of_pairs(done.live), bytes_of_pairs(done.twin)
    assert {iteration for iteration, _, _ in live} == set(range(WARMUP + ITERATIONS))
    assert live == {(iteration, *pair): sent for iteration in range(WARMUP + ITERATIONS) for pair in rings_of}
    assert {key: size for key, size in live.items() if key[0] >= WARMUP} == {
        key: size for key, size in twin.items() if key[0] >= WARMUP
    }
    plays = WARMUP + ITERATIONS
    # Between devices a clear-to-send is a message too, one for each that a rank receives.
    nccl = done.live.info["lowering"]["wire"] == "nccl"
    clears = CLEAR_BYTES * int(done.live.transfers["messages"].sum()) // ranks if nccl else 0
    for counters in done.live.counters["ranks"]:
        if done.live.info["settings"]["verify"]:
            assert counters["verified_bytes"] == plays * sent + clears
            assert counters["wrong_bytes"] == 0
        if "bad_icrc" not in counters:  # verbs
            assert counters["bytes_received"] == counters["bytes_sent"] == plays * sent + clears


def test_validate_in_two_guests(validate: Validate) -> None:
    """Rank 0's guest plays the twin, judges and writes the report: with what the wheel brings and no more. NCCL's
    messages.
    """
    done = validate((1, 2), "--verify")
    check(done, 2)
    assert done.live.info["transport"] == "verbs"


def test_validate_softroce_and_verbs_in_one_job(validate: Validate) -> None:
    verbs = ("--verbs", f"timeout={TIMEOUT}", "--verbs", "completion=channel", "--verbs", "signal_every=2")
    done = validate((HOST, 1, 2), "--verify", "--queue-pairs", "2", "--split", "--wire", "plain", *verbs)
    check(done, 3)
    given = done.live.info["settings"]["verbs"]
    assert (given["timeout"], given["completion"], given["signal_every"]) == (TIMEOUT, "channel", 2)
    assert all(counters["sleeps"] > 0 for counters in done.live.counters["ranks"][1:])
    assert done.live.info["transport"] == "softroce+verbs"


def test_validate_one_softroce_and_one_verbs(validate: Validate) -> None:
    """The host's rank judges a verbs rank that NCCL's variables have told the same."""
    variables = {"NCCL_IB_TIMEOUT": str(TIMEOUT), "NCCL_IB_QPS_PER_CONNECTION": "3"}
    done = validate((HOST, 1), "--verify", "--wire", "plain", variables=variables)
    check(done, 2)
    assert done.live.info["settings"]["verbs"]["timeout"] == TIMEOUT
    assert all(len(path.split(",")) == 3 for path in done.live.transfers["path"].to_list())


def test_the_line_of_the_page(rig: Rig, guest_environment: dict[str, str]) -> None:
    """docs/on-the-wire.md: the command in two guests, the first with the name gpu01."""
    assert rig.share
    folder, there = rig.share / "page", f"{SHARE}/page"
    rings(folder / "TRACE", 2, size_bytes=SIZE_BYTES)
    (folder / "HOSTS.toml").write_text(hosts_file((1, 2)))
    (folder / "FABRIC.toml").write_text(FABRIC.format(hosts=2))
    line = line_with("genie validate TRACE --transport verbs")
    assert line.startswith("RANK=0 WORLD_SIZE=2 MASTER_ADDR=gpu01 ")

    def named(place: int) -> list[str]:
        own = line.replace("RANK=0", f"RANK={place - 1}")
        return ["sh", "-c", f"cd {there} && echo '{ipv4(1)} gpu01' >>/etc/hosts && {own}"]

    ended = Ranks(rig, (1, 2), guest_environment, named, folder / "runs" / "pair").end()
    done = Validation(ended.codes, ended.said, ended.out)
    assert done.codes[1] == 0, done.said
    assert done.codes[0] == {"pass": 0, "fail": 1, "inconclusive": 4}[done.verdict["result"]], done.said
    assert done.live.info["transport"] == "verbs"
    assert done.live.info["complete"] is True


def test_a_trace_of_another_size_is_said_once(validate: Validate) -> None:
    """Every rank leaves with exit code 2 and rank 0 says why."""
    done = validate((1, 2), trace_ranks=3)
    assert done.codes == [2, 2], done.said
    assert "places 2 ranks, the workload has 3" in done.said[0]
    assert not (done.out / "verdict.json").exists()
