"""softroce beside the guests: an end that takes the words that `guest_peer.py` takes, and one in a guest to meet it."""

from __future__ import annotations

import queue
import shutil
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import genie_core
import numpy as np
from cable import inside
from rxe.guest import SHARE, Guest, gid_of
from rxe.guest_pattern import pattern
from rxe.network import HOST, ipv4, ipv6
from rxe.peer import Completion, Peer
from rxe.rig import Rig

HERE = Path(__file__).resolve().parent
GUEST_PROGRAM = "softroce_guest.py"
RKEY = 0x600D
MTU = 1024
MEMORY_BYTES = 1 << 21
WORKING_S = 0.002  # between looks at what it is asked to do
# As long as a test: what is sent again then is sent again for loss, not for a slow machine.
PATIENT_PS = 17 * 10**12
PATIENT_TIMEOUT = 22  # of libibverbs: 4.096 us * 2^22 = 17 s
# As libibverbs numbers them (ibv_wc_status).
SUCCESS, FLUSHED, BAD_RESPONSE, INVALID_REQUEST, REMOTE_ACCESS = 0, 5, 7, 9, 10
REMOTE_OPERATION, RETRIES_EXCEEDED, RNR_RETRIES_EXCEEDED = 11, 12, 13
STATUSES = {
    "ok": SUCCESS, "flushed": FLUSHED, "bad response": BAD_RESPONSE, "invalid request": INVALID_REQUEST,
    "remote access": REMOTE_ACCESS, "remote operation": REMOTE_OPERATION, "retry exceeded": RETRIES_EXCEEDED,
    "RNR retry exceeded": RNR_RETRIES_EXCEEDED,
}  # fmt: skip
SENT, WROTE, READ = 0, 1, 2
RECEIVED, RECEIVED_BY_WRITE = 128, 129
# Counters of softroce where a guest sends more than 64 packets. With so many in flight its requester (rxe of Linux 6.1)
# can miss that it may go on; after its timeout it then sends again what had arrived.
OF_STALLED_GUESTS = ("duplicates",)
VERBS = {"send": SENT, "send_imm": SENT, "write": WROTE, "write_imm": WROTE, "read": READ}
IMMEDIATE = 0x01020304
T = TypeVar("T")
Answer = dict[str, Any]


class SoftEnd:
    """A soft NIC in the rig's namespace, which a thread of its own keeps at work until `close`.

    Args:
        rig: whose host it is.
        v6: with the host's IPv6 address.
        psn: the first that each of its queue pairs sends.
        strict: sees IPv4 headers, and checks ICRCs with the identifications in them.
        offload: segmentation and receive offload of the kernel.
        queue_pairs: how many.
        pair: fields of QueuePairConfig.

    `ask` takes the words of `guest_peer.py`, with `queue_pair` where there are several. Completions of receives have
    the opcode RECEIVED, whatever brought them.
    """

    def __init__(
        self,
        rig: Rig,
        *,
        v6: bool = False,
        psn: int = 0,
        strict: bool = False,
        offload: bool = True,
        queue_pairs: int = 1,
        writable_bytes: int = MEMORY_BYTES,
        **pair: object,
    ) -> None:
        self.address = ipv6(HOST) if v6 else ipv4(HOST)
        self.psn, self.memory_address, self.rkey = psn, 0, RKEY
        config = genie_core.NicConfig()
        config.address, config.rkey, config.offload, config.see_headers = self.address, RKEY, offload, strict
        config.memory_bytes, config.writable_bytes, config.readable_bytes = MEMORY_BYTES, writable_bytes, writable_bytes
        how = genie_core.QueuePairConfig()
        for name, value in {"mtu_bytes": MTU, "reads_max": 4, **pair}.items():
            setattr(how, name, value)
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self.solicited: list[bool] = []  # of each message that has come, whether its sender wanted it noticed
        self._events: list[Completion] = []
        self._posted: dict[int, int] = {}
        self._changed = threading.Condition()
        made: Future[None] = Future()
        namespace = rig.network.namespace
        self._thread = threading.Thread(
            target=inside, args=(namespace, lambda: self._work(config, how, queue_pairs, made)), daemon=True
        )
        self._thread.start()
        made.result(120)
        self.gid = gid_of(self.address)
        self.qpns = [self.nic.qpn(number) for number in range(queue_pairs)]

    def _work(
        self,
        config: genie_core.NicConfig,
        pair: genie_core.QueuePairConfig,
        count: int,
        made: Future[None],
    ) -> None:
        try:
            nic = genie_core.Endpoint(config)
            nic.open()
            for _ in range(count):
                nic.add_queue_pair(pair)
        except Exception as error:
            made.set_exception(error)
            return
        self.nic = nic
        del nic  # a traceback through this frame would keep the port after `close`
        made.set_result(None)
        while True:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                self._hear(self.nic.poll(WORKING_S))
                if self.nic.error:  # then it no longer waits
                    time.sleep(WORKING_S)
                continue
            if job is None:
                return
            work, result = job
            try:
                result.set_result(work())
            except Exception as error:
                result.set_exception(error)

    def _hear(self, events: Sequence[tuple[Any, ...]]) -> None:
        with self._changed:
            for kind, _, handle, status, size, immediate, solicited, _ in events:
                if kind == "receive":
                    self.solicited.append(solicited)
                opcode = self._posted[handle] if kind == "sent" else RECEIVED
                self._events.append(Completion(handle, STATUSES[status], opcode, size, immediate, 0))
            self._changed.notify_all()

    def do(self, work: Callable[[], T], limit_s: float = 60) -> T:
        """Let its thread, in the namespace, do something with `nic`; meanwhile it does nothing else."""
        result: Future[T] = Future()
        self._jobs.put((work, result))
        return result.result(limit_s)

    def connect(self, qpn: int, psn: int, address: str, queue_pair: int = 0) -> None:
        """To a queue pair of another stack."""
        self.do(
            lambda: self.nic.connect(
                queue_pair, address=address, qpn=qpn, first_psn=self.psn, peer_first_psn=psn, foreign=True
            )
        )

    def ask(self, what: str, **words: Any) -> Answer:
        """Do what `guest_peer.py` would."""
        answer: Answer = getattr(self, what)(**words)
        return answer

    def fill(self, seed: int, size_bytes: int, offset: int = 0) -> Answer:
        self.nic.memory[offset : offset + size_bytes] = pattern(seed, size_bytes)
        return {}

    def clear(self, size_bytes: int, offset: int = 0) -> Answer:
        self.nic.memory[offset : offset + size_bytes] = 0
        return {}

    def verify(self, seed: int, size_bytes: int, offset: int = 0) -> Answer:
        wrong = np.flatnonzero(self.nic.memory[offset : offset + size_bytes] != pattern(seed, size_bytes))
        return {"same": not len(wrong), "first_wrong": offset + int(wrong[0]) if len(wrong) else None}

    def checksum(self, size_bytes: int, offset: int = 0) -> Answer:
        return {"crc32": zlib.crc32(self.nic.memory[offset : offset + size_bytes].tobytes())}

    def receive(self, size_bytes: int, offset: int = 0, id: int = 0, count: int = 1, queue_pair: int = 0) -> Answer:
        def post() -> None:
            for number in range(count):
                place = offset + number * size_bytes
                self.nic.post_receive(queue_pair, handle=id + number, address=place, size_bytes=size_bytes)

        self.do(post)
        return {}

    def post(
        self, verb: str, size_bytes: int, offset: int = 0, id: int = 0, queue_pair: int = 0, **words: Any
    ) -> Answer:
        self._posted[id] = VERBS[verb]
        self.do(lambda: self.nic.post_send(queue_pair, verb, size_bytes, handle=id, local_address=offset, **words))
        return {}

    def poll(self, count: int = 1, limit_s: float = 10) -> list[Completion]:
        """The next completions; fewer than `count` when time is up."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._events) >= count, limit_s)
            found, self._events[:] = self._events[:count], self._events[count:]
        return found

    def counters(self) -> dict[str, int]:
        found: dict[str, int] = self.do(self.nic.counters)
        return found

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join(120)
        assert not self._thread.is_alive()
        del self.nic  # its port is free for the next one, whoever still holds this


MakeSoft = Callable[..., SoftEnd]


def open_guest_peers(guests: Sequence[Guest], rig: Rig) -> list[Peer]:
    """Ends in guests that take softroce_guest.py's words too; they take some seconds to load, so all do it at once."""
    assert rig.share is not None
    shutil.copy(HERE / GUEST_PROGRAM, rig.share)
    with mock.patch("rxe.peer.PROGRAM", f"{SHARE}/{GUEST_PROGRAM}"), ThreadPoolExecutor(len(guests)) as pool:
        return list(pool.map(lambda guest: Peer(guest, MEMORY_BYTES), guests))


def meet(soft: SoftEnd, peer: Peer, psn: int | None = None, queue_pair: int = 0, **words: Any) -> None:
    """Connect a queue pair of softroce with a new one of a guest, whose memory becomes zeros; words as in `connect`."""
    family = peer.guest.ipv6 if ":" in soft.address else peer.guest.ipv4
    peer.ask("place", address=family)
    peer.pair(psn)
    peer.ask("clear", size_bytes=MEMORY_BYTES)
    given = {"mtu_bytes": MTU, "reads": 4, "timeout": PATIENT_TIMEOUT, **words}
    peer.connect(soft.qpns[queue_pair], soft.psn, soft.gid, **given)
    soft.connect(peer.qpn, peer.psn, family, queue_pair)


def play(
    source: SoftEnd | Peer, target: SoftEnd | Peer, verb: str, size: int, count: int = 2, limit_s: float = 30
) -> None:
    """`count` messages one after another, with assertions of every completion and every byte at both ends."""
    holder, reader = (target, source) if verb == "read" else (source, target)
    total = size * count
    holder.ask("fill", seed=size + 1, size_bytes=total)
    reader.ask("clear", size_bytes=total + 4096)
    arrives = verb in ("send", "send_imm", "write_imm")
    if arrives:
        target.ask("receive", size_bytes=size if verb.startswith("send") else 0, id=100, count=count)
    for number in range(count):
        words = {} if verb.startswith("send") else {"remote_address": target.memory_address + size * number}
        immediate = {"immediate": IMMEDIATE + number} if verb.endswith("imm") else {}
        place = {"offset": size * number, "id": number, "rkey": target.rkey}
        source.ask("post", verb=verb, size_bytes=size, **place, **words, **immediate)
    done = source.poll(count, limit_s)
    assert [(c.id, c.status, c.opcode) for c in done] == [(number, SUCCESS, VERBS[verb]) for number in range(count)]
    if arrives:
        by_write = isinstance(target, Peer) and verb.startswith("write")
        opcode = RECEIVED_BY_WRITE if by_write else RECEIVED
        immediates = [IMMEDIATE + number if verb.endswith("imm") else None for number in range(count)]
        assert target.poll(count, limit_s) == [
            Completion(100 + number, SUCCESS, opcode, size, each, 0) for number, each in enumerate(immediates)
        ]
    verdict = reader.ask("verify", seed=size + 1, size_bytes=total)
    assert verdict["same"], f"{verb} of {size} B: byte {verdict['first_wrong']} is wrong"
    assert untouched(reader, total, 4096), "something was written behind the message"


def untouched(end: SoftEnd | Peer, offset: int, size_bytes: int) -> bool:
    """Whether a part of memory that was cleared is still so."""
    found = end.ask("checksum", offset=offset, size_bytes=size_bytes)["crc32"]
    return bool(found == zlib.crc32(bytes(size_bytes)))


def assert_undisturbed(counters: dict[str, int], but: tuple[str, ...] = ()) -> None:
    """softroce saw nothing lost, late, twice, wrong or strange, `but` what the test allows."""
    disturbed = (
        "retransmitted", "timeouts", "duplicates", "out_of_sequence", "naks_sent", "naks_received", "rnr_naks_sent",
        "rnr_naks_received", "refused", "bad_icrc", "malformed", "strangers", "bad_pkey", "wrong_rank",
    )  # fmt: skip
    found = {name: counters[name] for name in disturbed if counters[name] and name not in but}
    assert not found, found
