"""What a command measures that calibrates by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_runs import loopback

from genie.cli import calibrating
from genie.cli.calibrating import measure
from genie.job.resolve import Play, hosts_of
from genie.live.launch.launcher import LaunchError, Outcome
from genie.live.settings import RunSettings


@pytest.mark.parametrize(
    "job",
    [{"wire": "nccl", "ranks_per_node": 2, "slice_delay": "10us"}, {"channels": 4, "credit": True, "slots": "astra"}],
)
def test_a_packets_cost_is_none_of_the_jobs_messages(
    job: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin that measures are taken off plays one message a hop."""
    seen: list[RunSettings] = []

    def launch(settings: RunSettings, _: list[str]) -> Outcome:
        seen.append(settings)
        return Outcome(3, "not now")

    monkeypatch.setattr(calibrating, "launch", launch)
    play = Play("job", hosts=Path(loopback(tmp_path)), rate="200Mb/s", algorithm=("all_reduce=ring",), **job)  # type: ignore[arg-type]
    with pytest.raises(LaunchError, match="not now"):
        measure(play, hosts_of(play, 4), tmp_path / "calibration", 4791)
    (settings,) = seen
    assert (settings.nccl, settings.channels, settings.credit, settings.slots) == (None, 1, False, None)
    assert settings.algorithms == {"all_gather": "ring"}
    assert settings.rate_bps == 200_000_000
