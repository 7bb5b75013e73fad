"""`--verbs KEY=VALUE`: the settings of RDMA devices, before NCCL's variables; an error is one line, exit code 2."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from live_runs import genie, loopback, rings

from genie.config.hosts import load_hosts
from genie.errors import UsageError
from genie.job.job import resolve
from genie.job.live_settings import live_settings
from genie.job.options import LiveOptions, TrafficOptions
from genie.live.settings import RunSettings, VerbsSettings
from genie.live.verbs.environment import KEYS
from genie.live.verbs.hca import parse_hca
from genie.live.verbs.ports import list_ports

pytestmark = pytest.mark.live

ROOT = Path(__file__).resolve().parent.parent.parent

EVERY = {
    "hca": "=mlx5_1:1", "gid_index": 3, "roce_version": 1, "service_level": 2, "timeout": 14, "retry_count": 5,
    "rnr_retry": 6, "min_rnr_timer": 13, "huge_pages": "on", "numa_bind": "on", "completion": "channel",
    "signal_every": 4, "send_depth": 64, "receive_depth": 32,
}  # fmt: skip
WRONG = {
    "hugepages=on": "--verbs hugepages=on: must be KEY=VALUE, with one of the keys hca, gid_index, roce_version",
    "timeout": "--verbs timeout: must be KEY=VALUE",
    "timeout=32": "--verbs timeout=32: timeout must be a number in 0..31",
    "timeout=": "--verbs timeout=: timeout must be a number in 0..31",
    "retry_count=many": "retry_count must be a number in 0..7",
    "rnr_retry=8": "rnr_retry must be a number in 0..7",
    "min_rnr_timer=-1": "min_rnr_timer must be a number in 0..31",
    "gid_index=65536": "gid_index must be a number in -1..65535",
    "roce_version=3": "roce_version must be a number in 1..2",
    "service_level=16": "service_level must be a number in 0..15",
    "signal_every=0": "signal_every must be a number in 1..65535",
    "send_depth=0": "send_depth must be a number in 1..65535",
    "receive_depth=1e3": "receive_depth must be a number in 1..65535",
    "huge_pages=yes": "huge_pages must be on or off",
    "numa_bind=1": "numa_bind must be on or off",
    "completion=sleep": "completion must be auto, poll or channel",
    "hca=mlx5_0,": '--verbs hca="mlx5_0,": "" names no device',
    "traffic_class=104": "--verbs traffic_class=104: give --traffic-class instead",
    "timeout=14 timeout=15": "--verbs timeout=15: timeout is given twice",
}


def settings(folder: Path, *verbs: str, transport: str = "verbs", traffic_class: int | None = None) -> RunSettings:
    traffic = TrafficOptions(rings(folder / "trace", 2))
    live = LiveOptions(transport=transport, verbs=verbs, traffic_class=traffic_class)
    return live_settings(resolve(traffic, live), folder / "out")


@pytest.fixture
def no_variables(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in [name for name in os.environ if name.startswith("NCCL_")]:
        monkeypatch.delenv(name)
    return monkeypatch


def test_every_setting_can_be_given(no_variables: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert set(EVERY) == set(KEYS) == set(VerbsSettings.__struct_fields__) - {"traffic_class"}
    given = settings(tmp_path, *(f"{key}={value}" for key, value in EVERY.items()), traffic_class=104).verbs
    expected = {**EVERY, "huge_pages": True, "numa_bind": True, "traffic_class": 104}
    assert given == VerbsSettings(**expected)  # type: ignore[arg-type]
    assert settings(tmp_path, "huge_pages=off").verbs == VerbsSettings()


def test_options_stand_above_variables(no_variables: pytest.MonkeyPatch, tmp_path: Path) -> None:
    no_variables.setenv("NCCL_IB_TIMEOUT", "22")
    no_variables.setenv("NCCL_IB_HCA", "mlx5_0")
    no_variables.setenv("NCCL_IB_RETRY_CNT", "3")
    given = settings(tmp_path, "timeout=14", "hca=rxe0").verbs
    assert (given.timeout, given.hca, given.retry_count) == (14, "rxe0", 3)


@pytest.mark.parametrize("given", WRONG)
def test_what_is_wrong_is_named(given: str) -> None:
    with pytest.raises(UsageError) as refused:
        LiveOptions(transport="verbs", verbs=tuple(given.split(" ")))
    assert WRONG[given] in str(refused.value)
    assert "\n" not in str(refused.value)


def test_without_a_verbs_rank_they_would_do_nothing(no_variables: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--verbs timeout=14: no rank of this run is on verbs"):
        settings(tmp_path, "timeout=14", transport="softroce")


@pytest.mark.parametrize("command", ["run", "validate"])
def test_the_commands_take_them(command: str, tmp_path: Path) -> None:
    trace, out = rings(tmp_path / "trace", 2), tmp_path / "out"
    wrong = genie(command, trace, "--transport", "verbs", "--verbs", "timeout=99", "-o", str(out))
    assert (wrong.code, wrong.stdout, out.exists()) == (2, "", False)
    assert wrong.stderr == "genie: --verbs timeout=99: timeout must be a number in 0..31\n"


def test_a_run_records_them(no_variables: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The launch file is also written on a machine without RDMA devices."""
    trace, out = rings(tmp_path / "trace", 2), tmp_path / "out"
    genie("run", trace, "--transport", "verbs", "--verbs", "timeout=14", "--verbs", "huge_pages=on", "-o", str(out))
    launched = json.loads((out / "launch.json").read_text())
    assert (launched["verbs"]["timeout"], launched["verbs"]["huge_pages"]) == (14, True)


@pytest.mark.parametrize("test", ["pingpong", "write"])
def test_a_bench_without_a_device_says_what_is_missing(test: str, tmp_path: Path) -> None:
    if list_ports():
        pytest.skip("this machine has an RDMA device")
    hosts = tmp_path / "hosts.toml"
    hosts.write_text(Path(loopback(tmp_path, ranks=2)).read_text() + 'transport = "verbs"\n')
    ended = genie("bench", test, "--hosts", str(hosts))
    assert ended.code == 3
    (line,) = ended.said
    assert line.startswith(f"genie: bench {test}: rank ")
    assert "verbs cannot be used here: no RDMA device" in line
    assert "--transport softroce works without" in line


def test_a_bench_between_two_transports_is_refused(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.toml"
    table = '[[host]]\nname = "localhost"\nranks = {rank}\naddress = "127.9.8.{rank}"\ntransport = "{transport}"\n'
    hosts.write_text(
        table.format(rank=0, transport="verbs").replace("8.0", "8.3") + table.format(rank=1, transport="softroce")
    )
    ended = genie("bench", "write", "--hosts", str(hosts))
    assert (ended.code, ended.stdout) == (2, "")
    assert "one end is on softroce and one on verbs: a bench needs one transport" in ended.stderr


def test_the_hosts_file_of_the_documents_can_be_read(tmp_path: Path) -> None:
    section = (ROOT / "docs" / "on-the-wire.md").read_text().split("## RDMA devices")[1]
    path = tmp_path / "hosts.toml"
    path.write_text(section.split("```toml\n")[1].split("```")[0])
    hosts = load_hosts(path)
    assert hosts.ranks == 9
    assert [place.transport for place in hosts.places] == [None] * 8 + ["softroce"]
    assert all(parse_hca(place.device or "").exact for place in hosts.places[:8])
