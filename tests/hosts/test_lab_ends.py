"""Labs come up, stand side by side, and leave nothing behind, whatever ends them."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lab_fabrics import leaf_spine, send, written
from live_runs import Ended, genie, started

from genie.cli.lab import lab_down, lab_status
from genie.lab import Lab, LabError, commands, down, find, names_of, parse_change, state, up, up_for
from genie.lab import lab as lab_module

pytestmark = [pytest.mark.live, pytest.mark.extended]

WIDE = leaf_spine(4, 6, spines=4)


@pytest.fixture
def fabric(as_root: None, tmp_path: Path) -> Iterator[Path]:
    path = written(tmp_path, leaf_spine())
    yield path
    for name in names_of(path):
        down(name)


def lab_of(fabric: Path) -> Lab:
    lab = find(fabric)
    assert lab is not None
    return lab


def until(true: Callable[[], bool], limit_s: float = 15.0) -> None:
    deadline = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.005)


def gone(pid: int) -> bool:
    return not state.started_at(pid)


def namespaces_of(lab: Lab) -> set[int]:
    """Numbers of a lab's network namespaces."""
    folder = Path(f"/proc/{lab.state.pid}/fd")
    return {path.stat().st_ino for path in folder.iterdir() if int(path.name) >= 100}


def inside(namespaces: set[int]) -> list[str]:
    """Processes in them."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if (path / "ns" / "net").stat().st_ino in namespaces:
                found.append((path / "cmdline").read_text())
        except OSError:
            continue
    return found


def test_up_status_set_exec_down(fabric: Path) -> None:
    assert "has no lab that is up: nothing to do" in genie("lab", "down", str(fabric)).stdout
    first = genie("lab", "up", str(fabric))
    assert (first.code, first.stderr, first.left) == (0, "", [])
    assert first.stdout.endswith(": up, 4 hosts, 4 switches, 8 cables\n")
    pid = lab_of(fabric).state.pid
    again = genie("lab", "up", str(fabric))
    assert (again.code, lab_of(fabric).state.pid) == (0, pid)
    assert "is up already" in again.stdout

    assert genie("lab", "set", str(fabric), "leaf0-spine1", "--rate", "40%", "--loss", "1%").code == 0
    shown = genie("lab", "status", str(fabric)).stdout
    for line in (
        "host2: 10.0.2.1",
        "leaf0->spine1: 40Mb/s, burst 8396 B, queue 256KiB, no delay",
        "fault: spine1->leaf0: rate 16Mb/s, loss 1 %",
    ):
        assert f"  {line}\n" in shown
    assert "10.0.1.1/31" in genie("lab", "exec", str(fabric), "host1", "--", "ip", "-br", "addr").stdout
    assert genie("lab", "exec", str(fabric), "host1", "false").code == 1

    fabric.write_text(leaf_spine(hosts_per_leaf=3))
    changed = genie("lab", "up", str(fabric))
    assert changed.code == 2
    assert "its lab was built before the file changed: genie lab down" in changed.stderr
    assert genie("lab", "down", str(fabric)).stdout.endswith(": down\n")
    assert gone(pid)
    assert names_of(fabric)[0] not in state.all_names()


def test_a_mistyped_name_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "typo.toml"
    for command, rest in ((lab_down, ": nothing to do"), (lab_status, "")):
        assert command(missing) == 0
        assert capsys.readouterr().out == f"{missing}: has no lab that is up (there is no such file){rest}\n"


WRONG = {
    "up nowhere.toml": (2, "nowhere.toml: cannot be read: No such file or directory"),
    "up wrong.toml": (2, "wrong.toml:1: nonsense"),
    "set FABRIC host0-leaf0 --loss 1%": (2, "has no lab that is up: genie lab up"),
    "exec FABRIC host0 true": (2, "has no lab that is up: genie lab up"),
}


@pytest.mark.parametrize("given", WRONG)
def test_what_cannot_be_is_said_in_a_line(given: str, fabric: Path) -> None:
    written(fabric.parent, "nonsense = 1\n", "wrong.toml")
    words = given.replace("FABRIC", str(fabric)).replace("wrong.toml", str(fabric.parent / "wrong.toml"))
    ended = genie("lab", *words.split())
    assert (ended.code, len(ended.stderr.splitlines()), ended.stdout) == (WRONG[given][0], 1, "")
    assert WRONG[given][1] in ended.stderr


def test_two_labs_at_once(fabric: Path, tmp_path: Path) -> None:
    other = written(tmp_path, leaf_spine(1, 3), "other.toml")
    try:
        assert [genie("lab", "up", str(path)).code for path in (fabric, other)] == [0, 0]
        one, two = lab_of(fabric), lab_of(other)
        assert one.addresses["host1"] == two.addresses["host1"], "that they share an address is the point"
        assert namespaces_of(one) & namespaces_of(two) == set()
        assert send(one, "host0", "host1", count=5)["packets"] == 5
        assert send(two, "host0", "host1", count=5)["packets"] == 5
        assert genie("lab", "down", str(fabric)).code == 0
        assert send(two, "host0", "host1", count=5)["packets"] == 5
    finally:
        for name in names_of(other):
            down(name)


def test_nothing_of_a_lab_is_outside(fabric: Path) -> None:
    before = {kind: subprocess.check_output(["ip", kind], text=True) for kind in ("link", "addr", "route")}
    assert genie("lab", "up", str(fabric)).code == 0
    lab = lab_of(fabric)
    assert {kind: subprocess.check_output(["ip", kind], text=True) for kind in before} == before
    # And there is no way out.
    asked = subprocess.run(lab.inside("host0", "ip", "route", "get", "192.0.2.1"), capture_output=True, check=False)
    assert b"unreachable" in asked.stderr


@contextmanager
def half_built(fabric: Path) -> Iterator[state.State]:
    """An up that is killed when it has made some of its namespaces; what it had noted of its lab."""
    name = state.name_of(fabric)
    with started("lab", "up", str(fabric)) as command:
        command.until(lambda: state.load(name) is not None)
        known = state.load(name)
        assert known is not None
        command.until(lambda: Path(f"/proc/{known.pid}/fd/110").exists())
        command.process.kill()
        command.process.wait()
        assert not known.is_built
        yield known


def test_up_that_is_killed_in_mid_build(fabric: Path) -> None:
    fabric.write_text(WIDE)
    with half_built(fabric) as known:
        assert genie("lab", "down", str(fabric)).code == 0
        assert gone(known.pid)
        assert known.name not in state.all_names()


def test_a_keeper_whose_up_is_gone_ends_itself(fabric: Path) -> None:
    fabric.write_text(WIDE)
    with half_built(fabric) as known:
        until(lambda: gone(known.pid))
        until(lambda: known.name not in state.all_names())
        assert genie("lab", "up", str(fabric)).code == 0


def test_down_ends_what_runs_inside(fabric: Path) -> None:
    assert genie("lab", "up", str(fabric)).code == 0
    lab = lab_of(fabric)
    held = namespaces_of(lab)
    sleeper = subprocess.Popen(lab.inside("host3", "sleep", "100"))
    try:
        until(lambda: len(inside(held)) > 0)
        assert genie("lab", "down", str(fabric)).code == 0
        assert sleeper.wait(120) == -signal.SIGKILL
        assert inside(held) == []
    finally:
        sleeper.kill()


def test_down_after_the_keeper_was_killed(fabric: Path) -> None:
    assert genie("lab", "up", str(fabric)).code == 0
    lab = lab_of(fabric)
    sleeper = subprocess.Popen(lab.inside("host3", "sleep", "100"))
    try:
        until(lambda: Path(f"/proc/{sleeper.pid}/cmdline").read_bytes().startswith(b"sleep\0"))  # nsenter has entered
        os.kill(lab.state.pid, signal.SIGKILL)
        until(lambda: gone(lab.state.pid))
        assert f"not up: genie lab down {fabric} removes what is left of it" in genie("lab", "status").stdout
        assert "has no lab that is up" in genie("lab", "status", str(fabric)).stdout
        assert genie("lab", "down", str(fabric)).stdout.endswith(": down\n")
        assert sleeper.wait(120) == -signal.SIGKILL
    finally:
        sleeper.kill()


def test_another_process_of_the_keeper_s_number_is_left_alone(fabric: Path) -> None:
    other = subprocess.Popen(["sleep", "100"])
    try:
        name = state.name_of(fabric)
        state.save(state.State(name=name, fabric_path=str(fabric), fabric_text=leaf_spine(), pid=other.pid,
                               started="another boot 1", mark="none", is_built=True))  # fmt: skip
        assert find(fabric) is None
        assert genie("lab", "down", str(fabric)).code == 0
        assert other.poll() is None
        assert name not in state.all_names()
    finally:
        other.kill()
        other.wait()


def test_a_run_s_lab_knows_its_owner(fabric: Path) -> None:
    with up_for(fabric) as lab:
        assert names_of(fabric) == [state.name_of(fabric)]
        assert state.load(lab.name) == lab.state
    assert lab.name not in state.all_names()


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """For labs' files, in this process."""
    path = tmp_path / "labs"
    path.mkdir()
    monkeypatch.setattr(state, "folder", lambda: path)
    return path


def test_another_process_of_the_run_s_number_does_not_keep_its_lab(own_folder: Path) -> None:
    fabric = own_folder / "fabric.toml"
    name = f"{state.name_of(fabric)}-run-1"
    known = state.State(name=name, fabric_path=str(fabric), fabric_text="", mark="none", owner=os.getpid())
    known.owner_started = state.started_at(os.getpid())
    state.save(known)
    assert names_of(fabric) == [state.name_of(fabric)]
    known.owner_started = "another boot 1"
    state.save(known)
    assert names_of(fabric) == [state.name_of(fabric), name]


def test_a_file_that_cannot_be_read_stops_no_other_lab(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fabric = own_folder / "fabric.toml"
    broken, good = (f"{state.name_of(fabric)}-run-{number}" for number in (1, 2))
    (own_folder / f"{broken}.json").write_text("{")
    for name in (good, "stale-1"):
        state.save(state.State(name=name, fabric_path="f.toml", fabric_text="nonsense", mark="none"))
    running = {"pid": os.getpid(), "started": state.started_at(os.getpid()), "is_built": True}
    state.save(state.State(name="newer-1", fabric_path="f.toml", fabric_text="[of another Genie]", mark="-", **running))
    assert lab_status() == 3
    said = capsys.readouterr()
    assert [line.split(":")[0] for line in said.out.splitlines()] == [good, "stale-1"]
    assert [broken in line or "f.toml" in line for line in said.err.splitlines()] == [True, True]
    assert lab_down(fabric) == 3
    said = capsys.readouterr()
    assert said.out == f"{good}: down\n"
    assert f"{broken}.json: cannot be read" in said.err
    assert "remove it" in said.err


def test_down_removes_what_a_killed_writer_left(own_folder: Path) -> None:
    gone_process = subprocess.Popen(["true"])
    gone_process.wait()
    left, held = (own_folder / f"some.fabric-1.{pid}.part" for pid in (gone_process.pid, os.getpid()))
    for path in (left, held):
        path.touch()
    assert not down("none")
    assert list(own_folder.iterdir()) == [held], "whoever is alive may be at it"


def test_settings_that_this_kernel_lacks_are_said(fabric: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(commands._SYSCTLS, "net/ipv4/no_such_setting", "1")
    monkeypatch.setitem(commands._WITHOUT, "net/ipv4/no_such_setting", "something follows")
    with up_for(fabric) as lab:
        assert lab.state.missing_settings == ["net/ipv4/no_such_setting"]
        assert lab.cannot == ("This kernel has no setting net.ipv4.no_such_setting: something follows.",)


def rates_of(lab: Lab, node: str) -> list[str]:
    """Of a node's buckets, as tc shows them."""
    shown = subprocess.run(lab.inside(node, "tc", "qdisc"), capture_output=True, text=True, check=True).stdout
    return re.findall(r" rate (\S+)", shown)


def test_a_change_that_fails_half_way_is_undone(fabric: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab, _ = up(fabric)
    really, calls = lab_module._call, itertools.count()
    change, fails = [parse_change("host0-leaf0 rate=40%", lab.plan.links)], {1}

    def call(argv: list[str], text: str, node: str) -> None:
        if next(calls) in fails:
            raise LabError("cannot be done", 3)
        really(argv, text, node)

    monkeypatch.setattr(lab_module, "_call", call)
    with pytest.raises(LabError, match="cannot be done"):
        lab.set(change)
    assert rates_of(lab, "host0") == ["20Mbit"]
    assert (lab.faults, lab_of(fabric).state.is_in_doubt) == ({}, False)

    # A change that cannot be undone either is noted, and the next change or run sets all faults anew.
    calls, fails = itertools.count(), {1, 2}
    with pytest.raises(LabError, match="cannot be done"):
        lab.set(change)
    assert rates_of(lab, "host0") == ["8Mbit"]
    assert "links may have other faults than these" in genie("lab", "status", str(fabric)).stdout
    with lab_of(fabric).faults_injected([]):
        assert rates_of(lab, "host0") == ["20Mbit"]
        assert not lab_of(fabric).state.is_in_doubt

    calls, fails = itertools.count(), {1, 2}
    with pytest.raises(LabError, match="cannot be done"), lab.faults_injected(change):
        pass
    assert rates_of(lab, "host0") == ["20Mbit"]


def without_root(script: str, folder: Path, *, forbidden: bool = False) -> Ended:
    """A shell's script as user 1000 without any privilege, in a user namespace; `forbidden`: as where none may be."""
    line = ["unshare", "--user", "--map-user=1000", "--map-group=1000", "--keep-caps", "sh", "-c"]
    limit = "echo 0 > /proc/sys/user/max_user_namespaces; " if forbidden else ""
    bare = "exec setpriv --ambient-caps=-all --inh-caps=-all sh -ec"
    with started(
        line=[*line, f'{limit}{bare} "$1"', "sh", script],
        environment={"XDG_RUNTIME_DIR": str(folder), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"},
    ) as command:
        return command.end()


def test_a_lab_without_root(fabric: Path, tmp_path: Path) -> None:
    fabric.write_text(leaf_spine(more='[ecn]\nminimum = "16KiB"\nmaximum = "64KiB"\n'))
    ended = without_root(
        f"""
        test $(id -u) = 1000
        genie lab up {fabric}
        genie lab exec {fabric} host1 -- ip -br addr
        genie lab set {fabric} host0-leaf0 --loss 1% --rate 50% --down
        genie lab status {fabric}
        genie lab down {fabric}
        """,
        tmp_path,
    )
    assert (ended.code, ended.stderr, ended.left) == (0, "", [])
    assert "10.0.1.1/31" in ended.stdout
    assert "fault: host0->leaf0: rate 10Mb/s, loss 1 %, down" in ended.stdout
    assert "Switches set no ECN marks: only root may load the eBPF program that does." in ended.stdout
    assert list((tmp_path / "genie" / "labs").iterdir()) == []


def test_where_only_root_may(fabric: Path, tmp_path: Path) -> None:
    ended = without_root(f"genie lab up {fabric}", tmp_path, forbidden=True)
    assert (ended.code, len(ended.stderr.splitlines()), ended.stdout) == (3, 1, "")
    assert "only root may make a lab here: user namespaces" in ended.stderr
    assert "be root, or allow user namespaces" in ended.stderr
    assert list((tmp_path / "genie" / "labs").iterdir()) == []
