"""NCCL's variables are defaults, what is given stands above them; what no NIC can do is refused by name."""

from __future__ import annotations

import re
from typing import Any

import pytest

from genie.config.nccl import NcclVariables, connections_of
from genie.live.settings import DelayFault, Faults, LossFault, RateFault, RunSettings, VerbsSettings
from genie.live.verbs.environment import refuse_unsupported, verbs_settings

pytestmark = pytest.mark.live

ALL = {
    "NCCL_IB_HCA": "=mlx5_1:1",
    "NCCL_IB_GID_INDEX": "3",
    "NCCL_IB_ROCE_VERSION_NUM": "1",
    "NCCL_IB_TC": "106",
    "NCCL_IB_SL": "3",
    "NCCL_IB_TIMEOUT": "22",
    "NCCL_IB_RETRY_CNT": "5",
    "NCCL_IB_QPS_PER_CONNECTION": "4",
    "NCCL_IB_SPLIT_DATA_ON_QPS": "1",
}


def test_without_variables_the_defaults_are_those_of_nccl() -> None:
    assert verbs_settings({}) == VerbsSettings()
    made = verbs_settings({})
    assert (made.gid_index, made.timeout, made.retry_count, made.rnr_retry, made.min_rnr_timer) == (-1, 20, 7, 7, 12)
    assert connections_of(NcclVariables({}, ()), None, None) == (1, False)


def test_every_variable_is_read() -> None:
    made = verbs_settings(ALL)
    assert made == VerbsSettings(
        hca="=mlx5_1:1",
        gid_index=3,
        roce_version=1,
        traffic_class=106,
        service_level=3,
        timeout=22,
        retry_count=5,
    )
    assert connections_of(NcclVariables(ALL, ()), None, None) == (4, True)


def test_what_is_given_stands_above() -> None:
    made = verbs_settings(ALL, hca="rxe0", traffic_class=0, gid_index=None, huge_pages=True)
    assert (made.hca, made.traffic_class, made.gid_index, made.huge_pages) == ("rxe0", 0, 3, True)
    assert connections_of(NcclVariables(ALL, ()), 2, False) == (2, False)


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("NCCL_IB_TC", "256", "0..255"),
        ("NCCL_IB_SL", "-1", "0..15"),
        ("NCCL_IB_TIMEOUT", "32", "0..31"),
        ("NCCL_IB_RETRY_CNT", "many", "0..7"),
        ("NCCL_IB_GID_INDEX", "-2", "-1..65535"),
        ("NCCL_IB_ROCE_VERSION_NUM", "3", "1..2"),
    ],
)
def test_a_variable_that_means_nothing_is_named(name: str, text: str, allowed: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(f'{name}="{text}": must be a number in {allowed}')):
        verbs_settings({name: text})


@pytest.mark.parametrize("count", [0, 129])
def test_too_many_queue_pairs(count: int) -> None:
    with pytest.raises(ValueError, match=r"must be in 1\.\.128"):
        connections_of(NcclVariables({}, ()), count, None)
    with pytest.raises(ValueError, match=r"NCCL_IB_QPS_PER_CONNECTION=.*1\.\.128"):
        connections_of(NcclVariables({"NCCL_IB_QPS_PER_CONNECTION": str(count)}, ()), None, None)


def test_given_values_are_checked_too() -> None:
    with pytest.raises(ValueError, match=r"<= 31 - at `\$\.min_rnr_timer`"):
        verbs_settings({}, min_rnr_timer=32)
    with pytest.raises(ValueError, match="names no device"):
        verbs_settings({}, hca="mlx5_0,")


def settings(**more: Any) -> RunSettings:
    return RunSettings(
        workload="w", out="o", ranks=2, addresses=["10.0.0.1", "10.0.0.2"], ports=[None, None],
        host_names=["a", "b"], **more,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"dilation": 2}, "--dilation 2: a real NIC keeps real time"),
        ({"rate_bps": 10**9}, "a line rate of 1000000000 b/s: --transport verbs"),
        ({"faults": Faults(rate=[RateFault(1, 0.5)])}, r"\[\[rate\]\] for rank 1: --transport verbs has no faults"),
        ({"faults": Faults(loss=[LossFault(1, 100)])}, r"\[\[loss\]\] for rank 1"),
        ({"faults": Faults(delay=[DelayFault(1, 0, 5.0)])}, r"\[\[delay\]\] for rank 1"),
    ],
)
def test_what_only_a_soft_nic_can_do_is_refused_by_name(more: dict[str, Any], says: str) -> None:
    refuse_unsupported(settings(**more))
    for transport in ({"transport": "verbs"}, {"transports": ["softroce", "verbs"]}):
        with pytest.raises(ValueError, match=says):
            refuse_unsupported(settings(**transport, **more))


def test_faults_of_the_soft_ranks_of_a_mixed_job_are_fine() -> None:
    refuse_unsupported(settings(transports=["softroce", "verbs"], faults=Faults(loss=[LossFault(0, 100)])))


def test_the_transports_of_a_job_are_those_of_its_ranks() -> None:
    assert settings().kinds == {"softroce"}
    assert settings(transport="verbs").kinds == {"verbs"}
    assert settings(transports=["softroce", "verbs"]).kinds == {"softroce", "verbs"}
    assert settings(transport="softroce", transports=["verbs", "verbs"]).kinds == {"verbs"}
