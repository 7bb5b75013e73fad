"""`genie check` from the command line, on loopback: its errors, its output and its exit code."""

from __future__ import annotations

import json
import time
from pathlib import Path

import msgspec
import pytest
from live_runs import genie, in_this_process, loopback

from genie.cli.check import ROCE_CLASS, class_of, schedule_lines
from genie.job.options import LiveOptions
from simtwin.fabric.reading import loopback_fabric
from simtwin.fabric.schema import Transport

pytestmark = pytest.mark.live

REFUSED = {
    "": "give --hosts FILE, or --lab FABRIC.toml",
    "--hosts HOSTS --ranks 3": "--ranks: needs --schedule; a check tests all hosts",
    "--schedule": "--schedule: give --ranks N or --hosts FILE",
    "--schedule --hosts HOSTS --ranks 3": "--schedule: give --ranks N or --hosts FILE",
    "--hosts HOSTS --mtu 1000": "--mtu 1000: must be 256, 512, 1024, 2048, 4096",
    "--hosts HOSTS --rate fast": "--rate fast",
    "--hosts HOSTS --paths 0": "'--paths'",
    "--hosts HOSTS --transport tcp": "--transport tcp: must be softroce or verbs",
    "--hosts HOSTS --json none/check.json": "--json none/check.json: its folder is not there",
    "--hosts HOSTS --lab-fault 'a down'": "--lab-fault: is about a lab's links",
    "--hosts nowhere.toml": "nowhere.toml",
    "--hosts ONE": "places 1 rank: a check needs 2",
    "--hosts HOSTS --faults WRONG": "[[congestion]] rank = 9: must be in 0..3",
    "--hosts HOSTS --faults ON": "control",
}


@pytest.mark.parametrize("options", REFUSED)
def test_what_cannot_be_is_refused_in_one_line(options: str, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "wrong.toml").write_text("[[congestion]]\nrank = 9\ncontrol = false\n")
    (tmp_path / "on.toml").write_text("[[congestion]]\nrank = 1\ncontrol = true\n")
    files = {
        "HOSTS": loopback(tmp_path),
        "ONE": loopback(tmp_path / "one", 1),
        "WRONG": str(tmp_path / "wrong.toml"),
        "ON": str(tmp_path / "on.toml"),
    }
    ended = in_this_process(
        "check", *(files.get(word, word.strip("'")) for word in options.replace("'a down'", "'a_down'").split())
    )
    assert (ended.code, ended.stdout) == (2, ""), ended
    assert len(ended.said) == 1, ended
    assert REFUSED[options] in ended.said[0]


@pytest.mark.parametrize(
    ("option", "written", "sent"),
    [(None, None, ROCE_CLASS), (None, 0, 0), (None, 96, 96), (0, None, 0), (0, 96, 0), (32, 96, 32)],
)
def test_the_class_that_is_tried_is_the_jobs(option: int | None, written: int | None, sent: int) -> None:
    fabric = msgspec.structs.replace(loopback_fabric(2, 0), transport=Transport(traffic_class=written))
    assert class_of(LiveOptions(traffic_class=option), fabric) == sent
    if written is None:
        assert class_of(LiveOptions(traffic_class=option), None) == sent


def test_loopback_is_sound(tmp_path: Path) -> None:
    report = tmp_path / "check.json"
    ended = genie("check", "--hosts", loopback(tmp_path), "--json", str(report), limit_s=90)
    assert ended.code == 0, ended
    lines = ended.stdout.splitlines()
    assert lines[0] == "note: congestion control was not tried: all hosts are this machine, which has no switch"
    assert lines[1].startswith("4 hosts, 6 pairs, 3 rounds, ")
    assert lines[1].endswith(" s: nothing found")
    found = json.loads(report.read_bytes())
    assert (found["findings"], found["hosts"]) == ([], 4)
    assert len(found["observed"]["rates"]["pairs"]) == 12


def test_an_address_of_nobody_fails_the_gate(tmp_path: Path) -> None:
    path = tmp_path / "hosts.toml"
    path.write_text(
        '[[host]]\nname = "localhost"\nranks = "0-2"\naddress = ["127.77.0.1", "192.0.2.7", "127.77.0.3"]\n'
    )
    ended = genie("check", "--hosts", str(path), "--quick", limit_s=90)
    assert ended.code == 1, ended
    lines = ended.stdout.splitlines()
    assert lines[0].startswith("address: rank 1 (localhost, 192.0.2.7): its host has no such address: ")
    assert lines[-1].startswith("2 hosts, 1 pair, 1 round, ")
    assert lines[-1].endswith(": 1 finding")


def test_a_schedule_is_printed_and_nothing_is_sent(tmp_path: Path) -> None:
    ended = in_this_process("check", "--schedule", "--hosts", loopback(tmp_path))
    assert ended.code == 0, ended
    assert ended.stdout.splitlines() == [
        "round 1: 0-3 1-2",
        "round 2: 1-3 0-2",
        "round 3: 2-3 0-1",
        "4 hosts, 6 pairs, 3 rounds: nothing is sent",
    ]


def test_a_schedule_of_a_thousand_hosts_is_quick() -> None:
    schedule_lines(1024)
    began = time.process_time()
    lines = schedule_lines(1024)
    assert time.process_time() - began < 1.0
    assert len(lines) == 1024
    assert lines[-1].startswith("1024 hosts, 523776 pairs, 1023 rounds")
