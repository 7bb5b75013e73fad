"""Bytes that are not those of their message are counted: two ranks that differ in what they send and expect."""

from __future__ import annotations

import re
import socket
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from live_runs import Ended, loopback, started

from genie.bench.asked import Asked
from genie.bench.collectives import OPERATIONS, chain
from genie.bench.measured import measured
from genie.config.hosts import load_hosts
from genie.job.job import Job
from genie.job.live_settings import live_settings
from genie.job.options import LiveOptions, TrafficOptions
from genie.record import LIVE, open_run, prepare_folder
from genie.workload.write import save

pytestmark = pytest.mark.live

ALL_REDUCE = OPERATIONS["all_reduce"]
SIZE_BYTES, COUNT, WARMUP = 1 << 14, 3, 1
ASKED = Asked(2, SIZE_BYTES, SIZE_BYTES, 2, None, WARMUP, COUNT, 1)


def played(verify: tuple[bool, bool], tmp_path: Path) -> list[Ended]:
    """Two ranks of one all-reduce bench, each with its own answer to whether bytes are the message's own."""
    hosts = load_hosts(Path(loopback(tmp_path, ranks=2)))
    out, trace = tmp_path / "out", tmp_path / "trace"
    workload = chain(ALL_REDUCE, ASKED, SIZE_BYTES)
    save(workload, trace)
    job = Job(TrafficOptions(str(trace), rate="200Mb/s"), LiveOptions(join=30), workload, hosts)
    settings = live_settings(job, out)
    prepare_folder(out, LIVE)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    with ExitStack() as stack:
        ranks = []
        for rank, verifies in enumerate(verify):
            launch_file = tmp_path / f"rank-{rank}.json"
            launch_file.write_bytes(msgspec.json.encode(msgspec.structs.replace(settings, verify=verifies)))
            line = [sys.executable, "-P", "-m", "genie.live.rank.process", str(launch_file)]
            meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": str(rank), "WORLD_SIZE": "2"}
            ranks.append(stack.enter_context(started(line=line, environment=meeting)))
        return [rank.end() for rank in ranks]


def test_bytes_of_another_pattern_are_wrong(tmp_path: Path) -> None:
    # Rank 0 sends the same bytes in each message, rank 1 expects those of each message.
    ended = played((False, True), tmp_path)
    assert [each.code for each in ended] == [1, 1]
    found = re.search(r"rank 1: .* ([0-9]+) bytes of what arrived are not what was sent", ended[1].stderr)
    assert found, ended
    # All that came, but for what is alike by chance: each operation is two messages of half the size.
    came = (COUNT + WARMUP) * SIZE_BYTES
    assert came // 2 < int(found[1]) <= came


@pytest.mark.parametrize("verify", [True, False])
def test_ranks_that_agree_find_nothing_wrong(verify: bool, tmp_path: Path) -> None:
    ended = played((verify, verify), tmp_path)
    assert [each.code for each in ended] == [0, 0], ended
    line = measured(ALL_REDUCE, replace(ASKED, check=int(verify)), SIZE_BYTES, open_run(tmp_path / "out"))
    assert line.wrong_bytes == (0 if verify else None)
    assert line.verified_bytes == (2 * (COUNT + WARMUP) * SIZE_BYTES if verify else None)
