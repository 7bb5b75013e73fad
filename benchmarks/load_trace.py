"""Time and memory for loading a large trace: `python benchmarks/load_trace.py [--nodes N] [--json FILE]`.

Three traces of one rank: as this project writes them, with the additions of PyTorch converters (tensor arguments and
ten attributes a node), and the latter compressed. Each loads in a process of its own. Limits: 15 s and 2 GB per
million nodes.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from chakra_protobuf.et_def_pb2 import GlobalMetadata, IOInfo, Node, NodeType
from common.arguments import add_json, positive

from chakra_schemas.attributes import AttributeValue, make_attributes
from chakra_schemas.writer import write_trace
from genie.workload.inspect import inspect_workload
from genie.workload.load import load
from genie.workload.synthetic import chain
from genie.workload.write import save

SECONDS_MAX = 15.0
MEMORY_BYTES_MAX = 2_000_000_000
TENSOR = "[[%d, %d, 0, 1048576, 4, 'cuda:0'], [%d, 7, 0, 1048576, 4, 'cuda:0'], 1, False]"


def pytorch_like(count: int) -> Iterator[Node]:
    """Nodes as converters of PyTorch traces write them; every tenth is a collective."""
    for index in range(count):
        attributes: dict[str, AttributeValue] = {
            "rf_id": index, "fw_parent": 0, "seq_id": -1, "scope": 0, "tid": 1, "fw_tid": 0,
            "op_schema": "aten::mul.Tensor(Tensor self, Tensor other) -> Tensor", "is_cpu_op": False, "stream": 7,
        }  # fmt: skip
        collective = index % 10 == 9
        if collective:
            attributes |= {"comm_type": 0, "comm_size": 4096 * index, "pg_name": "0"}
        node = Node(
            id=index,
            name="nccl:all_reduce" if collective else f"aten::mul_{index % 997}",
            type=NodeType.COMM_COLL_NODE if collective else NodeType.COMP_NODE,
            data_deps=range(max(index - 2, 0), index),
            ctrl_deps=range(max(index - 1, 0), index),
            start_time_micros=10 * index,
            duration_micros=index % 50,
            inputs=IOInfo(values=TENSOR % (index, index, index), shapes="[[1024, 1024], []]", types="['Tensor']"),
            outputs=IOInfo(values=TENSOR % (index, 1, 2), shapes="[[1024, 1024]]", types="['Tensor(float)']"),
        )
        node.attr.extend(make_attributes(attributes))
        yield node


def write_traces(folder: Path, count: int) -> dict[str, Path]:
    save(chain(count), folder / "genie", "trace")
    for name, compress in (("pytorch", False), ("pytorch, gzip", True)):
        (folder / name).mkdir()
        path = folder / name / f"trace.0.et{'.gz' if compress else ''}"
        write_trace(path, GlobalMetadata(version="0.0.4"), pytorch_like(count), compress)
    return {path.name: path for path in sorted(folder.iterdir())}


def measure(folder: Path) -> dict[str, float]:
    """Load and inspect one trace in this process."""
    start = time.perf_counter()
    workload = load(folder)
    loaded = time.perf_counter()
    memory_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    inspect_workload(workload)
    inspected = time.perf_counter()
    return {
        "nodes": len(workload.ranks[0]),
        "file_bytes": sum(path.stat().st_size for path in folder.iterdir()),
        "load_s": loaded - start,
        "memory_bytes": memory_bytes,
        "inspect_s": inspected - loaded,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=positive, default=1_000_000, help="(1000000)")
    add_json(parser)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure)))
        return 0
    results: dict[str, dict[str, float]] = {}
    print(f"{'trace':<14} {'nodes':>10} {'file MB':>8} {'load s':>7} {'memory MB':>9} {'inspect s':>9}")
    with tempfile.TemporaryDirectory() as folder:
        for name, path in write_traces(Path(folder), arguments.nodes).items():
            command = [sys.executable, __file__, "--measure", str(path)]
            result = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
            results[name] = result
            print(
                f"{name:<14} {result['nodes']:>10,} {result['file_bytes'] / 1e6:>8.1f} {result['load_s']:>7.2f} "
                f"{result['memory_bytes'] / 1e6:>9.0f} {result['inspect_s']:>9.2f}"
            )
    scale = arguments.nodes / 1_000_000
    within = all(
        result["load_s"] < SECONDS_MAX * scale and result["memory_bytes"] < MEMORY_BYTES_MAX * max(scale, 1)
        for result in results.values()
    )
    limits = f"{SECONDS_MAX:g} s and {MEMORY_BYTES_MAX / 1e9:g} GB per million nodes"
    print(f"limits of {limits}: {'met' if within else 'NOT met'}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"within_limits": within, "traces": results}, indent=2) + "\n")
    return 0 if within else 1


if __name__ == "__main__":
    raise SystemExit(main())
