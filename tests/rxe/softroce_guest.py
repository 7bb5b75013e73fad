"""`guest_peer.py` with what tests against softroce need more of; started in a guest as `python3 /share/THIS`.

`do` is also one of
    place       address: the GID with it is used from now on
    stash       the queue pair stays as it is, and `pair` makes one beside it
    use         number (of stashed queue pairs, from 0): what follows is for that one
    forget      all stashed queue pairs end
    atomic      id=0, remote_address, rkey: a compare and swap of 8 bytes
    arm         solicited: ask for an event, at the next completion or only at one that the sender wanted noticed
    event       wait_s → fired: whether there was one
"""

from __future__ import annotations

import select
import sys
from typing import Any

sys.path.append("/run/genie")

import guest_peer  # type: ignore[import-not-found]
import pyverbs.enums as e
from pyverbs.wr import SendWR

Answer = dict[str, Any]


class Peer(guest_peer.Peer):  # type: ignore[misc]
    def open(self, **words: Any) -> Answer:
        self.stashed: list[Any] = []
        answer: Answer = super().open(**words)
        return answer

    def place(self, address: str) -> Answer:
        self.gid = guest_peer.gid_of(address)
        self.gid_index = self._find_gid()
        return {"gid": self.gid}

    def stash(self) -> Answer:
        self.stashed.append(self._queue())
        self.queue = None
        return {}

    def use(self, number: int) -> Answer:
        self.queue = self.stashed[number]
        return {}

    def forget(self) -> Answer:
        for queue in self.stashed:
            queue.close()
        self.stashed.clear()
        self.queue = None
        return {}

    def atomic(self, remote_address: int, rkey: int, id: int = 0) -> Answer:
        how = {"opcode": e.IBV_WR_ATOMIC_CMP_AND_SWP, "send_flags": e.IBV_SEND_SIGNALED}
        request = SendWR(wr_id=id, **how, **self._piece(0, 8))
        request.set_wr_atomic(rkey, remote_address, 0, ~0 & 0xFFFFFFFFFFFFFFFF)
        self._queue().post_send(request)
        return {}

    def arm(self, solicited: bool) -> Answer:
        self.completions.req_notify(solicited)
        return {}

    def event(self, wait_s: float) -> Answer:
        waiting = select.poll()
        waiting.register(self.channel_descriptor, select.POLLIN)
        fired = bool(waiting.poll(wait_s * 1000))
        if fired:
            self.channel.get_cq_event(self.completions)
            self.completions.ack_events(1)
        return {"fired": fired}


if __name__ == "__main__":
    guest_peer.COMMANDS |= {"place", "stash", "use", "forget", "atomic", "arm", "event"}
    guest_peer.Peer = Peer
    raise SystemExit(guest_peer.main())
