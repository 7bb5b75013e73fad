"""Run the fuzzers and keep their corpora; `make fuzz` builds them and calls this.

A kept corpus (corpus/NAME.hex) is text, one input a line in hexadecimal, so that it can be reviewed. libFuzzer wants a
folder with one file per input. `run` fuzzes each target for a while from the kept corpus, as many at once as there are
cores. `keep` fuzzes, and then replaces the corpus with the smallest set of inputs that covers the same code. Exit
codes: 0 no target broke, 1 a target broke, 2 usage, 3 there are no fuzzers.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
CORPUS = HERE / "corpus"
INPUT_BYTES_MAX = {"parser": 512, "queue_pair": 256, "connection": 192}
MEMORY_MIB_MAX = 1024
INPUT_SECONDS_MAX = 10


def inputs_of(corpus: Path) -> list[bytes]:
    """The inputs of a kept corpus, in its order."""
    if not corpus.is_file():
        return []
    return [bytes.fromhex(line) for line in corpus.read_text().splitlines() if not line.startswith("#")]


def write_corpus(corpus: Path, remark: str, inputs: Iterable[bytes]) -> None:
    """Write a kept corpus: a comment, then the inputs, shortest first."""
    ordered = sorted(inputs, key=lambda data: (len(data), data))
    corpus.write_text(f"# {remark}\n" + "".join(f"{data.hex()}\n" for data in ordered))


def unpack(corpus: Path, folder: Path) -> None:
    """Unpack a kept corpus into a folder for libFuzzer."""
    folder.mkdir(parents=True, exist_ok=True)
    for data in inputs_of(corpus):
        (folder / hashlib.sha1(data).hexdigest()).write_bytes(data)


@dataclass(frozen=True)
class Outcome:
    """Result of one fuzzer: its line, and for a broken target the end of its output."""

    good: bool
    said: str


def fuzz(build: Path, name: str, seconds: int, seed: int) -> Outcome:
    """Fuzz one target; for a broken one, the line tells how to replay the input."""
    found, seeds = build / "found" / name, build / "seeds" / name
    found.mkdir(parents=True, exist_ok=True)
    unpack(CORPUS / f"{name}.hex", seeds)
    artifact = build / f"broken-{name}-"
    before = set(build.glob(f"{artifact.name}*"))
    command = [
        build / f"fuzz_{name}",
        f"-max_total_time={seconds}",
        f"-seed={seed}",
        f"-max_len={INPUT_BYTES_MAX[name]}",
        f"-rss_limit_mb={MEMORY_MIB_MAX}",
        f"-timeout={INPUT_SECONDS_MAX}",
        f"-artifact_prefix={artifact}",
        "-print_final_stats=1",
        found,
        seeds,
    ]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, errors="replace")
    if done.returncode == 0:
        statistics = dict(
            line.removeprefix("stat::").split(":", 1) for line in done.stderr.splitlines() if line.startswith("stat::")
        )
        runs = int(statistics["number_of_executed_units"])
        return Outcome(True, f"{name}: {runs} inputs in {seconds} s, seed {seed}: nothing broke\n")
    broken = sorted(set(build.glob(f"{artifact.name}*")) - before)
    again = [f"play it again: {build / f'fuzz_{name}'} {path}" for path in broken]
    lines = (f"{name}: broken (seed {seed}); {how}\n" for how in again or [f"it ended with {done.returncode}"])
    return Outcome(False, done.stderr[-8000:] + "".join(lines))


def fuzz_all(build: Path, names: Sequence[str], seconds: int, seed: int) -> bool:
    """Fuzz these targets, each on a core of its own as far as possible, and print each result."""
    good = True
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        try:
            for outcome in pool.map(lambda name: fuzz(build, name, seconds, seed), names):
                good &= outcome.good
                stream = sys.stdout if outcome.good else sys.stderr
                stream.write(outcome.said)
                stream.flush()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # running fuzzers have received the terminal's signal too
            raise
    return good


def printed_by(*command: Path | str) -> list[bytes]:
    """Inputs that a program prints, one per line."""
    printed = subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout
    return [bytes.fromhex(line) for line in printed.splitlines()]


def keep(build: Path, name: str) -> None:
    """Write the smallest set of inputs that covers the code reached to the kept corpus."""
    if name == "parser":
        for number, data in enumerate(printed_by(build / "fuzz_seeds")):
            (build / "seeds" / name / f"packet-{number}").write_bytes(data)
    merged = build / "merged" / name
    merged.mkdir(parents=True, exist_ok=True)
    for stale in merged.iterdir():
        stale.unlink()
    folders = [merged, build / "seeds" / name, build / "found" / name]
    program = build / f"fuzz_{name}"
    # Coverage counts places, not how often they are reached: a tenth of the inputs.
    subprocess.run([program, "-merge=1", "-use_counters=0", *folders], check=True, capture_output=True)
    inputs = {path.read_bytes() for path in merged.iterdir()}
    if name == "parser":
        inputs.update(printed_by(build / "fuzz_seeds", "malformed"))
    write_corpus(
        CORPUS / f"{name}.hex", f"inputs of fuzz_{name}, one a line; made by `python native/fuzz/fuzz.py keep`", inputs
    )
    print(f"{name}: {len(inputs)} inputs kept, {sum(map(len, inputs))} bytes")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("action", choices=("run", "keep"))
    parser.add_argument("--build", type=Path, required=True, help="folder with the fuzzers' programs")
    parser.add_argument("--seconds", type=int, default=20, help="for each fuzzer, from 1 (20)")
    parser.add_argument("--seed", type=int, default=1, help="from 1 (1)")
    parser.add_argument("--only", choices=sorted(INPUT_BYTES_MAX), action="append")
    chosen = parser.parse_args()
    # libFuzzer takes 0 seconds for no limit, and a seed of 0 for a random one.
    for option, value in (("seconds", chosen.seconds), ("seed", chosen.seed)):
        if value < 1:
            print(f"fuzz: --{option} {value}: give 1 or more", file=sys.stderr)
            return 2
    build = chosen.build.resolve()
    names = list(dict.fromkeys(chosen.only or INPUT_BYTES_MAX))
    if absent := [name for name in names if not (build / f"fuzz_{name}").is_file()]:
        print(f"fuzz: no fuzzer of {', '.join(absent)} in {build}: build them with make fuzz", file=sys.stderr)
        return 3
    try:
        good = fuzz_all(build, names, chosen.seconds, chosen.seed)
    except KeyboardInterrupt:
        print("fuzz: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    if good and chosen.action == "keep":
        for name in names:
            keep(build, name)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
