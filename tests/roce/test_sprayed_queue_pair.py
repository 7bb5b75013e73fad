"""Sprayed queue pairs: whatever order the packets come in, each byte is placed once, and nothing is sent again."""

from __future__ import annotations

import genie_core
import pytest
from connection_draws import MTU, SIZES, drawn, first_psns
from hypothesis import given
from hypothesis import strategies as st
from network import LOST, End, Fate, Message, Network, config

from genie.config.spraying import set_spray

WRITES = st.lists(st.tuples(st.sampled_from(["write", "write_imm"]), st.sampled_from(SIZES)), max_size=10)
LATE = st.integers(0, 200_000)  # ps: as long as two hundred packets take to leave
OUT_OF_ORDER: st.SearchStrategy[list[Fate]] = st.lists(st.tuples(LATE), max_size=150)
UNRELIABLE: st.SearchStrategy[list[Fate]] = st.lists(
    st.one_of(st.tuples(LATE), st.just(LOST), st.tuples(LATE, st.integers(0, 3_000_000))), max_size=150
)
SPRAYED_FIRST, SPRAYED_ONLY_IMM, ACKNOWLEDGE = 0xC6, 0xCB, 0x11
PATIENT_PS = 10**9  # longer than any packet is late


def sprayed(spray: int, window: int = 32, reordering: int | None = None, **fields: int) -> genie_core.QueuePairConfig:
    out = config(window_packets=window, **fields)
    set_spray(out, spray, reordering)
    return out


class SprayedNetwork(Network):
    """Payload goes where its packet says, at any time; a byte that is placed twice fails."""

    def __init__(
        self, settings: genie_core.QueuePairConfig, psns: tuple[int, int] = (0, 0), *, paths_keep_order: bool = True
    ) -> None:
        super().__init__(settings, psns)
        self.placed: list[set[int]] = [set(), set()]  # addresses, by end
        self._keep_order = paths_keep_order
        self._latest_ps: dict[tuple[int, int], int] = {}  # arrivals, by end and source port

    def _arrivals(self, owner: int, number: int, packet: genie_core.Packet) -> list[int]:
        times = super()._arrivals(owner, number, packet)
        if not self._keep_order:
            return times
        path = owner, packet.port
        times = [max(time, self._latest_ps.get(path, 0)) for time in times]
        self._latest_ps[path] = max([self._latest_ps.get(path, 0), *times])
        return times

    def _place(self, owner: int, packet: genie_core.Packet, address: int, size_bytes: int, psn: int) -> None:
        assert (address, size_bytes, psn) == (packet.remote_address, packet.payload_bytes, packet.psn)
        source = self.ends[1 - owner].memory
        self.ends[owner].memory[address : address + size_bytes] = source[packet.local_address :][:size_bytes]
        bytes_placed = set(range(address, address + size_bytes))
        assert not bytes_placed & self.placed[owner], "a byte was placed twice"
        self.placed[owner] |= bytes_placed

    def _delivered(self, end: End, size_bytes: int, immediate: int | None, is_send: bool, first_ps: int) -> None:
        owner = self.ends.index(end)
        message = self.ends[1 - owner].messages[len(end.arrived)]
        assert not is_send
        assert message.address is not None
        assert 0 <= first_ps <= self.now_ps
        assert set(range(message.address, message.address + size_bytes)) <= self.placed[owner], "not all has come"
        data = bytes(end.memory[message.address : message.address + size_bytes])
        end.arrived.append(Message("write" if immediate is None else "write_imm", data, immediate, message.address))


def played(
    settings: genie_core.QueuePairConfig,
    posted: tuple[list[tuple[str, int]], list[tuple[str, int]]],
    fates: tuple[list[Fate], list[Fate]],
    psns: tuple[int, int],
    *,
    paths_keep_order: bool = True,
) -> SprayedNetwork:
    """Both ends send each other messages; all have arrived whole, in order, and are over."""
    network = SprayedNetwork(settings, psns, paths_keep_order=paths_keep_order)
    network.paths[0].fates, network.paths[1].fates = fates
    for source in (0, 1):
        for number, (verb, size) in enumerate(posted[source]):
            network.post(source, verb, bytes((source + number + byte) % 251 for byte in range(size)), number + 1)
    network.run()
    for end, peer in (network.ends, network.ends[::-1]):
        assert peer.arrived == end.messages
        assert end.over == [(number, "ok") for number in range(len(end.messages))]
        assert end.pair.state == "idle"
        assert end.most_in_flight <= end.window
    return network


@given(WRITES, WRITES, OUT_OF_ORDER, OUT_OF_ORDER, st.tuples(first_psns, first_psns), st.integers(2, 8),
       st.integers(2, 40))  # fmt: skip
@drawn
def test_in_any_order_each_byte_is_placed_once_and_nothing_is_sent_again(
    from_0: list[tuple[str, int]],
    from_1: list[tuple[str, int]],
    fates_0: list[Fate],
    fates_1: list[Fate],
    psns: tuple[int, int],
    spray: int,
    window: int,
) -> None:
    settings = sprayed(spray, window, ack_timeout_ps=PATIENT_PS)
    network = played(settings, (from_0, from_1), (fates_0, fates_1), psns)
    for end in network.ends:
        counted = end.pair.counters()
        assert [counted[name] for name in ("retransmitted", "naks_sent", "timeouts", "duplicates", "refused")] == [
            0
        ] * 5
        data = [packet for packet in end.sent if packet.opcode != ACKNOWLEDGE]
        assert [packet.port for packet in data] == [packet.psn % spray for packet in data]


@given(WRITES, WRITES, UNRELIABLE, UNRELIABLE, st.tuples(first_psns, first_psns), st.integers(2, 8),
       st.integers(2, 40), st.integers(1, 39), st.booleans())  # fmt: skip
@drawn
def test_with_losses_and_copies_each_byte_is_placed_once(
    from_0: list[tuple[str, int]],
    from_1: list[tuple[str, int]],
    fates_0: list[Fate],
    fates_1: list[Fate],
    psns: tuple[int, int],
    spray: int,
    window: int,
    reordering: int,
    paths_keep_order: bool,
) -> None:
    settings = sprayed(spray, window, min(reordering, window - 1), retry_limit=1_000_000)
    played(settings, (from_0, from_1), (fates_0, fates_1), psns, paths_keep_order=paths_keep_order)


def test_each_packet_says_where_it_belongs() -> None:
    pair = genie_core.QueuePair(sprayed(4))
    pair.post("write_imm", 3 * MTU + 1, immediate=9, remote_address=5000, rkey=7)
    taken = [pair.take_data(0) for _ in range(4)]
    packets = [packet for packet in taken if packet is not None]
    assert [packet.opcode for packet in packets] == [0xC6, 0xC7, 0xC7, 0xC9]
    assert [packet.remote_address for packet in packets] == [5000, 5000 + MTU, 5000 + 2 * MTU, 5000 + 3 * MTU]
    assert [packet.message_bytes for packet in packets] == [3 * MTU + 1, 2 * MTU + 1, MTU + 1, 1]  # that are left
    assert {packet.rkey for packet in packets} == {7}
    assert [packet.port for packet in packets] == [0, 1, 2, 3]


def test_one_source_port_keeps_the_standards_packets() -> None:
    pair = genie_core.QueuePair(sprayed(1))
    pair.post("write_imm", 2 * MTU)
    assert [packet.opcode for packet in (pair.take_data(0), pair.take_data(0)) if packet is not None] == [0x06, 0x09]


def early(remote_address: int = MTU, rkey: int = 7, psn: int = 1, opcode: int = 0xC7) -> genie_core.Packet:
    return genie_core.Packet(
        opcode=opcode, psn=psn, payload_bytes=MTU, rkey=rkey, message_bytes=2 * MTU, remote_address=remote_address
    )


@pytest.mark.parametrize("packet", [early(rkey=8), early(remote_address=10 * MTU), early(opcode=0x07)])
def test_an_early_packet_that_may_not_write_is_dropped(packet: genie_core.Packet) -> None:
    """A wrong key, a wrong place, or no place at all: it is not what its gap makes wait."""
    receiver = genie_core.QueuePair(sprayed(2))
    receiver.set_memory(7, 0, 4 * MTU)
    receiver.receive(packet, 0)
    assert [kind for kind, *_ in receiver.effects()] == []
    assert receiver.counters()["out_of_sequence"] == 1


def test_a_packet_that_was_placed_elsewhere_than_its_message_ends_the_connection() -> None:
    receiver = genie_core.QueuePair(sprayed(2))
    receiver.set_memory(7, 0, 8 * MTU)
    receiver.receive(early(remote_address=2 * MTU), 0)
    first = genie_core.Packet(opcode=SPRAYED_FIRST, psn=0, payload_bytes=MTU, rkey=7, message_bytes=3 * MTU)
    receiver.receive(first, 0)
    assert receiver.counters()["refused"] == 1


def test_a_queue_pair_of_one_port_refuses_sprayed_packets() -> None:
    receiver = genie_core.QueuePair(config())
    receiver.receive(genie_core.Packet(opcode=SPRAYED_ONLY_IMM, psn=0, payload_bytes=4, message_bytes=4), 0)
    assert receiver.counters()["refused"] == 1


def test_no_more_than_a_window_is_kept() -> None:
    """A packet beyond the peer's window is not the peer's, and takes no place."""
    settings = sprayed(4, window=8)
    settings.peer_window_packets = 8
    receiver = genie_core.QueuePair(settings)
    receiver.set_memory(7, 0, 1 << 20)
    for psn in range(1, 40):
        receiver.receive(early(psn=psn, remote_address=psn * MTU), 0)
    assert len([kind for kind, *_ in receiver.effects() if kind == "place"]) == 7
    assert receiver.counters()["forged_requests"] == 32


@pytest.mark.parametrize("lost", [{1}, {1, 2, 3}, {1, 5}, {3, 9, 10}])
def test_the_next_packet_of_the_same_port_tells_of_a_loss_and_only_that_is_sent_again(lost: set[int]) -> None:
    network = SprayedNetwork(sprayed(4, window=24, ack_timeout_ps=PATIENT_PS))
    # Port 2 is slow: what it carries is late, and not lost.
    network.paths[0].fates = [LOST if number in lost else (20_000 * (number % 4 == 2),) for number in range(40)]
    network.post(0, "write_imm", bytes(40 * MTU))
    network.run()
    counted = network.ends[0].pair.counters()
    assert (counted["retransmitted"], counted["timeouts"]) == (len(lost), 0)
    for psn in lost:
        first, again = (packet for packet in network.ends[0].sent if packet.psn == psn)
        assert first.port != again.port  # it takes another path


def test_after_a_timeout_packets_take_other_ports() -> None:
    network = SprayedNetwork(sprayed(4, window=24))
    network.paths[0].fates = [LOST]
    network.post(0, "write_imm", bytes(MTU))
    network.run()
    assert [packet.port for packet in network.ends[0].sent] == [0, 1]
