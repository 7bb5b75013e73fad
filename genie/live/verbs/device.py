"""An opened RDMA device in pyverbs: memory, completion queue and the queue pairs to peers.

Work requests are reused: posting copies them. pyverbs 44 cannot unlink a request from the next one. So they stay linked
in one chain, and a list of n is posted from the n-th last on.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import select
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from genie.live.verbs.gids import GidEntry
from genie.live.verbs.library import Pyverbs
from genie.live.verbs.ports import INFINIBAND, PortInfo
from genie.live.verbs.queues import WorkRequest

HUGE_PAGE_BYTES = 2 << 20
MAP_HUGETLB = 0x40000  # linux/mman.h; Python 3.11 does not name it
LIST_MAX = 32  # work requests posted at once
POLL_MAX = 64  # completions polled at once
HOP_LIMIT = 255
MTU_CODES = {256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}  # ibv_mtu
MTU_BYTES = {code: size for size, code in MTU_CODES.items()}


class DeviceError(Exception):
    """A refusal by the device or the kernel: a phrase."""


class Memory:
    """Page-aligned memory outside Python's heap, in huge pages if asked for."""

    def __init__(self, size_bytes: int, *, huge_pages: bool) -> None:
        page = HUGE_PAGE_BYTES if huge_pages else mmap.PAGESIZE
        self.size_bytes = -(-size_bytes // page) * page
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (MAP_HUGETLB if huge_pages else 0)
        try:
            self.pages = mmap.mmap(-1, self.size_bytes, flags=flags)
        except OSError as error:
            count = self.size_bytes // page
            what = f"{count} huge pages of 2 MiB: {error.strerror}; sysctl vm.nr_hugepages, or leave huge pages out"
            raise DeviceError(f"no {what if huge_pages else f'{self.size_bytes} bytes of memory'}") from error
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.pages))


class Device:
    """One open port of a device, with one completion queue for all of a rank's queue pairs."""

    def __init__(self, library: Pyverbs, port: PortInfo) -> None:
        self._library = library
        self.port = port
        self.error_type: type[Exception] = library.pyverbs_error.PyverbsError
        try:
            self.context = library.device.Context(name=port.port.device)
            attributes = self.context.query_port(port.port.number)
            limits = self.context.query_device()
        except self.error_type as error:
            raise DeviceError(f"{port.name} cannot be opened: {error}") from error
        self.active_mtu_bytes = MTU_BYTES.get(attributes.active_mtu, 256)
        self.message_max_bytes = int(attributes.max_msg_sz)
        self.work_requests_max = int(limits.max_qp_wr)
        self.completions_max = int(limits.max_cqe)
        self.queue_pairs_max = int(limits.max_qp)

    def take_memory(self, size_bytes: int, *, huge_pages: bool) -> None:
        """Register memory that peers may write to. Raise DeviceError."""
        self.memory = Memory(size_bytes, huge_pages=huge_pages)
        enums = self._library.enums
        access = enums.IBV_ACCESS_LOCAL_WRITE | enums.IBV_ACCESS_REMOTE_WRITE
        try:
            self._domain = self._library.pd.PD(self.context)
            self._region = self._library.mr.MR(
                self._domain, self.memory.size_bytes, access, address=self.memory.address
            )
        except self.error_type as error:
            raise DeviceError(
                f"{self.port.name} does not register {self.memory.size_bytes} bytes: {error}; see ulimit -l"
            ) from error
        self.rkey, self._lkey = int(self._region.rkey), int(self._region.lkey)

    def make_completion_queue(self, entries: int, *, channel: bool) -> None:
        """Make the completion queue. `channel`: with it, wait() can sleep until a completion. Raise DeviceError."""
        try:
            before = _event_descriptors()
            self._channel: Any = self._library.cq.CompChannel(self.context) if channel else None
            self._descriptor = next(iter(_event_descriptors() - before), -1)
            self.completions = self._library.cq.CQ(self.context, entries, None, self._channel, 0)
        except self.error_type as error:
            raise DeviceError(f"{self.port.name} gives no completion queue of {entries} entries: {error}") from error
        if channel and self._descriptor < 0:
            raise DeviceError(f"{self.port.name}: its completion channel is not among this process's open files")
        if channel:
            fcntl.fcntl(self._descriptor, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
        self._armed = False

    def make_requests(self) -> None:
        """Make the work requests that all queue pairs share."""
        wr, enums, peer_memory = self._library.wr, self._library.enums, self.memory.address
        self._elements = [wr.SGE(peer_memory, 0, self._lkey) for _ in range(LIST_MAX)]
        self._sends: list[Any] = []
        for element in reversed(self._elements):
            following = {"next_wr": self._sends[0]} if self._sends else {}
            request = wr.SendWR(
                opcode=enums.IBV_WR_RDMA_WRITE_WITH_IMM, num_sge=1, sg=[element], send_flags=0, **following
            )
            request.sg_list = element
            self._sends.insert(0, request)
        self._receives: list[Any] = []
        for element in self._elements:
            following = {"next_wr": self._receives[0]} if self._receives else {}
            receive = wr.RecvWR(num_sge=1, sg=[element], **following)
            receive.num_sge = 0  # the data goes to the sender's address, but pyverbs requires an element
            self._receives.insert(0, receive)
        self._signaled = int(enums.IBV_SEND_SIGNALED)

    def make_queue_pair(self, send_depth: int, receive_depth: int) -> Any:
        """Return a queue pair that peers may write to and that can take receives. Raise DeviceError."""
        qp, enums = self._library.qp, self._library.enums
        capacity = qp.QPCap(max_send_wr=send_depth, max_recv_wr=receive_depth, max_send_sge=1, max_recv_sge=1)
        wanted = qp.QPInitAttr(qp_type=enums.IBV_QPT_RC, scq=self.completions, rcq=self.completions, cap=capacity)
        try:
            # Made without attributes: with them it would get no access rights, and could not be modified any more.
            queue_pair = qp.QP(self._domain, wanted)
            attributes = qp.QPAttr()
            attributes.port_num = self.port.port.number
            attributes.qp_access_flags = enums.IBV_ACCESS_LOCAL_WRITE | enums.IBV_ACCESS_REMOTE_WRITE
            queue_pair.to_init(attributes)
        except self.error_type as error:
            raise DeviceError(f"{self.port.name} gives no queue pair: {error}") from error
        return queue_pair

    def path_to(self, gid: str, lid: int, own: GidEntry | None, service_level: int, traffic_class: int) -> Any:
        """Return the address handle's attributes of a peer: by GID where packets have a global header, else by LID."""
        addr = self._library.addr
        number = self.port.port.number
        if self.port.link_layer == INFINIBAND and (own is None or not gid):
            return addr.AHAttr(dlid=lid, sl=service_level, port_num=number)
        assert own is not None
        route = addr.GlobalRoute(
            dgid=addr.GID(gid), sgid_index=own.index, hop_limit=HOP_LIMIT, traffic_class=traffic_class
        )
        return addr.AHAttr(dlid=lid, gr=route, is_global=1, sl=service_level, port_num=number)

    def connect(self, queue_pair: Any, path: Any, **attributes: int) -> None:
        """Connect to the peer's queue pair. `attributes`: of ibv_qp_attr, by its names. Raise DeviceError."""
        wanted = self._library.qp.QPAttr()
        wanted.port_num = self.port.port.number
        wanted.ah_attr = path
        wanted.max_rd_atomic = wanted.max_dest_rd_atomic = 1
        for name, value in attributes.items():
            setattr(wanted, name, value)
        try:
            queue_pair.to_rtr(wanted)
            queue_pair.to_rts(wanted)
        except self.error_type as error:
            raise DeviceError(f"{self.port.name} does not connect: {error}") from error

    def post(self, queue_pair: Any, requests: Sequence[WorkRequest], source: int, remote: int, rkey: int) -> None:
        """Post writes with immediate data, as one linked list of at most LIST_MAX. Raise DeviceError."""
        first = LIST_MAX - len(requests)
        for at, (sequence, piece, signaled) in enumerate(requests, start=first):
            request, element = self._sends[at], self._elements[at]
            element.addr = source + piece.source_bytes
            element.length = piece.size_bytes
            request.num_sge = 1 if piece.size_bytes else 0
            request.wr_id = sequence
            request.imm_data = socket.htonl(piece.message.tag)
            request.send_flags = self._signaled if signaled else 0
            request.set_wr_rdma(rkey, remote + piece.offset_bytes)
        try:
            queue_pair.post_send(self._sends[first])
        except self.error_type as error:
            raise DeviceError(f"{self.port.name} does not take {len(requests)} work requests: {error}") from error

    def post_receives(self, queue_pair: Any, count: int) -> None:
        """Post `count` receives without memory of their own. Raise DeviceError."""
        try:
            while count > 0:
                now = min(count, LIST_MAX)
                queue_pair.post_recv(self._receives[LIST_MAX - now])
                count -= now
        except self.error_type as error:
            raise DeviceError(f"{self.port.name} does not take receives: {error}") from error

    def poll(self) -> list[Any]:
        """Return the next completions, at most POLL_MAX."""
        return self.completions.poll(POLL_MAX)[1]  # type: ignore[no-any-return]

    def wait(self, timeout_s: float) -> list[Any]:
        """Sleep until a completion or the time limit; return completions from before the request for an event."""
        if not self._armed:
            self.completions.req_notify()
            self._armed = True
            found = self.poll()  # completions before the request raise no event
            if found:
                return found
        if select.select([self._descriptor], [], [], timeout_s)[0]:
            self._channel.get_cq_event(self.completions)
            self.completions.ack_events(1)
            self._armed = False
        return []

    def close(self) -> None:
        """Close the device, with everything made on it."""
        self.context.close()


def _event_descriptors() -> set[int]:
    """Return descriptors of this process's completion channels: pyverbs hides them, and a timed sleep needs them."""
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        try:
            if "infinibandevent" in os.readlink(path):
                found.add(int(path.name))
        except OSError:
            continue
    return found
