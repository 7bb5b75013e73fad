"""Sentences for counters that grew and should not have, and the table that they come from."""

from __future__ import annotations

from typing import Any

import genie_core
import pytest

from genie.live.counters.devices import INTERFACE, RDMA
from genie.live.counters.warnings import SOFTROCE, meaning_of, meanings, warnings_of

pytestmark = pytest.mark.live


def device(name: str, driver: str = "mlx5", kind: str = RDMA, host: str = "host3", **counters: int) -> dict[str, Any]:
    return {"host": host, "device": name, "kind": kind, "driver": driver, "ranks": [0], "counters": counters}


def texts(*devices: dict[str, Any], ranks: list[dict[str, int] | None] | None = None) -> list[str]:
    hosts = [f"host{rank}" for rank in range(len(ranks or []))]
    return [warning["text"] for warning in warnings_of(ranks or [], hosts, devices)]


def test_a_sentence_says_where_what_by_how_much_and_what_to_do() -> None:
    (text,) = texts(device("mlx5_0:1", out_of_buffer=12, rx_write_requests=99, np_cnp_sent=5))
    assert text.startswith("host3 mlx5_0 port 1: out_of_buffer grew by 12 (receiver not ready: ")
    assert "): raise --verbs receive_depth" in text


def test_the_worst_comes_first() -> None:
    found = warnings_of([], [], [device("mlx5_0:1", duplicate_request=900, packet_seq_err=3, link_downed=1)])
    assert [warning["counter"] for warning in found] == ["link_downed", "packet_seq_err", "duplicate_request"]
    assert [warning["severity"] for warning in found] == [3, 2, 1]


def test_the_same_counter_of_several_devices_is_one_sentence() -> None:
    (warning,) = warnings_of([], [], [device(f"mlx5_{n}:1", host=f"h{n}", out_of_sequence=n) for n in range(1, 9)])
    assert warning["text"].startswith("h8 mlx5_8 port 1 and 7 others: out_of_sequence grew by 8, by 36 in all (")
    assert (warning["host"], warning["device"], warning["grew"], warning["devices"]) == ("h8", "mlx5_8:1", 8, 8)


def test_what_nothing_is_known_of_is_not_judged() -> None:
    assert texts(device("mlx5_0:1", a_counter_of_tomorrow=7), device("x0:1", driver="x", out_of_buffer=7)) == []
    # Port counters are the same for every driver.
    assert len(texts(device("x0:1", driver="x", link_downed=1))) == 1


def test_a_few_drops_among_many_packets_are_usual() -> None:
    few = device("eth0", "virtio_net", INTERFACE, rx_dropped=3, rx_packets=1_000_000)
    many = device("eth0", "virtio_net", INTERFACE, rx_dropped=300, rx_packets=1_000_000)
    assert texts(few) == []
    assert texts(many)[0].startswith("host3 eth0: rx_dropped grew by 300 (")


def test_priorities_are_known_by_pattern() -> None:
    found = texts(
        device("eth2", "mlx5_core", INTERFACE, rx_prio3_discards=4, rx_prio3_bytes=9, rx_prio3_pause=8, rx0_drops=1)
    )
    assert len(found) == 1
    assert "rx_prio3_discards grew by 4 (packets of a priority dropped for lack of buffers): enable PFC" in found[0]


def test_softroce_ranks_and_injected_losses() -> None:
    ranks: list[dict[str, int] | None] = [{"retransmitted": 0, "bad_icrc": 1}, {"retransmitted": 7, "data_sent": 9}]
    found = texts(ranks=ranks)
    assert found[0].startswith("host0 rank 0: bad_icrc grew by 1 (")
    assert found[1].startswith("host1 rank 1: retransmitted grew by 7 (")
    # A fault plan's own doing is no news; a wrong check sum is.
    found = texts(ranks=[*ranks, None, {"injected_losses": 7}])
    assert [text.split(" grew")[0] for text in found] == ["host0 rank 0: bad_icrc"]


def test_in_a_sprayed_run_packets_that_overtake_are_no_news() -> None:
    ranks = [{"out_of_sequence": 9, "retransmitted": 0}, {"out_of_sequence": 4, "retransmitted": 1}]
    found = warnings_of(ranks, ["host0", "host1"], [], sprayed=True)
    assert [warning["counter"] for warning in found] == ["retransmitted"]


def test_softroce_counters_that_are_meant_are_there() -> None:
    config = genie_core.EngineConfig()
    config.nic.address = "127.0.0.1"
    counted = set(genie_core.Engine(config).counters())
    judged = {name for name, meaning in meanings()[SOFTROCE].items() if "*" not in name and meaning}
    assert judged <= counted


@pytest.mark.parametrize("driver", sorted(meanings()))
def test_the_table_is_whole(driver: str) -> None:
    table = meanings()[driver]
    for counter, meaning in table.items():
        assert meaning.grows in ("yes", "may", "no"), counter
        assert meaning.meaning, counter
        assert (meaning.grows == "no") == (meaning.severity in (1, 2, 3)) == bool(meaning.do), counter
        assert not meaning.do.endswith("."), counter
        assert bool(meaning.share_of) == (meaning.share_min > 0), counter


@pytest.mark.parametrize(
    ("kind", "driver", "counter", "grows"),
    [
        (RDMA, "mlx5", "rp_cnp_handled", "may"),
        (RDMA, "mlx5", "rp_cnp_ignored", "no"),
        (RDMA, "mlx5", "local_ack_timeout_err", "no"),
        (RDMA, "rxe", "out_of_seq_request", "no"),
        (RDMA, "rxe", "sent_pkts", "yes"),
        (RDMA, "bnxt_re", "seq_err_naks_rcvd", "no"),
        (RDMA, "irdma", "Nak Sequence Error", "no"),
        (RDMA, "efa", "unresponsive_remote_events", "no"),
        (RDMA, "", "port_xmit_data", "yes"),
        (INTERFACE, "", "tx_dropped", "no"),
        (INTERFACE, "mlx5_core", "tx_prio0_packets", "yes"),
        (INTERFACE, "mlx5_core", "tx_pause_storm_error_events", "no"),
        (INTERFACE, "ice", "tx_priority_3_xoff.nic", "no"),
        (INTERFACE, "i40e", "port.rx_crc_errors", "no"),
        (INTERFACE, "bnxt_en", "rx_bytes_pri3", "yes"),
    ],
)
def test_known_counters(kind: str, driver: str, counter: str, grows: str) -> None:
    meaning = meaning_of(kind, driver, counter)
    assert meaning is not None
    assert meaning.grows == grows


def test_refused_packets_name_their_senders_those_of_most_first() -> None:
    ranks: list[dict[str, int] | None] = [{"forged_cnps": 9, "strangers": 2}, {"forged_cnps": 1}]
    senders = [
        [("forged_cnps", "10.0.0.2", 50001, 9), ("strangers", "10.0.0.9", 7, 2)],
        [("forged_cnps", "10.0.0.1", 50002, 1)],
    ]
    found = warnings_of(ranks, ["a", "b"], [], senders, ["10.0.0.1", "10.0.0.2"])
    told = {warning["counter"]: warning["text"] for warning in found}
    assert "forged_cnps grew by 9, by 10 in all (" in told["forged_cnps"]
    named = ": 9 from 10.0.0.2 port 50001, the address of rank 1; 1 from 10.0.0.1 port 50002, the address of rank 0): "
    assert named in told["forged_cnps"]
    assert ": 2 from 10.0.0.9 port 7): " in told["strangers"]


def test_a_flood_of_senders_is_one_sentence() -> None:
    many = [[("strangers", f"10.0.{number}.1", 7, 1) for number in range(32)]]
    (warning,) = warnings_of([{"strangers": 32}], ["a"], [], many)
    assert warning["text"].count(" from 10.0.") == 3
    assert ", and 29 more): " in warning["text"]
