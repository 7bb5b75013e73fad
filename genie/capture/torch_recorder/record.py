"""One rank of a script, recorded: `python -c "... record.main()" OUT RANK WORLD LOCAL STEPS SCRIPT ARGUMENTS`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

FORMAT = 1


def main(words: list[str]) -> int:
    """Run the script and write the record. Exit code 2, and one line on stderr, for what cannot be captured."""
    out, rank, world, local, steps, *script = words
    os.environ |= {
        "RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": local, "LOCAL_RANK": str(int(rank) % int(local)),
        "GROUP_RANK": str(int(rank) // int(local)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "capture",
    }  # fmt: skip
    try:
        import torch
    except ImportError:
        print(f"{sys.executable} has no PyTorch: give --python with one that has", file=sys.stderr)
        return 2
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from . import devices, distributed, pipelines
    from .data_parallel import replacement
    from .graph import Graph, Refused, StepEnd
    from .operators import Operators
    from .script import run

    graph = Graph(int(steps))
    devices.pretend(graph)
    devices.refuse_extensions()
    distributed.pretend(graph, int(rank), int(world))
    distributed.pause_shape_rules(graph)
    pipelines.pretend()
    data_parallel = replacement(graph)
    torch.nn.parallel.DistributedDataParallel = torch.nn.parallel.distributed.DistributedDataParallel = data_parallel
    first: list[Any] = []

    def stepped(optimizer: Any, *_: Any) -> None:
        first.append(optimizer)
        if optimizer is first[0]:
            graph.end_step()

    register_optimizer_step_post_hook(stepped)
    try:
        with devices.OnCpu(), FakeTensorMode(allow_non_fake_inputs=True), Operators(graph):
            run(script)
    except StepEnd:
        return _write(Path(out), graph, int(rank), int(world), torch.__version__)
    except Refused as error:
        print(error, file=sys.stderr)
        return 2
    except SystemExit as error:
        if error.code not in (None, 0):
            print(f"the script ended with {error.code} before step {steps}", file=sys.stderr)
            return 2
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        print(f"{_where(error, script[0])}: {type(error).__name__}: {text}", file=sys.stderr)
        return 2
    advice = f"give --steps {graph.step}" if graph.step else "a capture needs an optimizer of torch.optim"
    print(f"the script ended after {graph.step} steps of its optimizer: {advice}", file=sys.stderr)
    return 2


def _where(error: BaseException, script: str) -> str:
    """Return the line of the script, or of a file beside it, that led to an error."""
    folder, found = Path(script).resolve().parent, Path(script).name
    at = error.__traceback__
    while at is not None:
        path = Path(at.tb_frame.f_code.co_filename)
        if path.parent == folder:
            found = f"{path.name}:{at.tb_lineno}"
        at = at.tb_next
    return found


def _write(out: Path, graph: Any, rank: int, world: int, version: str) -> int:
    head = {
        "format": FORMAT, "rank": rank, "world": world, "torch": version, "steps": graph.steps,
        "groups": graph.groups, "notes": graph.notes,
    }  # fmt: skip
    with out.open("w") as file:
        for line in (head, *graph.nodes):
            file.write(json.dumps(line) + "\n")
    return 0
