"""--transport verbs on a real RDMA stack: ranks in two guests over rxe, alone and with a softroce rank in one job."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import polars as pl
import pytest
from live_runs import rings
from roce_pcaps import judge
from rxe.network import HOST
from rxe.peer import TIMEOUT
from rxe.rig import Rig
from rxe.warm import WarmPython
from verbs_jobs import Job, Played, Seats

from genie.live.settings import VerbsSettings

pytestmark = [pytest.mark.guests, pytest.mark.extended, pytest.mark.slow]

RANKS, COLLECTIVES, SIZE_BYTES = 3, 3, 49152
# A ring all-reduce among n ranks: each sends 2 (n - 1) blocks of 1/n to its neighbour.
SENT_BYTES = 2 * (RANKS - 1) * SIZE_BYTES // RANKS
ASLEEP = VerbsSettings(timeout=TIMEOUT, completion="channel")
WRITE_ONLY_IMMEDIATE, WRITE_LAST_IMMEDIATE = 0x0B, 0x09

Start = Callable[..., Job]


@pytest.fixture
def start(rig: Rig, guest_environment: dict[str, str], warm: list[WarmPython]) -> Start:
    """Starts a job of one softroce rank on the host and a verbs rank in each guest, or of other seats."""

    def begin(ranks: tuple[int, ...] = (HOST, 1, 2), ipv6: bool = False, **settings: object) -> Job:
        seats = Seats(ranks, ipv6, guest_environment, warm, {"verbs": ASLEEP, **settings})
        return Job(
            rig, seats, lambda folder, count: rings(folder, count, collectives=COLLECTIVES, size_bytes=SIZE_BYTES)
        )

    return begin


def check(played: Played, iterations: int = 2, ranks: int = RANKS) -> None:
    """All ranks went well; every rank sent all of every collective, and what is checked is right."""
    assert played.codes == [0] * ranks, played.said
    run = played.run
    assert run.info["complete"] is True
    assert len(run.transfers) == iterations * COLLECTIVES * ranks
    sent = 2 * (ranks - 1) * SIZE_BYTES // ranks
    assert run.transfers["size_bytes"].unique().to_list() == [sent]
    assert run.transfers.filter(pl.col("last_ns") < pl.col("post_ns") - 10**9).is_empty()
    assert run.timeline.filter(pl.col("kind") == "coll").height == iterations * COLLECTIVES * ranks
    for counters in run.counters["ranks"]:
        if run.info["settings"]["verify"]:
            assert counters["verified_bytes"] == iterations * COLLECTIVES * sent
            assert counters["wrong_bytes"] == 0
        if "bad_icrc" in counters:  # softroce
            assert counters["bad_icrc"] == counters["strangers"] == 0
        else:
            assert counters["bytes_received"] == counters["bytes_sent"] == iterations * COLLECTIVES * sent
            assert counters["messages_received"] == counters["messages_sent"]


def test_softroce_and_verbs_in_one_job(start: Start, rig: Rig, tmp_path: Path, tshark: str) -> None:
    """Three queue pairs for each connection, in turn; the path MTU is found: Ethernet's 1500 less headers."""
    with rig.capture(tmp_path / "guest.pcap", guest=1) as capture:
        played = start(verify=True, queue_pairs=3, mtu=0).end()
    check(played)
    assert played.run.info["settings"]["mtu"] == 1024
    devices = played.run.counters["devices"]
    assert [device["ranks"] for device in devices if device["kind"] == "interface"] == [[0], [1], [2]]
    ports = [device for device in devices if device["kind"] == "rdma"]
    assert [(port["device"], port["driver"], port["ranks"]) for port in ports] == [
        ("rxe0:1", "rxe", [1]), ("rxe0:1", "rxe", [2])
    ]  # fmt: skip
    assert all(port["counters"]["sent_pkts"] > 0 for port in ports)
    assert all(counters["sleeps"] > 0 for counters in played.run.counters["ranks"][1:])  # on the completion channel
    assert all(len(set(path.split(","))) == 3 for path in played.run.transfers["path"].to_list())
    seen = judge(capture.path, tshark)
    # From the host to the first guest and from there to the second, a message for each of four steps.
    messages = seen.distinct[WRITE_ONLY_IMMEDIATE] + seen.distinct[WRITE_LAST_IMMEDIATE]
    assert messages == 2 * 2 * COLLECTIVES * 2 * (RANKS - 1)
    assert seen.packets > messages


def test_split_messages_and_lost_packets_over_ipv6(start: Start, rig: Rig) -> None:
    rig.network.lose(2)
    verbs = VerbsSettings(timeout=TIMEOUT, signal_every=2, send_depth=3, receive_depth=2, completion="poll")
    played = start(ipv6=True, verify=True, queue_pairs=3, split=True, verbs=verbs).end()
    assert rig.network.lost_packets() > 0
    check(played)
    amiss = {warning["counter"] for warning in played.run.counters["warnings"]}
    assert amiss & {"completer_retry_err", "out_of_seq_request", "rcvd_seq_err", "retransmitted", "timeouts"}


def test_nothing_gets_through_for_two_seconds(start: Start, rig: Rig) -> None:
    job = start(verify=True, iterations=12, ack_timeout_ns=500_000_000)
    job.until_playing()
    rig.network.lose(100)
    time.sleep(2)
    assert rig.network.lost_packets() > 0
    rig.network.lose(0)
    check(job.end(), 12)


def test_the_named_error_of_the_device(start: Start, rig: Rig) -> None:
    """With softroce's retries far longer, a verbs rank is the one that gives up, and the run ends at once."""
    job = start(iterations=5000, ack_timeout_ns=10**10, verbs=msgspec.structs.replace(ASLEEP, retry_count=2))
    job.until_playing()
    rig.network.lose(100)
    began = time.monotonic()
    played = job.end()
    assert time.monotonic() - began < 30  # three tries of at most 4 x 1.07 s (section 9.7.6.1.3)
    assert set(played.codes) == {1}
    assert played.run.info["complete"] is False
    told = " ".join(played.said)
    assert "no acknowledgement after all retries (queue pair 0x" in told
    assert "of rxe0 port 1, status 12, vendor error 0x" in told


def test_no_such_device(start: Start) -> None:
    played = start(verbs=VerbsSettings(hca="mlx5")).end()
    assert set(played.codes) == {3}
    assert any("NCCL_IB_HCA takes no RDMA port; there are rxe0 port 1 (active)" in said for said in played.said)


def test_ranks_in_two_guests_alone(start: Start, rig: Rig) -> None:
    """In huge pages, on the CPUs of the device's node; the guest of rank 0 writes the run folder itself."""
    for guest in rig.guests:  # the places of checked messages take 25 MiB
        guest.run(["sh", "-c", "echo 16 > /proc/sys/vm/nr_hugepages"], timeout_s=120, check=True)
    verbs = msgspec.structs.replace(ASLEEP, huge_pages=True, numa_bind=True)
    check(start((1, 2), queue_pairs=2, verify=True, verbs=verbs).end(), ranks=2)
