"""The transition table is what it was: a change of the state machine shows as a change of transitions.txt.

Regenerate with GENIE_UPDATE_SNAPSHOTS=1 pytest tests/roce/test_transitions.py, and review the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

from transition_table import REQUESTER_EVENTS, REQUESTER_STATES, RESPONDER_EVENTS, RESPONDER_STATES, transition_table

SNAPSHOT = Path(__file__).parent / "transitions.txt"


def test_the_table_is_the_reviewed_one() -> None:
    table = transition_table()
    if os.environ.get("GENIE_UPDATE_SNAPSHOTS") == "1":
        SNAPSHOT.write_text(table)
    assert table == SNAPSHOT.read_text()


def test_every_state_meets_every_event() -> None:
    rows = [line for line in transition_table().splitlines() if line[-1:].isdigit() and "." in line.split()[-1]]
    assert len(rows) == len(REQUESTER_STATES) * len(REQUESTER_EVENTS) + len(RESPONDER_STATES) * len(RESPONDER_EVENTS)
