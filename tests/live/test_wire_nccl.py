"""NCCL's messages on a capture: how many, how large, from whom to whom, of an all-reduce of 64 MiB on 8 ranks."""

from __future__ import annotations

import ctypes
import ipaddress
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from live_runs import genie, loopback, rings

from genie.config.hosts import load_hosts
from genie.record import open_run

pytestmark = pytest.mark.live

RANKS, SIZE_BYTES, MIB = 8, 64 << 20, 1 << 20
CHANNELS = 2  # NCCL's for one NIC a node
SLICES = 2 * (RANKS - 1) * 2 * SIZE_BYTES // (CHANNELS * RANKS * 2 * MIB) * CHANNELS  # of each rank
CTS_BYTES = 64
FIRST, LAST_IMM, ONLY, ONLY_IMM = 0x06, 0x09, 0x0A, 0x0B
ETHERNET, IP, UDP, BTH = 14, 20, 8, 12
OPCODE = ETHERNET + IP + UDP
SO_ATTACH_FILTER, SO_RCVBUFFORCE, SOL_PACKET, PACKET_IGNORE_OUTGOING, PACKET_STATISTICS = 26, 33, 263, 23, 6


def _filter(prefix: int) -> bytes:
    """Classic BPF: UDP port 4791, from 127.x.y.0/24, the first and last packets of WRITEs; 96 bytes of each."""
    program = [
        (0x28, 0, 0, ETHERNET + IP + 2),
        (0x15, 0, 9, 4791),
        (0x20, 0, 0, ETHERNET + 12),
        (0x54, 0, 0, 0xFFFFFF00),
        (0x15, 0, 6, prefix),
        (0x30, 0, 0, OPCODE),
        (0x15, 3, 0, FIRST),
        (0x15, 2, 0, LAST_IMM),
        (0x15, 1, 0, ONLY),
        (0x15, 0, 1, ONLY_IMM),
        (0x06, 0, 0, 96),
        (0x06, 0, 0, 0),
    ]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)


@contextmanager
def captured(prefix: int) -> Iterator[list[bytes]]:
    """Frames that loopback delivers meanwhile."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800)) as taps:
        code = ctypes.create_string_buffer(_filter(prefix))
        taps.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", len(code) // 8, ctypes.addressof(code)))
        taps.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        taps.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        taps.bind(("lo", 0))
        taps.settimeout(0.2)
        frames: list[bytes] = []
        over = threading.Event()

        def take() -> None:
            while True:
                try:
                    frames.append(taps.recv(96))
                except TimeoutError:
                    if over.is_set():
                        return

        thread = threading.Thread(target=take)
        thread.start()
        try:
            yield frames
        finally:
            over.set()
            thread.join(120)
        _, dropped = struct.unpack("II", taps.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        assert dropped == 0, "the capture is not whole"


def test_an_all_reduce_of_64_mib_on_eight_ranks(as_root: None, tmp_path: Path) -> None:
    hosts = loopback(tmp_path, RANKS)
    trace = rings(tmp_path / "trace", RANKS, collectives=1, size_bytes=SIZE_BYTES)
    first = int(ipaddress.ip_address(load_hosts(Path(hosts)).places[0].address))
    with captured(first & 0xFFFFFF00) as frames:
        ended = genie("run", trace, "--hosts", hosts, "--no-offload", "-o", str(tmp_path / "run"), limit_s=150)
        assert ended.code == 0, ended.stderr
    data: Counter[tuple[int, int, int]] = Counter()
    clears: Counter[tuple[int, int, int]] = Counter()
    ends: Counter[tuple[int, int]] = Counter()
    seen = set()
    for frame in frames:
        source, target = (address - first for address in struct.unpack_from("!II", frame, ETHERNET + 12))
        opcode, psn = frame[OPCODE], struct.unpack_from("!I", frame, OPCODE + 8)[0] & 0xFFFFFF
        queue_pair = struct.unpack_from("!I", frame, OPCODE + 4)[0] & 0xFFFFFF
        if (source, target, queue_pair, psn) in seen:
            continue  # sent again
        seen.add((source, target, queue_pair, psn))
        if opcode == LAST_IMM:
            ends[source, target] += 1
            continue
        (size_bytes,) = struct.unpack_from("!I", frame, OPCODE + BTH + 12)
        assert opcode != ONLY_IMM
        (clears if opcode == ONLY else data)[source, target, size_bytes] += 1
    around = [(rank, (rank + 1) % RANKS) for rank in range(RANKS)]
    assert data == Counter({(*pair, MIB): SLICES for pair in around})
    assert ends == Counter(dict.fromkeys(around, SLICES)), "each message ends in an immediate"
    # A clear-to-send for each message, the other way.
    assert clears == Counter({(target, source, CTS_BYTES): SLICES for source, target in around})
    transfers = open_run(tmp_path / "run").transfers
    assert transfers["messages"].to_list() == [SLICES] * RANKS
    assert transfers["size_bytes"].to_list() == [2 * 7 * SIZE_BYTES // RANKS] * RANKS


@pytest.mark.parametrize("wire", ["nccl", "plain"])
def test_the_record_says_what_was_sent(tmp_path: Path, wire: str) -> None:
    hosts = loopback(tmp_path)
    trace = rings(tmp_path / "trace", collectives=1)
    ended = genie(
        "run", trace, "--hosts", hosts, "--wire", wire, "-o", str(tmp_path / "run"),
        environment={"NCCL_ALGO": "Tree", "NCCL_BUFFSIZE": "65536", "NCCL_DEBUG": "WARN"},
    )  # fmt: skip
    assert ended.code == 0, ended.stderr
    info = open_run(tmp_path / "run").info
    effects = {entry["name"]: entry["effect"] for entry in info["nccl_variables"]}
    assert effects["NCCL_DEBUG"].startswith("none")
    if wire == "plain":
        assert info["lowering"]["wire"] == "plain"
        assert effects["NCCL_ALGO"] == "none: --wire plain"
    else:
        assert info["algorithms"] == {"all_reduce nccl tree": 1}
        assert info["lowering"]["buffer_bytes"] == 65536
        assert effects["NCCL_BUFFSIZE"] == "steps of 8192 bytes"


def test_the_record_says_what_options_stand_above(tmp_path: Path) -> None:
    ended = genie(
        "run", rings(tmp_path / "trace", collectives=1), "--hosts", loopback(tmp_path), "-o", str(tmp_path / "run"),
        "--channels", "3", "--algorithm", "all_reduce=tree", "--queue-pairs", "2",
        environment={
            "NCCL_ALGO": "Ring", "NCCL_MIN_NCHANNELS": "8", "NCCL_IB_QPS_PER_CONNECTION": "4", "NCCL_PXN_DISABLE": "1",
        },
    )  # fmt: skip
    assert ended.code == 0, ended.stderr
    assert {entry["name"]: entry["effect"] for entry in open_run(tmp_path / "run").info["nccl_variables"]} == {
        "NCCL_ALGO": "none: --algorithm all_reduce=tree sets it",
        "NCCL_MIN_NCHANNELS": "none: --channels sets it",
        "NCCL_IB_QPS_PER_CONNECTION": "none: --queue-pairs sets it",
        "NCCL_PXN_DISABLE": "none: it applies to all_to_all, and the workload has none",
    }
