"""`genie convert aicb`, `genie convert msccl` and `--algorithm OPERATION=FILE.xml` as commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_runs import GENIE, in_this_process, rings, started

from genie.record import open_run

GPT = "aicb/simAI/G13B-M1-C01_GPT13B_megatron_tp8_pp1_mbs1_A100.txt"
R48 = "msccl/ndv4/r48ll.xml"


def test_a_workload_becomes_traces(shared_data: Path, tmp_path: Path) -> None:
    for ranks in (24, 16):  # the traces of the earlier conversion, with more ranks, are removed
        ended = in_this_process(
            "convert", "aicb", str(shared_data / GPT), "--ranks", str(ranks), "-o", str(tmp_path), "--prefix", "gpt"
        )
        assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == [
        "16 ranks: tensor 8 x data 2 x pipeline 1; expert 1",
        "each rank: 426 nodes, compute 208.213 ms; collectives: 1 all_gather, 171 all_reduce, 1 broadcast, "
        "1 reduce_scatter",
        "note: pipeline parallelism 1, as the file says none (--pipeline-parallel)",
        "note: expert parallelism 1, as the file says none (--expert-parallel)",
        "note: 33 compute times of 1 ns, which stand for unknown times, left out",
        f"a trace that 16 ranks share in {tmp_path}",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gpt.0.et", "gpt.classes.json", "gpt.json"]


def test_an_algorithm_becomes_traces(shared_data: Path, tmp_path: Path) -> None:
    xml = str(shared_data / "msccl/ndv4/a2a2ll.xml")
    ended = in_this_process("convert", "msccl", xml, "--size", "64MiB", "-o", str(tmp_path))
    assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == [
        "alltoall_allpairs: all_to_all of 8 ranks in 16 chunks of 4194304 B; rank 0 sends 14 messages, 58720256 B",
        "note: MSCCL takes this algorithm for 0B to 40959B only",
        "note: protocol LL: the flags that it adds to data are not sent",
        f"8 traces in {tmp_path}",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["convert", "aicb", GPT], "A100.txt: does not say how many ranks there are: give --ranks"),
        (["convert", "aicb", "aicb/aiob_Example.txt", "--ranks", "8"], "Example.txt:1: parallelism 'train_iter:10'"),
        (["convert", "aicb", R48, "--ranks", "8"], "r48ll.xml:1: parallelism '<!--'"),
        (["convert", "aicb", "topo", "--ranks", "8"], "topo: cannot be read: Is a directory; give a text file"),
        (["convert", "msccl", GPT, "--size", "1MiB"], "A100.txt:1: not XML"),
        (["convert", "msccl", R48, "--size", "1000B"], "1000 B: must be a multiple of 64, the chunks of"),
        (["convert", "msccl", R48, "--size", "much"], "--size much: is not a number with a unit; give 1B to"),
        (["convert", "msccl", R48, "--size", "0"], "--size 0: is out of range; give 1B to 1048576GiB, such as 64MiB"),
        (["convert", "msccl", R48, "--size", "1MiB", "--reduction", "7"], "genie: --reduction 7: has no unit; give"),
        (["convert", "msccl", R48, "--size", "unlimited"], "--size unlimited: give a number of bytes"),
        (["convert", "msccl", "nowhere.xml", "--size", "1MiB"], "nowhere.xml: cannot be read: No such file or"),
        (["convert", "aicb", "nowhere.txt"], "cannot be read: No such file or directory; give a text file"),
    ],
)  # fmt: skip
def test_refusals_are_one_line(arguments: list[str], said: str, shared_data: Path, tmp_path: Path) -> None:
    arguments[2] = str(shared_data / arguments[2])
    ended = in_this_process(*arguments, "-o", str(tmp_path / "out"))
    assert ended.code == 2
    assert ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1
    assert said in ended.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "out"),
    [
        ("fabric {data}/simai/Spectrum-X_16g_8gps_400Gbps_H100", "fabric.toml"),
        ("msccl {data}/msccl/ndv4/r48ll.xml --size 1MiB", "traces"),
        ("ns3 {data}/ns3-reference/config/incast16_star__dcqcn.txt", "incast"),
    ],
)
def test_a_full_disk_keeps_nothing_half_written(
    words: str, out: str, as_root: None, shared_data: Path, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    command = f"{GENIE} convert {words.format(data=shared_data)} -o {disk}/{out}"
    script = f"mount -t tmpfs -o size=4k none {disk} && {command}; code=$?; find {disk} -type f; exit $code"
    with started(line=["unshare", "--mount", "--propagation", "private", "sh", "-c", script]) as running:
        ended = running.end()
    assert (ended.code, ended.stdout) == (3, "")
    assert ended.stderr.startswith(f"genie: {disk}/{out}")
    assert ended.stderr.endswith(": cannot be written: No space left on device; free some space or choose another -o\n")


@pytest.mark.parametrize("command", ["aicb", "msccl", "ns3"])
def test_a_folder_of_somebody_else_s_is_refused(command: str, shared_data: Path, tmp_path: Path) -> None:
    source, rest = {
        "aicb": (GPT, ["--ranks", "16"]),
        "msccl": (R48, ["--size", "1MiB"]),
        "ns3": ("ns3-reference/config/incast16_star__dcqcn.txt", []),
    }[command]
    line = ["convert", command, str(shared_data / source), *rest, "-o", str(tmp_path / "out")]
    (tmp_path / "out").write_text("mine")
    assert in_this_process(*line).stderr == f"genie: {tmp_path / 'out'}: is not a folder; choose another -o\n"
    (tmp_path / "out").unlink()
    for _ in range(2):  # it replaces its own earlier output
        assert in_this_process(*line).code == 0
    before = sorted(path for path in tmp_path.rglob("*"))
    (tmp_path / "out" / "thesis.json").write_text("mine")
    ended = in_this_process(*line)
    assert (ended.code, ended.stdout) == (2, "")
    assert "conversion" in ended.stderr
    assert ended.stderr.endswith("(thesis.json); choose another -o\n")
    assert sorted(path for path in tmp_path.rglob("*") if path.name != "thesis.json") == before


def test_an_algorithm_plays_in_place_of_collectives(shared_data: Path, tmp_path: Path) -> None:
    trace = rings(tmp_path / "trace", 8, collectives=2)
    line = ["simulate", trace, "--rate", "10Gb/s", "-o", str(tmp_path / "run"), "--algorithm"]
    ended = in_this_process(*line, f"all_reduce={shared_data / R48}", "--wire", "plain")
    assert (ended.code, ended.stderr) == (0, "")
    run = open_run(tmp_path / "run")
    assert run.info["lowering"]["algorithms"] == {"all_reduce": f"msccl:{(shared_data / R48).resolve()}"}
    assert run.transfers["messages"].to_list() == [112] * 16, "from each rank to the next, in each collective"


@pytest.mark.parametrize(
    ("ranks", "algorithm", "wire", "said"),
    [
        (8, f"all_reduce={R48}", "nccl", "is MSCCL's and has messages of its own: give --wire plain too"),
        (8, f"all_gather={R48}", "plain", "is an algorithm for all_reduce"),
        (4, f"all_reduce={R48}", "plain", "r48ll.xml: is for 8 members, and trace has groups of 4 only"),
        (8, "all_reduce=nowhere.xml", "plain", "nowhere.xml: No such file or directory"),
    ],
)
def test_an_algorithm_that_does_not_fit_is_refused(
    ranks: int, algorithm: str, wire: str, said: str, shared_data: Path, tmp_path: Path
) -> None:
    op, _, name = algorithm.partition("=")
    trace = rings(tmp_path / "trace", ranks, collectives=1)
    for command in ("simulate", "run"):
        ended = in_this_process(
            command, trace, "--rate", "1Gb/s", "-o", str(tmp_path / "run"), "--wire", wire,
            "--algorithm", f"{op}={shared_data / name}",
        )  # fmt: skip
        assert ended.code == 2
        assert said in ended.stderr
        assert len(ended.stderr.splitlines()) == 1


def test_what_a_killed_conversion_left_is_gone_after_the_next(shared_data: Path, tmp_path: Path) -> None:
    words = f"convert msccl {shared_data}/msccl/ndv4/r48ll.xml --size 1MiB -o {tmp_path}"
    assert in_this_process(*words.split()).code == 0
    half = (tmp_path / "workload.0.et").read_bytes()[:300]
    (tmp_path / "workload.999.et.4711.part").write_bytes(half)
    (tmp_path / "workload.json.4711.part").touch()
    assert in_this_process(*words.split()).code == 0
    assert (tmp_path / "workload.0.et").is_file()
    assert not list(tmp_path.glob("*.part"))
