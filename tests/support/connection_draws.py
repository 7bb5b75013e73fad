"""Drawn inputs of the tests of the reliable connection: messages, fates of packets, first PSNs."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from network import LOST, ON_TIME, PSN_COUNT, Fate

MTU = 256
VERBS = ("send", "send_imm", "write", "write_imm")
SIZES = (0, 1, MTU - 1, MTU, MTU + 1, 2 * MTU - 1, 2 * MTU, 2 * MTU + 1, 3 * MTU, 7 * MTU - 3, 16 * MTU, 20 * MTU + 7)

messages = st.lists(st.tuples(st.sampled_from(VERBS), st.sampled_from(SIZES)), max_size=12)
fates: st.SearchStrategy[list[Fate]] = st.lists(
    st.one_of(
        st.just(ON_TIME),
        st.just(LOST),
        st.tuples(st.integers(0, 40_000)),  # late: others overtake it
        st.tuples(st.just(0), st.integers(0, 3_000_000)),  # twice, the copy perhaps long after
    ),
    max_size=80,
)
first_psns = st.one_of(
    st.just(0),
    st.integers(PSN_COUNT - 40, PSN_COUNT - 1),
    st.integers(PSN_COUNT // 2 - 40, PSN_COUNT // 2 + 5),
    st.integers(0, PSN_COUNT - 1),
)
drawn = settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
