"""A run on verbs where it cannot be: one line for all ranks, with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_runs import genie, loopback, rings

pytestmark = pytest.mark.live


@pytest.mark.skipif(any(Path("/sys/class/infiniband").glob("*")), reason="this machine has RDMA devices")
@pytest.mark.parametrize("mixed", [False, True])
def test_a_machine_without_rdma(mixed: bool, tmp_path: Path) -> None:
    hosts = Path(loopback(tmp_path, 2))
    if mixed:
        text = hosts.read_text().replace('ranks = "0-1"', "ranks = 0")
        far = text.replace("ranks = 0", 'ranks = 1\ntransport = "verbs"').replace("localhost", "127.0.0.1")
        hosts.write_text(text + far)
    given = () if mixed else ("--transport", "verbs")
    ended = genie("run", rings(tmp_path / "rings", 2), "--hosts", str(hosts), *given, "-o", str(tmp_path / "out"))
    assert (ended.code, ended.left) == (3, []), ended
    (line,) = ended.said
    assert f"rank {1 if mixed else 0}: verbs cannot be used here: no RDMA device" in line
    assert line.endswith("--transport softroce works without")


def test_a_wrong_variable_of_nccl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_IB_TC", "400")
    trace = rings(tmp_path / "rings", 2)
    ended = genie("run", trace, "--transport", "verbs", "-o", str(tmp_path / "out"))
    assert (ended.code, ended.said) == (2, [ended.said[0]])
    assert 'NCCL_IB_TC="400": must be a number in 0..255' in ended.said[0]


def test_a_wrong_device_of_a_hosts_file(tmp_path: Path) -> None:
    hosts = Path(loopback(tmp_path, 2))
    hosts.write_text(hosts.read_text() + 'transport = "verbs"\ndevice = "mlx5_0:x"\n')
    ended = genie("run", rings(tmp_path / "rings", 2), "--hosts", str(hosts), "-o", str(tmp_path / "out"))
    assert (ended.code, len(ended.said)) == (2, 1)
    assert 'hosts.toml: device="mlx5_0:x": "mlx5_0:x": port = "x": must be a number in 1..255' in ended.said[0]
