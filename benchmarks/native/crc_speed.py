"""Speed of the native CRC-32 and ICRC on this machine: python benchmarks/native/crc_speed.py

Best of several runs, with data in the first-level cache. A packet's figure includes encoding its BTH, the flow's state
and the CRC.
"""

from __future__ import annotations

import argparse

import genie_core

SIZES_BYTES = (64, 256, 1024, 4096, 9000, 65000)
PAYLOADS_BYTES = (0, 256, 1024, 4096, 8192)
RUNS = 5
RUN_BYTES = 1 << 26


def crc_gigabytes_per_s(size_bytes: int, path: str) -> float:
    repetitions = RUN_BYTES // size_bytes
    best_s = min(genie_core.measure_crc(size_bytes, repetitions, path) for _ in range(RUNS))
    return size_bytes * repetitions / best_s / 1e9


def packet_ns(payload_bytes: int) -> float:
    repetitions = 100_000
    return min(genie_core.measure_icrc(payload_bytes, repetitions) for _ in range(RUNS)) / repetitions * 1e9


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    paths = genie_core.crc_paths()
    print("CRC-32, GB/s".ljust(20) + "".join(f"{path:>14}" for path in paths))
    for size_bytes in SIZES_BYTES:
        speeds = (crc_gigabytes_per_s(size_bytes, path) for path in paths)
        print(f"{size_bytes:>12} bytes  " + "".join(f"{speed:>14.2f}" for speed in speeds))
    print(f"\nWRITE packet with ICRC by {paths[-1]}, ns")
    for payload_bytes in PAYLOADS_BYTES:
        print(f"{payload_bytes:>12} bytes  {packet_ns(payload_bytes):>14.1f}")


if __name__ == "__main__":
    main()
