"""Train a small transformer on 8 CPU ranks, capture one iteration with PyTorch's profiler, convert it to Chakra traces.

    python capture.py [--raw FOLDER] [--out FOLDER]

Needs Genie, torch==2.13.0 and a C++ compiler in one environment; README.md here says what is captured and how.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from model import Shape, Split, SplitLinear, Text, Transformer
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn import functional
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile

from genie.workload.pytorch.convert import convert

HERE = Path(__file__).resolve().parent
SEED = 1
DATA_PARALLEL = 4
TENSOR_PARALLEL = 2
WORLD = DATA_PARALLEL * TENSOR_PARALLEL
WARMUP_STEPS = 10
TIMED_STEPS = 40
LEARNING_RATE = 3e-3
GRADIENT_NORM_LIMIT = 1.0


def recording_gloo() -> Any:
    """The C++ wrapper beside this file, built on first use."""
    from torch.utils.cpp_extension import load

    return load("recording_gloo", [str(HERE / "recording_gloo.cpp")], extra_cflags=["-O1"])


def start_group(rank: int, port: int, extension: Any) -> DeviceMesh:
    """Join the job; the mesh is data-parallel × tensor-parallel, neighbours share a tensor-parallel group."""

    def create(options: Any, _: Any) -> Any:
        gloo = dist.ProcessGroupGloo(options.store, options.group_rank, options.group_size, timeout=options.timeout)
        ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
        return extension.wrap(gloo, ranks)

    dist.Backend.register_backend("recording_gloo", create, extended_api=True, devices=["cpu"])
    dist.init_process_group("recording_gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD)
    return init_device_mesh("cpu", (DATA_PARALLEL, TENSOR_PARALLEL), mesh_dim_names=("data", "tensor"))


def build_model(shape: Shape, mesh: DeviceMesh) -> nn.Module:
    """The model; fully_shard shards each layer, and the rest, over the data-parallel group."""
    # Parts that are not split must start equal on all ranks; split parts, on all ranks with the same part.
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED + 1 + mesh["tensor"].get_local_rank())
    model = Transformer(shape, Split(mesh["tensor"].get_group(), generator))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)  # gloo has no average
            module._set_unshard_async_op(True)  # gathers of the next layer overlap with this one's backward
    return model


def clip_and_report(model: nn.Module, loss: Tensor) -> Tensor:
    """Clip the gradient to GRADIENT_NORM_LIMIT; one small all-reduce over all ranks sums the norm and the loss."""
    split = {id(module.weight) for module in model.modules() if isinstance(module, SplitLinear)}
    gradients = [parameter.grad.to_local() for parameter in model.parameters()]
    # A gradient that is not split over the tensor-parallel group exists TENSOR_PARALLEL times.
    weights = [1.0 if id(parameter) in split else 1.0 / TENSOR_PARALLEL for parameter in model.parameters()]
    squares = torch.stack(torch._foreach_norm(gradients)).square() * torch.tensor(weights)
    totals = torch.stack([squares.sum(), loss.detach() / WORLD])
    dist.all_reduce(totals)
    scale = (GRADIENT_NORM_LIMIT / (totals[0].sqrt() + 1e-6)).clamp(max=1.0)
    torch._foreach_mul_(gradients, scale)
    return totals[1]


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, text: Tensor) -> Tensor:
    """One iteration; returns the mean loss over all ranks."""
    scores = model(text[:, :-1])
    loss = functional.cross_entropy(scores.flatten(0, 1), text[:, 1:].flatten())
    loss.backward()
    mean_loss = clip_and_report(model, loss)
    optimizer.step()
    optimizer.zero_grad()
    return mean_loss


def run_rank(rank: int, port: int, turn_file: str, steps: str) -> None:
    """Train; step 0 runs under the observer and the profiler, later steps under the profiler only.

    Step k leaves rank<r>.kineto.json in `steps`/k; step 0 leaves rank<r>.host.json too.
    """
    torch.set_num_threads(1)
    extension = recording_gloo()
    mesh = start_group(rank, port, extension)
    shape = Shape()
    model = build_model(shape, mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, foreach=True)
    text = Text(shape, seed=mesh["data"].get_local_rank())  # a tensor-parallel group reads the same text
    extension.take_turn(turn_file)
    for step in range(-WARMUP_STEPS, TIMED_STEPS + 1):
        batch = text.batch()
        dist.barrier()
        if step < 0:
            loss = train_step(model, optimizer, batch)
        else:
            folder = Path(steps) / str(step)
            folder.mkdir(parents=True, exist_ok=True)
            observer = ExecutionTraceObserver() if step == 0 else None
            if observer is not None:
                observer.register_callback(str(folder / f"rank{rank}.host.json"))
            with profile(activities=[ProfilerActivity.CPU], execution_trace_observer=observer) as profiler:
                loss = train_step(model, optimizer, batch)
            profiler.export_chrome_trace(str(folder / f"rank{rank}.kineto.json"))
        if rank == 0:
            print(f"step {step:3d}  loss {loss.item():.3f}", flush=True)
    dist.barrier()
    extension.give_turn()
    dist.destroy_process_group()


def load(steps: Path, step: int, rank: int) -> dict[str, Any]:
    """The profile of a rank in one step."""
    return json.loads((steps / str(step) / f"rank{rank}.kineto.json").read_text())


def training_thread(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """The profile's operators and annotations on the training thread, in the order of their starts."""
    events = [event for event in trace["traceEvents"] if event.get("cat") in ("cpu_op", "user_annotation")]
    thread = next(event["tid"] for event in events if event["name"] == "record_param_comms")
    return sorted((e for e in events if e["tid"] == thread), key=lambda event: event["args"]["External id"])


def busy_ms(trace: dict[str, Any]) -> float:
    """Time from the first to the last operator of the training thread, without calls of collectives and waits
    for them.
    """
    events = training_thread(trace)
    span_us = max(event["ts"] + event["dur"] for event in events) - events[0]["ts"]
    collectives_us = sum(event["dur"] for event in events if event["name"] == "record_param_comms")
    return (span_us - collectives_us) / 1000


def take_record_ids(timed: dict[str, Any], observed: dict[str, Any]) -> None:
    """Give each operator of `timed` the record function id of the same operator in `observed`.

    The observer numbers operators, and more than doubles their total time. So the times come from a step without it,
    and the numbers from the step with it. Both steps must have the same operators in the same order.
    """
    timed_events, observed_events = training_thread(timed), training_thread(observed)
    if [event["name"] for event in timed_events] != [event["name"] for event in observed_events]:
        raise SystemExit("the timed and the observed step ran different operators: raise WARMUP_STEPS")
    for event in timed["traceEvents"]:
        event.get("args", {}).pop("Record function id", None)
    for event, twin in zip(timed_events, observed_events, strict=True):
        event["args"]["Record function id"] = twin["args"]["Record function id"]


def capture(raw: Path) -> None:
    """Train and leave rank<r>.host.json and rank<r>.kineto.json of one iteration in `raw`."""
    recording_gloo()  # built once, before the ranks start
    with tempfile.TemporaryDirectory() as work:
        steps = Path(work) / "steps"
        arguments = (free_port(), str(Path(work) / "turn"), str(steps))
        torch.multiprocessing.spawn(run_rank, args=arguments, nprocs=WORLD)
        keep_quietest(steps, raw)


def keep_quietest(steps: Path, raw: Path) -> None:
    """Keep the times of the step with the shortest busy time over all ranks."""
    busy = {step: [busy_ms(load(steps, step, rank)) for rank in range(WORLD)] for step in range(TIMED_STEPS + 1)}
    for step, times in busy.items():
        print(f"step {step:3d}  a rank is busy for {min(times):.1f} to {max(times):.1f} ms")
    best = min(range(1, TIMED_STEPS + 1), key=lambda step: sum(busy[step]))
    print(f"kept: the times of step {best}, the graph of step 0")
    raw.mkdir(parents=True, exist_ok=True)
    for rank in range(WORLD):
        timed = load(steps, best, rank)
        take_record_ids(timed, load(steps, 0, rank))
        (raw / f"rank{rank}.kineto.json").write_text(json.dumps(timed))
        shutil.copyfile(steps / "0" / f"rank{rank}.host.json", raw / f"rank{rank}.host.json")


def convert_traces(raw: Path, out: Path) -> None:
    """Write `out`/transformer.<rank>.et.gz and transformer.json."""
    host = {rank: raw / f"rank{rank}.host.json" for rank in range(WORLD)}
    device = {rank: raw / f"rank{rank}.kineto.json" for rank in range(WORLD)}
    report = convert(host, device, out, "transformer", compress=True)
    for note in report.notes:
        print(f"note: {note}")
    for path in report.files:
        print(f"{path}  {path.stat().st_size:,} bytes")


def free_port() -> int:
    """A TCP port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--raw", type=Path, help="also keep PyTorch's own traces, 43 MB, in this folder")
    parser.add_argument("--out", type=Path, default=HERE, help="folder for the converted traces (default: here)")
    arguments = parser.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # ninja of this environment
    with tempfile.TemporaryDirectory() as work:
        raw = arguments.raw or Path(work)
        capture(raw)
        convert_traces(raw, arguments.out)


if __name__ == "__main__":
    main()
