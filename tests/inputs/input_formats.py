"""Every format that the command line reads: its sample, how a case changes it, and the command that reads it.

A format's `make` writes a case's files into the current folder, which is empty. It returns the arguments of `genie`, or
a function where only commands that start ranks read the file.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import Any

import input_seeds as seeds
import yaml
from input_mutations import json_of, mutate_bytes, mutate_tree, mutate_words, mutate_xml, nested, toml_of
from input_tables import mutate_gzip, mutate_table, mutate_trace

from genie.record.marks import mark
from simtwin.sweep.rows import ROWS_KIND

Command = list[str] | Callable[[], object]
Make = Callable[[Random], Command]

BYTES_SHARE = 0.25  # of the cases of a format with a structure
SIMULATE = ["simulate", "w", "--rate", "100Gb/s", "-o", "out"]


@cache
def samples() -> Path:
    """A folder with the samples that take time to make."""
    folder = Path(mkdtemp(prefix="genie-input-samples-"))
    child = os.fork()  # polars starts threads, which a process that forks workers must not have
    if child == 0:
        code = 1
        try:
            seeds.write_workload(folder / "w")
            seeds.write_workload(folder / "gz", "et.gz")
            seeds.write_plain(folder / "plain")
            seeds.write_runs(folder / "runs")
            seeds.write_followed(folder / "followed")
            code = 0
        finally:
            os._exit(code)
    if os.waitpid(child, 0)[1]:
        raise RuntimeError("the samples cannot be made")
    return folder


@cache
def pytorch_samples() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    return seeds.pytorch(samples())


def workload(name: str = "w") -> None:
    """A workload that is all right, as w."""
    shutil.copytree(samples() / name, "w")


def put(path: str, data: bytes) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(data)


def tree(rng: Random, value: Any, write: Callable[[Any], bytes]) -> bytes:
    """A tree's file, changed in its structure or in its bytes."""
    if rng.random() < BYTES_SHARE:
        return nested(rng, write(value)) if rng.random() < 0.1 else mutate_bytes(rng, write(value))
    return write(mutate_tree(rng, value))


def words(rng: Random, text: str) -> bytes:
    if rng.random() < BYTES_SHARE:
        return mutate_bytes(rng, text.encode())
    return mutate_words(rng, text).encode("utf-8", "surrogatepass")


def as_json(rng: Random) -> Callable[[Any], bytes]:
    return lambda value: json_of(rng, value)


def levels(rng: Random) -> list[str]:
    return ["--level", rng.choice(("flow", "flow", "analytic", "packet"))]


# -- traces and groups


def chakra(rng: Random) -> Command:
    workload()
    path = Path("w/t.1.et" if rng.random() < 0.5 else "w/t.0.et")
    data = path.read_bytes()
    path.write_bytes(mutate_bytes(rng, data) if rng.random() < BYTES_SHARE else mutate_trace(rng, data, Path("aside")))
    return ["inspect", "w"] if rng.random() < 0.5 else [*SIMULATE, *levels(rng)]


def chakra_gzip(rng: Random) -> Command:
    shutil.copytree(samples() / "gz", "w")
    path = Path("w/t.1.et.gz")
    path.write_bytes(mutate_gzip(rng, path.read_bytes(), Path("aside")))
    return ["inspect", "w", *(["--json"] if rng.random() < 0.3 else [])]


def chakra_json(rng: Random) -> Command:
    if rng.random() < 0.5:
        good, bad = json.dumps(seeds.graph_json()).encode(), tree(rng, seeds.graph_json(), as_json(rng))
    else:
        messages = seeds.message_json()
        good = b"\n".join(json.dumps(message).encode() for message in messages)
        bad = tree(
            rng,
            messages,
            lambda all_of: (
                b"\n".join(json_of(rng, one) for one in all_of or [0])
                if isinstance(all_of, list)
                else json_of(rng, all_of)
            ),
        )
    put("w/t.0.json", good)
    put("w/t.1.json", bad if rng.random() < 0.9 else gzip.compress(bad))
    return ["inspect", "w"] if rng.random() < 0.6 else [*SIMULATE, *levels(rng)]


def groups(rng: Random) -> Command:
    workload()
    put("w/t.json", tree(rng, seeds.GROUPS, as_json(rng)))
    return ["inspect", "w"] if rng.random() < 0.6 else [*SIMULATE, "--level", "flow"]


# -- configuration


def hosts(rng: Random) -> Command:
    workload()
    put("hosts.toml", tree(rng, seeds.HOSTS, toml_of))
    if rng.random() < 0.5:
        return ["check", "--hosts", "hosts.toml", "--schedule"]
    return [*SIMULATE, "--hosts", "hosts.toml", "--level", "flow"]


def fabric(rng: Random) -> Command:
    workload()
    put("fabric.toml", tree(rng, rng.choice(seeds.FABRICS), toml_of))
    return ["simulate", "w", "--fabric", "fabric.toml", "-o", "out", *levels(rng)]


def faults(rng: Random) -> Command:
    put("faults.toml", tree(rng, seeds.FAULTS, toml_of))

    def read() -> None:
        from genie.errors import UsageError
        from genie.live.settings import load_faults

        try:
            load_faults(Path("faults.toml"), 4)
        except ValueError as error:
            raise UsageError(str(error)) from error

    return read


def sweep(rng: Random) -> Command:
    put("fabric.toml", toml_of(seeds.FABRICS[0]))
    described = dict(seeds.SWEEP)
    if rng.random() < 0.2:
        described["base"] = described["base"] | {"traffic": described["base"]["traffic"] | {"sizes": "sizes.txt"}}
        put("sizes.txt", words(rng, seeds.SIZES))
    put("sweep.toml", tree(rng, described, toml_of))
    return ["sweep", "sweep.toml", "-o", "out", "--dry-run"]


def sweep_rows(rng: Random) -> Command:
    put("fabric.toml", toml_of(seeds.FABRICS[0]))
    put("sweep.toml", toml_of(seeds.SWEEP))
    row = {
        "id": "0123456789abcdef",
        "parameters": {"traffic.load": 0.3},
        "error": "",
        "commit": "x",
        "completion_s": 1.0,
    }
    beside = {"wrote": {"sweep.csv": "0" * 64}}
    head = {"schema": mark(ROWS_KIND)}
    # Without a whole one nothing more is read.
    lines = [json_of(rng, mutate_tree(rng, head)) if rng.random() < 0.1 else json.dumps(head).encode()]
    lines += [json_of(rng, mutate_tree(rng, row)), tree(rng, row, as_json(rng)), tree(rng, beside, as_json(rng))]
    put("out/rows.jsonl", b"\n".join(lines) + b"\n")
    return ["sweep", "sweep.toml", "-o", "out", "--dry-run"]


def lab_fabric(rng: Random) -> Command:
    put("fabric.toml", tree(rng, seeds.FABRICS[0], toml_of))

    def read() -> None:
        from genie.lab.life import _plan, _text

        path = Path("fabric.toml")
        _plan(_text(path), path)

    return read


def nccl_conf(rng: Random) -> Command:
    workload()
    put("nccl.conf", words(rng, seeds.NCCL_CONF))
    return ["NCCL_CONF_FILE=nccl.conf", *SIMULATE, "--level", "flow"]


# -- other tools' files


def host_traces(rng: Random) -> Command:
    good, devices = pytorch_samples()
    put("host/rank0.json", json.dumps(good[0]).encode())
    put("host/rank1.json", tree(rng, good[1], as_json(rng)))
    arguments = ["convert", "pytorch", "--host", "host", "-o", "out"]
    if rng.random() < 0.7:
        for rank, device in enumerate(devices):
            put(f"device/rank{rank}.json", json.dumps(device).encode())
        arguments += ["--device", "device"]
    return arguments


def kineto(rng: Random) -> Command:
    good, devices = pytorch_samples()
    for rank, host in enumerate(good):
        put(f"host/rank{rank}.json", json.dumps(host).encode())
    put("device/rank0.json", json.dumps(devices[0]).encode())
    bad = tree(rng, devices[1], as_json(rng))
    put("device/rank1.json", gzip.compress(bad, 1) if rng.random() < 0.2 else bad)
    return ["convert", "pytorch", "--host", "host", "--device", "device", "-o", "out"]


def aicb_text(rng: Random) -> Command:
    put("a.txt", words(rng, seeds.AICB_TEXT))
    return ["convert", "aicb", "a.txt", *(["--ranks", "4"] if rng.random() < 0.3 else []), "-o", "out"]


def aicb_list(rng: Random) -> Command:
    put("a.csv", words(rng, seeds.AICB_LIST))
    return ["convert", "aicb", "a.csv", "-o", "out"]


def msccl(rng: Random) -> Command:
    put("a.xml", mutate_bytes(rng, seeds.MSCCL.encode()) if rng.random() < BYTES_SHARE else _xml(rng, seeds.MSCCL))
    if rng.random() < 0.6:
        return ["convert", "msccl", "a.xml", "--size", "64KiB", "-o", "out"]
    workload()
    return [*SIMULATE, "--wire", "plain", "--algorithm", "all_gather=a.xml", "--level", "flow"]


def nccl_topology(rng: Random) -> Command:
    put(
        "topo.xml",
        mutate_bytes(rng, seeds.NCCL_XML.encode()) if rng.random() < BYTES_SHARE else _xml(rng, seeds.NCCL_XML),
    )
    return ["convert", "fabric", "topo.xml", "-o", "converted.toml"]


def _xml(rng: Random, text: str) -> bytes:
    try:
        return mutate_xml(rng, text).encode("utf-8", "surrogatepass")
    except RecursionError:  # of the writer, for a tree that has become too deep
        return text.encode()


def simai_topology(rng: Random) -> Command:
    put("topology", words(rng, seeds.SIMAI))
    put("conf", words(rng, seeds.NS3_CONFIG) if rng.random() < 0.3 else seeds.NS3_CONFIG.encode())
    return [
        "convert",
        "fabric",
        "topology",
        *(["--conf", "conf"] if rng.random() < 0.5 else []),
        "-o",
        "converted.toml",
    ]


def ns3(rng: Random) -> Command:
    which = rng.choice(("config", "config", "topology", "flows"))
    for name, text in (("config", seeds.NS3_CONFIG), ("topology", seeds.NS3_TOPOLOGY), ("flows", seeds.NS3_FLOWS)):
        put(f"{name}.txt", words(rng, text) if name == which else text.encode())
    return ["convert", "ns3", "config.txt", "-o", "out"]


def astra_network(rng: Random) -> Command:
    workload("plain")
    put("network.yml", _yaml(rng, seeds.ASTRA_NETWORK))
    if rng.random() < 0.5:
        return ["convert", "fabric", "network.yml", "-o", "converted.toml"]
    put("system.json", json.dumps(seeds.ASTRA_SYSTEM).encode())
    return _astra("network.yml")


def _yaml(rng: Random, value: Any) -> bytes:
    if rng.random() < 0.03:
        bomb = "".join(f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 9)}]\n" for at in range(1, 9))
        return f"a0: &a0 [x, x]\n{bomb}topology: *a8\n".encode()

    def write(changed: Any) -> bytes:
        try:
            return str(yaml.safe_dump(changed)).encode("utf-8", "surrogatepass")
        except (yaml.YAMLError, RecursionError, ValueError):
            return json_of(rng, changed)

    return tree(rng, value, write)


def _astra(network: str) -> list[str]:
    model = ["--level", "analytic", "--model", "astra-sim", "--system", "system.json"]
    return ["simulate", "w", "--fabric", network, *model, "-o", "out"]


def astra_system(rng: Random) -> Command:
    workload("plain")
    put("network.yml", yaml.safe_dump(seeds.ASTRA_NETWORK).encode())
    put("system.json", tree(rng, seeds.ASTRA_SYSTEM, as_json(rng)))
    return _astra("network.yml")


def astra_logical(rng: Random) -> Command:
    workload("plain")
    put("network.yml", yaml.safe_dump(seeds.ASTRA_NETWORK).encode())
    put("system.json", json.dumps(seeds.ASTRA_SYSTEM).encode())
    put("logical.json", tree(rng, {"logical-dims": ["2", "2"]}, as_json(rng)))
    return [*_astra("network.yml"), "--logical", "logical.json"]


# -- run folders


def run_folder(rng: Random) -> Command:
    shutil.copytree(samples() / "runs", "runs")
    world = rng.choice(("live", "twin"))
    name = rng.choice(("run.json", "counters.json", "timeline.parquet", "transfers.parquet", "paths.parquet"))
    path = Path("runs") / world / name
    data = path.read_bytes()
    if rng.random() < 0.02:
        path.unlink()
    elif path.suffix == ".json":
        path.write_bytes(tree(rng, json.loads(data), as_json(rng)))
    else:
        path.write_bytes(mutate_bytes(rng, data) if rng.random() < BYTES_SHARE else mutate_table(rng, data))
    if rng.random() < 0.3:
        return ["metrics", f"runs/{world}", "-o", "m.prom"]
    return ["diff", "runs/live", "runs/twin", *(["-o", "out"] if rng.random() < 0.6 else [])]


def verdict(rng: Random) -> Command:
    shutil.copytree(samples() / "runs", "runs")
    put("runs/verdict.json", tree(rng, seeds.VERDICT, as_json(rng)))
    return ["metrics", "runs", "-o", "m.prom"]


def followed(rng: Random) -> Command:
    """A simulation that follows a run folder."""
    shutil.copytree(samples() / "followed" / "live", "live")
    workload()
    name = rng.choice(("run.json", "timeline.parquet", "timeline.parquet"))
    path = Path("live") / name
    data = path.read_bytes()
    path.write_bytes(tree(rng, json.loads(data), as_json(rng)) if path.suffix == ".json" else mutate_table(rng, data))
    return [*SIMULATE, "--follow", "live", "--level", "flow"]


def launch_file(rng: Random) -> Command:
    put("launch.json", tree(rng, seeds.LAUNCH, as_json(rng)))

    def read() -> None:
        import msgspec

        from genie.errors import UsageError
        from genie.inputs.content import read_bytes
        from genie.live.settings import RunSettings

        try:
            msgspec.json.decode(read_bytes("launch.json"), type=RunSettings)
        except (ValueError, RecursionError) as error:
            raise UsageError(str(error)) from error

    return read


FORMATS: dict[str, Make] = {
    "chakra": chakra,
    "chakra-gzip": chakra_gzip,
    "chakra-json": chakra_json,
    "groups": groups,
    "hosts": hosts,
    "fabric": fabric,
    "faults": faults,
    "sweep": sweep,
    "sweep-rows": sweep_rows,
    "lab-fabric": lab_fabric,
    "nccl-conf": nccl_conf,
    "pytorch-host": host_traces,
    "kineto": kineto,
    "aicb-text": aicb_text,
    "aicb-list": aicb_list,
    "msccl": msccl,
    "nccl-topology": nccl_topology,
    "simai-topology": simai_topology,
    "ns3": ns3,
    "astra-network": astra_network,
    "astra-system": astra_system,
    "astra-logical": astra_logical,
    "run-folder": run_folder,
    "verdict": verdict,
    "followed-run": followed,
    "launch-file": launch_file,
}
