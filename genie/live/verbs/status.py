"""Errors of work requests, in words."""

from __future__ import annotations

from typing import Any

FLUSHED = 5  # ibv_wc_status of work requests in flight when a queue pair failed
RECEIVED = 128  # IBV_WC_RECV: set in the opcode of a receive's completion
# ibv_wc_status in words, for statuses that end a connection.
STATUS = {
    1: "local length error",
    2: "local queue pair operation error",
    4: "local protection error",
    FLUSHED: "flushed",
    9: "the peer takes no such request",
    10: "the peer refuses access to its memory",
    11: "the peer cannot complete the request",
    12: "no acknowledgement after all retries",
    13: "the peer has no receive posted after all retries",
    21: "fatal error of the device",
    22: "the response did not come in time",
}


def gave_up(completion: Any, peer: int, port_name: str) -> str:
    """Return why sending to a rank ended, from a completion with an error."""
    what = STATUS.get(completion.status, "the device gave up")
    return (
        f"gave up sending to rank {peer}: {what} (queue pair 0x{completion.qp_num:06x} of {port_name}, "
        f"status {completion.status}, vendor error 0x{completion.vendor_err:x})"
    )
