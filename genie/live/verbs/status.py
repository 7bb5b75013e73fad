"""How a work request ends, in words."""

from __future__ import annotations

# ibv_wc_status in words, for those that end a connection.
STATUS = {
    1: "local length error",
    2: "local queue pair operation error",
    4: "local protection error",
    5: "flushed",
    9: "the peer takes no such request",
    10: "the peer refuses access to its memory",
    11: "the peer cannot complete the request",
    12: "no acknowledgement after all retries",
    13: "the peer has no receive posted after all retries",
    21: "fatal error of the device",
    22: "the response did not come in time",
}
