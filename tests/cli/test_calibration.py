"""The calibration that a command measures by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_runs import in_this_process, loopback

from genie.config.hosts import Calibration
from genie.job import calibration
from genie.job.calibration import measure
from genie.job.job import hosts_of, uncertainty
from genie.job.options import LiveOptions, TrafficOptions
from genie.live.launch.launcher import LaunchError, Outcome
from genie.live.settings import RunSettings

pytestmark = pytest.mark.live


@pytest.mark.parametrize(
    "job",
    [{"wire": "nccl", "ranks_per_node": 2, "slice_delay": "10us"}, {"channels": 4, "credit": True, "slots": "astra"}],
)
def test_a_packets_cost_is_none_of_the_jobs_messages(
    job: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin of a calibration plays one message per hop."""
    seen: list[RunSettings] = []

    def launch(settings: RunSettings, _: list[str]) -> Outcome:
        seen.append(settings)
        return Outcome(3, "not now")

    monkeypatch.setattr(calibration, "launch", launch)
    hosts, ring = Path(loopback(tmp_path)), ("all_reduce=ring",)
    traffic = TrafficOptions("job", hosts=hosts, rate="200Mb/s", algorithm=ring, **job)  # type: ignore[arg-type]
    with pytest.raises(LaunchError, match="not now"):
        measure(traffic, LiveOptions(), hosts_of(traffic, 4), tmp_path / "calibration")
    (settings,) = seen
    assert (settings.nccl, settings.channels, settings.credit, settings.slots) == (None, 1, False, None)
    assert settings.algorithms == {"all_gather": "ring"}
    assert settings.rate_bps == 200_000_000


@pytest.mark.parametrize(
    ("latency_ns", "spread_ns", "is_uncertain"),
    [(0, 501, True), (0, 500, False), (2000, 1001, True), (2000, 1000, False)],
)
def test_an_uncertain_latency_is_told_with_the_result(
    latency_ns: int, spread_ns: int, is_uncertain: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Calibration(packet_latency_ns=latency_ns, packet_latency_spread_ns=spread_ns, samples=9, rate="200Mb/s")
    monkeypatch.setattr(calibration, "measured_on", lambda *_: found)
    hosts = loopback(tmp_path)
    ended = in_this_process("calibrate", "--hosts", hosts, "-o", str(tmp_path / "out"))
    assert ended.code == 0, ended.stderr
    assert (uncertainty(found) in ended.stdout.splitlines()) == is_uncertain
    assert bool(uncertainty(found)) == is_uncertain
    assert ended.stdout.splitlines()[-1] == f"stored in {hosts}"
