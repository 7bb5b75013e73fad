"""Every fenced command of the documents runs as it is written, after those before it on its page.

tests/test_docs.py runs the quick ones, tests/capture those that need PyTorch. One table says what stands behind a
page's placeholders, another which commands need another machine, and the tests that run them there.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from documented_commands import (
    Machine,
    Place,
    Source,
    judge,
    needs_pytorch,
    of_archive,
    of_block,
    of_data,
    of_project,
    of_rings,
    of_text,
    place,
    replaced,
    small_cluster,
    unseen,
)
from documents import FENCED, PAGES, ROOT, Command

pytestmark = [pytest.mark.live, pytest.mark.extended, pytest.mark.timeout(900)]

# Words of a command that needs Slurm or an RDMA device: the test that runs it as it is written.
ELSEWHERE = {
    "srun --mpi=none genie run TRACE": "tests/hosts/test_real_slurm.py::test_the_line_of_srun",
    "srun --mpi=none --distribution=block": "tests/hosts/test_real_slurm.py::test_the_batch_scripts_of_the_page",
    "genie validate TRACE --transport verbs": "tests/rxe/test_verbs_validate.py::test_the_line_of_the_page",
}

EIGHT = of_text('[[host]]\nname = "localhost"\nranks = "0-7"\naddress = "10.0.0.{rank+1}"\n')
FOUR = of_text('[[host]]\nname = "localhost"\nranks = "0-3"\naddress = "10.0.0.{rank+1}"\n')
TWO = of_text('[[host]]\nname = "localhost"\nranks = "0-1"\naddress = "10.0.0.{rank+1}"\n')
SWITCH8 = of_project("hosts/fabrics/loopback8.toml")
LAB = of_project("hosts/fabrics/lab-8.toml")
RATE = {"25Gb/s": "200Mb/s"}  # of one machine
VGG13, BATCH512 = "triosim/trace2-h100-bs128/vgg13", "triosim/profiler_vgg13-iter41.json"
NS3 = {name: of_data(f"ns3-reference/{name}") for name in ("star_17_100Gbps_0.001ms.txt", "single1MB_star.txt")}
REDUCING = of_text(
    'name = "reducing"\n[topology]\nkind = "single-switch"\nhosts = 8\n'
    '[link]\nrate = "200Mb/s"\n[switch]\nreduces = true\n'
)
SWEEP = of_text(
    '[base]\nfabric = "examples/sweep-fabric.toml"\n[base.traffic]\nkind = "poisson"\nduration = "1ms"\n'
    'sizes = "64KiB"\nload = 0.5\n[grid]\ntraffic.load = [0.2, 0.4, 0.6]\n'
)

LIVE: dict[str, Source] = {"TRACE": of_rings(8), "HOSTS.toml": EIGHT, "FABRIC.toml": SWITCH8}
DLRM: dict[str, Source] = {"DLRM_KINETO": of_archive("param/dlrm_kineto.tar.gz")}


def ranks_of_one(target: Path, at: Place) -> None:
    """The first fifth of a GPU's Kineto trace, once for each of 16 ranks."""
    trace = json.loads(gzip.decompress((at.data / "hta" / "world16_rank0.json.gz").read_bytes()))
    events = trace["traceEvents"]
    limit = sorted(event.get("ts", 0) for event in events)[len(events) // 5]
    trace["traceEvents"] = [event for event in events if event.get("ts", 0) <= limit]
    target.mkdir()
    for rank in range(16):
        trace["distributedInfo"]["rank"] = rank
        (target / f"rank{rank}.json").write_text(json.dumps(trace))


def half_a_batch(target: Path, at: Place) -> None:
    """A Kineto trace of VGG-13 with batch 512, as if its batch were 256."""
    trace = json.loads((at.data / BATCH512).read_text())
    for event in trace["traceEvents"]:
        for dims in event.get("args", {}).get("Input Dims", []):
            if dims[:1] == [512] and len(dims) > 1 and dims[2:] != [3, 3]:  # no bias, and no kernel of 3 x 3
                dims[0] = 256
        if event.get("cat") == "kernel":
            event["dur"] *= 0.5
    target.write_text(json.dumps(trace))


def in_bf16(target: Path, at: Place) -> None:
    """The same trace, as if its matrix products were in BF16."""
    target.write_text((at.data / BATCH512).read_text().replace('"float"', '"c10::BFloat16"'))


FILES: dict[str, dict[str, Source]] = {
    "README.md": LIVE,
    "benchmarks.md": {"HOSTS.toml": FOUR},
    "bring-your-workload.md": {
        "HOST_TRACES": of_archive("param/dlrm_pytorch_et.tar.gz"),
        "KINETO_TRACES": of_archive("param/dlrm_kineto.tar.gz"),
        "GPT13B_tp8.txt": of_data("aicb/simAI/G13B-M1-C01_GPT13B_megatron_tp8_pp1_mbs1_A100.txt"),
        "TRACE": of_rings(8),
        "ALLREDUCE.xml": of_data("astra-sim/custom_ring_allreduce_8npus_1MB/custom_allreduce.xml"),
        "FABRIC.toml": of_project("hosts/fabrics/leaf-spine.toml"),
        "CONFIG": of_data("ns3-reference/config/single1MB_star__dcqcn.txt"),
        **NS3,
        "Spectrum-X_16g": of_data("simai/Spectrum-X_16g_8gps_400Gbps_H100"),
        "SimAI.conf": of_data("simai/SimAI.conf"),
        "TOPOLOGY.xml": of_data("topo/azure/ndv4-topo.xml"),
    },
    "compare-runs.md": LIVE,
    "convert-a-gpu-trace.md": {
        **DLRM,
        "KINETO": ranks_of_one,
        "RANK0.json": of_data("hta/world16_rank0.json.gz"),
    },
    "counters-and-metrics.md": {**LIVE, "textfile/README": of_text("of node_exporter\n")},
    "extrapolate-a-trace.md": {
        "VGG13": of_data(VGG13),
        "BATCH128": of_data(VGG13),
        "BATCH256.json": half_a_batch,
        "BATCH512.json": of_data(BATCH512),
    },
    "gallery.md": {**DLRM, "VGG13": of_data(VGG13)},
    "generate-a-workload.md": {
        "SYSTEM.json": of_data("simumax/a100_pcie.json"),
        "TRACE.json": in_bf16,
    },
    "gpus-and-nccl.md": {**LIVE, "FABRIC.toml": REDUCING},
    "on-slurm.md": {**LIVE, "SWEEP.toml": SWEEP},
    "on-the-wire.md": {**LIVE, "FABRIC.toml": LAB},
    "read-a-verdict.md": {},
    "simulate-a-job.md": {"SWEEP.toml": SWEEP},
    "simulate-a-large-model.md": {"V3.toml": of_block('name = "v3"'), "RATES.toml": of_block("base = {")},
    "the-lab.md": {"TRACE": of_rings(8), "FABRIC.toml": LAB},
    "try-it.md": {"hosts.toml": of_project("hosts/loopback.toml"), "FAULTS.toml": of_block("[[rate]]")},
    "validate-a-fabric.md": {
        "TRACE": of_rings(4),
        "HOSTS.toml": of_block('name = "gpu01"          #'),
        "FABRIC.toml": of_block('name = "four-machines"', RATE),
        "JOB.toml": of_block('workload = "TRACE"'),
    },
    "hosts/README.md": {"hosts.toml": of_project("hosts/loopback.toml")},
}

# Before a command with these words: lines of shell that make results which its page supposes, and other files.
RUN = "genie validate TRACE --hosts HOSTS.toml --fabric FABRIC.toml -n 6"
NAMESPACES = "the-lab.md: ip netns add"
BEFORE: dict[tuple[str, str], tuple[list[str], dict[str, Source]]] = {
    ("compare-runs.md", "compare runs/monday runs/tuesday"): (
        [f"{RUN} -o runs/{day}" for day in ("monday", "tuesday", "wednesday")], {}
    ),
    ("compare-runs.md", "--baseline last"): ([], {}),
    ("compare-runs.md", "--baseline runs/accepted"): (["genie validate TRACE -o runs/accepted"], {}),
    ("compare-runs.md", "genie bench all_reduce"): (
        ["genie bench all_reduce --hosts HOSTS.toml -b 64M -e 64M -n 3 -w 1"], {"HOSTS.toml": TWO}
    ),
    ("read-a-verdict.md", "genie diff runs/mine"): (["genie validate examples/transformer -o runs/mine"], {}),
    ("the-lab.md", "set FABRIC.toml 'leaf0->spine1' --loss"): (["genie lab up FABRIC.toml"], {}),
    ("the-lab.md", "mpirun -n 4"): (
        [NAMESPACES], {"TRACE": of_rings(4), "HOSTS.toml": of_block('name = "h0"')}
    ),
    ("validate-a-fabric.md", "--hosts hosts/cluster.toml"): ([], {"TRACE": of_rings(8)}),
    ("validate-a-fabric.md", "RANK=0 WORLD_SIZE=2"): ([], {"TRACE": of_rings(2), "HOSTS.toml": TWO}),
    ("validate-a-fabric.md", "genie validate JOB.toml"): (
        [], {"TRACE": of_rings(4), "HOSTS.toml": of_block('name = "gpu01"          #')}
    ),
}  # fmt: skip

# Values in a command that belong to a larger machine.
REPLACED = {
    "counters-and-metrics.md": {"/var/lib/node_exporter/textfile": "textfile"},
    "validate-a-fabric.md": RATE,
}


def runs_elsewhere(command: Command) -> bool:
    return any(words in command.line for words in ELSEWHERE)


def is_left_out(command: Command) -> bool:
    return runs_elsewhere(command) or command in needs_pytorch(command.page)


def name_of(page: Path) -> str:
    name = str(page.relative_to(ROOT))
    return page.name if page.parent.name == "docs" and page.name != "README.md" else name


TO_RUN = {page: commands for page in PAGES if (commands := unseen(page, is_left_out))}


def test_every_command_runs_somewhere() -> None:
    run = {(command.words, command.variables) for commands in TO_RUN.values() for command in commands}
    captured = [command for page in PAGES for command in needs_pytorch(page)]
    missing = [
        command.where
        for command in FENCED
        if (command.words, command.variables) not in run
        and not command.is_quick
        and command not in captured
        and not runs_elsewhere(command)
    ]
    assert not missing, "\n".join(missing)
    for words, test in ELSEWHERE.items():
        assert any(words in command.line for command in FENCED), f"no command has {words}"
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text(), test


def prepare(command: Command, at: Place, machine: Machine, done: set[str]) -> None:
    for (page, words), (lines, files) in BEFORE.items():
        if page != name_of(at.page) or words not in command.line or words in done:
            continue
        done.add(words)
        place(files, at)
        for line in lines:
            if line == NAMESPACES:
                of_block("ip netns add")(at.folder / "namespaces.sh", at)
                line = "bash -e namespaces.sh"
            ended = machine.run(line, at.folder)
            assert ended.code in (0, 1, 4), str(ended)


@pytest.mark.parametrize("page", TO_RUN, ids=name_of)
def test_commands_of_a_page_run(page: Path, as_root: None, shared_data: Path, tmp_path: Path) -> None:
    at = Place(tmp_path, page, shared_data)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    place({"hosts": of_project("hosts"), **FILES.get(name_of(page), {})}, at)
    done, values = set[str](), REPLACED.get(name_of(page), {})
    with small_cluster(tmp_path) as machine:
        for command in TO_RUN[page]:
            prepare(command, at, machine, done)
            ended = machine.run(replaced(command.line, values), tmp_path)
            print(f"{ended.code} {ended.took_s:.1f} s {command.line}")
            judge(command, ended, at, values)
