"""The fuzzers' kept corpora: small, of our own packets, and sharp enough that a broken parser does not pass them."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.extended

ROOT = Path(__file__).resolve().parent.parent.parent
FUZZ = ROOT / "native" / "fuzz"
NAMES = re.findall(r"\w+", re.findall(r"set\(GENIE_FUZZERS ([^)]*)\)", (FUZZ / "CMakeLists.txt").read_text())[0])
CORPUS_BYTES_MAX = 32 << 10
# Longer than headers that two packets may share by chance, shorter than addresses, keys and PSN together.
COPIED_BYTES = 24


def inputs_of(name: str) -> list[bytes]:
    lines = (FUZZ / "corpus" / f"{name}.hex").read_text().splitlines()
    return [bytes.fromhex(line) for line in lines if not line.startswith("#")]


def packets_of(capture: bytes) -> Iterator[bytes]:
    """Frames of a pcap file, little or big endian."""
    order = "<" if capture[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    at = 24
    while at + 16 <= len(capture):
        (size,) = struct.unpack_from(f"{order}I", capture, at + 8)
        yield capture[at + 16 : at + 16 + size]
        at += 16 + size


def test_each_fuzzer_has_a_program_and_a_corpus() -> None:
    assert {path.stem.removeprefix("fuzz_") for path in FUZZ.glob("fuzz_*.cpp")} == set(NAMES)
    assert {path.stem for path in (FUZZ / "corpus").iterdir()} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_corpus_is_small_and_has_no_input_twice(name: str) -> None:
    inputs = inputs_of(name)
    assert len(inputs) >= 20
    assert len(set(inputs)) == len(inputs)
    assert (FUZZ / "corpus" / f"{name}.hex").stat().st_size <= CORPUS_BYTES_MAX


def test_no_capture_was_copied_into_the_parsers_corpus(shared_data: Path) -> None:
    captures = sorted((shared_data / "roce-captures").rglob("*.pcap"))
    assert captures
    pieces = set()
    for path in captures:
        for packet in packets_of(path.read_bytes()):
            pieces |= {packet[at : at + COPIED_BYTES] for at in range(14, len(packet) - COPIED_BYTES + 1)}
    pieces = {piece for piece in pieces if len(set(piece)) > COPIED_BYTES // 3}  # not the runs of one byte
    assert len(pieces) > 1000
    for data in inputs_of("parser"):
        assert not pieces & {data[at : at + COPIED_BYTES] for at in range(len(data) - COPIED_BYTES + 1)}, data.hex()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "check", "without"),
    [
        ("wire.cpp", "if (pad > body_bytes) return DecodeError::kBadPad;", ""),
        ("wire.cpp", "out.u8((h.solicited ? 0x80U : 0U)", "out.u8((h.solicited ? 0x40U : 0U)"),
        ("icrc.cpp", "size_bytes > packet.size() || ", ""),
    ],
    ids=["pad-bound", "solicited-bit", "stated-length"],
)
def test_corpus_finds_a_parser_that_lost_a_check(tmp_path: Path, source: str, check: str, without: str) -> None:
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        (pytest.fail if os.environ.get("GENIE_REQUIRE_ALL") == "1" else pytest.skip)("a C++ compiler is missing")
    shutil.copytree(ROOT / "native" / "roce", tmp_path / "roce")
    corpus, program = FUZZ / "corpus" / "parser.hex", tmp_path / "replay"
    build = [compiler, "-std=c++20", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-o", program]
    build += [f"-I{tmp_path}", f"-I{ROOT / 'native'}", FUZZ / "fuzz_parser.cpp", FUZZ / "replay.cpp"]
    build += [tmp_path / "roce" / name for name in ("wire.cpp", "icrc.cpp", "crc32.cpp")]
    text = (tmp_path / "roce" / source).read_text()
    assert text.count(check) == 1
    (tmp_path / "roce" / source).write_text(text.replace(check, without))
    subprocess.run(build, check=True)
    broken = subprocess.run([program, corpus], capture_output=True, text=True)
    assert broken.returncode != 0
    assert f"while playing {corpus}:" in broken.stderr
