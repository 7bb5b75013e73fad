"""One GPU's trace at other batches, on other GPUs and on many GPUs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_runs import Ended, in_this_process
from pytorch_samples import Sample

from genie.compute.gpus import find_gpu
from genie.errors import UsageError
from genie.extrapolate.buckets import FIRST_BYTES, LIMIT_BYTES, buckets_of
from genie.extrapolate.job import Job
from genie.extrapolate.read import read_step
from genie.extrapolate.step import Stage, TracedStep, kind_of
from genie.extrapolate.tensor_parallel import Role
from genie.extrapolate.times import Times, gpu_named, same_model
from genie.generate.degrees import Degrees
from genie.generate.pipeline import schedule_of
from genie.workload.graph import Kind, Op, RankGraph, Workload, WorkloadError
from genie.workload.inspect import inspect_workload
from genie.workload.load import load


@pytest.fixture(scope="module")
def vgg(shared_data: Path) -> TracedStep:
    """VGG-13 with batch 128, as a table."""
    return read_step(shared_data / "triosim" / "trace2-h100-bs128" / "vgg13")


@pytest.fixture(scope="module")
def larger(shared_data: Path) -> TracedStep:
    """VGG-13 with batch 512, as a Kineto trace."""
    return read_step(shared_data / "triosim" / "profiler_vgg13-iter41.json")


@pytest.fixture(scope="module")
def resnet(shared_data: Path) -> TracedStep:
    """ResNet-50 with batch 128, as a table."""
    return read_step(shared_data / "triosim" / "trace2-h100-bs128" / "resnet50")


def job(
    step: TracedStep,
    data: int = 1,
    tensor: int = 1,
    pipeline: int = 1,
    batches: int = 1,
    name: str = "",
    batch: int = 0,
) -> Job:
    degrees = Degrees(data * tensor * pipeline, tensor, 1, pipeline)
    return Job(Times((step,)), degrees, batch or step.batch, schedule_of(name or "gpipe", pipeline, 1, batches))


def collectives(graph: RankGraph, op: Op) -> list[int]:
    return graph.size_bytes[graph.op == op].tolist()


def errors(workload: Workload) -> list[str]:
    return [found.message for found in inspect_workload(workload).lints if found.severity == "error"]


def test_both_forms_of_a_trace_give_the_same_operators(vgg: TracedStep, larger: TracedStep) -> None:
    assert (vgg.batch, larger.batch) == (128, 512)
    assert vgg.parameter_bytes == larger.parameter_bytes == 4 * 133_047_848  # torchvision's VGG-13
    assert [(each.stage, each.kind) for each in vgg.operators] == [(each.stage, each.kind) for each in larger.operators]
    assert larger.time_ns() == 346_370_000  # the sum of all kernels and sets of the file


def test_total_kernel_time_at_four_times_the_batch(vgg: TracedStep, larger: TracedStep) -> None:
    """Scaling all times by four misses by 9 %."""
    up, down = Times((vgg,)).total_ns(512) / larger.time_ns() - 1, Times((larger,)).total_ns(128) / vgg.time_ns() - 1
    assert abs(up) < 0.05
    assert abs(down) < 0.05
    assert 4 * vgg.time_ns() / larger.time_ns() - 1 > 0.08


def test_the_optimizer_does_not_follow_the_batch(vgg: TracedStep) -> None:
    times = Times((vgg,))
    for at, each in enumerate(vgg.operators):
        expected = 1 if each.stage is Stage.UPDATE else 4
        assert 1 <= times.at(at, 512) / each.time_ns <= expected + 1e-9, each.name
    assert times.at(1, 512) == pytest.approx(4 * vgg.operators[1].time_ns, rel=0.01)  # a long elementwise operator


def test_lines_through_two_batches_meet_both(vgg: TracedStep, larger: TracedStep) -> None:
    times = Times(same_model((vgg, larger)))
    assert times.total_ns(128) == pytest.approx(vgg.time_ns(), rel=0.02)
    assert times.total_ns(512) == pytest.approx(larger.time_ns(), rel=0.02)
    assert times.errors() == []


def test_three_traces_give_an_error(vgg: TracedStep, larger: TracedStep) -> None:
    """The middle trace is exact, so that leaving it out gives its own distance from the line."""
    from dataclasses import replace

    times = Times((vgg, larger))
    middle = replace(
        vgg, batch=256, operators=tuple(replace(each, time_ns=round(1.1 * times.at(at, 256))) for at, each in
                                        enumerate(vgg.operators)),
    )  # fmt: skip
    found = Times(same_model((vgg, middle, larger))).errors()
    assert len(found) == 3
    assert found[1] == pytest.approx(1 / 1.1 - 1, abs=0.01)


def test_another_gpu_scales_by_what_binds(vgg: TracedStep) -> None:
    h100, b200 = find_gpu("h100"), find_gpu("b200")
    times = Times((vgg,), b200, h100)
    factors = {round(times.at(at, 128) / each.time_ns, 4) for at, each in enumerate(vgg.operators)}
    memory, arithmetic = h100.memory_gb_per_s / b200.memory_gb_per_s, h100.bf16_tflops / b200.bf16_tflops
    assert factors == {round(memory, 4), round(arithmetic, 4)}
    assert gpu_named("NVIDIA H100 80GB HBM3") == "h100"
    assert gpu_named("AMD Radeon Graphics") is None


def test_times_say_whether_they_are_measured(vgg: TracedStep) -> None:
    """At the trace's own batch all times are measured, at another one those of the optimizer are."""
    same, larger = job(vgg), job(vgg, batch=512)
    assert {same.timed(at, "F").origin for at in range(len(vgg.operators))} == {"measured"}
    for at, each in enumerate(vgg.operators):
        time_ns, origin = larger.timed(at, "F")
        assert origin == ("measured" if time_ns == each.time_ns else "scaled from batch 128"), each.name
    scaled = [each.stage for at, each in enumerate(vgg.operators) if larger.timed(at, "F").origin != "measured"]
    assert Stage.FORWARD in scaled
    assert Stage.UPDATE not in scaled
    assert larger.workload("vgg").ranks[0].origin is not None


def test_buckets_of_resnet_are_those_of_pytorch(resnet: TracedStep) -> None:
    """Sizes of the all-reduces in PyTorch's own trace of two ranks (param/1.1.0-chakra.0.0.4)."""
    made = job(resnet, data=2)
    assert [bucket.size_bytes // 4 for bucket in made.buckets(0)] == [2049000, 7875584, 6563840, 6637568, 2431040]
    workload = made.workload("resnet")
    graph = workload.ranks[1]
    assert [size // 4 for size in collectives(graph, Op.ALL_REDUCE)] == [2049000, 7875584, 6563840, 6637568, 2431040]
    assert collectives(graph, Op.BROADCAST) == [53120 * 4, 53 * 8]
    assert errors(workload) == []


def test_a_bucket_starts_when_its_last_gradient_is_ready(resnet: TracedStep) -> None:
    made = job(resnet, data=2)
    graph = made.workload("resnet").ranks[0]
    reductions = np.flatnonzero(graph.op == Op.ALL_REDUCE)
    for row, bucket in zip(reductions.tolist(), made.buckets(0), strict=True):
        own = graph.deps[graph.dep_start[row] : graph.dep_start[row + 1]]
        assert resnet.operators[bucket.ready].name in {graph.name[at] for at in own.tolist()}
    last_backward = max(at for at, each in enumerate(resnet.operators) if each.stage is Stage.BACKWARD)
    assert made.buckets(0)[0].ready < last_backward - 100


@given(sizes=st.lists(st.integers(1, 40 << 20), min_size=1, max_size=60))
def test_buckets_hold_all_gradients_up_to_their_limits(sizes: list[int]) -> None:
    found = buckets_of(enumerate(sizes))
    assert sum(bucket.size_bytes for bucket in found) == sum(sizes)
    assert [bucket.ready for bucket in found] == sorted({bucket.ready for bucket in found})
    for number, bucket in enumerate(found[:-1]):
        limit = LIMIT_BYTES if number else FIRST_BYTES
        assert bucket.size_bytes >= limit > bucket.size_bytes - sizes[bucket.ready]


def test_pairs_of_layers_share_one_sum(vgg: TracedStep) -> None:
    """The convolutions of a block and two of the linear layers are pairs; the third linear layer is gathered."""
    made = job(vgg, tensor=4)
    layers = [(vgg.operators[at].kind, role) for at, role in made.roles.items() if vgg.operators[at].parameters]
    assert layers == [("conv", Role.COLUMN), ("conv", Role.ROW)] * 5 + [
        ("linear", Role.COLUMN), ("linear", Role.ROW), ("linear", Role.GATHER)
    ]  # fmt: skip
    graph = made.workload("vgg").ranks[0]
    outputs = [each.outputs[0].size_bytes for at, each in enumerate(vgg.operators) if made.roles.get(at) is Role.ROW]
    inputs = [each.inputs[0].size_bytes for at, each in enumerate(vgg.operators)
              if made.roles.get(at) in (Role.COLUMN, Role.GATHER)]  # fmt: skip
    assert collectives(graph, Op.ALL_REDUCE) == [*outputs, *inputs[:0:-1]]  # the first layer's input needs no gradient
    assert collectives(graph, Op.ALL_GATHER) == [128 * 1000 * 4 // 4]
    alone = job(vgg).workload("vgg").ranks[0]
    assert graph.duration_ns.sum() < 0.45 * alone.duration_ns.sum()


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zero-bubble"])
def test_stages_of_a_pipeline_share_the_time(name: str, vgg: TracedStep) -> None:
    made = job(vgg, data=2, pipeline=4, batches=8, name=name)
    workload = made.workload("vgg")
    assert errors(workload) == []
    busy = [int(workload.ranks[rank].duration_ns.sum()) for rank in (0, 2, 4, 6)]
    alone = sum(made.times.at(at, 16) for at, each in enumerate(vgg.operators) if each.stage is not Stage.UPDATE)
    update = vgg.time_ns(Stage.UPDATE)
    assert sum(busy) == pytest.approx(8 * alone + update, rel=0.001)
    assert max(busy) < 1.6 * sum(busy) / 4
    sends = workload.ranks[0].size_bytes[workload.ranks[0].kind == Kind.SEND]
    assert set(sends.tolist()) == {made.activation_bytes(made.crossing_bytes[1])}
    reduced = [sum(collectives(workload.ranks[rank], Op.ALL_REDUCE)) for rank in (0, 2, 4, 6)]
    assert sum(reduced) == vgg.parameter_bytes


def test_all_parallelism_together(larger: TracedStep) -> None:
    workload = job(larger, data=2, tensor=2, pipeline=2, batches=4, name="1f1b").workload("vgg")
    assert len(workload.ranks) == 8
    assert errors(workload) == []


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::conv2d", "conv"), ("aten::relu_", "relu"), ("aten::max_pool2d", "maxpool"), ("aten::add_", "add"),
        ("aten::batch_norm", "batchnorm"), ("aten::adaptive_avg_pool2d", "adaptiveavgpool"),
        ("autograd::engine::evaluate_function: ConvolutionBackward0", "convolutionbackward"),
    ],
)  # fmt: skip
def test_kinds_of_operators(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def genie(*words: object) -> Ended:
    return in_this_process("extrapolate", *map(str, words))


def test_the_command_says_what_it_made(shared_data: Path, tmp_path: Path) -> None:
    table = shared_data / "triosim" / "trace2-h100-bs128" / "resnet50"
    ended = genie(table, "--batch", 256, "--dp", 1024, "-o", tmp_path / "out")
    assert ended.code == 0, ended.stderr
    assert "the error cannot be told from one trace" in ended.stdout
    assert "1024 ranks: tp1 cp1 pp1 dp1024" in ended.stdout
    assert "buckets of gradients: 7.82 MiB, 30 MiB, 25 MiB, 25.3 MiB, 9.27 MiB" in ended.stdout
    assert len(load(tmp_path / "out").ranks) == 1024
    assert len(list((tmp_path / "out").glob("*.et"))) == 1


def table(folder: Path, **change: str) -> Path:
    """TrioSim's tables of one layer; `change`: text -> other text, in both files."""
    trace = (
        "OperatorName,Operator_input,Operator_output,Operator_cudatimenooverlap,stage\n"
        "aten::linear,[1; 2],[3],50,forward\n"
        "autograd::engine::evaluate_function: AddmmBackward0,[3; 2],[1; 2],90,backward\n"
    )
    tensors = 'TensorID,TensorShape,TensorEachByte\n1,"[8, 16]",4\n2,"[32, 16]",4\n3,"[8, 32]",4\n'
    for old, new in change.items():
        trace, tensors = trace.replace(old, new), tensors.replace(old, new)
    folder.mkdir()
    (folder / "trace.csv").write_text(trace)
    (folder / "tensor.csv").write_text(tensors)
    return folder


def kineto(folder: Path, **args: Any) -> Path:
    sample = Sample()
    sample.operator("aten::linear", 10, 10, **args)
    sample.launch(1, 12, 4)
    sample.kernel("gemm", 20, 5, 7, 1)
    folder.mkdir()
    return sample.write(folder)[1]


@pytest.mark.parametrize(
    ("make", "words", "said"),
    [
        (
            lambda folder: table(folder, **{",50,": ",50.5,"}),
            (),
            "trace.csv:2: Operator_cudatimenooverlap: '50.5' is not",
        ),
        (lambda folder: table(folder, **{",50,": ",50000000000,"}), (), "is more than 1000000000: is it in µs?"),
        (lambda folder: table(folder, forward="fwd"), (), "trace.csv:2: stage: 'fwd': give one of forward, backward"),
        (
            lambda folder: table(folder, **{"[8, 16]": "8 x 16"}),
            (),
            "tensor.csv:2: TensorShape: '8 x 16' is not a list",
        ),
        (lambda folder: table(folder, Operator_output="Output"), (), "trace.csv:1: has no column Operator_output"),
        (lambda folder: table(folder, backward="optimizer"), (), "has no backward pass"),
        (table, ("--gpu", "b200"), "does not name its GPU: give --trace-gpu"),
        (table, ("--trace-gpu", "b200"), "has a meaning with --gpu only"),
        (table, ("--schedule", "interleaved"), "--schedule interleaved: give one of gpipe, 1f1b, zero-bubble"),
        (table, ("--pp", "2"), "--pp 2: the trace has 1 forward operators: give fewer stages"),
        (table, ("--batch", "9", "--micro-batches", "2"), "--batch 9 is not a multiple of --micro-batches 2"),
        (kineto, (), "no operator has the shapes of its inputs: record them"),
        (lambda folder: folder, (), "cannot be read"),
    ],
)
def test_bad_input_is_one_line(make: Any, words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    ended = genie(make(tmp_path / "trace"), *words, "-o", tmp_path / "out")
    assert ended.code == 2
    assert said in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_traces_of_other_models_are_refused(vgg: TracedStep, resnet: TracedStep) -> None:
    with pytest.raises(UsageError, match="has batch 128 as another trace"):
        same_model((vgg, resnet))
    from dataclasses import replace

    with pytest.raises(UsageError, match=re.escape("has other operators than")):
        same_model((vgg, replace(resnet, batch=256)))


def test_a_job_on_many_gpus_is_refused(shared_data: Path) -> None:
    with pytest.raises(WorkloadError, match="has communication kernels"):
        read_step(shared_data / "hta" / "world2_rank1.json.gz")
