"""Wrong input: exit code 2, and one line that names the error and its place; no run, and no file written."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from live_runs import genie, in_this_process, rings

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    return rings(tmp_path_factory.mktemp("rings"))


# Arguments that are tried in a new process; the rest run in this one through the same entry, which is faster.
AS_PROCESSES = (
    "--lab",
    "--level flow",
    "--rate fast",
    "small.toml",
    "cut",
    "plan.toml",
)


def refused(*arguments: str, out: Path, code: int = 2) -> str:
    """Return the one line with which a command was refused."""
    as_process = any(part in " ".join(arguments) for part in AS_PROCESSES)
    ended = (genie if as_process else in_this_process)(*arguments, "-o", str(out))
    assert ended.code == code, ended
    assert ended.stdout == ""
    lines = ended.stderr.splitlines()
    assert len(lines) == 1, ended.stderr
    assert lines[0].startswith("genie: ")
    assert not out.exists(), "something was written"
    return lines[0]


WRONG_OPTIONS = {
    "--transport infiniband": "--transport infiniband: must be softroce or verbs",
    "--transport verbs --rate 1Gb/s": "a line rate of 1000000000 b/s: --transport verbs",
    "--transport verbs --dilation 2": "--dilation 2: a real NIC keeps real time",
    "--wire plain --slice-delay 1us": "--slice-delay: is for NCCL's messages: give --wire nccl",
    "--wire plain --ranks-per-node 2": "--ranks-per-node: is for NCCL's messages",
    "--slice-delay soon": "--slice-delay soon: is not a number with a unit",
    "--algorithm all_gather=direct": "--algorithm all_gather=direct: NCCL does not play it: give --wire plain too",
    "--wire copper": "--wire copper: must be nccl or plain",
    "--ranks 5": "--ranks 5:",
    "--rate fast": "--rate fast: is not a number with a unit",
    "--rate 0": "--rate 0: is out of range",
    "--rate -5Gb/s": "--rate -5Gb/s",
    "--dilation 0": "'--dilation'",
    "--iterations 0": "'--iterations'",
    "--udp-port 80": "'--udp-port'",
    "--stall nan": "'--stall'",
    "--algorithm all_reduce=magic": "all_reduce has",
    "--algorithm dance=ring": "operation 'dance' must be one of",
    "--slots gpu": "--slots gpu: must be streams or astra",
    "--compute roofline:x": "roofline:TFLOPS,GBPS",
    "--fabric nowhere.toml": "nowhere.toml: cannot be read",
    "--hosts nowhere.toml": "nowhere.toml: cannot be read",
    "--faults nowhere.toml": "nowhere.toml: cannot be read",
    "--lab nowhere.toml": "nowhere.toml: cannot be read",
    "--lab nowhere.toml --hosts hosts.toml": "--lab nowhere.toml: has its own hosts: leave --hosts out",
    "--lab nowhere.toml --fabric other.toml": "--lab nowhere.toml: is the fabric too: leave --fabric out",
    "--lab nowhere.toml --transport verbs": "--lab: namespaces have no RDMA devices",
    "--lab-fault leaf0-spine1": "--lab-fault: is about a lab's links: give --lab FABRIC.toml too",
    "--trace-paths maybe": "--trace-paths maybe: must be auto, on or off",
    "--trace-paths on": "--trace-paths on: loopback has no paths to learn",
    "--source-ports pinned": "--source-ports pinned: loopback has no paths to learn",
    "--source-ports pinned --trace-paths off": "chooses by the paths that are learned",
    "--spray 8 --queue-pairs 2": "--spray 8: the packets of one queue pair are sprayed, and each connection has 2",
    "--spray 8 --source-ports 50000-50003": "--spray 8: source ports '50000-50003' are 4, and packets are sprayed",
    "--spray 65": "'--spray': Input should be less than or equal to 64",
    "--bogus": "No such option: --bogus",
}


@pytest.mark.parametrize("given", WRONG_OPTIONS)
def test_run_refuses_by_name(given: str, trace: str, tmp_path: Path) -> None:
    line = refused("run", trace, *given.split(), out=tmp_path / "out")
    assert WRONG_OPTIONS[given] in line


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (
            "--level packet --verify-skip --rate 1Gb/s",
            "--verify-skip: level packet skips nothing; give --level packet+skip",
        ),
        (
            "--skip-memory much --rate 1Gb/s",
            "much: is not a number with a unit: give a size above 0, such as 500MiB, or unlimited",
        ),
        (
            "--skip-memory 1MiB --level flow --rate 1Gb/s",
            "--skip-memory: level flow skips nothing; give --level packet+skip",
        ),
        (
            "--verify-skip --stop-after 1ms --rate 1Gb/s",
            "compares whole iterations; leave --stop-after",
        ),
        ("--level flow --sharing fair --rate 1Gb/s", "--sharing fair: must be max-min or equal"),
        ("--sharing equal --rate 1Gb/s", "--sharing equal: is for --level flow"),
        ("--spray 8 --level flow --rate 1Gb/s", "level flow has no packets to spray: leave spray out"),
        ("--level psychic --rate 1Gb/s", "--level psychic: must be one of packet, packet+skip, flow, analytic"),
        ("--threads 0 --rate 1Gb/s", "--threads"),
        ("--threads 5000000000 --rate 1Gb/s", "'--threads': Input should be less than or equal to 1024"),
        ("--threads 99999999999999999999 --rate 1Gb/s", "'--threads': Input should be less than or equal to 1024"),
        ("", "give --fabric FILE, or --rate"),
        ("--fabric small.toml", "3 hosts"),
        ("--rate 1Gb/s --follow nowhere", "nowhere: does not exist"),
    ],
)
def test_simulate_refuses_by_name(given: str, named: str, trace: str, tmp_path: Path) -> None:
    small = tmp_path / "small.toml"
    text = (ROOT / "hosts" / "fabrics" / "single-switch.toml").read_text()
    small.write_text(text.replace("hosts = 8 ", "hosts = 3 "))
    words = [str(small) if word == "small.toml" else word for word in given.split()]
    assert named in refused("simulate", trace, *words, out=tmp_path / "out")


@pytest.mark.parametrize(
    ("topology", "named"),
    [
        ("99999999999 1 2\n", "t.txt:1: number of nodes = 99999999999: give a whole number"),
        ("3 1 2\n2\n2 0 100Gbps 1us 0\n2 1 100Gbps 1us x\n", "t.txt:4: error rate of link 1 = x: give a number"),
    ],
)
def test_an_experiment_of_ns3_that_cannot_be_read_is_refused(topology: str, named: str, tmp_path: Path) -> None:
    (tmp_path / "config.txt").write_text("TOPOLOGY_FILE t.txt\nFLOW_FILE f.txt\n")
    (tmp_path / "t.txt").write_text(topology)
    (tmp_path / "f.txt").write_text("1\n0 1 3 100 1000 2.0\n")
    assert named in refused("convert", "ns3", str(tmp_path / "config.txt"), out=tmp_path / "out")


def test_a_converted_experiment_replaces_an_earlier_one(tmp_path: Path) -> None:
    (tmp_path / "config.txt").write_text("TOPOLOGY_FILE t.txt\nFLOW_FILE f.txt\nENABLE_QCN 0\n")
    (tmp_path / "f.txt").write_text("1\n0 1 3 100 1000 2.0\n")
    for hosts in (3, 2):
        links = "".join(f"{hosts} {host} 100Gbps 1us 0\n" for host in range(hosts))
        (tmp_path / "t.txt").write_text(f"{hosts + 1} 1 {hosts}\n{hosts}\n{links}")
        out = tmp_path / "out"
        assert in_this_process("convert", "ns3", str(tmp_path / "config.txt"), "-o", str(out)).code == 0
        simulated = in_this_process(
            "simulate", str(out / "traces"), "--fabric", str(out / "fabric.toml"), "-o", str(out / "run")
        )
        assert simulated.code == 0, simulated
        assert simulated.stdout.startswith(f"traces: {hosts} ranks")


def test_a_simulation_has_a_page_where_it_is_asked_for(trace: str, tmp_path: Path) -> None:
    simulate = ("simulate", trace, "--rate", "1Gb/s", "-o", str(tmp_path / "run"))
    with_page = in_this_process(*simulate, "--report")
    assert with_page.code == 0, with_page
    page = tmp_path / "run" / "report.html"
    assert with_page.stdout.splitlines()[0] == f"report: {page}"
    assert "% of it waiting for the network; hottest link " in page.read_text()
    assert in_this_process(*simulate).code == 0
    assert not page.exists(), "a page of an earlier run"


def test_a_fabric_with_fewer_hosts_than_ranks_is_refused_before_anything_runs(trace: str, tmp_path: Path) -> None:
    small = tmp_path / "small.toml"
    text = (ROOT / "hosts" / "fabrics" / "single-switch.toml").read_text()
    small.write_text(text.replace("hosts = 8 ", "hosts = 3 "))
    for command in ("run", "validate"):
        line = refused(command, trace, "--fabric", str(small), out=tmp_path / "out")
        assert str(small) in line
        assert "3 hosts" in line
        assert "4 ranks" in line


def test_hosts_with_fewer_places_than_ranks(trace: str, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.toml"
    hosts.write_text('[[host]]\nname = "localhost"\nranks = "0-2"\naddress = "127.9.9.{rank+1}"\n')
    line = refused("run", trace, "--hosts", str(hosts), out=tmp_path / "out")
    assert f"{hosts}: places 3 ranks, the workload has 4" in line


WRONG_PLANS = {
    "[[rate]]\nrank = 1\nfactor = 2.0": "factor = 2.0: must be above 0 and at most 1",
    "[[rate]]\nrank = 1\nfactor = nan": "factor = nan",
    "[[rate]]\nrank = 1": "factor",
    "[[rate]]\nrank = 4\nfactor = 0.5": "[[rate]] rank = 4: must be in 0..3",
    "[[rate]]\nrank = 1\nfactor = 0.5\nfrom_iteration = 3\nuntil_iteration = 3": "until_iteration = 3",
    "[[rate]]\nrank = 1\nfactor = 0.5\nuntil_s = -1.0": "until_s = -1.0",
    "[[loss]]\nrank = 1\nevery = 0": "every = 0: must be in 1..1000000000",
    "[[loss]]\nrank = 1\nevery = 99999999999999999999": "every",
    "[[loss]]\nrank = 1\npeer = 2\nevery = 9\n" * 2: "two [[loss]] tables have rank = 1, peer = 2: leave one out",
    "[[loss]]\nrank = 1\npeer = 9\nevery = 2": "[[loss]] peer = 9: must be in 0..3",
    "[[delay]]\nrank = 1\npeer = 2\ndelay_us = -1": "delay_us = -1.0: must be in 0..60000000",
    "[[delay]]\nrank = 1\npeer = 2\ndelay_us = 1e30": "delay_us = 1e+30: must be in 0..60000000",
    "[[rate]]\nrank = 1\nfactor = 0.5\nfrom_s = 1e12": "from_s = 1000000000000.0: must be 0 or more, below 3600",
    "[[delay]]\nrank = 1\npeer = 1\ndelay_us = 1": "peer = 1",
    "[[burn]]\nrank = 1": "burn",
    "not toml": "wrong.toml",
}


@pytest.mark.parametrize("plan", WRONG_PLANS)
def test_a_wrong_fault_plan_names_file_and_key(plan: str, trace: str, tmp_path: Path) -> None:
    path = tmp_path / ("plan.toml" if plan.endswith("2.0") else "wrong.toml")
    path.write_text(plan + "\n")
    line = refused("run", trace, "--faults", str(path), out=tmp_path / "out")
    assert str(path) in line
    assert WRONG_PLANS[plan] in line


@pytest.mark.parametrize("command", ["simulate", "generate", "expand", "inspect", "extrapolate"])
def test_a_missing_argument_names_the_help_with_examples(command: str) -> None:
    ended = in_this_process(command)
    assert (ended.code, ended.stdout) == (2, "")
    assert ended.stderr.startswith("genie: Missing ")
    assert ended.stderr.endswith(f"`genie {command} --help` shows examples.\n")
    assert "Examples" in in_this_process(command, "--help").stdout


def test_traces_that_cannot_be_read(trace: str, tmp_path: Path) -> None:
    whole = sorted(Path(trace).glob("*.et*"))
    for name, damage in (("cut", lambda data: data[:-3]), ("garbage", lambda data: b"\xff" * 300)):
        folder = tmp_path / name
        folder.mkdir()
        for path in Path(trace).iterdir():
            data = path.read_bytes()
            (folder / path.name).write_bytes(damage(data) if path == whole[2] else data)
        line = refused("run", str(folder), out=tmp_path / "out")
        assert whole[2].name in line
    (tmp_path / "empty").mkdir()
    assert "no PREFIX.RANK.et" in refused("run", str(tmp_path / "empty"), out=tmp_path / "out")
    assert "nowhere" in refused("run", str(tmp_path / "nowhere"), out=tmp_path / "out")
    whole[1].rename(tmp_path / "aside")
    try:
        assert "1 of 4 ranks have no trace (1)" in refused("run", trace, out=tmp_path / "out")
    finally:
        (tmp_path / "aside").rename(whole[1])


def test_folders_that_are_not_ours_are_left_alone(trace: str, tmp_path: Path) -> None:
    for name, content in (("notes.txt", "mine"), ("live/thesis.tex", "mine"), ("parts/drums.wav", "mine")):
        out = tmp_path / name.replace("/", "-")
        kept = out / name
        kept.parent.mkdir(parents=True)
        kept.write_text(content)
        for command in (("run", trace), ("simulate", trace, "--rate", "1Gb/s"), ("validate", trace)):
            ended = in_this_process(*command, "-o", str(out))
            assert ended.code == 2
            assert len(ended.stderr.splitlines()) == 1
            assert name.split("/")[0] in ended.stderr
            assert kept.read_text() == content
    file = tmp_path / "file"
    file.write_text("mine")
    ended = genie("run", trace, "-o", str(file))
    assert (ended.code, len(ended.stderr.splitlines())) == (2, 1)
    assert file.read_text() == "mine"


def test_diff_of_folders_that_are_no_runs(tmp_path: Path) -> None:
    ended = genie("diff", str(tmp_path), str(tmp_path))
    assert ended.code == 2
    assert len(ended.stderr.splitlines()) == 1
    assert "is not a run folder, run.json is missing" in ended.stderr


WRONG_NUMBERS = {
    "--stall inf": "--stall inf",
    "--join nan": "--join",
    "--stall 1e308": "--stall 1e+308",
    "--seed 99999999999999999999999999": "--seed",
    "--compute=": "--compute",
    "--iterations 999999999999": "--iterations",
}


@pytest.mark.parametrize("option", WRONG_NUMBERS)
def test_numbers_that_no_run_can_have(option: str, trace: str, tmp_path: Path) -> None:
    assert WRONG_NUMBERS[option] in refused("run", trace, *option.split(), out=tmp_path / "out")


def test_a_twin_s_rate_is_its_fabric_s(trace: str, tmp_path: Path) -> None:
    fabric = str(ROOT / "hosts" / "fabrics" / "single-switch.toml")
    line = refused("simulate", trace, "--fabric", fabric, "--rate", "1Mb/s", out=tmp_path / "out")
    assert "--rate 1Mb/s: the links of" in line
    assert "--rate junk" in refused("simulate", trace, "--fabric", fabric, "--rate", "junk", out=tmp_path / "out")
    assert "--rate :" in refused("simulate", trace, "--rate", "", out=tmp_path / "out")


def test_iterations_beside_a_followed_run(trace: str, tmp_path: Path) -> None:
    line = refused("simulate", trace, "--rate", "1Gb/s", "--follow", "x", "-n", "2", out=tmp_path / "out")
    assert "--iterations: a followed run has its own number" in line


def test_half_of_a_launcher_s_variables(trace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    assert "RANK" not in refused("run", trace, "--rate", "fast", out=tmp_path / "out")  # printed: this is not a rank
    monkeypatch.setenv("WORLD_SIZE", "4")
    line = refused("run", trace, out=tmp_path / "out")
    assert "RANK and WORLD_SIZE are set and MASTER_ADDR is not" in line


IN_A_DESTRUCTOR = """
import os, signal, time
from genie.cli import main as command

class Falls:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.05)

def app(standalone_mode):
    falls = Falls()
    del falls
    time.sleep(60)

command.app = app
command.main()
"""


def test_a_signal_that_falls_into_a_destructor_ends_the_command() -> None:
    ended = subprocess.run([sys.executable, "-c", IN_A_DESTRUCTOR], capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGTERM, "genie: told to end by SIGTERM\n")
