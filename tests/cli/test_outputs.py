"""Output folders of every command that writes.

Inputs of the command, files of the user, links and runs of another kind are refused, and none of them is lost.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from live_runs import GENIE, genie, in_this_process, loopback, rings, started

from genie.cli import main as command_line
from genie.cli.guard import FILES, FOLDER, OUT_IS_A_FILE, OUT_IS_KEPT
from genie.record import open_run
from simtwin import RecordError, simulate

pytestmark = pytest.mark.live

MPIRUN = str(GENIE.parent / "mpirun")
FABRIC = """
[topology]
kind = "leaf-spine"
leaves = 2
spines = 2
hosts_per_leaf = 2
[link]
rate = "1Gb/s"
delay = "500ns"
"""
TRAFFIC = '[base.traffic]\nkind = "permutation"\nsize = "64KiB"\n'
HOSTS = '[[host]]\nname = "localhost"\nranks = "0-3"\naddress = "127.9.9.{rank+1}"\n'
FAULTS = "[[rate]]\nrank = 1\nfactor = 0.5\n"
AICB = "HYBRID_TRANSFORMER model_parallel_NPU_group: 1 ep: 1 pp: 1 vpp: 1 ga: 1 all_gpus: 2 checkpoints: 0\n1\n"
AICB += "layer0 -1 1000 NONE 0 1000 NONE 0 1000 ALLREDUCE 4096 100\n"

# Command -> its words, with F for the folder of inputs and O for -o; and the inputs among them.
PLAYS = {"TRACE": "F/trace", "--fabric": "F/fabric.toml", "--hosts": "F/hosts.toml"}
COMMANDS: dict[str, dict[str, str]] = {
    "run": {**PLAYS, "--faults": "F/faults.toml"},
    "simulate": PLAYS,
    "validate": {**PLAYS, "--faults": "F/faults.toml"},
    "calibrate": {"--fabric": "F/fabric.toml", "--hosts": "F/hosts.toml"},
    "check": {"--fabric": "F/fabric.toml", "--hosts": "F/hosts.toml"},
    "sweep": {"FILE": "F/sweep.toml"},
    "bench pairs": {"--fabric": "F/fabric.toml", "--hosts": "F/hosts.toml"},
    "bench all_reduce": {"--fabric": "F/fabric.toml", "--hosts": "F/hosts.toml"},
    "bench write": {"--hosts": "F/hosts.toml"},
    "convert aicb": {"FILE": "F/aicb.txt"},
}
MORE = {
    "simulate": [
        {"TRACE": "F/trace", "--fabric": "F/fabric.toml", "--follow": "F/live"},
        {"TRACE": "F/trace", "--fabric": "F/fabric.toml", "--algorithm": "all_reduce=F/ring.xml"},
        {"TRACE": "F/trace", "--fabric": "F/network.yml", "--system": "F/system.json", "--logical": "F/logical.json"},
    ],
    "run": [{"TRACE": "F/trace", "--lab": "F/fabric.toml"}, {"TRACE": "F/trace/rings"}],
    "validate": [{"TRACE": "F/trace", "--lab": "F/fabric.toml"}],
    "convert msccl --size 1MiB": [{"FILE": "F/ring.xml"}],
    "convert ns3": [{"CONFIG": "F/config.txt"}],
    "convert pytorch": [{"--host": "F/trace", "--device": "F/kineto"}],
}
OPTIONS = [
    (command, option, inputs)
    for command, several in [*((name, [inputs]) for name, inputs in COMMANDS.items()), *MORE.items()]
    for inputs in several
    for option in inputs
]


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """A folder with an input of each kind."""
    folder = tmp_path / "inputs"
    rings(folder / "trace", collectives=1)
    for name, text in (("fabric", FABRIC), ("hosts", HOSTS), ("faults", FAULTS)):
        (folder / f"{name}.toml").write_text(text)
    (folder / "sweep.toml").write_text(f'[base]\nfabric = "fabric.toml"\n{TRAFFIC}[grid]\nseed = [1]\n')
    for name in ("aicb.txt", "ring.xml", "config.txt", "network.yml", "system.json", "logical.json"):
        (folder / name).write_text(AICB if name == "aicb.txt" else "text")
    for name in ("live", "kineto"):
        (folder / name).mkdir()
        (folder / name / "run.json").write_text("{}")
    return folder


def digest(folder: Path) -> dict[str, str]:
    """Return all entries below a folder: links with their targets, files with their content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            found[name] = "folder"
    return found


def words(command: str, given: dict[str, str], folder: Path, out: Path) -> list[str]:
    line = command.split()
    for option, value in given.items():
        line += ([option] if option.startswith("--") else []) + [value.replace("F/", f"{folder}/")]
    return [*line, "--out", str(out)]


@pytest.mark.parametrize(("command", "option", "given"), OPTIONS)
def test_an_input_inside_the_output_is_refused_by_name(
    command: str, option: str, given: dict[str, str], inputs: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    place = inputs / given[option].partition("F/")[2]
    inside = out / place.name
    out.mkdir()
    source = place if place.exists() else place.parent  # a prefix
    if source.is_dir():
        shutil.copytree(source, out / source.name)
    else:
        shutil.copy(source, inside)
    moved = {**given, option: given[option].replace("F/", f"{out}/")}
    before = digest(tmp_path)
    ended = in_this_process(*words(command, moved, inputs, out))
    name = option if option.startswith("--") else ("WORKLOAD" if option == "TRACE" else option)
    assert ended.code == 2, ended
    assert ended.stderr.startswith(f"genie: {name} {out}"), ended.stderr
    assert ended.stderr.endswith(f": lies in -o {out}, which the results replace; choose another -o\n")
    assert digest(tmp_path) == before


# Every name under which a command writes to -o.
NAMES = {
    "run": "run.json timeline.parquet transfers.parquet counters.json paths.parquet launch.json lab.json mpirun.log",
    "simulate": "run.json timeline.parquet transfers.parquet counters.json series.parquet fabric.toml report.html",
    "validate": "verdict.json report.html timeline.pftrace live/run.json twin/fabric.toml calibration/launch.json",
    "calibrate": "run.json launch.json rings/rings.0.et rings/rings.json",
    "check": "check/run.json check/launch.json",
    "sweep": "rows.jsonl sweep.csv sweep.parquet sweep.html sweep.toml runs/x/run.json",
    "bench pairs": "pairs.html",
    "convert aicb": "workload.0.et workload.json",
}


@pytest.mark.parametrize(("command", "name"), [(key, name) for key, names in NAMES.items() for name in names.split()])
def test_a_user_s_file_under_a_name_of_genie_s_is_kept(command: str, name: str, inputs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / name).parent.mkdir(parents=True)
    (out / name).write_text('{"notes": "of three years"}\n')
    before = digest(out)
    ended = in_this_process(*words(command, COMMANDS[command], inputs, out))
    assert ended.code == 2, ended
    assert len(ended.stderr.splitlines()) == 1
    assert name.split("/")[0] in ended.stderr
    kept = digest(out)
    assert {path: kept[path] for path in before} == before


@pytest.mark.parametrize("command", ["run", "simulate", "validate", "calibrate", "check"])
@pytest.mark.parametrize("target", ["fabric.toml", "missing"])
def test_a_link_in_the_output_is_kept(command: str, target: str, inputs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    link = out / ("check" if command == "check" else "") / "run.json"
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(inputs / target)
    before = digest(tmp_path)
    ended = in_this_process(*words(command, COMMANDS[command], inputs, out))
    assert ended.code == 2
    assert "run.json" in ended.stderr
    assert digest(tmp_path) == before


def make_simulation(inputs: Path, out: Path) -> None:
    simulate(inputs / "fabric.toml", inputs / "trace", out=out)


def make_sweep(inputs: Path, out: Path) -> None:
    assert in_this_process("sweep", f"{inputs / 'sweep.toml'}", "-o", str(out), "--jobs", "1").code == 0


def make_conversion(inputs: Path, out: Path) -> None:
    rings(out, collectives=1)


MAKERS = {"simulate": make_simulation, "sweep": make_sweep, "convert aicb": make_conversion}


# A command of another kind than the folder's. Checks and benches write to folders of their own inside -o.
WHOLE = ("run", "simulate", "validate", "calibrate", "sweep", "convert aicb")
OTHERS = [(command, made) for made in MAKERS for command in WHOLE if made != command]


@pytest.mark.parametrize(("command", "made"), OTHERS)
def test_an_earlier_result_of_another_kind_is_kept(command: str, made: str, inputs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    maker: Callable[[Path, Path], None] = MAKERS[made]
    maker(inputs, out)
    before = digest(tmp_path)
    ended = in_this_process(*words(command, COMMANDS[command], inputs, out))
    assert ended.code == 2, ended
    assert len(ended.stderr.splitlines()) == 1
    assert digest(tmp_path) == before


def test_an_earlier_result_of_the_same_kind_is_replaced(inputs: Path, tmp_path: Path) -> None:
    for command, made in (("simulate", "timeline.parquet"), ("sweep", "sweep.csv"), ("convert aicb", "workload.0.et")):
        out = tmp_path / command
        extra = ["--report"] if command == "simulate" else []
        for _ in range(2):
            ended = in_this_process(*words(command, COMMANDS[command], inputs, out), *extra)
            assert ended.code == 0, ended
            assert (out / made).is_file()


def test_a_diff_keeps_what_it_did_not_write(inputs: Path, tmp_path: Path) -> None:
    live, twin = tmp_path / "live", tmp_path / "twin"
    trace = str(inputs / "trace")
    assert genie("run", trace, "--hosts", loopback(tmp_path), "--rate", "200Mb/s", "-o", str(live)).code == 0
    assert in_this_process("simulate", trace, "--rate", "200Mb/s", "-o", str(twin)).code == 0
    for name in ("verdict.json", "report.html", "timeline.pftrace"):
        out = tmp_path / name.partition(".")[0]
        out.mkdir()
        (out / name).write_text("mine")
        ended = in_this_process("diff", str(live), str(twin), "-o", str(out))
        assert ended.code == 2, ended
        assert f"{out / name}: is not a file that Genie wrote there" in ended.stderr
        assert (out / name).read_text() == "mine"


def test_a_simulation_s_table_that_the_user_edited_is_kept(inputs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    make_sweep(inputs, out)
    with (out / "sweep.csv").open("a") as file:
        file.write("a note\n")
    before = digest(out)
    ended = in_this_process(*words("sweep", COMMANDS["sweep"], inputs, out))
    assert ended.code == 2, ended
    assert f"{out / 'sweep.csv'}: is not a file that Genie wrote there" in ended.stderr
    assert digest(out) == before


@pytest.mark.parametrize(
    "line",
    [
        "metrics R -o F/notes.prom",
        "check --fabric F/fabric.toml --hosts F/hosts.toml --json F/notes.prom",
        "bench pairs --simulate --fabric F/fabric.toml --json F/notes.prom",
        "convert fabric F/topology F/notes.prom",
    ],
)
def test_a_single_file_that_genie_did_not_write_is_kept(line: str, inputs: Path, tmp_path: Path) -> None:
    make_simulation(inputs, tmp_path / "run")
    notes = inputs / "notes.prom"
    notes.write_text("mine")
    ended = in_this_process(*line.replace("F/", f"{inputs}/").replace("R ", f"{tmp_path / 'run'} ").split())
    assert ended.code == 2, ended
    assert f"{notes}: is not a file that Genie wrote there" in ended.stderr
    assert notes.read_text() == "mine"


def test_a_file_to_write_that_is_read_is_refused(inputs: Path) -> None:
    hosts, before = inputs / "hosts.toml", digest(inputs)
    ended = in_this_process("check", "--hosts", str(hosts), "--json", str(hosts))
    assert ended.code == 2
    assert ended.stderr == f"genie: {hosts}: is also the input --hosts; give another file to write\n"
    assert digest(inputs) == before


def test_scripts_have_the_same_rule(inputs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    make_simulation(inputs, out)
    before = digest(out)
    with pytest.raises(RecordError, match=f"fabric {out / 'fabric.toml'}: lies in -o {out}"):
        simulate(out / "fabric.toml", inputs / "trace", out=out)
    with pytest.raises(RecordError, match="workload"):
        simulate(inputs / "fabric.toml", inputs / "trace", out=inputs / "trace")
    assert digest(out) == before
    assert open_run(out).info["world"] == "twin"


def test_a_sweep_s_own_inputs_count_too(inputs: Path, tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(f'[base]\nfabric = "out/fabric.toml"\n{TRAFFIC}[grid]\nseed = [1]\n')
    (tmp_path / "out").mkdir()
    shutil.copy(inputs / "fabric.toml", tmp_path / "out")
    ended = in_this_process("sweep", str(file), "-o", str(tmp_path / "out"))
    assert ended.code == 2
    assert ended.stderr.startswith(f"genie: fabric {tmp_path}/out/fabric.toml: lies in -o ")


@pytest.mark.parametrize("name", ["workload.0.et.part", "workload.0.et.7.part", "workload.json.7.part"])
@pytest.mark.parametrize("is_link", [False, True])
def test_a_user_s_half_trace_is_kept(name: str, is_link: bool, inputs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    if is_link:
        (out / name).symlink_to(inputs / "faults.toml")
    else:
        (out / name).write_text("mine")
    before = digest(tmp_path)
    ended = in_this_process("convert", "aicb", str(inputs / "aicb.txt"), "-o", str(out))
    assert ended.code == 2, ended
    assert name in ended.stderr
    assert digest(tmp_path) == before


def test_groups_that_the_user_edited_are_kept(inputs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    line = ["convert", "aicb", str(inputs / "aicb.txt"), "-o", str(out)]
    for _ in range(2):
        assert in_this_process(*line).code == 0
    (out / "workload.json").write_text('{"mine": [7, 7, 7]}')
    before = digest(out)
    ended = in_this_process(*line)
    assert ended.code == 2, ended
    assert f"{out / 'workload.json'}: is not a file that Genie wrote there" in ended.stderr
    assert digest(out) == before


def test_a_validation_of_ranks_replaces_only_a_validation(inputs: Path, tmp_path: Path) -> None:
    """Started under mpirun, where rank 0 plays the twin and writes it."""
    out = tmp_path / "out"
    (out / "twin").mkdir(parents=True)
    (out / "twin" / "fabric.toml").write_text("mine")
    job = ["validate", str(inputs / "trace"), "--hosts", loopback(tmp_path), "--rate", "200Mb/s", "-o", str(out)]
    before = digest(out)
    with started(line=[MPIRUN, "-n", "4", str(GENIE), *job]) as command:
        ended = command.end()
    assert ended.code == 2, ended
    assert "holds files that are not an earlier validation of Genie's (twin/fabric.toml)" in ended.stderr
    kept = digest(out)
    assert {path: kept[path] for path in before} == before


def test_every_output_is_known_to_the_guard() -> None:
    """Parameters that hold paths are inputs unless they are named. The command's name tells whether -o is a file."""
    loaded = [command_line.load_command(name) for name in command_line.COMMANDS]
    commands = [each for command in loaded for each in getattr(command, "commands", {"": command}).values()]
    assert {*OUT_IS_A_FILE, *OUT_IS_KEPT} <= {command.callback.__name__ for command in commands}
    assert FOLDER == "out"
    assert "as_json" in FILES
