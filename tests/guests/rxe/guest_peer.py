"""One end of a reliable connection through libibverbs, told what to do line by line.

Started in a guest as `python3 /run/genie/guest_peer.py`, or on any machine with an RDMA device and pyverbs. One JSON
object a line in, one out: {"ok": true, ...} or {"ok": false, "error": "..."}. `do` is one of
    open        device="rxe0", address (its own, IPv4 or IPv6: the GID with it is used), memory_bytes, send_queue=64,
                receive_queue=512 → gid, gid_index, mtu_bytes (of the port), memory_address, rkey, qpn, psn
    pair        a new queue pair in place of the one there is → qpn, psn; psn= to choose the first one sent
    connect     qpn, psn, gid (of the other end), mtu_bytes=0 (the port's), timeout=18, retry_count=7, rnr_retry=7,
                rnr_timer=12, traffic_class=0, flow_label=0, hop_limit=64, reads=1 (outstanding)
    fill        seed, size_bytes, offset=0, start=0: memory becomes the seed's pattern from byte `start` of it
    clear       size_bytes, offset=0
    verify      as fill → same, first_wrong (offset, or null)
    checksum    size_bytes, offset=0 → crc32
    receive     size_bytes, offset=0, id=0, count=1: `count` receives, each `size_bytes` after the one before
    post        verb (send, send_imm, write, write_imm, read), size_bytes, offset=0, id=0, remote_address=0, rkey=0,
                immediate=0, signaled=true, solicited=false, fence=false
    poll        count=1, wait_s=10 → completions (id, status, opcode, size_bytes, immediate, vendor); fewer: time is up
    status      → state, send_psn, receive_psn
    leave
Numbers are as libibverbs has them; the immediate is in host order. Waiting sleeps on the completion channel: polling
would take the core from the guest's own network stack.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import random
import select
import socket
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyverbs.enums as e
from guest_pattern import pattern  # type: ignore[import-not-found]  # beside this file, not in a package
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ, CompChannel
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

PORT = 1
ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
VERBS = {
    "send": e.IBV_WR_SEND,
    "send_imm": e.IBV_WR_SEND_WITH_IMM,
    "write": e.IBV_WR_RDMA_WRITE,
    "write_imm": e.IBV_WR_RDMA_WRITE_WITH_IMM,
    "read": e.IBV_WR_RDMA_READ,
}
Answer = dict[str, Any]


# As in guest.py, which a guest does not have: there is nothing of the rig there but files like this one.
def gid_of(address: str) -> str:
    """An IPv4 or IPv6 address as a GID in full: pyverbs takes no `::`."""
    if "." in address:
        packed = b"\0" * 10 + b"\xff\xff" + socket.inet_aton(address)
    else:
        packed = socket.inet_pton(socket.AF_INET6, address)
    return packed.hex(":", 2)


def event_descriptors() -> set[int]:
    """Descriptors of this process from which events of libibverbs are read."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one with which the folder was read
            if "infinibandevent" in os.readlink(f"/proc/self/fd/{name}"):
                found.add(int(name))
    return found


class Peer:
    """A device, registered memory, and one queue pair at a time."""

    def open(
        self, address: str, memory_bytes: int, device: str = "rxe0", send_queue: int = 64, receive_queue: int = 512
    ) -> Answer:
        self.context = Context(name=device)
        self.mtu = self.context.query_port(PORT).active_mtu
        self.gid = gid_of(address)
        self.gid_index = self._find_gid()
        self.domain = PD(self.context)
        self.memory = np.frombuffer(mmap.mmap(-1, memory_bytes), dtype=np.uint8)
        self.region = MR(self.domain, memory_bytes, ACCESS, address=self.memory.ctypes.data)
        before = event_descriptors()
        self.channel = CompChannel(self.context)
        # pyverbs waits on the channel without a limit and does not say which descriptor it is.
        (self.channel_descriptor,) = event_descriptors() - before
        self.completions = CQ(self.context, send_queue + receive_queue, None, self.channel)
        self.completions.req_notify()
        self.capacity = QPCap(max_send_wr=send_queue, max_recv_wr=receive_queue, max_send_sge=1, max_recv_sge=1)
        self.queue: QP | None = None
        return {
            "gid": self.gid, "gid_index": self.gid_index, "mtu_bytes": 128 << self.mtu,
            "memory_address": self.memory.ctypes.data, "rkey": self.region.rkey, **self.pair(),
        }  # fmt: skip

    def _find_gid(self) -> int:
        folder = Path(f"/sys/class/infiniband/{self.context.name}/ports/{PORT}")
        for entry in (folder / "gids").iterdir():
            kind = folder / "gid_attrs" / "types" / entry.name
            # Places that are empty have no type to read.
            if entry.read_text().strip() == self.gid and kind.read_text().strip() == "RoCE v2":
                return int(entry.name)
        raise ValueError(f"{self.context.name} has no RoCE v2 GID {self.gid}")

    def pair(self, psn: int | None = None) -> Answer:
        if self.queue is not None:
            self.queue.close()
        while self.completions.poll(16)[0]:
            pass
        self.psn = random.getrandbits(24) if psn is None else psn
        how = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.completions, rcq=self.completions, cap=self.capacity)
        # With attributes here too, pyverbs would move it to INIT without any access from the other end.
        self.queue = QP(self.domain, how)
        return {"qpn": self.queue.qp_num, "psn": self.psn}

    def connect(
        self,
        qpn: int,
        psn: int,
        gid: str,
        mtu_bytes: int = 0,
        timeout: int = 18,
        retry_count: int = 7,
        rnr_retry: int = 7,
        rnr_timer: int = 12,
        traffic_class: int = 0,
        flow_label: int = 0,
        hop_limit: int = 64,
        reads: int = 1,
    ) -> Answer:
        route = GlobalRoute(
            dgid=GID(gid),
            flow_label=flow_label,
            sgid_index=self.gid_index,
            hop_limit=hop_limit,
            traffic_class=traffic_class,
        )
        attributes = QPAttr(port_num=PORT)
        attributes.qp_access_flags = ACCESS
        attributes.dest_qp_num, attributes.rq_psn, attributes.sq_psn = qpn, psn, self.psn
        attributes.path_mtu = mtu_bytes.bit_length() - 8 if mtu_bytes else self.mtu
        attributes.timeout, attributes.retry_cnt, attributes.rnr_retry = timeout, retry_count, rnr_retry
        attributes.min_rnr_timer = rnr_timer
        attributes.max_rd_atomic = attributes.max_dest_rd_atomic = reads
        attributes.ah_attr = AHAttr(gr=route, is_global=1, port_num=PORT)
        self._queue().to_rts(attributes)
        return {}

    def _queue(self) -> QP:
        if self.queue is None:
            raise ValueError("open comes first")
        return self.queue

    def _part(self, offset: int, size_bytes: int) -> Any:
        if offset < 0 or size_bytes < 0 or offset + size_bytes > len(self.memory):
            raise ValueError(f"{size_bytes} B at {offset} do not lie in {len(self.memory)} B of memory")
        return self.memory[offset : offset + size_bytes]

    def fill(self, seed: int, size_bytes: int, offset: int = 0, start: int = 0) -> Answer:
        self._part(offset, size_bytes)[:] = pattern(seed, size_bytes, start)
        return {}

    def clear(self, size_bytes: int, offset: int = 0) -> Answer:
        self._part(offset, size_bytes)[:] = 0
        return {}

    def verify(self, seed: int, size_bytes: int, offset: int = 0, start: int = 0) -> Answer:
        wrong = np.flatnonzero(self._part(offset, size_bytes) != pattern(seed, size_bytes, start))
        return {"same": not len(wrong), "first_wrong": offset + int(wrong[0]) if len(wrong) else None}

    def checksum(self, size_bytes: int, offset: int = 0) -> Answer:
        return {"crc32": zlib.crc32(self._part(offset, size_bytes))}

    def _piece(self, offset: int, size_bytes: int) -> dict[str, Any]:
        self._part(offset, size_bytes)
        # pyverbs refuses receives without a piece: one of no bytes is as good.
        place = SGE(addr=self.memory.ctypes.data + offset, length=size_bytes, lkey=self.region.lkey)
        return {"num_sge": 1, "sg": [place]}

    def receive(self, size_bytes: int, offset: int = 0, id: int = 0, count: int = 1) -> Answer:
        for number in range(count):
            piece = self._piece(offset + number * size_bytes, size_bytes)
            self._queue().post_recv(RecvWR(wr_id=id + number, **piece))
        return {}

    def post(
        self,
        verb: str,
        size_bytes: int,
        offset: int = 0,
        id: int = 0,
        remote_address: int = 0,
        rkey: int = 0,
        immediate: int = 0,
        signaled: bool = True,
        solicited: bool = False,
        fence: bool = False,
    ) -> Answer:
        flags = signaled * e.IBV_SEND_SIGNALED | solicited * e.IBV_SEND_SOLICITED | fence * e.IBV_SEND_FENCE
        piece = self._piece(offset, size_bytes)
        request = SendWR(wr_id=id, opcode=VERBS[verb], imm_data=socket.htonl(immediate), send_flags=flags, **piece)
        if verb in ("write", "write_imm", "read"):
            request.set_wr_rdma(rkey, remote_address)
        self._queue().post_send(request)
        return {}

    def poll(self, count: int = 1, wait_s: float = 10) -> Answer:
        until = time.monotonic() + wait_s
        found: list[Answer] = []
        waiting = select.poll()
        waiting.register(self.channel_descriptor, select.POLLIN)
        while True:
            number, completions = self.completions.poll(count - len(found))
            found += [self._described(each) for each in completions[:number]]
            left_s = until - time.monotonic()
            if len(found) >= count or left_s <= 0:
                return {"completions": found}
            # A completion between that poll and the last request for an event has already raised an event.
            if not number and waiting.poll(left_s * 1000):
                self.channel.get_cq_event(self.completions)
                self.completions.ack_events(1)
                self.completions.req_notify()

    def _described(self, completion: Any) -> Answer:
        immediate = socket.ntohl(completion.imm_data) if completion.wc_flags & e.IBV_WC_WITH_IMM else None
        return {
            "id": completion.wr_id, "status": completion.status, "opcode": completion.opcode,
            "size_bytes": completion.byte_len, "immediate": immediate, "vendor": completion.vendor_err,
        }  # fmt: skip

    def status(self) -> Answer:
        attributes, _ = self._queue().query(e.IBV_QP_STATE | e.IBV_QP_SQ_PSN | e.IBV_QP_RQ_PSN)
        return {"state": attributes.qp_state, "send_psn": attributes.sq_psn, "receive_psn": attributes.rq_psn}


COMMANDS = {
    "open", "pair", "connect", "fill", "clear", "verify", "checksum", "receive", "post", "poll", "status",
}  # fmt: skip


def main() -> int:
    peer = Peer()
    for line in sys.stdin:
        answer: Answer
        try:
            words = json.loads(line)
            what = words.pop("do")
            if what == "leave":
                return 0
            if what not in COMMANDS:
                raise ValueError(f"cannot do {what!r}: {', '.join(sorted(COMMANDS))}, leave")
            answer = {"ok": True, **getattr(peer, what)(**words)}
        except (PyverbsError, ValueError, TypeError, KeyError, AttributeError, OSError) as error:
            answer = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
