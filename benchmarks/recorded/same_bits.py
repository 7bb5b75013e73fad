"""Check whether a code change alters results: `make same-bits`, or `python benchmarks/recorded/same_bits.py FILE`.

Plays a list of commands and hashes their output. The commands cover every level, topology, congestion control and wire,
conversions, a sweep, and verdicts of recorded live runs. The packet level runs with 1 and 2 threads. Hashed are every
table, traces, fabric files, and JSON files without times, paths, versions and warnings. `--record` writes the hashes to
FILE. Otherwise each hash that differs from FILE's is named, and the exit code is 1.

Needs the samples of GENIE_SHARED_DATA. `--only WORD` plays the commands with WORD in their names.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "benchmarks" / "recorded"  # recorded live runs of `genie run`
TRACE = "{root}/examples/transformer"
LINK = '[link]\nrate = "100Gb/s"\ndelay = "500ns"\n'
FABRICS = {  # without a sample in hosts/fabrics
    "dual": f'[topology]\nkind = "dual-plane"\nleaves = 2\nspines = 2\nhosts_per_leaf = 4\n{LINK}',
    "dragonfly": f'[topology]\nkind = "dragonfly"\nrouters = 2\nhosts_per_router = 2\nglobal_links = 1\n{LINK}',
    "torus": f'[topology]\nkind = "torus"\nsize = [4, 2]\n{LINK}',
    "rails": f'[topology]\nkind = "rail-optimized"\nservers = 2\nrails = 4\nspines = 2\n'
    f'domain = {{rate = "1Tb/s"}}\n{LINK}',
    "pxn": f'[topology]\nkind = "rail-optimized"\nservers = 2\nrails = 4\nspines = 2\n'
    f'domain = {{rate = "1Tb/s", pxn = true}}\n{LINK}',
    "small": '[topology]\nkind = "leaf-spine"\nleaves = 2\nspines = 2\nhosts_per_leaf = 4\n'
    '[switch]\nshared_buffer = "512KiB"\n[pfc]\n'
    f'[ecn]\nminimum = "16KiB"\nmaximum = "64KiB"\nprobability = 0.2\n{LINK}',
    "lossy": '[topology]\nkind = "leaf-spine"\nleaves = 2\nspines = 1\nhosts_per_leaf = 4\n'
    f'[switch]\nshared_buffer = "128KiB"\n{LINK}',
}
SAMPLES = ("single-switch", "leaf-spine", "fat-tree-lossless", "rails-sprayed", "failing-link", "lab-8", "loopback8")
CONTROLS = ("none", "window", "dcqcn", "dcqcn-timer", "timely", "swift", "dctcp", "nscc", "hpcc")
# Keys of JSON files with times, places, builds, or the work that was done; texts for people may change at any time.
VOLATILE = {
    "argv", "built", "command", "commit", "cores", "cpu", "created_at", "events", "events_per_s", "generator",
    "headline",
    "host", "hostname", "kernel", "line", "load", "machine", "measured_at", "native", "node", "out",
    "platform", "python", "recorded_at", "remarks", "schema", "seconds", "sentence", "simulated_s", "started_at",
    "skip", "text", "threads", "took_s", "version", "versions", "wall_s", "warnings", "words", "wrote",
}  # fmt: skip
# Fields of verdict.json, and files, since the hashes were recorded.
ADDED = {"fault", "known", "note", "reference", "time_of", "doubt", "replays"}
ADDED_FILES = {"limits.json"}
# Fields of records, and keys of TOML files: the name now -> the name when the hashes were recorded.
RENAMED = {"fabric.transport.congestion": "fabric.transport.congestion_control"}
RENAMED_KEYS = {r"\bcongestion =": "congestion_control =", r"(?m)^\[congestion\]": "[congestion_control]"}
TABLES, TEXTS, JSONS = (".parquet",), (".et", ".toml"), (".json", ".jsonl")


@dataclass(frozen=True)
class Command:
    name: str
    line: str
    after: tuple[str, ...] = ()  # commands whose folders it reads


def commands() -> Iterator[Command]:
    """All commands. {out} is the command's own folder, {NAME} the folder of another command."""
    plain = f"simulate {TRACE} -n 1 --wire plain -o {{out}} --fabric {{fabrics}}"
    for name in SAMPLES:
        yield from threaded(
            f"sample-{name}", f"simulate {TRACE} -o {{out}} --fabric {{root}}/hosts/fabrics/{name}.toml"
        )
    four = "{data}/astra-sim/microbenchmarks/all_reduce/4npus_1MB/all_reduce"
    yield from threaded("sample-explicit", f"simulate {four} -o {{out}} --fabric {{root}}/hosts/fabrics/explicit.toml")
    photonic = f"simulate {TRACE} -o {{out}} --fabric {{root}}/hosts/fabrics/photonic.toml"
    yield Command("sample-photonic", f"{photonic} --level flow")
    for name in FABRICS:
        yield from threaded(f"fabric-{name}", f"{plain}/{name}.toml")
    for name in CONTROLS:
        fabric = "lossy" if name in ("none", "window") else "small"
        yield from threaded(f"control-{name}", f"{plain}/{fabric}.toml --congestion {name}")
    yield from threaded("series", f"{plain}/small.toml --congestion dcqcn --series 20us --report")
    yield from threaded("stopped", f"{plain}/small.toml -n 3 --stop-after 300us")
    yield from threaded("seeds", f"{plain}/small.toml --congestion dcqcn --seed 7 -n 2")
    for name, more in {
        "nccl": "--wire nccl", "nccl-channels": "--wire nccl --channels 4",
        "nccl-nodes": "--wire nccl --ranks-per-node 2",
        "nccl-slices": "--wire nccl --slice-delay 5us", "credit": "--wire plain --credit",
        "channels": "--wire plain --channels 2 --algorithm all_reduce=ring",
        "queue-pairs": "--wire plain --queue-pairs 4", "split": "--wire plain --queue-pairs 4 --split",
    }.items():  # fmt: skip
        yield from threaded(f"wire-{name}", f"simulate {TRACE} -o {{out}} --fabric {{fabrics}}/small.toml {more}")
    for sample in ("small", "torus", "pxn"):
        for level, more in (("flow", ""), ("flow", " --sharing equal"), ("analytic", "")):
            name = f"{level}{'-equal' if more else ''}-{sample}"
            yield Command(name, f"simulate {TRACE} -o {{out}} --fabric {{fabrics}}/{sample}.toml --level {level}{more}")
    for ranks in (4, 8):
        for operation in ("all_reduce", "all_to_all"):
            trace = f"{{data}}/astra-sim/microbenchmarks/{operation}/{ranks}npus_1MB/{operation}"
            network = f"{{data}}/astra-sim/config/network/Ring_{ranks}npus.yml"
            system = "{data}/astra-sim/config/system/Ring_4chunks.json"
            yield Command(
                f"astra-{operation}-{ranks}",
                f"simulate {trace} -o {{out}} --fabric {network} --level analytic --model astra-sim --system {system}",
            )
            yield from threaded(f"astra-packets-{operation}-{ranks}", f"simulate {trace} -o {{out}} --fabric {network}")
    yield Command("stage", "simulate {data}/stage-generated/moe8 -o {out} --rate 100Gb/s --compute roofline:300,2000")
    yield from conversions()
    yield Command("sweep", "sweep {fabrics}/sweep.toml -o {out} --jobs 1")
    for name in sorted(path.stem for path in RECORDED.glob("*.txt")):
        live, twin = f"{RECORDED}/{name}", f"twin-of-{name}"
        fabric = (RECORDED / f"{name}.txt").read_text().strip()  # of its twin
        yield Command(twin, f"simulate {TRACE} -o {{out}} {fabric} --follow {live}")
        yield Command(f"verdict-{name}", f"diff {live} {{{twin}}} -o {{out}}", (twin,))
        yield Command(f"metrics-{name}", f"metrics {live} -o {{out}}/m.prom")


def threaded(name: str, line: str) -> Iterator[Command]:
    for threads in (1, 2):
        yield Command(f"{name}-{threads}", f"{line} --threads {threads}")


def conversions() -> Iterator[Command]:
    for name, file, more in (
        ("gpt13b", "simAI/G13B-M1-C01_GPT13B_megatron_tp8_pp1_mbs1_A100.txt", "--ranks 8"),
        ("llama7b", "simAI/L7B-M1-C04_Llama7B_megatron_tp2_pp1_mbs1_A100.txt", "--ranks 4"),
        ("list", "physical/L7B-D1-C01_Llama7B_zero2_mbs1.csv", ""),
        ("micro", "simAI/all_reduce.txt", "--ranks 8"),
    ):
        yield Command(f"aicb-{name}", f"convert aicb {{data}}/aicb/{file} {more} -o {{out}}")
    yield Command("aicb-played", "simulate {aicb-micro} --rate 100Gb/s -o {out}", ("aicb-micro",))
    xml = "{data}/astra-sim/custom_ring_allreduce_8npus_1MB/custom_allreduce.xml"
    yield Command("msccl", f"convert msccl {xml} --size 1MiB -o {{out}}")
    yield Command("msccl-played", "simulate {msccl} --rate 100Gb/s -o {out}", ("msccl",))
    yield Command(
        "msccl-algorithm", f"simulate {TRACE} --rate 100Gb/s -o {{out}} --wire plain --algorithm all_reduce={xml}"
    )
    yield Command("pytorch", "convert pytorch --host {host} --device {device} -o {out}")
    yield Command("pytorch-host", "convert pytorch --host {host} -o {out}")
    for name in ("incast16_star__dcqcn_buf4", "single1MB_star__dcqcn", "incast16_star__hpcc"):
        experiment = f"ns3-{name}"
        yield Command(experiment, f"convert ns3 {{data}}/ns3-reference/config/{name}.txt -o {{out}}")
        line = f"simulate {{{experiment}}}/traces --fabric {{{experiment}}}/fabric.toml -o {{out}}"
        yield Command(f"{experiment}-played", line, (experiment,))
    spectrum = "{data}/simai/Spectrum-X_16g_8gps_400Gbps_H100 --conf {data}/simai/SimAI.conf"
    yield Command("fabric-simai", f"convert fabric {spectrum} -o {{out}}/fabric.toml")
    yield Command(
        "fabric-astra", "convert fabric {data}/astra-sim/config/network/RingSwitch_4x4.yml -o {out}/fabric.toml"
    )
    for name in ("ndv4-topo", "ndv5-topo"):
        yield Command(
            f"fabric-{name}", f"convert fabric {{data}}/topo/azure/{name}.xml --nic-rate 200Gb/s -o {{out}}/f.toml"
        )


SWEEP = """[base]
fabric = "small.toml"
seed = 1
traffic = {kind = "poisson", duration = "200us", sizes = "web-search", load = 0.5}
[grid]
fabric.transport.congestion = ["dcqcn", "swift"]
traffic.load = [0.3, 0.6]
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--genie", default=str(Path(sys.executable).parent / "genie"))
    asked = parser.parse_args()
    data = Path(os.environ.get("GENIE_SHARED_DATA", ROOT.parent / "shared" / "data")).resolve()
    if not data.is_dir():
        parser.error(f"{data} is no folder: set GENIE_SHARED_DATA")
    with tempfile.TemporaryDirectory(prefix="same-bits-") as folder:
        found = play_all(asked.genie, Path(folder), data, asked.only, asked.jobs)
    failed = sorted(name for name, hashes in found.items() if hashes is None)
    print(f"{len(found)} commands, {sum(len(hashes or ()) for hashes in found.values())} files")
    if failed:
        print(f"failed: {', '.join(failed)}")
        return 1
    if asked.record:
        asked.file.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
        return 0
    return compared(json.loads(asked.file.read_text()), found, asked.only)


def play_all(genie: str, work: Path, data: Path, only: str, jobs: int) -> dict[str, dict[str, str] | None]:
    """Command -> (file -> hash); None where the command failed."""
    fabrics = work / "fabrics"
    fabrics.mkdir()
    for name, text in FABRICS.items():
        (fabrics / f"{name}.toml").write_text(text)
    (fabrics / "sweep.toml").write_text(SWEEP)
    for name, archive in (("host", "dlrm_pytorch_et"), ("device", "dlrm_kineto")):
        with tarfile.open(data / "param" / f"{archive}.tar.gz") as tar:
            tar.extractall(work / "unpacked" / name, filter="data")
    places = {"root": ROOT, "data": data, "fabrics": fabrics}
    for name in ("host", "device"):
        files = [path for path in (work / "unpacked" / name).rglob("*.json*") if path.is_file()]
        places[name] = files[0].parent
    todo = list(commands())
    wanted = {command.name for command in todo if only in command.name}
    needed = wanted | {name for command in todo if command.name in wanted for name in command.after}
    found: dict[str, dict[str, str] | None] = {}

    def play(command: Command) -> None:
        out = work / command.name
        words = places | {name: work / name for name in command.after} | {"out": out}
        if "{out}/" in command.line:
            out.mkdir()
        line = [genie, *command.line.format(**words).split()]
        ended = subprocess.run(line, capture_output=True, text=True, check=False)
        if ended.returncode not in (0, 1, 4) or (ended.returncode == 1 and not command.name.startswith("verdict")):
            print(f"{command.name}: exit code {ended.returncode}: {' '.join(line)}\n{ended.stderr.strip()[-500:]}")
            found[command.name] = None
            return
        found[command.name] = hashes_of(out, work) | {"exit code": str(ended.returncode)}

    with ThreadPoolExecutor(jobs) as pool:
        for later in (False, True):  # commands that read another one's folder play in the second turn
            list(pool.map(play, [c for c in todo if c.name in needed and bool(c.after) == later]))
    return {name: found[name] for name in sorted(found)}


def hashes_of(out: Path, work: Path) -> dict[str, str]:
    """Hashes of the files below a folder, by their relative path."""
    found = {}
    for path in sorted(path for path in out.rglob("*") if path.is_file()):
        content = canonical(path, work)
        if content is not None:
            found[str(path.relative_to(out))] = hashlib.sha256(content).hexdigest()[:16]
    return found


def canonical(path: Path, work: Path) -> bytes | None:
    """The bytes of a file that must not change; None for text for people and for a file that has no hash."""
    if path.name in ADDED_FILES:
        return None
    kind = path.name.removesuffix(".gz").rpartition(".")[2]
    if kind == "parquet":
        table = pl.read_parquet(path)
        table = table.rename({name: RENAMED[name] for name in table.columns if name in RENAMED})
        return table.select(sorted(set(table.columns) - VOLATILE)).write_csv().encode()
    if kind in ("json", "jsonl"):
        values = (
            [json.loads(line) for line in path.read_text().splitlines()]
            if kind == "jsonl"
            else [json.loads(path.read_text())]
        )
        return json.dumps([without_volatile(value, work) for value in values], sort_keys=True).encode()
    if kind == "et":
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if kind in ("toml", "prom"):
        text = path.read_text().replace(str(work), "")
        for now, then in RENAMED_KEYS.items():
            text = re.sub(now, then, text)
        lines = text.splitlines()
        return "\n".join(line.partition("  #")[0] for line in lines if not line.startswith("#")).encode()
    return None


def without_volatile(value: Any, work: Path) -> Any:
    if isinstance(value, dict):
        return {
            RENAMED.get(key, key): without_volatile(item, work)
            for key, item in value.items()
            if key not in VOLATILE | ADDED
        }
    if isinstance(value, list):
        return [without_volatile(item, work) for item in value]
    if isinstance(value, str) and value.startswith("/"):
        return Path(value).name
    return value


def compared(before: dict[str, Any], now: dict[str, Any], only: str) -> int:
    """Print the differences; return the exit code."""
    different = []
    for name in sorted({name for name in before if only in name} | set(now)):
        old, new = before.get(name, {}), now.get(name, {})
        different += [f"{name}: {file}" for file in sorted({*old, *new}) if old.get(file) != new.get(file)]
    for line in different:
        print(f"differs: {line}")
    print("all equal" if not different else f"{len(different)} differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
